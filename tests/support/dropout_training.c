#include "support/dropout_training.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/golden.h"
#include "support/gpu.h"
#include "train/session.h"
#include "train/trainer.h"

const struct dropout_model dropout_gpt2 = {"gpt2",
                                           {"attn_pdrop", "resid_pdrop", "embd_pdrop", NULL}};
const struct dropout_model dropout_llama = {"llama", {"attention_dropout", NULL}};

void dropout_write_folder(const struct scratch *s, const struct dropout_model *m, double share)
{
    char path[SCRATCH_PATH], *weights;
    size_t n_bytes;
    (void)snprintf(path, sizeof(path), "tests/golden/%s/config.json", m->golden);
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    for (int i = 0; m->keys[i]; i++)
        assert_int_equal(json_object_set_new(config, m->keys[i], json_real(share)), 0);
    char *text = json_dumps(config, 0);
    scratch_write_text(s, "model/config.json", text);
    free(text);
    json_decref(config);
    (void)snprintf(path, sizeof(path), "tests/golden/%s/model.safetensors", m->golden);
    expect_ok(file_read(path, &weights, &n_bytes));
    scratch_write(s, "model/model.safetensors", weights, n_bytes);
    mem_free(weights);
}

void dropout_train_to(const struct scratch *s, const char *device, int last, const char *extra,
                      double *losses)
{
    char path[SCRATCH_PATH], model[SCRATCH_PATH + 32], output[SCRATCH_PATH + 32], steps[64],
        save[64], where[32];
    (void)snprintf(model, sizeof(model), "model_name_or_path=%s", scratch_path(s, "model", path));
    (void)snprintf(output, sizeof(output), "output_dir=%s", scratch_path(s, "out", path));
    (void)snprintf(steps, sizeof(steps), "max_steps=%d", last);
    (void)snprintf(save, sizeof(save), "save_steps=%d", last);
    (void)snprintf(where, sizeof(where), "device=%s", device);
    const char *overrides[] = {model,
                               output,
                               steps,
                               save,
                               extra,
                               where,
                               "max_seq_length=24",
                               "per_device_train_batch_size=2",
                               "gradient_accumulation_steps=2",
                               "learning_rate=1e-3",
                               "lr_scheduler_type=constant",
                               "datasets.0.type=synthetic",
                               "resume_from_checkpoint=auto",
                               "log_format=quiet",
                               "report_to=none"};
    struct config *cfg;
    struct session session;
    struct train_result result;
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&session, cfg,
                           &(struct session_options){.train = true,
                                                     .untimed = true,
                                                     .cache_folder = gpu_cache_folder()}));
    struct run_start start;
    expect_ok(run_start_open(&start, cfg));
    expect_ok(session_data(&session));
    expect_ok(run_start_confirm(&start, &session));
    expect_ok(session_start(&session));
    expect_ok(train_run(&session, &start, &(struct train_options){0}, &result));
    memcpy(losses, result.losses, (size_t)result.n_steps * sizeof(*losses));
    train_result_release(&result);
    run_start_close(&start);
    session_close(&session);
    config_free(cfg);
}

void dropout_train(const struct dropout_model *m, double share, const char *device,
                   const char *extra, double losses[DROPOUT_STEPS])
{
    struct scratch s;
    scratch_init(&s);
    dropout_write_folder(&s, m, share);
    dropout_train_to(&s, device, DROPOUT_STEPS, extra, losses);
    scratch_release(&s);
}
