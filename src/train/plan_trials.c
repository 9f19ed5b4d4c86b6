#include "train/plan_trials.h"

#include <stdlib.h>
#include <string.h>

/* Beyond this the model of time is trusted: it was never seen to be wrong by as much. */
static const double CLOSE = 1.05;

void plan_trials_init(struct plan_trials *t, const struct search_report *found, int n_most,
                      double planned_s)
{
    *t = (struct plan_trials){.tried = {{.rank = 1, .planned_s = planned_s}},
                              .n_tried = 1,
                              .n_steps = -(TRIALS_FIRST + TRIALS_WARM)};
    while (t->n_plans < MIN(n_most, found->n_findings) &&
           found->findings[t->n_plans].seconds <= CLOSE * found->findings[0].seconds)
        t->n_plans++;
}

void plan_trials_end(struct plan_trials *t)
{
    t->n_plans = 0;
}

/* ---- the clock ------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double seconds[TRIALS_TIMED])
{
    double sorted[TRIALS_TIMED];
    memcpy(sorted, seconds, sizeof(sorted));
    qsort(sorted, TRIALS_TIMED, sizeof(*sorted), compare_doubles);
    return (sorted[(TRIALS_TIMED - 1) / 2] + sorted[TRIALS_TIMED / 2]) / 2;
}

static int fastest(const struct plan_trials *t)
{
    int best = 0;
    for (int i = 1; i < t->n_tried; i++) {
        if (t->tried[i].measured_s < t->tried[best].measured_s)
            best = i;
    }
    return best;
}

/* ---- what now -------------------------------------------------------------------------------- */

/* All that were tried are measured, and no more will be. */
static enum trials_wish settle(struct plan_trials *t)
{
    plan_trials_end(t);
    t->i_wanted = fastest(t);
    return t->i_wanted == t->i_running ? TRIALS_SETTLED : TRIALS_CHANGE;
}

/* No other plan will be tried: the one that runs has its second turn at once. */
static enum trials_wish turn_back(struct plan_trials *t)
{
    if (t->n_tried == 1)
        plan_trials_end(t); /* nothing was compared */
    t->is_returning = true;
    return TRIALS_NONE;
}

static void end_turn(struct plan_trials *t)
{
    struct plan_trial *p = &t->tried[t->i_running];
    p->measured_s = (p->measured_s * p->n_turns + median(t->seconds)) / (p->n_turns + 1);
    p->n_turns++;
    t->n_steps = 0;
}

/* One plan more pays where as much is left as its turns and the second ones of all others take, and
 * a turn's time to gain from it. */
static bool has_time_for_another(const struct plan_trials *t, int64_t n_left)
{
    return n_left >= (int64_t)(t->n_tried + 3) * TRIALS_STEPS;
}

enum trials_wish plan_trials_step(struct plan_trials *t, double seconds, int64_t n_left)
{
    if (t->n_plans < 2)
        return TRIALS_NONE;
    if (t->n_steps >= 0)
        t->seconds[t->n_steps] = seconds;
    if (++t->n_steps < TRIALS_TIMED)
        return TRIALS_NONE;
    end_turn(t);
    if (!t->is_returning && (t->n_tried == t->n_plans || !has_time_for_another(t, n_left)))
        return turn_back(t);
    if (t->is_returning && t->i_running == 0)
        return settle(t);
    t->i_wanted = t->is_returning ? t->i_running - 1 : t->n_tried;
    return TRIALS_CHANGE;
}

int plan_trials_wanted(const struct plan_trials *t)
{
    return t->i_wanted < t->n_tried ? t->tried[t->i_wanted].rank : t->n_tried + 1;
}

enum trials_wish plan_trials_changed(struct plan_trials *t, double planned_s)
{
    t->i_running = t->i_wanted;
    t->n_steps = -TRIALS_WARM;
    if (t->n_plans == 0)
        return TRIALS_SETTLED;
    if (t->i_wanted == t->n_tried) {
        t->tried[t->n_tried] =
            (struct plan_trial){.rank = plan_trials_wanted(t), .planned_s = planned_s};
        t->n_tried++;
    }
    return TRIALS_NONE;
}

/* One that was not tried yet: nor are those after it. The way back: the one that runs stays. */
enum trials_wish plan_trials_refused(struct plan_trials *t)
{
    if (t->i_wanted == t->n_tried)
        return turn_back(t);
    plan_trials_end(t);
    return TRIALS_SETTLED;
}
