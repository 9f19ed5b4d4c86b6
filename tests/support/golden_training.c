#include "support/golden_training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/golden.h"
#include "support/gpu.h"
#include "train/session.h"

static int n_steps_taken = N_STEPS;

/* How far weights are moved before the first step, relatively, and which way. */
static struct {
    double most;
    uint64_t key;
} nudge;

void golden_shorten(int n_steps)
{
    n_steps_taken = n_steps >= 1 && n_steps < N_STEPS ? n_steps : (int)N_STEPS;
}

static void copy_rows(void *to, const struct st_tensor *from, int64_t first_row, int64_t n_rows)
{
    size_t row = (size_t)GOLDEN_LENGTH * sizeof(int32_t);
    memcpy(to, (const char *)from->data + (size_t)first_row * row, (size_t)n_rows * row);
}

/* Every weight of the run, which are f32, by up to nudge.most of it. */
static void move_weights(struct session *s)
{
    const struct storage *storage = &s->engine.work.storage;
    for (size_t i = 0; i < storage->entries.n && nudge.most > 0; i++) {
        const struct storage_entry *e = &storage->entries.items[i];
        if (e->kind != MEMORY_WEIGHTS)
            continue;
        float *w = executor_storage_pointer(s->engine.executor, e);
        for (size_t k = 0; k < (size_t)e->n_bytes / sizeof(float); k++) {
            double way = 2.0 * (double)philox(nudge.key, i, k).v[0] / (double)UINT32_MAX - 1.0;
            w[k] = (float)((double)w[k] * (1.0 + nudge.most * way));
        }
    }
}

static void run_section(struct session *s, const char *name)
{
    expect_ok(engine_run(&s->engine, s->train, name));
}

static void set_batch(struct session *s, const struct st_reader *golden, int64_t first, int64_t n)
{
    void *tokens = engine_input(&s->engine, s->train, "tokens");
    void *targets = engine_input(&s->engine, s->train, "targets");
    copy_rows(tokens, st_reader_find(golden, "tokens"), first, n);
    copy_rows(targets, st_reader_find(golden, "targets"), first, n);
}

/* 20 steps of the golden recipe on the golden batch, in `n_micro` micro-batches. */
void train_golden(const char *device, const char *name, int n_micro, const char *extra1,
                  const char *extra2, struct trained *out)
{
    char folder[256], model[300], batch[64], accumulation[64], file[300], where[32];
    (void)snprintf(folder, sizeof(folder), "tests/golden/%s", name);
    (void)snprintf(model, sizeof(model), "model_name_or_path=%s", folder);
    (void)snprintf(batch, sizeof(batch), "per_device_train_batch_size=%d", GOLDEN_BATCH / n_micro);
    (void)snprintf(accumulation, sizeof(accumulation), "gradient_accumulation_steps=%d", n_micro);
    (void)snprintf(file, sizeof(file), "%s/golden.safetensors", folder);
    (void)snprintf(where, sizeof(where), "device=%s", device);
    const char *overrides[] = {model,
                               where,
                               batch,
                               accumulation,
                               "max_seq_length=24",
                               "learning_rate=3e-3",
                               "adam_beta2=0.95",
                               "weight_decay=0.1",
                               "max_grad_norm=1.0",
                               extra1 ? extra1 : "seed=1",
                               extra2 ? extra2 : "data_seed=1"};
    struct config *cfg;
    struct session s;
    struct st_reader *golden;
    *out = (struct trained){0};
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg,
                           &(struct session_options){.train = true,
                                                     .untimed = true,
                                                     .cache_folder = gpu_cache_folder()}));
    expect_ok(session_start(&s));
    move_weights(&s);
    expect_ok(st_reader_open_file(&golden, file));

    struct engine *e = &s.engine;
    for (int step = 0; step < n_steps_taken; step++) {
        *(float *)engine_input(e, s.train, LOSS_SEED) = 1.0f / (GOLDEN_BATCH * GOLDEN_LENGTH);
        *(float *)engine_input(e, s.train, "lr") = 3e-3f;
        int32_t *number = engine_input(e, s.train, "step");
        if (number) /* with loss scaling the program counts by itself */
            *number = step + 1;
        if (n_micro == 1) {
            set_batch(&s, golden, 0, GOLDEN_BATCH);
            run_section(&s, "step");
        } else {
            run_section(&s, "begin");
            for (int i = 0; i < n_micro; i++) {
                set_batch(&s, golden, i * (GOLDEN_BATCH / n_micro), GOLDEN_BATCH / n_micro);
                run_section(&s, i + 1 < n_micro ? "micro" : "last");
            }
        }
        float loss = *(const float *)engine_output(e, s.train, "loss");
        float count = *(const float *)engine_output(e, s.train, "count");
        out->losses[step] = (double)loss / (double)count;
        out->norms[step] = (double)*(const float *)engine_output(e, s.train, "grad_norm");
    }
    for (int t = 0; t < TIER_COUNT; t++) {
        out->predicted[t] = e->work.n_bytes[t];
        out->measured[t] = executor_high_water(e->executor, (enum tier)t);
    }
    st_reader_close(golden);
    session_close(&s);
    config_free(cfg);
}

void golden_losses(const char *name, double *losses)
{
    char file[300];
    struct st_reader *golden;
    (void)snprintf(file, sizeof(file), "tests/golden/%s/golden.safetensors", name);
    expect_ok(st_reader_open_file(&golden, file));
    memcpy(losses, st_reader_find(golden, "adamw_losses")->data, N_STEPS * sizeof(double));
    st_reader_close(golden);
}

int golden_steps_alike(const char *name)
{
    char file[300];
    struct st_reader *golden;
    (void)snprintf(file, sizeof(file), "tests/golden/%s/golden.safetensors", name);
    expect_ok(st_reader_open_file(&golden, file));
    int n = *(const int32_t *)st_reader_find(golden, "adamw_steps_alike")->data;
    st_reader_close(golden);
    return n;
}

/* Relative, but below one nat absolute: the models learn their one batch by heart, and a rounding
 * shows the more the less of the loss is left. */
static double error_of(double got, double want)
{
    return (got - want) / fmax(want, 1.0);
}

/* How far f32 runs have gone apart by each step, from weights that are moved by up to so much. */
static void measure_spread(const char *name, double most, double *spread)
{
    enum { RUNS = 8 };
    struct trained t;
    double want[N_STEPS];
    golden_losses(name, want);
    memset(spread, 0, N_STEPS * sizeof(*spread));
    nudge.most = most;
    for (nudge.key = 0; nudge.key < RUNS; nudge.key++) {
        train_golden("cpu", name, 1, NULL, NULL, &t);
        for (int i = 0; i < n_steps_taken; i++)
            spread[i] = fmax(spread[i], fabs(error_of(t.losses[i], want[i])));
    }
    nudge.most = 0;
    for (int i = 1; i < n_steps_taken; i++)
        spread[i] = fmax(spread[i], spread[i - 1]);
}

static void expect_step(const char *name, int step, double got, double want, double tolerance)
{
    double error = error_of(got, want);
    if (!(fabs(error) < tolerance))
        fail_msg("%s, step %d: loss %.9g, PyTorch %.9g (relative error %.2g of %.2g)", name, step,
                 got, want, error, tolerance);
}

void expect_near(const char *name, const double *got, const double *want, double tolerance)
{
    expect_first_near(name, N_STEPS, got, want, tolerance);
}

void expect_first_near(const char *name, int n, const double *got, const double *want,
                       double tolerance)
{
    for (int i = 0; i < n && i < n_steps_taken; i++)
        expect_step(name, i + 1, got[i], want[i], tolerance);
}

void expect_bf16_near(const char *name, const double *got, const double *want)
{
    const double rounding = 0x1p-8; /* of a weight and of what it is multiplied with, together */
    double spread[N_STEPS];
    if (!golden_facts_of(name).has_experts) {
        expect_near(name, got, want, 2e-2);
        return;
    }
    measure_spread(name, rounding, spread);
    for (int i = 0; i < n_steps_taken; i++)
        expect_step(name, i + 1, got[i], want[i], 5e-3 + 3 * spread[i]);
}
