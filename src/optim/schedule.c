#include <math.h>

#include "optim/optimizer.h"

double schedule_at(const struct schedule *s, int64_t i_step)
{
    if (i_step < s->n_warmup)
        return s->peak * (double)i_step / (double)s->n_warmup;
    if (s->kind == SCHEDULE_CONSTANT)
        return s->peak;
    int64_t span = s->n_steps - s->n_warmup;
    double done = span <= 0 ? 1.0 : fmin(1.0, (double)(i_step - s->n_warmup) / (double)span);
    double share =
        s->kind == SCHEDULE_LINEAR ? 1.0 - done : 0.5 * (1.0 + cos(3.14159265358979323846 * done));
    return s->floor + (s->peak - s->floor) * share;
}
