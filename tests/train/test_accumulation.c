/* k micro-batches give the gradient of one batch: also when some targets do not count. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/golden.h"
#include "train/session.h"

enum { BATCH = 8, LENGTH = 32, VOCAB = 97 };

static int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];

/* Rows end at different places, so the micro-batches have different token counts. */
static void make_batch(void)
{
    struct rng r = {.key = 7};
    for (int i = 0; i < BATCH * LENGTH; i++) {
        int row = i / LENGTH, column = i % LENGTH;
        tokens[i] = (int32_t)rng_below(&r, VOCAB);
        targets[i] = column < LENGTH - 3 * row ? (int32_t)rng_below(&r, VOCAB) : -100;
    }
}

/* One step of SGD so large that weights after it are the gradient (times -2^20), to f32 rounding.
 */
static void gradient(const char *model, int n_micro, double *out, int64_t n)
{
    char name[300], batch[64], accumulation[64];
    (void)snprintf(name, sizeof(name), "model_name_or_path=tests/golden/%s", model);
    (void)snprintf(batch, sizeof(batch), "per_device_train_batch_size=%d", BATCH / n_micro);
    (void)snprintf(accumulation, sizeof(accumulation), "gradient_accumulation_steps=%d", n_micro);
    const char *overrides[] = {name,
                               batch,
                               accumulation,
                               "max_seq_length=32",
                               "optim=sgd",
                               "max_grad_norm=0",
                               "weight_decay=0",
                               "max_steps=1"};
    struct config *cfg;
    struct session s;
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true}));
    expect_ok(session_start(&s));
    struct engine *e = &s.engine;
    size_t n_micro_bytes = sizeof(tokens) / (size_t)n_micro;
    *(float *)engine_input(e, s.train, LOSS_SEED) = 1.0f / (BATCH * LENGTH);
    *(float *)engine_input(e, s.train, "lr") = 1048576.0f;
    *(int32_t *)engine_input(e, s.train, "step") = 1;
    if (n_micro > 1)
        expect_ok(engine_run(e, s.train, "begin"));
    for (int i = 0; i < n_micro; i++) {
        memcpy(engine_input(e, s.train, "tokens"), (char *)tokens + (size_t)i * n_micro_bytes,
               n_micro_bytes);
        memcpy(engine_input(e, s.train, "targets"), (char *)targets + (size_t)i * n_micro_bytes,
               n_micro_bytes);
        expect_ok(engine_run(e, s.train,
                             n_micro == 1      ? "step"
                             : i + 1 < n_micro ? "micro"
                                               : "last"));
    }
    int64_t at = 0;
    for (int i = 0; i < e->n_params; i++) {
        const float *p = e->param_tensors[i].data;
        for (int64_t k = 0; k < shape_elems(&e->param_tensors[i].shape); k++)
            out[at++] = (double)p[k];
    }
    assert_true(at <= n);
    session_close(&s);
    config_free(cfg);
}

static void eight_micro_batches_of_one_equal_one_of_eight(void **state)
{
    (void)state;
    static double whole[1 << 16], parts[1 << 16];
    make_batch();
    for (const char *const *name = golden_trained; *name; name++) {
        if (golden_facts_of(*name).is_coupled)
            continue;
        memset(whole, 0, sizeof(whole));
        memset(parts, 0, sizeof(parts));
        gradient(*name, 1, whole, 1 << 16);
        gradient(*name, 8, parts, 1 << 16);
        double error = relative_error(parts, whole, 1 << 16);
        print_message("%s: relative difference %.2e\n", *name, error);
        assert_true(error < 1e-6);
        gradient(*name, 2, parts, 1 << 16);
        assert_true(relative_error(parts, whole, 1 << 16) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_micro_batches_of_one_equal_one_of_eight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
