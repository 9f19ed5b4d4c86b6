/* More memory is never slower: over fine steps from the least budget there is, and over all of them
 * up to where everything fits, what is planned for one budget is no slower than for any smaller.
 * Just below everything that holds for networks of every kind: what fits as it is configured is not
 * all that there is to choose from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/sanitizer.h"
#include "support/golden.h"
#include "support/planning.h"

/* Estimates go wrong by that much, and searches with them. */
#define NOISE 0.01

enum {
    N_FINE = 24,   /* budgets from the least on, */
    FINE = 128,    /* each larger by such a part, */
    N_COARSE = 24, /* and up to everything; */
    N_CONFIGURED = 8,
};

/* Of them, every how many: `search_test_monotone 1` takes all. Under sanitizers few: others go the
 * same ways. */
static int every = SNUG_ASAN ? 12 : 2;

static int64_t find_most(struct workload *w)
{
    assert_true(isfinite(planned_seconds(w, (int64_t)1 << 40)));
    return planned_needs(w);
}

struct fastest {
    double seconds;
    double noise; /* a step may be slower by this part */
    int64_t n_bytes;
};

/* Is it no slower than what fits in less? */
static void expect_no_slower(struct workload *w, int64_t n_bytes, struct fastest *of_less)
{
    double seconds = planned_seconds(w, n_bytes);
    if (seconds > (1 + of_less->noise) * of_less->seconds)
        fail_msg("%lld bytes: %.6f s, and %.6f s in %lld", (long long)n_bytes, seconds,
                 of_less->seconds, (long long)of_less->n_bytes);
    if (seconds < of_less->seconds)
        *of_less = (struct fastest){seconds, of_less->noise, n_bytes};
}

/* Fine steps, or as many coarse ones. */
static void sweep(const char *config, int n_micro, int n_coarse, double noise)
{
    struct on_paper x;
    struct fastest of_less = {.seconds = HUGE_VAL, .noise = noise};
    on_paper_open(&x, config, 1, n_micro);
    struct workload *w = x.w;
    const int64_t least = planned_least(w), most = find_most(w);
    assert_true(isfinite(planned_seconds(w, least)));
    for (int i = 0; i < N_FINE && n_coarse == 0; i += every)
        expect_no_slower(w, least + least * i / FINE, &of_less);
    for (int i = 0; i <= n_coarse; i += every) {
        int64_t n_bytes = least + (most - least) * i / MAX(n_coarse, 1);
        if (n_bytes > of_less.n_bytes)
            expect_no_slower(w, n_bytes, &of_less);
    }
    print_message("from %lld bytes to %lld: %.6f s at the end\n", (long long)least, (long long)most,
                  of_less.seconds);
    on_paper_close(&x);
}

static void just_above_the_least_budget_more_memory_is_never_slower(void **state)
{
    (void)state;
    sweep(paper_llama, 1, 0, NOISE);
    sweep(paper_gpt2, 1, 0, 2.5 * NOISE); /* so small that the embedding is a tenth of the budget */
}

static void nor_is_it_up_to_where_everything_fits(void **state)
{
    (void)state;
    /* Groups are looked for where they are worth 3 %, and fewer of their programs are tried. */
    sweep(paper_llama, 4, N_COARSE, 2 * NOISE);
}

/* ---- networks of every kind, for a card ------------------------------------------------------ */

/* budget NULL: all the card has. */
static struct planned_step plan_config(const char *file, const char *const settings[3],
                                       const char *budget)
{
    const char *all[] = {"num_threads=1", "host_memory=64GiB", settings[0],
                         settings[1],     settings[2],         budget};
    return plan_for_card("h200", file, all, ARRAY_LEN(all) - (budget == NULL));
}

/* From a part of what it takes with all there is, up to that. */
static void sweep_config(const char *file, const char *const settings[3])
{
    const int n = MAX(N_CONFIGURED / every, 2), n_parts = 3 * n;
    const struct planned_step all = plan_config(file, settings, NULL);
    struct planned_step of_less = {.seconds = HUGE_VAL};
    assert_true(isfinite(all.seconds));
    for (int i = 0; i <= n; i++) {
        char budget[64];
        (void)snprintf(budget, sizeof(budget), "device_memory=%lld",
                       (long long)(all.needs - all.arena * (n - i) / n_parts));
        struct planned_step p = i < n ? plan_config(file, settings, budget) : all;
        if (p.seconds > (1 + NOISE) * of_less.seconds)
            fail_msg("%s, %s: %.6f s, and %.6f s in less", file, budget, p.seconds,
                     of_less.seconds);
        of_less = p.seconds < of_less.seconds ? p : of_less;
    }
    print_message("%s: %.6f s in %lld bytes\n", file, all.seconds, (long long)all.needs);
}

static void nor_is_what_fits_as_it_is_configured(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *settings[3];
    } cases[] = {
        {"configs/tasks.yml", {"seed=1", "seed=1", "seed=1"}},
        {"configs/cnn.yaml", {"seed=1", "seed=1", "seed=1"}},
        {"configs/gpt2-124m.yaml", {"model.n_layer=3", "bf16=true", "seed=1"}},
        {"configs/llama-1b.yaml",
         {"model.num_hidden_layers=4", "bf16=true", "gradient_accumulation_steps=2"}},
        {"configs/qlora-moe-24gb.yaml", {"model.num_hidden_layers=4", "seed=1", "seed=1"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i += SNUG_ASAN ? 2 : 1)
        sweep_config(cases[i].file, cases[i].settings);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        every = MAX((int)strtol(argv[1], NULL, 10), 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(just_above_the_least_budget_more_memory_is_never_slower),
        cmocka_unit_test(nor_is_it_up_to_where_everything_fits),
        cmocka_unit_test(nor_is_what_fits_as_it_is_configured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
