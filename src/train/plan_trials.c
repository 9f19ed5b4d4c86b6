#include "train/plan_trials.h"

#include <stdlib.h>
#include <string.h>

/* Beyond this the model of time is trusted: it was never seen to be wrong by as much. */
static const double CLOSE = 1.05;
/* After the first round, and after the second: of the fastest's time, what is worth one more. */
static const double CLOSE_STILL[] = {1.01, 1.005};

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

/* Of those that are in: the others ran when the device was cooler. */
static int fastest(const struct plan_trials *t)
{
    int best = -1;
    for (int i = 0; i < t->n_tried; i++) {
        const struct plan_trial *p = &t->tried[i];
        if (!p->is_out && (best < 0 || p->measured_s < t->tried[best].measured_s))
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
    if (t->n_tried == 1) {
        plan_trials_end(t); /* nothing was compared */
        return TRIALS_NONE;
    }
    t->is_returning = true;
    t->i_wanted = t->i_running;
    return TRIALS_CHANGE;
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

/* The next plan of the round in this direction; none: n_tried, or -1. */
static int next_in(const struct plan_trials *t, int i, int direction)
{
    do {
        i += direction;
    } while (i >= 0 && i < t->n_tried && t->tried[i].is_out);
    return i;
}

/* Leaves those in that are close to the fastest, and says how many. */
static int narrow(struct plan_trials *t, double close)
{
    double most = close * t->tried[fastest(t)].measured_s;
    int n = 0;
    for (int i = 0; i < t->n_tried; i++) {
        struct plan_trial *p = &t->tried[i];
        p->is_out = p->is_out || p->measured_s > most;
        n += !p->is_out;
    }
    return n;
}

/* All are back. Another round pays where as much is left as it takes, and a turn's time. */
static enum trials_wish end_round(struct plan_trials *t, int64_t n_left)
{
    size_t i_round = (size_t)t->n_rounds++;
    if (i_round == ARRAY_LEN(CLOSE_STILL))
        return settle(t);
    int n = narrow(t, CLOSE_STILL[i_round]);
    if (n < 2 || n_left < (int64_t)(2 * n + 1) * TRIALS_STEPS)
        return settle(t);
    t->is_returning = false;
    t->i_wanted = next_in(t, -1, 1);
    return TRIALS_CHANGE;
}

/* There: to one that was not tried yet, as long as the first round finds such. */
static enum trials_wish go_on(struct plan_trials *t, int64_t n_left)
{
    int next = next_in(t, t->i_running, 1);
    bool is_new = next == t->n_tried;
    if (is_new && (t->n_rounds > 0 || next == t->n_plans || !has_time_for_another(t, n_left)))
        return turn_back(t);
    t->i_wanted = next;
    return TRIALS_CHANGE;
}

static enum trials_wish go_back(struct plan_trials *t, int64_t n_left)
{
    int next = next_in(t, t->i_running, -1);
    if (next < 0)
        return end_round(t, n_left);
    t->i_wanted = next;
    return TRIALS_CHANGE;
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
    return t->is_returning ? go_back(t, n_left) : go_on(t, n_left);
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
