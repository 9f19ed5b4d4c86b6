#include <math.h>

#include "base/compiler.h"
#include "optim/optimizer.h"

#define PI 3.14159265358979323846

/* What is left of the way down after a share `done` of the time. */
static double curve_down(enum schedule_curve curve, double done, double cycles)
{
    switch (curve) {
    case CURVE_LINEAR:
        return 1.0 - done;
    case CURVE_COSINE:
        return 0.5 * (1.0 + cos(PI * cycles * 2.0 * done));
    case CURVE_ONE_MINUS_SQRT:
        break;
    }
    return 1.0 - sqrt(done);
}

static double curve_up(enum schedule_curve curve, double done)
{
    switch (curve) {
    case CURVE_LINEAR:
        return done;
    case CURVE_COSINE:
        return 0.5 * (1.0 - cos(PI * done));
    case CURVE_ONE_MINUS_SQRT:
        break;
    }
    return 1.0 - sqrt(1.0 - done);
}

static double between(const struct schedule *s, double share)
{
    return s->floor + (s->peak - s->floor) * share;
}

/* Up to the peak, along it, and down to the floor. */
static double stable_at(const struct schedule *s, int64_t i_step)
{
    int64_t n_stable = s->n_stable;
    if (n_stable < 0)
        n_stable = MAX(s->n_steps - s->n_warmup - s->n_decay, (int64_t)0);
    int64_t fallen = i_step - s->n_warmup - n_stable;
    if (i_step < s->n_warmup)
        return between(s, curve_up(s->up, (double)i_step / (double)s->n_warmup));
    if (fallen < 0)
        return s->peak;
    if (fallen >= s->n_decay)
        return s->floor;
    return between(s, curve_down(s->down, (double)fallen / (double)s->n_decay, s->cycles));
}

static double inverse_sqrt_at(const struct schedule *s, int64_t i_step)
{
    int64_t scale = s->timescale > 0 ? s->timescale : s->n_warmup > 0 ? s->n_warmup : 10000;
    return s->peak / sqrt((double)(i_step + scale - s->n_warmup) / (double)scale);
}

double schedule_at(const struct schedule *s, int64_t i_step)
{
    if (s->kind == SCHEDULE_STABLE)
        return stable_at(s, i_step);
    if (i_step < s->n_warmup)
        return s->peak * (double)i_step / (double)s->n_warmup;
    int64_t span = s->n_steps - s->n_warmup;
    double done = span <= 0 ? 1.0 : fmin(1.0, (double)(i_step - s->n_warmup) / (double)span);
    switch (s->kind) {
    case SCHEDULE_LINEAR:
        return between(s, 1.0 - done);
    case SCHEDULE_COSINE:
        return between(s, curve_down(CURVE_COSINE, done, s->cycles));
    case SCHEDULE_RESTARTS:
        return done >= 1.0 ? s->floor
                           : between(s, curve_down(CURVE_COSINE, fmod(s->cycles * done, 1.0), 0.5));
    case SCHEDULE_POLYNOMIAL:
        return between(s, pow(1.0 - done, s->power));
    case SCHEDULE_INVERSE_SQRT:
        return inverse_sqrt_at(s, i_step);
    case SCHEDULE_CONSTANT:
    case SCHEDULE_STABLE:
        break;
    }
    return s->peak;
}

static bool is_better(const struct plateau *p, double metric, double best)
{
    if (isnan(best))
        return !isnan(metric);
    return p->greater_is_better ? metric > best * (1.0 + p->threshold)
                                : metric < best * (1.0 - p->threshold);
}

void plateau_step(const struct plateau *p, struct plateau_state *s, double metric)
{
    const double least_change = 1e-8;
    bool better = is_better(p, metric, s->best);
    s->best = better ? metric : s->best;
    s->n_bad = better ? 0 : s->n_bad + 1;
    if (s->n_cooling > 0) {
        s->n_cooling--;
        s->n_bad = 0;
    }
    if (s->n_bad <= p->patience)
        return;
    double lower = fmax(s->lr * p->factor, p->floor);
    if (s->lr - lower > least_change)
        s->lr = lower;
    s->n_cooling = p->cooldown;
    s->n_bad = 0;
}
