/* Freedom is never slower: what a search finds that may not touch some of the extents is no faster
 * than what the search finds that may. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/golden.h"
#include "support/planning.h"

/* Which copies happen to meet is worth that much, and no search looks at all of them. */
#define NOISE          0.01
#define NOISE_ON_CARDS 0.005 /* of whole models */
/* Of few large blocks whose states are most of all memory, a tensor's copy is percents of a step.
 */
#define COARSE_NOISE 0.03

#define BIT(e) (1u << (e))

/* What is fixed at nothing. */
static const unsigned less_free[] = {
    BIT(EXTENT_MOVED),
    BIT(EXTENT_WEIGHTS),
    BIT(EXTENT_GRADIENTS),
    BIT(EXTENT_MOVED) | BIT(EXTENT_GRADIENTS),
    BIT(EXTENT_WEIGHTS) | BIT(EXTENT_GRADIENTS),
    BIT(EXTENT_STATES) | BIT(EXTENT_WEIGHTS) | BIT(EXTENT_GRADIENTS),
    BIT(EXTENT_MOVED) | BIT(EXTENT_STATES) | BIT(EXTENT_WEIGHTS) | BIT(EXTENT_GRADIENTS),
    BIT(EXTENT_RECOMPUTED),
};

/* How many of these find a plan at all. */
static int compare(struct workload *w, int64_t n_bytes, double noise)
{
    const double free = planned_seconds(w, n_bytes);
    int n_found = 0;
    for (size_t i = 0; i < ARRAY_LEN(less_free); i++) {
        struct search_bounds bounds = {0};
        for (int e = 0; e < EXTENT_COUNT; e++)
            bounds.fixed[e] = less_free[i] & BIT(e);
        double fixed = planned_within(w, n_bytes, &bounds);
        if (free > (1 + noise) * fixed)
            fail_msg("%lld bytes, fixed %#x: %.6f s, and %.6f s when free", (long long)n_bytes,
                     less_free[i], fixed, free);
        n_found += isfinite(fixed);
    }
    return n_found;
}

static void compare_all(const char *config, double noise)
{
    enum { PARTS = 12, EVERY = SNUG_ASAN ? 12 : 3 };
    struct on_paper x;
    int n_found = 0;
    on_paper_open(&x, config, 4, 1);
    struct workload *w = x.w;
    const int64_t least = planned_least(w);
    assert_true(isfinite(planned_seconds(w, (int64_t)1 << 40)));
    const int64_t most = planned_needs(w);
    for (int i = 1; i < PARTS; i += EVERY)
        n_found += compare(w, least + (most - least) * i / PARTS, noise);
    print_message("%d plans that were less free\n", n_found);
    assert_true(n_found > PARTS / EVERY);
    on_paper_close(&x);
}

static void a_search_that_may_do_more_finds_nothing_slower(void **state)
{
    (void)state;
    compare_all(paper_llama, COARSE_NOISE);
    if (!SNUG_ASAN) /* the same ways */
        compare_all(paper_gpt2, NOISE);
}

/* ---- on cards, by the levers that people set ------------------------------------------------- */

/* Sizes and an optimizer, beside the precision. */
#define PURE \
    "per_device_train_batch_size=8", "gradient_accumulation_steps=1", "optim_state_dtype=bf16"
#define EIGHT_BIT \
    "per_device_train_batch_size=8", "gradient_accumulation_steps=1", "optim=adamw_8bit"
#define ACCUMULATED \
    "per_device_train_batch_size=4", "gradient_accumulation_steps=4", "optim=adamw_torch"

struct on_card {
    const char *gpu, *config, *sizes[3], *budget, *lever;
};

static double step_on_card(const struct on_card *c, bool is_free)
{
    const char *settings[] = {"num_threads=1",
                              "host_memory=100GiB",
                              "max_grad_norm=0",
                              "bf16=true",
                              "master_dtype=bf16",
                              "gradient_dtype=bf16",
                              c->sizes[0],
                              c->sizes[1],
                              c->sizes[2],
                              c->budget,
                              c->lever};
    const size_t n = ARRAY_LEN(settings) - is_free;
    return plan_for_card(c->gpu, c->config, settings, n).seconds;
}

static void nor_does_one_with_all_levers_on_a_card(void **state)
{
    (void)state;
    static const char llama[] = "configs/llama-1b.yaml", gpt2[] = "configs/gpt2-1558m.yaml",
                      qwen[] = "configs/qwen2.5-7b.yaml";
    static const struct on_card cases[] = {
        {"a100-80", llama, {PURE}, "device_memory=8GiB", "offload_param=false"},
        {"a100-80", llama, {PURE}, "device_memory=6GiB", "offload_param=false"},
        {"h100", llama, {PURE}, "device_memory=9GiB", "offload_param=false"},
        {"h200", llama, {PURE}, "device_memory=9GiB", "offload_param=false"},
        {"h200", llama, {PURE}, "device_memory=10GiB", "activation_offloading=false"},
        {"h200", gpt2, {EIGHT_BIT}, "device_memory=10GiB", "offload_param=false"},
        {"h200", gpt2, {EIGHT_BIT}, "device_memory=6GiB", "offload_param=false"},
        {"h200", qwen, {ACCUMULATED}, "device_memory=32GiB", "offload_param=false"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases) && !SNUG_ASAN; i++) { /* the same ways as above */
        double free = step_on_card(&cases[i], true);
        double fixed = step_on_card(&cases[i], false);
        assert_true(isfinite(fixed));
        print_message("%s, %s, %s: %.5f of it\n", cases[i].gpu, cases[i].budget, cases[i].lever,
                      free / fixed);
        if (free > (1 + NOISE_ON_CARDS) * fixed)
            fail_msg("%s, %s, %s: %.6f s, and %.6f s when free", cases[i].gpu, cases[i].budget,
                     cases[i].lever, fixed, free);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_search_that_may_do_more_finds_nothing_slower),
        cmocka_unit_test(nor_does_one_with_all_levers_on_a_card),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
