/* More memory is never slower: over fine steps from the least budget there is, and over all of them
 * up to where everything fits, what is planned for one budget is no slower than for any smaller. */
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

/* Estimates go wrong by that much, and searches with them. */
#define NOISE 0.01

enum {
    N_FINE = 24,               /* budgets from the least on, */
    FINE = 128,                /* each larger by such a part, */
    N_COARSE = 40,             /* and up to everything; */
    EVERY = SNUG_ASAN ? 8 : 1, /* under sanitizers few of them: others go the same ways */
};

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

static int64_t find_most(struct workload *w)
{
    assert_true(isfinite(plan(w, (int64_t)1 << 40)));
    return needs(w);
}

struct fastest {
    double seconds;
    int64_t n_bytes;
};

/* Is it no slower than what fits in less? */
static void expect_no_slower(struct workload *w, int64_t n_bytes, struct fastest *of_less)
{
    double seconds = plan(w, n_bytes);
    if (seconds > (1 + NOISE) * of_less->seconds)
        fail_msg("%lld bytes: %.6f s, and %.6f s in %lld", (long long)n_bytes, seconds,
                 of_less->seconds, (long long)of_less->n_bytes);
    if (seconds < of_less->seconds)
        *of_less = (struct fastest){seconds, n_bytes};
}

static void sweep(const char *config, int n_micro, int n_coarse)
{
    struct training t;
    struct device device;
    struct fastest of_less = {.seconds = HUGE_VAL};
    expect_ok(device_open_cpu(&device, 1));
    paper_device_make(&device);
    training_init(&t, &(struct training_options){.config = config,
                                                 .batch = 1,
                                                 .seq_len = 1024,
                                                 .n_micro = n_micro,
                                                 .max_grad_norm = 1,
                                                 .bf16 = true,
                                                 .device = &device});
    struct workload *w = &t.engine.work;
    const int64_t least = find_least(w), most = find_most(w);
    assert_true(isfinite(plan(w, least)));
    for (int i = 0; i < N_FINE; i += EVERY)
        expect_no_slower(w, least + least * i / FINE, &of_less);
    for (int i = 0; i <= n_coarse; i += EVERY) {
        int64_t n_bytes = least + (most - least) * i / MAX(n_coarse, 1);
        if (n_bytes > of_less.n_bytes)
            expect_no_slower(w, n_bytes, &of_less);
    }
    print_message("from %lld bytes to %lld: %.6f s at the end\n", (long long)least, (long long)most,
                  of_less.seconds);
    training_release(&t);
    device_close(&device);
}

static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":8000,\"hidden_size\":1024,"
    "\"intermediate_size\":2752,\"num_hidden_layers\":8,\"num_attention_heads\":16,"
    "\"num_key_value_heads\":16,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
    "\"hidden_act\":\"silu\",\"rope_theta\":10000.0}";
static void just_above_the_least_budget_more_memory_is_never_slower(void **state)
{
    (void)state;
    sweep(llama, 1, 0);
}

static void nor_is_it_up_to_where_everything_fits(void **state)
{
    (void)state;
    sweep(llama, 4, N_COARSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(just_above_the_least_budget_more_memory_is_never_slower),
        cmocka_unit_test(nor_is_it_up_to_where_everything_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
