/* Generation: decoding with a cache against scoring the whole text anew, the sampler, and the text
 * that is handed on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "train/generate.h"

enum { PROMPT = 12, NEW = 10 };

static int32_t argmax(const double *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* The likeliest successor of tokens[0..n), by a forward pass over all of them. */
static int32_t scored_next(const char *name, const int32_t *tokens, int n)
{
    struct golden g;
    struct model_request r = {.purpose = MODEL_SCORE, .batch = 1, .seq_len = n, .dtype = DTYPE_F32};
    golden_open(&g, name, "config.json", &r);
    golden_start(&g);
    memcpy(eval_tensor(g.eval, golden_input(&g, "tokens")).data, tokens,
           (size_t)n * sizeof(*tokens));
    expect_ok(eval_run(g.eval));
    double *logits = golden_value(&g, g.built.logits);
    int32_t next = argmax(logits + (size_t)(n - 1) * GOLDEN_VOCAB, GOLDEN_VOCAB);
    mem_free(logits);
    golden_close(&g);
    return next;
}

static struct config *golden_config(const char *name, const char *extra)
{
    char model[300];
    struct config *cfg;
    (void)snprintf(model, sizeof(model), "model_name_or_path=tests/golden/%s", name);
    const char *overrides[] = {model, "max_seq_length=24", extra ? extra : "seed=1"};
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    return cfg;
}

static void fill_prompt(int32_t *tokens, int n, uint64_t seed)
{
    struct rng rng = {.key = seed};
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)rng_below(&rng, GOLDEN_VOCAB);
}

static void open_golden(struct inference *x, const struct config *cfg, int64_t chunk)
{
    struct inference_sizes sizes = {.chunk = chunk,
                                    .cache_len = PROMPT + NEW,
                                    .scratch_bytes = sampler_scratch_bytes(GOLDEN_VOCAB)};
    expect_ok(inference_open(x, cfg, &(struct engine_options){0}));
    expect_ok(inference_plan(x, &sizes));
    expect_ok(inference_load(x, x->engine->model_folder));
}

static void greedy_decoding_equals_scoring_from_scratch(void **state)
{
    (void)state;
    for (int i = 0; golden_names[i]; i++) {
        struct config *cfg = golden_config(golden_names[i], NULL);
        struct inference x;
        struct sampler sampler = {.temperature = 0, .top_p = 1};
        struct tensor logits;
        int32_t tokens[PROMPT + NEW];
        open_golden(&x, cfg, 5); /* 12 = 5 + 5 + 2: the last chunk overlaps the one before */
        fill_prompt(tokens, PROMPT, (uint64_t)i);
        expect_ok(inference_extend(&x, tokens, PROMPT, 0, &logits));
        for (int n = PROMPT; n < PROMPT + NEW; n++) {
            expect_ok(sampler_draw(&sampler, &logits, x.scratch, &tokens[n]));
            assert_int_equal(tokens[n], scored_next(golden_names[i], tokens, n));
            expect_ok(inference_extend(&x, &tokens[n], 1, n, &logits));
        }
        for (int t = 0; t < TIER_COUNT; t++)
            assert_int_equal(executor_high_water(x.engine->executor, (enum tier)t),
                             x.engine->work.n_bytes[t]);
        inference_close(&x);
        config_free(cfg);
    }
}

static void chunks_of_the_prompt_do_not_show_in_the_logits(void **state)
{
    (void)state;
    struct config *cfg = golden_config("llama", NULL);
    int32_t tokens[PROMPT];
    double expected[GOLDEN_VOCAB] = {0};
    fill_prompt(tokens, PROMPT, 3);
    for (int64_t chunk = 1; chunk <= PROMPT + 1; chunk++) {
        struct inference x;
        struct tensor logits;
        open_golden(&x, cfg, chunk);
        expect_ok(inference_extend(&x, tokens, PROMPT, 0, &logits));
        assert_int_equal(logits.dtype, DTYPE_F32);
        double got[GOLDEN_VOCAB];
        for (int i = 0; i < GOLDEN_VOCAB; i++)
            got[i] = (double)((const float *)logits.data)[i];
        if (chunk == 1)
            memcpy(expected, got, sizeof(expected));
        assert_true(relative_error(got, expected, GOLDEN_VOCAB) < 1e-5);
        inference_close(&x);
    }
    config_free(cfg);
}

static void bf16_weights_decode_too(void **state)
{
    (void)state;
    struct config *cfg = golden_config("qwen3", "bf16=true");
    struct inference x;
    struct tensor logits;
    int32_t tokens[PROMPT], next;
    struct sampler sampler = {.temperature = 1, .top_p = 0.9, .top_k = 5};
    fill_prompt(tokens, PROMPT, 4);
    open_golden(&x, cfg, 4);
    expect_ok(inference_extend(&x, tokens, PROMPT, 0, &logits));
    assert_int_equal(logits.dtype, DTYPE_BF16);
    expect_ok(sampler_draw(&sampler, &logits, x.scratch, &next));
    assert_in_range(next, 0, GOLDEN_VOCAB - 1);
    inference_close(&x);
    config_free(cfg);
}

static void generating_outside_the_budget_is_refused(void **state)
{
    (void)state;
    struct config *cfg = golden_config("llama", "device_memory=1KiB");
    struct inference x;
    struct inference_sizes sizes = {.chunk = 4, .cache_len = 16};
    expect_ok(inference_open(&x, cfg, &(struct engine_options){0}));
    assert_int_equal(inference_plan(&x, &sizes), ERR_FIT);
    expect_message("raise device_memory");
    inference_close(&x);
    config_free(cfg);
}

/* ---- the sampler ----------------------------------------------------------------------------- */

static struct tensor as_tensor(float *logits, int n)
{
    return (struct tensor){.dtype = DTYPE_F32, .shape = shape_of(1, (int64_t)n), .data = logits};
}

static void equal_logits_give_the_lowest_id(void **state)
{
    (void)state;
    float logits[] = {1, 3, 3, 2};
    struct tensor t = as_tensor(logits, 4);
    char scratch[64];
    int32_t token;
    struct sampler greedy = {.temperature = 0, .top_p = 1};
    expect_ok(sampler_draw(&greedy, &t, scratch, &token));
    assert_int_equal(token, 1);
    struct sampler one = {.temperature = 2, .top_p = 1, .top_k = 1};
    expect_ok(sampler_draw(&one, &t, scratch, &token));
    assert_int_equal(token, 1);
    struct sampler nucleus = {.temperature = 1, .top_p = 1e-9};
    expect_ok(sampler_draw(&nucleus, &t, scratch, &token));
    assert_int_equal(token, 1);
}

enum { N_DRAWS = 40000, N_TOKENS = 6 };

static void count_draws(struct sampler s, int n_seen[N_TOKENS])
{
    float logits[N_TOKENS] = {0.5f, -1, 2, 0, 1, -30};
    struct tensor t = as_tensor(logits, N_TOKENS);
    char scratch[64];
    memset(n_seen, 0, sizeof(int) * N_TOKENS);
    for (int i = 0; i < N_DRAWS; i++) {
        int32_t token;
        expect_ok(sampler_draw(&s, &t, scratch, &token));
        n_seen[token]++;
    }
}

static void draws_follow_the_softmax(void **state)
{
    (void)state;
    const double logits[N_TOKENS] = {0.5, -1, 2, 0, 1, -30};
    int n_seen[N_TOKENS];
    double temperature = 1.5, sum = 0;
    count_draws((struct sampler){.temperature = temperature, .top_p = 1, .rng = {.key = 9}},
                n_seen);
    for (int i = 0; i < N_TOKENS; i++)
        sum += exp(logits[i] / temperature);
    for (int i = 0; i < N_TOKENS; i++) {
        double p = exp(logits[i] / temperature) / sum;
        double sigma = sqrt(p * (1 - p) / N_DRAWS);
        assert_true(fabs((double)n_seen[i] / N_DRAWS - p) < 5 * sigma + 1e-9);
    }
}

static void top_k_and_top_p_leave_the_likeliest(void **state)
{
    (void)state;
    int n_seen[N_TOKENS];
    count_draws((struct sampler){.temperature = 1, .top_p = 1, .top_k = 3, .rng = {.key = 1}},
                n_seen);
    assert_int_equal(n_seen[0] + n_seen[2] + n_seen[4], N_DRAWS);
    assert_true(n_seen[0] > 0 && n_seen[4] > n_seen[0] && n_seen[2] > n_seen[4]);
    /* Probabilities 0.560, 0.206, 0.125, 0.076, ...: two reach 0.7, three reach 0.8. */
    count_draws((struct sampler){.temperature = 1, .top_p = 0.7, .rng = {.key = 2}}, n_seen);
    assert_int_equal(n_seen[2] + n_seen[4], N_DRAWS);
    count_draws((struct sampler){.temperature = 1, .top_p = 0.8, .rng = {.key = 3}}, n_seen);
    assert_int_equal(n_seen[0] + n_seen[2] + n_seen[4], N_DRAWS);
    assert_true(n_seen[0] > 0);
    /* Among the top two the first has 0.73: top_p acts on what top_k left. */
    count_draws((struct sampler){.temperature = 1, .top_p = 0.7, .top_k = 2, .rng = {.key = 4}},
                n_seen);
    assert_int_equal(n_seen[2], N_DRAWS);
}

static void logits_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    float logits[] = {1, NAN, 0};
    struct tensor t = as_tensor(logits, 3);
    char scratch[64];
    int32_t token;
    struct sampler s = {.temperature = 1, .top_p = 1};
    assert_int_equal(sampler_draw(&s, &t, scratch, &token), ERR_NUMERIC);
}

/* ---- text ------------------------------------------------------------------------------------ */

#define BROKEN "\xEF\xBF\xBD"

/* The text that comes of the bytes one at a time; and that nothing comes of half a character. */
static void expect_text(const char *bytes, const char *due)
{
    struct utf8_stream s = {.n_pending = 0};
    struct str out = {0};
    for (const char *p = bytes; *p; p++)
        utf8_stream_add(&s, p, 1, &out);
    utf8_stream_finish(&s, &out);
    assert_string_equal(str_text(&out), due);
    str_release(&out);
    utf8_stream_add(&s, bytes, strlen(bytes), &out);
    utf8_stream_finish(&s, &out);
    assert_string_equal(str_text(&out), due);
    str_release(&out);
}

static void characters_come_out_whole(void **state)
{
    (void)state;
    expect_text("plain", "plain");
    expect_text("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    struct utf8_stream s = {.n_pending = 0};
    struct str out = {0};
    utf8_stream_add(&s, "a\xE2\x82", 3, &out);
    assert_string_equal(str_text(&out), "a");
    utf8_stream_add(&s, "\xAC", 1, &out);
    assert_string_equal(str_text(&out), "a\xE2\x82\xAC");
    str_release(&out);
}

static void broken_bytes_become_replacement_characters(void **state)
{
    (void)state;
    expect_text("\xFF", BROKEN);
    expect_text("a\x80z", "a" BROKEN "z");
    expect_text("\xE2\x82", BROKEN);                                   /* unfinished */
    expect_text("\xE2z", BROKEN "z");                                  /* cut short */
    expect_text("\xC0\xAF", BROKEN BROKEN);                            /* overlong */
    expect_text("\xED\xA0\x80", BROKEN BROKEN BROKEN);                 /* a surrogate */
    expect_text("\xF4\x90\x80\x80z", BROKEN BROKEN BROKEN BROKEN "z"); /* past the last */
    expect_text("\xE2\xC3\xA9", BROKEN "\xC3\xA9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_decoding_equals_scoring_from_scratch),
        cmocka_unit_test(chunks_of_the_prompt_do_not_show_in_the_logits),
        cmocka_unit_test(bf16_weights_decode_too),
        cmocka_unit_test(generating_outside_the_budget_is_refused),
        cmocka_unit_test(equal_logits_give_the_lowest_id),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(top_k_and_top_p_leave_the_likeliest),
        cmocka_unit_test(logits_that_are_no_numbers_are_refused),
        cmocka_unit_test(characters_come_out_whole),
        cmocka_unit_test(broken_bytes_become_replacement_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
