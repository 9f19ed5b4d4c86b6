#include "train/health.h"

#include <string.h>

#include "base/compiler.h"

const struct health_profile health_profiles[3] = {
    {"balanced", 0.90, 0.92, 0.95, 0.97},
    {"aggressive", 0.92, 0.94, 0.96, 0.98},
    {"conservative", 0.85, 0.88, 0.92, 0.95},
};

const char *health_name(enum health h)
{
    static const char *const names[HEALTH_COUNT] = {"underutilised", "healthy", "warning",
                                                    "critical", "emergency"};
    return names[h];
}

const struct health_profile *health_profile_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(health_profiles); i++) {
        if (strcmp(health_profiles[i].name, name) == 0)
            return &health_profiles[i];
    }
    return NULL;
}

static double share(int64_t part, int64_t whole)
{
    if (whole == INT64_MAX)
        return 0;
    return whole > 0 ? (double)part / (double)whole : 1;
}

/* A threshold, moved behind what was planned. */
static double moved(const struct health_profile *p, double planned, double threshold)
{
    if (planned <= p->target)
        return threshold;
    return planned + (1 - planned) * (threshold - p->target) / (1 - p->target);
}

/* How much a process may hold beyond its plan without it meaning anything: what the system counts
 * differs by so much from one reading to the next. */
static int64_t tolerated(int64_t need)
{
    return MAX(need / 32, (int64_t)4 << 20);
}

struct health_view health_look(const struct health_profile *p, const struct health_input *in)
{
    int64_t held = in->own > in->need + tolerated(in->need) ? in->own : in->need;
    int64_t left = in->free == INT64_MAX ? INT64_MAX : in->free + MIN(in->own, held);
    int64_t at_first = in->room > 0 ? MIN(in->budget, in->room) : in->budget;
    struct health_view v = {.use = share(held, MIN(in->budget, left)),
                            .planned = MIN(share(in->need, at_first), 1.0)};
    if (v.use > v.planned && v.use >= moved(p, v.planned, p->emergency))
        v.health = HEALTH_EMERGENCY;
    else if (v.use > v.planned && v.use >= moved(p, v.planned, p->critical))
        v.health = HEALTH_CRITICAL;
    else if (v.use > v.planned && v.use >= moved(p, v.planned, p->warning))
        v.health = HEALTH_WARNING;
    else
        v.health = v.use < 0.8 * p->target ? HEALTH_UNDERUTILISED : HEALTH_HEALTHY;
    return v;
}

/* ---- what grows ------------------------------------------------------------------------------ */

void growth_add(struct growth *g, double time, int64_t n_bytes)
{
    g->time[g->next] = time;
    g->n_bytes[g->next] = n_bytes;
    g->next = (g->next + 1) % GROWTH_SAMPLES;
    g->n = MIN(g->n + 1, (int)GROWTH_SAMPLES);
}

static int slot(const struct growth *g, int i)
{
    return (g->next - g->n + i + GROWTH_SAMPLES) % GROWTH_SAMPLES;
}

int64_t growth_bytes(const struct growth *g)
{
    return g->n > 0 ? g->n_bytes[slot(g, g->n - 1)] - g->n_bytes[slot(g, 0)] : 0;
}

double growth_rate(const struct growth *g)
{
    int64_t grown = growth_bytes(g), back = 0;
    int n_up = 0;
    if (g->n < GROWTH_SAMPLES || grown <= 0)
        return 0;
    for (int i = 1; i < g->n; i++) {
        int64_t by = g->n_bytes[slot(g, i)] - g->n_bytes[slot(g, i - 1)];
        n_up += by > 0;
        back = MAX(back, -by);
    }
    double seconds = g->time[slot(g, g->n - 1)] - g->time[slot(g, 0)];
    if (n_up < GROWTH_SAMPLES / 2 || back > grown / 10 || seconds <= 0)
        return 0;
    return (double)grown / seconds;
}

bool growth_is_leak(const struct growth *g, int64_t free_bytes, double *seconds)
{
    double rate = growth_rate(g);
    *seconds = rate > 0 ? (double)free_bytes / rate : 0;
    return rate > 0 && *seconds < GROWTH_HORIZON_S;
}
