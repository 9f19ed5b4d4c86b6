#include "support/planning.h"

#include <math.h>

#include "support/golden.h"

static const struct search_bounds free_choice = {0};
static const struct decisions configured = {.recompute_cheap = true, .slice_bytes = SLICE_BYTES};

static struct limits limit(int64_t n_bytes)
{
    return (struct limits){.n_bytes = {n_bytes, (int64_t)1 << 40, LIMIT_OPEN}};
}

int64_t planned_needs(const struct workload *w)
{
    const struct limits limits = limit((int64_t)1 << 40);
    struct forecast f = {0};
    forecast_memory(&f, w, &limits);
    return f.budget.needs[TIER_DEVICE];
}

double planned_within(struct workload *w, int64_t n_bytes, const struct search_bounds *bounds)
{
    const struct limits limits = limit(n_bytes);
    struct decisions d = configured;
    double seconds;
    expect_ok(search_plan(w, &limits, bounds, NULL, &d, NULL));
    expect_ok(forecast_seconds(w, NULL, &seconds));
    return planned_needs(w) <= n_bytes ? seconds : HUGE_VAL;
}

double planned_seconds(struct workload *w, int64_t n_bytes)
{
    return planned_within(w, n_bytes, &free_choice);
}

int64_t planned_least(struct workload *w)
{
    const struct limits limits = limit(1);
    struct decisions d = configured;
    expect_ok(search_least(w, &limits, &free_choice, &d));
    return planned_needs(w);
}
