/* Whole training steps against PyTorch: config to program to losses, on the models of tests/golden.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/golden.h"
#include "train/session.h"

enum { N_STEPS = 20 };

struct trained {
    double losses[N_STEPS], norms[N_STEPS];
    int64_t predicted[TIER_COUNT], measured[TIER_COUNT];
};

static void copy_rows(void *to, const struct st_tensor *from, int64_t first_row, int64_t n_rows)
{
    size_t row = (size_t)GOLDEN_LENGTH * sizeof(int32_t);
    memcpy(to, (const char *)from->data + (size_t)first_row * row, (size_t)n_rows * row);
}

static void run_section(struct session *s, const char *name)
{
    expect_ok(executor_run(s->executor, s->train_program, name));
}

static void set_batch(struct session *s, const struct st_reader *golden, int64_t first, int64_t n)
{
    int h = s->train_program;
    copy_rows(executor_input(s->executor, h, "tokens"), st_reader_find(golden, "tokens"), first, n);
    copy_rows(executor_input(s->executor, h, "targets"), st_reader_find(golden, "targets"), first,
              n);
}

/* 20 steps of the golden recipe on the golden batch, in `n_micro` micro-batches. */
static void train(const char *name, int n_micro, const char *extra1, const char *extra2,
                  struct trained *out)
{
    char folder[256], model[300], batch[64], accumulation[64], file[300];
    (void)snprintf(folder, sizeof(folder), "tests/golden/%s", name);
    (void)snprintf(model, sizeof(model), "model_name_or_path=%s", folder);
    (void)snprintf(batch, sizeof(batch), "per_device_train_batch_size=%d", GOLDEN_BATCH / n_micro);
    (void)snprintf(accumulation, sizeof(accumulation), "gradient_accumulation_steps=%d", n_micro);
    (void)snprintf(file, sizeof(file), "%s/golden.safetensors", folder);
    const char *overrides[] = {model,
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
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true}));
    expect_ok(session_start(&s));
    expect_ok(st_reader_open_file(&golden, file));

    int h = s.train_program;
    for (int step = 0; step < N_STEPS; step++) {
        *(float *)executor_input(s.executor, h, LOSS_SEED) = 1.0f / (GOLDEN_BATCH * GOLDEN_LENGTH);
        *(float *)executor_input(s.executor, h, "lr") = 3e-3f;
        *(int32_t *)executor_input(s.executor, h, "step") = step + 1;
        if (n_micro == 1) {
            set_batch(&s, golden, 0, GOLDEN_BATCH);
            run_section(&s, "step");
        } else {
            run_section(&s, "begin");
            for (int i = 0; i < n_micro; i++) {
                set_batch(&s, golden, i * (GOLDEN_BATCH / n_micro), GOLDEN_BATCH / n_micro);
                run_section(&s, "micro");
            }
            run_section(&s, "update");
        }
        float loss = *(const float *)executor_output(s.executor, h, "loss");
        float count = *(const float *)executor_output(s.executor, h, "count");
        out->losses[step] = (double)loss / (double)count;
        out->norms[step] = (double)*(const float *)executor_output(s.executor, h, "grad_norm");
    }
    for (int t = 0; t < TIER_COUNT; t++) {
        out->predicted[t] = s.pipeline.n_bytes[t];
        out->measured[t] = executor_high_water(s.executor, (enum tier)t);
    }
    st_reader_close(golden);
    session_close(&s);
    config_free(cfg);
}

static void golden_losses(const char *name, double *losses)
{
    char file[300];
    struct st_reader *golden;
    (void)snprintf(file, sizeof(file), "tests/golden/%s/golden.safetensors", name);
    expect_ok(st_reader_open_file(&golden, file));
    memcpy(losses, st_reader_find(golden, "adamw_losses")->data, N_STEPS * sizeof(double));
    st_reader_close(golden);
}

static void expect_near(const char *name, const double *got, const double *want, double tolerance)
{
    for (int i = 0; i < N_STEPS; i++) {
        double error = (got[i] - want[i]) / want[i];
        if (!(error < tolerance && error > -tolerance))
            fail_msg("%s, step %d: loss %.9g, PyTorch %.9g (relative error %.2g)", name, i + 1,
                     got[i], want[i], error);
    }
}

static void twenty_steps_give_the_losses_of_pytorch(void **state)
{
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        struct trained t;
        double want[N_STEPS];
        train(*name, 1, NULL, NULL, &t);
        golden_losses(*name, want);
        expect_near(*name, t.losses, want, 1e-5);
    }
}

static void micro_batches_give_the_losses_of_the_whole_batch(void **state)
{
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        struct trained t;
        double want[N_STEPS];
        train(*name, 3, NULL, NULL, &t);
        golden_losses(*name, want);
        expect_near(*name, t.losses, want, 1e-5);
    }
}

static void the_high_water_mark_is_the_prediction(void **state)
{
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        struct trained t;
        for (int n_micro = 1; n_micro <= 3; n_micro += 2) {
            train(*name, n_micro, "gradient_checkpointing=true", NULL, &t);
            for (int tier = 0; tier < TIER_COUNT; tier++)
                assert_int_equal(t.measured[tier], t.predicted[tier]);
        }
    }
}

static void recompute_changes_no_bit_of_any_loss(void **state)
{
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        struct trained kept, again, some;
        train(*name, 1, "gradient_checkpointing=false", NULL, &kept);
        train(*name, 1, "gradient_checkpointing=true", NULL, &again);
        train(*name, 1, "gradient_checkpointing=1-1", NULL, &some);
        assert_memory_equal(kept.losses, again.losses, sizeof(kept.losses));
        assert_memory_equal(kept.norms, again.norms, sizeof(kept.norms));
        assert_memory_equal(kept.losses, some.losses, sizeof(kept.losses));
        assert_true(again.predicted[TIER_DEVICE] < kept.predicted[TIER_DEVICE]);
    }
}

static void bf16_weights_follow_the_f32_losses(void **state)
{
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        struct trained t;
        double want[N_STEPS];
        train(*name, 1, "bf16=true", NULL, &t);
        golden_losses(*name, want);
        expect_near(*name, t.losses, want, 2e-2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_steps_give_the_losses_of_pytorch),
        cmocka_unit_test(micro_batches_give_the_losses_of_the_whole_batch),
        cmocka_unit_test(the_high_water_mark_is_the_prediction),
        cmocka_unit_test(recompute_changes_no_bit_of_any_loss),
        cmocka_unit_test(bf16_weights_follow_the_f32_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
