#include "train/trainer.h"

#include "base/log.h"
#include "base/machine.h"
#include "engine/averages.h"
#include "train/control_run.h"
#include "train/loop.h"
#include "train/phase_run.h"
#include "train/probe.h"
#include "train/rate.h"
#include "train/reference.h"

/* ---- one step -------------------------------------------------------------------------------- */

/* The steps a profile wants are run with the clock beside them. */
static enum status run_profiled(struct loop *l, double lr, double *seconds)
{
    int64_t i_step = l->result->n_steps + 1;
    bool profiled = l->o->profile != NULL;
    if (profiled)
        profile_step_begin(&l->profile, i_step);
    bool predicts = l->state.control.predicts;
    double start = now_s();
    TRY(predicts ? control_step(&l->stepper, &l->state, lr) : step_run(&l->stepper, &l->state, lr));
    *seconds = now_s() - start;
    l->kinds[predicts].n++;
    l->kinds[predicts].seconds += *seconds;
    return profiled ? profile_step_end(&l->profile, i_step, *seconds) : OK;
}

double loop_epoch(const struct loop *l)
{
    struct loader_cursor c;
    loader_get_cursor(l->s->loader, &c);
    return (double)c.epoch + (double)c.next_sample / (double)MAX(c.n_samples, (int64_t)1);
}

/* ---- between steps --------------------------------------------------------------------------- */

/* *is_best: it is the best so far. Before the first step nothing counts. */
static enum status evaluate(struct loop *l, bool is_due, bool *is_best)
{
    struct eval_record r = {.step = l->state.step, .epoch = loop_epoch(l)};
    TRY(tell_phase(l, TRAIN_PHASE_EVAL));
    l->is_disturbed = true;
    TRY(step_finish(&l->stepper));
    TRY(averages_swap(&l->s->engine));
    enum status status = session_evaluate(l->s, l->s->config->eval_max_batches, &r.result);
    TRY(averages_swap(&l->s->engine));
    TRY(status);
    *is_best = r.step > 0 && best_take(&l->state.best, l->s->config, &r.result, r.step, is_due);
    history_add(&l->state.history, &(struct history_entry){.is_eval = true,
                                                           .step = r.step,
                                                           .epoch = r.epoch,
                                                           .loss = r.result.loss,
                                                           .seconds = r.result.seconds});
    TRY(tell_eval(l, &r));
    return tell_phase(l, TRAIN_PHASE_STEPS);
}

static enum status write_texts(struct loop *l)
{
    struct sample_record r = {.n_prompts = (int)l->s->config->sample_prompts.n};
    for (int i = 0; i < r.n_prompts && !(l->o->stop && *l->o->stop); i++) {
        TRY(sample_texts_write(l->s->samples, i, l->state.step, l->o->stop, &r));
        TRY(tell_sample(l, &r));
    }
    return OK;
}

/* By the weights that evaluations go by. */
static enum status write_samples(struct loop *l)
{
    TRY(tell_phase(l, TRAIN_PHASE_SAMPLE));
    l->is_disturbed = true;
    TRY(step_finish(&l->stepper));
    TRY(averages_swap(&l->s->engine));
    enum status status = write_texts(l);
    TRY(averages_swap(&l->s->engine));
    TRY(status);
    return tell_phase(l, TRAIN_PHASE_STEPS);
}

enum status loop_save(struct loop *l)
{
    if (l->state.saved_step == l->state.step)
        return OK;
    TRY(tell_phase(l, TRAIN_PHASE_SAVE));
    l->is_disturbed = true;
    TRY(step_finish(&l->stepper));
    double start = now_s();
    char *path = NULL;
    TRY(train_save(l->s, l->start, &l->state, loop_epoch(l), &path));
    mem_free(l->result->last_checkpoint);
    l->result->last_checkpoint = path;
    TRY(tell_save(l, path, now_s() - start));
    return tell_phase(l, TRAIN_PHASE_STEPS);
}

/* True when a step-counted or epoch-counted action is due after the step just done. */
static bool due(const struct loop *l, enum config_interval when, int64_t every, bool epoch_ended)
{
    if (when == CONFIG_INTERVAL_STEPS)
        return every > 0 && l->state.step % every == 0;
    return when == CONFIG_INTERVAL_EPOCH && epoch_ended;
}

/* With evaluations, or so many steps apart; and after the last step. */
static bool samples_due(const struct loop *l, bool evaluated, bool last)
{
    int64_t every = l->s->config->sample_steps;
    if (!l->s->samples)
        return false;
    return last || (every == CONFIG_UNSET ? evaluated : l->state.step % every == 0);
}

static enum status stopped(const struct loop *l)
{
    if (!l->o->stop || !*l->o->stop)
        return OK;
    l->result->signal = (int)*l->o->stop;
    long long step = (long long)l->state.step;
    if (l->result->signal == SIGTERM)
        return FAIL(ERR_TERMINATED, "stopped by SIGTERM after step %lld", step);
    if (l->result->signal == SIGHUP)
        return FAIL(ERR_HANGUP, "stopped after step %lld: the terminal was closed (SIGHUP)", step);
    return FAIL(ERR_INTERRUPTED, "interrupted after step %lld", step);
}

static enum status after_step(struct loop *l, bool epoch_ended, bool *done)
{
    const struct config *cfg = l->s->config;
    bool out_of_time = cfg->max_time > 0 && now_s() - l->started >= cfg->max_time;
    bool ends_early = loop_requested(l, "STOP") || out_of_time;
    bool last = l->state.step >= l->n_steps || ends_early;
    enum status stop = stopped(l);
    bool eval_due = due(l, cfg->eval_strategy, cfg->eval_steps, epoch_ended), is_best = false;
    if (stop == OK && (eval_due || (last && cfg->eval_strategy != CONFIG_INTERVAL_NO)))
        TRY(evaluate(l, eval_due, &is_best));
    if (stop == OK && eval_due && !last && best_stops(&l->state.best, cfg)) {
        log_info("step %lld: %lld evaluations in a row were no better than %.6g: the run ends here "
                 "(early_stopping_patience)",
                 (long long)l->state.step, (long long)l->state.best.n_worse, l->state.best.value);
        last = true;
    }
    if (stop == OK && samples_due(l, eval_due, last))
        TRY(write_samples(l));
    bool keep = cfg->save_strategy != CONFIG_INTERVAL_NO;
    bool keeps_best = is_best && cfg->load_best_model_at_end;
    if (keeps_best || loop_requested(l, "SAVE") ||
        due(l, cfg->save_strategy, cfg->save_steps, epoch_ended) || stop != OK || ends_early ||
        (last && keep)) {
        /* FAIL keeps one message: say the reason for stopping again after saving. */
        TRY(loop_save(l));
        stop = stopped(l);
    }
    *done = last || stop != OK;
    return *done ? stop : loop_adapt(l);
}

static void note_labels(struct loop *l)
{
    if (l->stepper.n_labels > 0) {
        l->state.n_updates++;
        return;
    }
    if (l->result->n_unlabelled++ == 0)
        log_warn("step %lld: no %s of its batch is a label: nothing is updated (said once; the "
                 "end of the run says how many such steps there were)",
                 (long long)l->state.step, l->s->engine.task.def->unit.one);
}

/* Snapshots and jumps; what they took is counted apart from the steps. */
static enum status run_phases(struct loop *l, const struct step_record *r)
{
    struct jump_record jump;
    bool happened;
    double began = now_s();
    TRY(phase_run_after_step(&l->stepper, &l->state, r->loss, r->grad_norm, &jump, &happened));
    l->result->phases.seconds += now_s() - began;
    return happened ? tell_jump(l, &jump) : OK;
}

/* Whether gradients of the steps to come are predicted. */
static enum status run_control(struct loop *l)
{
    struct control_record r;
    TRY(control_measure(&l->stepper, &r));
    r.step = l->state.step;
    control_take(&l->state.control, l->s->config, r.step, &r);
    l->result->control.seconds += r.seconds;
    return tell_control(l, &r);
}

static enum status train_step(struct loop *l, bool *done)
{
    struct loader_cursor before, after;
    double lr = rate_has_plateau(l->s->config) ? l->state.best.plateau.lr
                                               : schedule_at(&l->schedule, l->state.step);
    if (control_is_due(&l->state.control, l->state.step))
        TRY(run_control(l));
    loader_get_cursor(l->s->loader, &before);
    double seconds;
    TRY(run_profiled(l, lr, &seconds));
    l->state.step++;
    l->typical_s = l->is_disturbed || l->stepper.n_labels == 0 ? 0 : seconds;
    l->is_disturbed = false;
    note_labels(l);
    int64_t kept_at = l->result->n_steps++ % KEPT_STEPS;
    l->result->last_step = l->state.step;
    struct step_record r = loop_record_step(l, lr, seconds);
    loader_get_cursor(l->s->loader, &after);
    r.ends_epoch = after.epoch != before.epoch;
    l->result->losses[kept_at] = r.loss;
    l->result->step_seconds[kept_at] = seconds;
    l->result->n_skipped += r.skipped;
    l->result->loss_scale = r.loss_scale;
    TRY(loop_check_numbers(l, &r));
    history_add(&l->state.history, &(struct history_entry){.step = r.step,
                                                           .epoch = r.epoch,
                                                           .loss = r.loss,
                                                           .grad_norm = r.grad_norm,
                                                           .lr = r.lr});
    TRY(tell_step(l, &r));
    if (r.phase)
        TRY(run_phases(l, &r));
    return after_step(l, r.ends_epoch, done);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Batches of an epoch as the run was cut when it began: its length does not change with it. */
static int64_t first_batches(const struct session *s, const struct config *first)
{
    int64_t rows = first->per_device_train_batch_size * first->n_ranks;
    bool keeps_last = session_loader_options(s, false).keep_last;
    if (rows == s->config->per_device_train_batch_size * s->config->n_ranks)
        return loader_n_batches(s->loader);
    return (loader_n_samples(s->loader) + (keeps_last ? rows - 1 : 0)) / rows;
}

enum status train_total_steps(const struct session *s, int64_t *n_steps)
{
    const struct config *cfg = s->config;
    const struct config first = session_first_config(s);
    *n_steps = cfg->max_steps;
    if (cfg->max_steps > 0)
        return OK;
    double batches = cfg->num_train_epochs * (double)first_batches(s, &first);
    double steps = batches / (double)first.gradient_accumulation_steps;
    if (steps > (double)TRAIN_MOST_STEPS)
        return FAIL(
            ERR_CONFIG,
            "%s: num_train_epochs %g over %lld batches is a run of %.3g steps, and %lld are "
            "the most: lower it, or set max_steps",
            config_where(cfg, "num_train_epochs"), cfg->num_train_epochs,
            (long long)loader_n_batches(s->loader), steps, (long long)TRAIN_MOST_STEPS);
    *n_steps = MAX((int64_t)steps, (int64_t)1);
    return OK;
}

static enum status run_loop(struct loop *l)
{
    const struct config *cfg = l->s->config;
    bool done = l->state.step >= l->n_steps;
    if (done)
        log_info("nothing is left to do: step %lld of %lld is done; raise max_steps to go on",
                 (long long)l->state.step, (long long)l->n_steps);
    else if (cfg->save_strategy == CONFIG_INTERVAL_NO)
        log_info("save_strategy: no: nothing is saved unless the run is stopped before its end");
    TRY(probe_fill(l->s));
    TRY(session_start_loader(l->s, false));
    bool is_best;
    if (cfg->eval_on_start && l->s->eval)
        TRY(evaluate(l, false, &is_best));
    if (cfg->eval_on_start && l->s->samples && cfg->sample_steps == CONFIG_UNSET)
        TRY(write_samples(l));
    l->started = now_s();
    while (!done) {
        TRY(loop_wait_while_paused(l));
        TRY(train_step(l, &done));
    }
    TRY(step_finish(&l->stepper));
    return train_load_best(l->s, &l->state);
}

/* Instructions are timed by their places in one program. */
static enum status check_profile(const struct session *s, const struct train_options *o)
{
    if (!o->profile || s->n_lengths == 1)
        return OK;
    return FAIL(ERR_UNSUPPORTED,
                "%s: with group_by_length steps run several programs, and a profile is of one: "
                "profile with group_by_length=false",
                config_where(s->config, "group_by_length"));
}

enum status train_run(struct session *s, const struct run_start *start,
                      const struct train_options *o, struct train_result *result)
{
    struct loop l = {.s = s, .start = start, .o = o, .result = result, .stepper = {.s = s}};
    *result = (struct train_result){.control = {.cost_ratio = control_cost(s)}};
    enum status status;
    TRY_GOTO(train_total_steps(s, &l.n_steps), out);
    l.schedule = rate_schedule(s->config, l.n_steps);
    TRY_GOTO(best_check(s), out);
    TRY_GOTO(check_profile(s, o), out);
    TRY_GOTO(train_state_init(&l.state, s->config), out);
    TRY_GOTO(train_resume(s, start, &l.state), out);
    elastic_init(&l.elastic, s);
    plan_trials_run_init(&l.trials, s);
    TRY_GOTO(reference_fill(s, !start->checkpoint), out);
    size_t n = (size_t)MIN(MAX(l.n_steps - l.state.step, (int64_t)1), (int64_t)KEPT_STEPS);
    TRY_GOTO(mem_try_array(&result->losses, n, sizeof(double)), out);
    TRY_GOTO(mem_try_array(&result->step_seconds, n, sizeof(double)), out);
    if (o->profile)
        TRY_GOTO(profile_init(&l.profile, s, o->profile, l.n_steps - l.state.step), out);
    status = run_loop(&l);
    loader_stop(s->loader);
    loop_measure_memory(&l); /* with the last evaluation and checkpoint */
    loop_summarise(&l);
out:
    profile_release(&l.profile);
    plan_trials_run_release(&l.trials);
    train_state_release(&l.state);
    return status;
}
