/* Searches begun again with less to choose from: their plans stand in one list with those of the
 * first, and each can be had by its rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "search/likeness.h"
#include "support/golden.h"
#include "support/planning.h"

/* Of a step's time: what no clock could tell apart may stand in either order. */
#define NEXT 1e-6

/* *d: what was decided. */
static void plan_ranked(struct workload *w, int64_t n_bytes, int rank, struct decisions *d,
                        struct search_report *out)
{
    const struct limits limits = {.n_bytes = {n_bytes, (int64_t)1 << 40, LIMIT_OPEN}};
    const struct search_bounds bounds = {.rank = rank};
    struct forecast f = {0};
    double seconds;
    *d = (struct decisions){.recompute_cheap = true, .slice_bytes = SLICE_BYTES};
    *out = (struct search_report){0};
    expect_ok(search_plan(w, &limits, &bounds, NULL, d, out));
    forecast_memory(&f, w, &limits);
    assert_true(f.fits);
    expect_ok(forecast_seconds(w, NULL, &seconds));
    assert_true(seconds == out->findings[out->chosen].seconds);
}

/* Plans of one search that are alike differ by little more. */
#define SAME 0.002

/* No two ways of running the step that are listed are much the same. */
static void expect_unlike_others(const struct search_report *r, int at)
{
    for (int i = 0; i < r->n_findings; i++)
        assert_int_equal(decisions_are_alike(&r->findings[i].decisions, &r->findings[at].decisions),
                         i == at);
}

/* Each rank of a budget; are there some that move activations, and others that do not? What does
 * not fit with addresses is found only when it is asked for: the next one is there then, which may
 * be as fast as one of another search. */
static bool expect_ranks(struct workload *w, int64_t n_bytes)
{
    struct search_report listed, found;
    struct decisions d;
    plan_ranked(w, n_bytes, 1, &d, &listed);
    int n_moving = d.n[EXTENT_MOVED] > 0, n_plans = 1;
    assert_int_equal(listed.chosen, 0);
    for (int i = 1; i < listed.n_findings; i++) {
        assert_true(listed.findings[i].seconds > (1 - NEXT) * listed.findings[i - 1].seconds);
        expect_unlike_others(&listed, i);
        plan_ranked(w, n_bytes, i + 1, &d, &found);
        if (found.chosen < i)
            continue; /* there are fewer than were listed */
        assert_true(found.chosen == i ||
                    found.findings[found.chosen].seconds < (1 + SAME) * listed.findings[i].seconds);
        assert_true(found.findings[0].seconds == listed.findings[0].seconds);
        n_moving += d.n[EXTENT_MOVED] > 0;
        n_plans++;
    }
    print_message("%lld bytes: %d of %d plans move activations\n", (long long)n_bytes, n_moving,
                  n_plans);
    return n_moving > 0 && n_moving < n_plans;
}

static void plans_of_all_searches_are_ranks_of_one_list(void **state)
{
    (void)state;
    enum { PARTS = 12, EVERY = SNUG_ASAN ? 12 : 2 };
    struct on_paper x;
    int n_unlike = 0, n_lists = 0;
    on_paper_open(&x, paper_llama, 4, 1);
    struct workload *w = x.w;
    const int64_t least = planned_least(w);
    (void)planned_seconds(w, (int64_t)1 << 40);
    const int64_t most = planned_needs(w);
    for (int i = 1; i < PARTS; i += EVERY, n_lists++)
        n_unlike += expect_ranks(w, least + (most - least) * i / PARTS);
    print_message("unlike plans in %d of %d lists\n", n_unlike, n_lists);
    assert_true(3 * n_unlike >= n_lists);
    on_paper_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_all_searches_are_ranks_of_one_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
