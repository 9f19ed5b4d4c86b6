/* What a refusal names as needed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "search/search.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "support/training.h"

static const struct search_bounds free_choice = {0};
static const struct decisions configured = {.recompute_cheap = true, .slice_bytes = SLICE_BYTES};

static struct limits limit(int64_t n_bytes)
{
    return (struct limits){.n_bytes = {n_bytes, (int64_t)1 << 40, LIMIT_OPEN}};
}

static int64_t needs(const struct workload *w)
{
    const struct limits limits = limit((int64_t)1 << 40);
    struct forecast f = {0};
    forecast_memory(&f, w, &limits);
    return f.budget.needs[TIER_DEVICE];
}

/* Seconds of a step in that much memory; HUGE_VAL: nothing fits. */
static double plan(struct workload *w, int64_t n_bytes)
{
    const struct limits limits = limit(n_bytes);
    struct decisions d = configured;
    double seconds;
    expect_ok(search_plan(w, &limits, &free_choice, NULL, &d, NULL));
    expect_ok(forecast_seconds(w, NULL, &seconds));
    return needs(w) <= n_bytes ? seconds : HUGE_VAL;
}

static int64_t find_least(struct workload *w)
{
    const struct limits limits = limit(1);
    struct decisions d = configured;
    expect_ok(search_least(w, &limits, &free_choice, &d));
    return needs(w);
}

static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":8000,\"hidden_size\":1024,"
    "\"intermediate_size\":2752,\"num_hidden_layers\":8,\"num_attention_heads\":16,"
    "\"num_key_value_heads\":16,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
    "\"hidden_act\":\"silu\",\"rope_theta\":10000.0}";

/* What a refusal names, whatever was asked for: it fits when it is given, so does all that is more,
 * and a search in much less of it finds nothing. */
static void what_is_said_to_be_needed_is(void **state)
{
    (void)state;
    enum { N_REFUSED = 4, N_MORE = 8, MUCH = 8 };
    struct training t;
    struct device device;
    expect_ok(device_open_cpu(&device, 1));
    paper_device_make(&device);
    training_init(&t, &(struct training_options){.config = llama,
                                                 .batch = 8,
                                                 .seq_len = 256,
                                                 .n_micro = 1,
                                                 .max_grad_norm = 1,

                                                 .device = &device});
    struct workload *w = &t.engine.work;
    const int64_t coarse = find_least(w);
    assert_true(plan(w, 1) == HUGE_VAL);
    const int64_t said = needs(w);
    assert_true(said <= coarse);
    for (int i = 1; i <= N_REFUSED; i++) {
        assert_true(plan(w, (said - said / MUCH) * i / N_REFUSED) == HUGE_VAL);
        assert_int_equal(needs(w), said);
    }
    for (int i = 0; i < N_MORE; i++)
        assert_true(isfinite(plan(w, said + (coarse - said) * i / N_MORE)));
    print_message("%lld bytes, and %lld by whole extents\n", (long long)said, (long long)coarse);
    training_release(&t);
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_to_be_needed_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
