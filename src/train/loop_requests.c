#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/machine.h"
#include "train/elastic_budgets.h"
#include "train/loop.h"

/* ---- files in the run's folder --------------------------------------------------------------- */

/* A request from outside, `touch output_dir/NAME`: anything but a plain file of that name is
 * somebody's own. */
static bool is_there(const struct loop *l, const char *name, char path[4096])
{
    struct stat st;
    (void)snprintf(path, 4096, "%s/%s", l->s->config->output_dir, name);
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* SAVE and STOP are taken once. */
bool loop_requested(const struct loop *l, const char *name)
{
    char path[4096];
    if (!is_there(l, name, path))
        return false;
    if (unlink(path) != 0)
        log_warn("%s: cannot remove: %s", path, strerror(errno));
    return true;
}

/* While output_dir/PAUSE is there the run waits, unless it is told to stop or its time is over. */
enum status loop_wait_while_paused(struct loop *l)
{
    const double max_time = l->s->config->max_time;
    const struct timespec while_s = {0, 50 * 1000 * 1000};
    char path[4096];
    if (!is_there(l, "PAUSE", path))
        return OK;
    log_info("step %lld: waits until %s is removed", (long long)l->state.step, path);
    TRY(tell_phase(l, TRAIN_PHASE_PAUSE));
    double from = now_s();
    while (is_there(l, "PAUSE", path) && !(l->o->stop && *l->o->stop) &&
           !(max_time > 0 && now_s() - l->started >= max_time)) {
        char other[4096];
        if (is_there(l, "STOP", other))
            break;
        if (l->state.step > 0 && loop_requested(l, "SAVE"))
            TRY(loop_save(l));
        (void)nanosleep(&while_s, NULL);
    }
    l->paused_s += now_s() - from;
    l->is_disturbed = true;
    return tell_phase(l, TRAIN_PHASE_STEPS);
}

/* What is measured from here on is of another plan. */
static void note_plan(struct loop *l)
{
    l->n_steps_before_plan = l->result->n_steps;
    l->result->device_bytes = 0;
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* request NULL: the run wants it by itself. */
static enum status change_budget(struct loop *l, const struct elastic_wish *w,
                                 const struct budget_request *request)
{
    struct str answer = {0};
    struct budget_record r = {0};
    enum status status = step_finish(&l->stepper);
    if (status == OK)
        status = elastic_change(&l->elastic, l->s, w, l->state.step, &answer, &r);
    if (status == OK && request)
        budget_request_answer(l->s->config->output_dir, request, r.changed, r.text);
    if (r.changed) {
        plan_trials_end(&l->trials.trials); /* they were of the budget of before */
        note_plan(l);
    }
    if (status == OK && r.text)
        status = tell_budget(l, &r);
    l->is_disturbed = true;
    str_release(&answer);
    return status;
}

static enum status answer_request(struct loop *l, const struct budget_request *request)
{
    struct elastic_wish w;
    enum status status = elastic_request(l->s, request, &w);
    if (status == OK)
        status = change_budget(l, &w, request);
    elastic_wish_release(&w);
    return status;
}

/* A profile is of one program. */
static enum status take_budget(struct loop *l)
{
    const char *folder = l->s->config->output_dir;
    struct budget_request request;
    enum status status = OK;
    if (!budget_request_take(folder, &request))
        return OK;
    if (l->o->profile)
        budget_request_answer(folder, &request, false, "the run is being profiled");
    else
        status = answer_request(l, &request);
    budget_request_release(&request);
    return status;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static enum status try_plans(struct loop *l)
{
    struct trials_record r = {.step = l->state.step};
    if (!(l->typical_s > 0))
        return OK;
    enum trials_wish wish =
        plan_trials_step(&l->trials.trials, l->typical_s, l->n_steps - l->state.step);
    if (wish == TRIALS_NONE)
        return OK;
    TRY(step_finish(&l->stepper));
    TRY(plan_trials_run_follow(&l->trials, l->s, wish, &r));
    if (r.changed)
        note_plan(l);
    return r.changed || r.is_settled ? tell_trials(l, &r) : OK;
}

/* What was asked for, what others have left, which plan is the fastest, what may be planned for
 * beforehand. */
enum status loop_adapt(struct loop *l)
{
    struct elastic_wish w;
    bool wants;
    TRY(take_budget(l));
    if (l->o->profile)
        return OK;
    enum status status = elastic_look(&l->elastic, l->s, l->state.step, &w, &wants);
    if (status == OK && wants)
        status = change_budget(l, &w, NULL);
    elastic_wish_release(&w);
    TRY(status);
    TRY(try_plans(l));
    return elastic_plan_ahead(l->s, l->result->n_steps);
}
