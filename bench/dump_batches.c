/* dump_batches.c: the batches a training run will see, in a file, so that another program can train
 * on the same ones.
 *
 *     bench_dump_batches OUT CONFIG [key=value...]
 *
 * OUT gets the tensors of each micro-step of max_steps, in the order of the batch: int32 tokens
 * [batch, seq_len] and then int32 targets of the same shape. It is what the loader hands to the
 * trainer, by the same code.
 */
#include <stdio.h>

#include "base/file.h"
#include "train/session.h"

enum { RING_ALIGN = 64 };

static enum status write_batches(struct session *s, struct file_out *file)
{
    const struct config *cfg = s->config;
    int64_t n_batches = cfg->max_steps * cfg->gradient_accumulation_steps;
    for (int64_t i = 0; i < n_batches; i++) {
        struct batch batch;
        TRY(loader_next(s->loader, &batch));
        for (int k = 0; k < batch.n_items; k++) {
            const struct tensor *t = &batch.items[k].tensor;
            TRY(file_out_write(file, t->data, (size_t)tensor_bytes(t)));
        }
        loader_release_slot(s->loader);
    }
    return OK;
}

static enum status dump(struct session *s, const char *path)
{
    struct file_out file = {.fd = -1};
    const struct loader_options loader = session_loader_options(s, false);
    size_t n_ring = loader_ring_bytes(&loader);
    uint8_t *memory = NULL;
    enum status status;
    if (s->config->max_steps < 1)
        return FAIL(ERR_CONFIG, "how many batches? set max_steps");
    TRY_GOTO(session_data(s), out);
    TRY_GOTO(mem_try_array(&memory, n_ring + RING_ALIGN, 1), out);
    TRY_GOTO(file_out_open(&file, path), out);
    TRY_GOTO(loader_start(s->loader, memory + RING_ALIGN - (uintptr_t)memory % RING_ALIGN, n_ring),
             out);
    TRY_GOTO(write_batches(s, &file), out);
    status = file_out_close(&file);
out:
    if (s->loader)
        loader_stop(s->loader);
    if (status != OK && file.fd >= 0)
        (void)!file_out_close(&file);
    mem_free(memory);
    return status;
}

int main(int argc, char **argv)
{
    struct config *cfg = NULL;
    struct session s = {0};
    enum status status =
        argc < 3 ? FAIL(ERR_USAGE, "usage: bench_dump_batches OUT CONFIG [key=value...]")
                 : config_load(&cfg, argv[2], (const char *const *)argv + 3, (size_t)argc - 3);
    if (status == OK)
        status = config_resolve(cfg, 1);
    if (status == OK)
        status = session_open(&s, cfg, &(struct session_options){.train = true});
    if (status == OK) {
        status = dump(&s, argv[1]);
        session_close(&s);
    }
    config_free(cfg);
    if (status != OK)
        (void)fprintf(stderr, "error: %s\n", status_message());
    return status_exit_code(status);
}
