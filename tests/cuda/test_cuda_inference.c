/* Generation and evaluation on the GPU beside the CPU: the golden models give the same tokens and
 * the same loss, in the memory that was predicted. Skipped without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/log.h"
#include "base/rng.h"
#include "support/golden.h"
#include "support/gpu.h"
#include "support/scratch.h"
#include "train/inference.h"
#include "train/sampler.h"
#include "train/session.h"

enum { PROMPT = 12, NEW = 10 };

static struct scratch cache; /* the GPU is measured once for all of them */

static struct config *golden_config(const char *name, const char *device, const char *extra)
{
    char model[300], where[32];
    struct config *cfg;
    (void)snprintf(model, sizeof(model), "model_name_or_path=tests/golden/%s", name);
    (void)snprintf(where, sizeof(where), "device=%s", device);
    const char *overrides[] = {model,
                               where,
                               "max_seq_length=24",
                               "per_device_train_batch_size=3",
                               "per_device_eval_batch_size=3",
                               extra ? extra : "bf16=false"};
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    return cfg;
}

/* ---- generation ------------------------------------------------------------------------------ */

struct generated {
    int32_t tokens[PROMPT + NEW];
    double logits[NEW + 1][GOLDEN_VOCAB]; /* after the prompt, and after each token */
};

static void keep_logits(const struct tensor *t, double *out)
{
    for (int i = 0; i < GOLDEN_VOCAB; i++) {
        if (t->dtype == DTYPE_F32)
            out[i] = (double)((const float *)t->data)[i];
        else
            out[i] = (double)bf16_to_f32(((const uint16_t *)t->data)[i]);
    }
}

/* A prompt that depends on the seed, and `forced` tokens after it, or the likeliest ones. */
static void generate(const char *name, const char *device, const char *extra, const int32_t *forced,
                     struct generated *out)
{
    struct config *cfg = golden_config(name, device, extra);
    struct inference x;
    struct tensor logits;
    struct sampler greedy = {.temperature = 0, .top_p = 1};
    struct rng rng = {.key = strlen(name)};
    struct inference_sizes sizes = {.chunk = 5, /* 12 = 5 + 5 + 2: the last chunk overlaps */
                                    .cache_len = PROMPT + NEW,
                                    .scratch_bytes = sampler_scratch_bytes(GOLDEN_VOCAB)};
    expect_ok(inference_open(&x, cfg, &(struct engine_options){.cache_folder = cache.folder}));
    assert_string_equal(x.engine->device->ops->name, device);
    expect_ok(inference_plan(&x, &sizes));
    expect_ok(inference_load(&x, x.engine->model_folder));
    for (int i = 0; i < PROMPT; i++)
        out->tokens[i] = (int32_t)rng_below(&rng, GOLDEN_VOCAB);
    expect_ok(inference_extend(&x, out->tokens, PROMPT, 0, &logits));
    keep_logits(&logits, out->logits[0]);
    for (int n = PROMPT; n < PROMPT + NEW; n++) {
        expect_ok(sampler_draw(&greedy, &logits, x.scratch, &out->tokens[n]));
        if (forced)
            out->tokens[n] = forced[n];
        expect_ok(inference_extend(&x, &out->tokens[n], 1, n, &logits));
        keep_logits(&logits, out->logits[n - PROMPT + 1]);
    }
    for (int t = 0; t < TIER_COUNT; t++)
        assert_int_equal(executor_high_water(x.engine->executor, (enum tier)t),
                         x.engine->work.n_bytes[t]);
    inference_close(&x);
    config_free(cfg);
}

static void expect_logits(const char *name, const struct generated *got,
                          const struct generated *want, double tolerance)
{
    for (int i = 0; i <= NEW; i++) {
        double error = relative_error(got->logits[i], want->logits[i], GOLDEN_VOCAB);
        if (!(error < tolerance))
            fail_msg("%s: logits after token %d differ by %.2g (at most %.2g)", name, PROMPT + i,
                     error, tolerance);
    }
}

static void greedy_tokens_are_those_of_the_cpu(void **state)
{
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        struct generated cpu, gpu;
        generate(*name, "cpu", NULL, NULL, &cpu);
        generate(*name, "cuda", NULL, NULL, &gpu);
        for (int i = 0; i < PROMPT + NEW; i++)
            assert_int_equal(gpu.tokens[i], cpu.tokens[i]);
        expect_logits(*name, &gpu, &cpu, 2e-5);
    }
}

static void bf16_logits_follow_those_of_the_cpu(void **state)
{
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        struct generated cpu, gpu;
        generate(*name, "cpu", "bf16=true", NULL, &cpu);
        generate(*name, "cuda", "bf16=true", cpu.tokens, &gpu);
        /* A few roundings of 2^-8 each, and a token near a tie may go to another expert. */
        expect_logits(*name, &gpu, &cpu, 8e-2);
    }
}

static void a_second_generation_gives_the_same_bits(void **state)
{
    (void)state;
    struct generated a, b;
    generate("llama", "cuda", "bf16=true", NULL, &a);
    generate("llama", "cuda", "bf16=true", NULL, &b);
    assert_memory_equal(&a, &b, sizeof(a));
}

/* Weights from the seed go through the stage too. */
static void fresh_weights_are_those_of_the_cpu(void **state)
{
    (void)state;
    double logits[2][GOLDEN_VOCAB];
    for (int i = 0; i < 2; i++) {
        struct config *cfg = golden_config("qwen2", i ? "cuda" : "cpu", NULL);
        struct inference x;
        struct tensor t;
        const int32_t tokens[] = {5, 7, 11};
        expect_ok(inference_open(&x, cfg, &(struct engine_options){0}));
        expect_ok(inference_plan(&x, &(struct inference_sizes){.chunk = 1, .cache_len = 8}));
        expect_ok(inference_load(&x, NULL));
        expect_ok(inference_extend(&x, tokens, 3, 0, &t));
        keep_logits(&t, logits[i]);
        inference_close(&x);
        config_free(cfg);
    }
    assert_true(relative_error(logits[1], logits[0], GOLDEN_VOCAB) < 2e-5);
}

static void generating_outside_the_budget_is_refused(void **state)
{
    (void)state;
    struct config *cfg = golden_config("llama", "cuda", "device_memory=1MiB");
    struct inference x;
    struct inference_sizes sizes = {.chunk = 4, .cache_len = 16};
    expect_ok(inference_open(&x, cfg, &(struct engine_options){0}));
    assert_int_equal(inference_plan(&x, &sizes), ERR_FIT);
    expect_message("raise device_memory");
    inference_close(&x);
    config_free(cfg);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static void evaluate(const char *name, const char *device, const char *extra,
                     struct evaluation *out)
{
    struct config *cfg = golden_config(name, device, extra);
    struct session s;
    expect_ok(session_open(
        &s, cfg, &(struct session_options){.evaluate = true, .cache_folder = cache.folder}));
    expect_ok(engine_require_fit(&s.engine));
    expect_ok(engine_require_room(&s.engine));
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    expect_ok(session_evaluate(&s, 4, out));
    for (int t = 0; t < TIER_COUNT; t++)
        assert_int_equal(executor_high_water(s.engine.executor, (enum tier)t),
                         s.engine.work.n_bytes[t]);
    session_close(&s);
    config_free(cfg);
}

static void expect_loss(const char *name, const char *extra, double tolerance)
{
    struct evaluation cpu, gpu;
    evaluate(name, "cpu", extra, &cpu);
    evaluate(name, "cuda", extra, &gpu);
    assert_int_equal(gpu.n_units, cpu.n_units);
    double error = fabs(gpu.loss / cpu.loss - 1.0);
    if (!(error < tolerance))
        fail_msg("%s: loss %.9g, on the CPU %.9g (relative error %.2g)", name, gpu.loss, cpu.loss,
                 error);
}

static void evaluation_loss_is_that_of_the_cpu(void **state)
{
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        expect_loss(*name, NULL, 1e-5);
        expect_loss(*name, "bf16=true", 5e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_tokens_are_those_of_the_cpu),
        cmocka_unit_test(bf16_logits_follow_those_of_the_cpu),
        cmocka_unit_test(a_second_generation_gives_the_same_bits),
        cmocka_unit_test(fresh_weights_are_those_of_the_cpu),
        cmocka_unit_test(generating_outside_the_budget_is_refused),
        cmocka_unit_test(evaluation_loss_is_that_of_the_cpu),
    };
    if (device_count_cuda() == 0) {
        (void)fprintf(stderr, "skipped: no GPU\n");
        return GPU_SKIPPED;
    }
    log_set_level(LOG_WARN);
    scratch_init(&cache);
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_release(&cache);
    return n_failed;
}
