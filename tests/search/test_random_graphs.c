/* Graphs nobody would write, under budgets nobody would choose: a budget is kept or refused, every
 * program passes the check, and no way of running a small graph is much faster than what was found.
 * Give a number as argument for that many graphs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "search/search.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "support/random_graph.h"

/* Under sanitizers fewer: they take ten times as long. */
enum {
    FEW_GRAPHS = SNUG_ASAN ? 16 : 200,
    N_SMALL_GRAPHS = SNUG_ASAN ? 4 : 16,
    MAX_WAYS = SNUG_ASAN ? 200 : 800
};

static uint64_t n_graphs = FEW_GRAPHS;

static struct device cpu, gpu; /* the second one on paper */
static const struct search_bounds free_choice = {0};

static int open_devices(void **state)
{
    (void)state;
    if (device_open_cpu(&cpu, 2) != OK)
        return -1;
    gpu = cpu;
    paper_device_make(&gpu);
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    device_close(&cpu);
    return 0;
}

/* ---- a workload of one random graph ---------------------------------------------------------- */

struct subject {
    struct workload w;
    int64_t full; /* bytes with everything kept */
};

static void subject_init(struct subject *s, uint64_t seed, struct device *device)
{
    struct random_graph r;
    const struct decisions kept = {0};
    random_graph_init(&r, seed);
    expect_ok(workload_init(&s->w, device, 1));
    s->w.stages[0].purpose = STAGE_TRAIN;
    s->w.stages[0].graph = r.g;
    s->w.stages[0].n_micro = r.n_micro;
    expect_ok(workload_decide(&s->w, &kept));
    expect_ok(workload_bound(&s->w));
    s->full = s->w.n_bytes[TIER_DEVICE];
}

static void subject_release(struct subject *s)
{
    workload_release(&s->w);
}

static struct limits device_limit(int64_t n_bytes)
{
    return (struct limits){.n_bytes = {n_bytes, LIMIT_OPEN, LIMIT_OPEN}};
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* *kept: whether the budget was; else nothing that was looked at is small enough. */
static void plan_within(struct subject *s, int64_t budget, bool *kept)
{
    const struct limits limits = device_limit(budget);
    struct decisions d = {.recompute_cheap = true}, least = d;
    struct forecast f = {0};
    expect_ok(search_plan(&s->w, &limits, &free_choice, NULL, &d, NULL));
    forecast_memory(&f, &s->w, &limits);
    *kept = f.fits;
    expect_ok(program_check(s->w.stages[0].program, &s->w.storage));
    if (*kept) {
        assert_true(s->w.n_bytes[TIER_DEVICE] <= budget);
        return;
    }
    expect_ok(search_least(&s->w, &limits, &free_choice, &least));
    assert_true(s->w.n_bytes[TIER_DEVICE] > budget);
}

static void budgets_are_kept_or_refused(void **state)
{
    (void)state;
    int n_kept = 0;
    for (uint64_t seed = 1; seed <= n_graphs; seed++) {
        struct subject s;
        struct rng rng = {.key = seed};
        bool kept;
        subject_init(&s, seed, seed % 2 ? &gpu : &cpu);
        plan_within(&s, s.full * (int64_t)(30 + rng_below(&rng, 65)) / 100, &kept);
        n_kept += kept;
        subject_release(&s);
    }
    print_message("%d of %d budgets were kept\n", n_kept, (int)n_graphs);
    assert_true(n_kept > (int)n_graphs / 3);
}

/* ---- all ways -------------------------------------------------------------------------------- */

/* Every combination of options, with weights, states and gradients at home or away, with a ring or
 * without. */
struct survey_of_all {
    struct subject *s;
    struct space space;
    int64_t room, ring_bytes;
    struct place_choice *places;
    double fastest;
};

static void try_way(struct survey_of_all *a, unsigned homes)
{
    struct decisions d = {.recompute_cheap = true,
                          .ring_bytes = homes & 8 ? a->ring_bytes : 0,
                          .places = a->places,
                          .n_places = a->space.survey.n_places};
    struct stage *stage = &a->s->w.stages[0];
    struct prediction p;
    double seconds;
    for (int i = 0; i < d.n_places; i++)
        for (int h = 0; h < HOME_CLASS_COUNT; h++)
            a->places[i].away[h] = homes >> h & 1;
    expect_ok(workload_decide(&a->s->w, &d));
    expect_ok(workload_bound(&a->s->w));
    if (a->s->w.n_bytes[TIER_DEVICE] > a->room)
        return;
    expect_ok(predict(&p, stage->program, a->s->w.device, NULL));
    expect_ok(predict_step(&p, stage->program, a->s->w.device, stage->n_micro, &seconds));
    prediction_release(&p);
    a->fastest = MIN(a->fastest, seconds);
}

static void try_all(struct survey_of_all *a, int place)
{
    if (place == a->space.survey.n_places) {
        for (unsigned homes = 0; homes < 16; homes++)
            try_way(a, homes);
        return;
    }
    for (int k = 0; k < a->space.options[place].n; k++) {
        a->places[place].saved = &a->space.options[place].items[k].set;
        try_all(a, place + 1);
    }
}

static double count_ways(const struct space *s)
{
    double n = 16;
    for (int p = 0; p < s->survey.n_places; p++)
        n *= s->options[p].n;
    return n;
}

/* Seconds of the fastest of all ways, or HUGE_VAL; 0: there are too many to look at. */
static double fastest_of_all(struct subject *s, int64_t budget)
{
    const int64_t room[TIER_COUNT] = {budget, INT64_MAX / 4, INT64_MAX / 4};
    const struct decisions base = {.recompute_cheap = true};
    struct place_choice places[64] = {{0}};
    struct survey_of_all a = {
        .s = s, .room = budget, .ring_bytes = budget / 8, .places = places, .fastest = HUGE_VAL};
    expect_ok(space_init(&a.space, &s->w, NULL, &base, &free_choice, room));
    bool few = count_ways(&a.space) <= MAX_WAYS && a.space.survey.n_places <= 64;
    if (few)
        try_all(&a, 0);
    space_release(&a.space);
    return few ? a.fastest : 0;
}

static void found_is_near_the_fastest_of_all(void **state)
{
    (void)state;
    double worst = 0;
    int n = 0;
    for (uint64_t seed = 1; n < N_SMALL_GRAPHS && seed < 4000; seed++) {
        struct subject s;
        struct search_report report = {.n_findings = 0};
        struct decisions d = {.recompute_cheap = true};
        subject_init(&s, seed, seed % 2 ? &gpu : &cpu);
        int64_t budget = s.full * (int64_t)(50 + 10 * (seed % 5)) / 100;
        const struct limits limits = device_limit(budget);
        double all = fastest_of_all(&s, budget);
        if (all > 0 && all < HUGE_VAL) {
            expect_ok(search_plan(&s.w, &limits, &free_choice, NULL, &d, &report));
            double found = report.n_findings > 0 ? report.findings[0].seconds : HUGE_VAL;
            worst = MAX(worst, found / all);
            n++;
            if (found > 1.05 * all)
                print_message("seed %d: %g instead of %g\n", (int)seed, found, all);
        }
        subject_release(&s);
    }
    print_message("%d graphs: at worst %.4f of the fastest\n", n, worst);
    assert_true(n == N_SMALL_GRAPHS && worst <= 1.05);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_graphs = strtoull(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets_are_kept_or_refused),
        cmocka_unit_test(found_is_near_the_fastest_of_all),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
