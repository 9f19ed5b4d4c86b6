#include "train/probe.h"

#include <math.h>
#include <string.h>

static int64_t each_bytes(const struct batch *b)
{
    return align_up((int64_t)batch_bytes(b), BATCH_ALIGN);
}

int64_t probe_bytes(const struct session *s)
{
    struct loader_options o = session_loader_options(s, false);
    int64_t losses = 2 * (int64_t)sizeof(double);
    return s->config->probe_batches * (each_bytes(&o.batch) + losses);
}

struct batch probe_batch(const struct session *s, int64_t i)
{
    struct batch b = session_loader_options(s, false).batch;
    char *memory = engine_reserve(&s->engine, PROBE_NAME, NULL);
    batch_place(&b, memory + i * each_bytes(&b));
    return b;
}

double *probe_losses(const struct session *s)
{
    struct batch end = probe_batch(s, s->config->probe_batches);
    return (double *)end.items[0].tensor.data;
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum status read_batch(struct session *s, int64_t i)
{
    struct batch batch, to = probe_batch(s, i);
    TRY(loader_next(s->loader, &batch));
    for (int k = 0; k < batch.n_items; k++)
        memcpy(to.items[k].tensor.data, batch.items[k].tensor.data,
               (size_t)tensor_bytes(&to.items[k].tensor));
    int64_t n_valid = batch.n_valid;
    loader_release_slot(s->loader);
    if (n_valid > 0)
        return OK;
    return FAIL(ERR_DATA,
                "%s: batch %lld of the probe_batches has no label: choose another data_seed, or "
                "data with labels in every batch",
                config_where(s->config, "probe_batches"), (long long)i + 1);
}

static enum status read_last(struct session *s, struct loader_cursor at)
{
    int64_t n = s->config->probe_batches, n_batches = loader_n_batches(s->loader);
    if (n_batches < n)
        return FAIL(ERR_DATA, "%s: probe_batches is %lld, and the training data has %lld batches",
                    config_where(s->config, "probe_batches"), (long long)n, (long long)n_batches);
    at.epoch = 0;
    at.next_sample = (n_batches - n) * s->config->per_device_train_batch_size;
    TRY(loader_set_cursor(s->loader, &at));
    TRY(session_start_loader(s, false));
    enum status status = OK;
    for (int64_t i = 0; i < n && status == OK; i++)
        status = read_batch(s, i);
    loader_stop(s->loader);
    return status;
}

enum status probe_fill(struct session *s)
{
    struct loader_cursor cursor;
    if (!engine_reserve(&s->engine, PROBE_NAME, NULL))
        return OK;
    loader_get_cursor(s->loader, &cursor);
    TRY(read_last(s, cursor));
    return loader_set_cursor(s->loader, &cursor);
}

/* ---- losses ---------------------------------------------------------------------------------- */

enum status probe_run(struct session *s, double *losses)
{
    const struct model_graph *io = &s->probe->io;
    for (int64_t i = 0; i < s->config->probe_batches; i++) {
        struct batch batch = probe_batch(s, i);
        double sums[MODEL_MOST_SUMS];
        feed_copy(&s->probe_feed, &batch, 0);
        TRY(engine_run(&s->engine, s->probe, "forward"));
        for (int k = 0; k < io->n_sums; k++)
            sums[k] = (double)*(const float *)engine_output(&s->engine, s->probe, io->sums[k].name);
        losses[i] = losses_total(io, sums);
    }
    return OK;
}

struct probe_difference probe_compare(const double *before, const double *after, int64_t n)
{
    struct probe_difference d = {0};
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        d.before += before[i] / (double)n;
        d.mean += (after[i] - before[i]) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        double off = after[i] - before[i] - d.mean;
        squares += off * off;
    }
    d.error = sqrt(squares / (double)(n - 1) / (double)n);
    return d;
}
