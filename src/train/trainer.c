#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/host_memory.h"
#include "base/log.h"
#include "base/machine.h"
#include "engine/averages.h"
#include "train/elastic_budgets.h"
#include "train/phase_run.h"
#include "train/probe.h"
#include "train/rate.h"
#include "train/reference.h"
#include "train/resume.h"
#include "train/step.h"

struct loop {
    struct session *s;
    const struct run_start *start;
    const struct train_options *o;
    struct train_result *result;
    struct train_state state;
    struct schedule schedule;
    struct profile profile;
    int64_t n_steps;
    struct stepper stepper;
    struct elastic elastic;
    struct metric_value losses[MODEL_MOST_LOSSES];
    int64_t n_stuck; /* steps in a row that were skipped although the loss scale is at its least */
    double started;
    double paused_s;   /* of the time since then: it waited */
    double peak_flops; /* what MFU is measured against */
    bool peak_doubted; /* and that it was measured anew is said */
};

/* ---- one step -------------------------------------------------------------------------------- */

static double output(struct loop *l, const char *name)
{
    const float *x = engine_output(&l->s->engine, l->s->train, name);
    return (double)*x;
}

/* The steps a profile wants are run with the clock beside them. */
static enum status run_profiled(struct loop *l, double lr, double *seconds)
{
    int64_t i_step = l->result->n_steps + 1;
    bool profiled = l->o->profile != NULL;
    if (profiled)
        profile_step_begin(&l->profile, i_step);
    double start = now_s();
    TRY(step_run(&l->stepper, &l->state, lr));
    *seconds = now_s() - start;
    return profiled ? profile_step_end(&l->profile, i_step, *seconds) : OK;
}

/* ---- bookkeeping ----------------------------------------------------------------------------- */

static double epoch_of(const struct loop *l)
{
    struct loader_cursor c;
    loader_get_cursor(l->s->loader, &c);
    return (double)c.epoch + (double)c.next_sample / (double)MAX(c.n_samples, (int64_t)1);
}

enum { STUCK_STEPS = 20 };

/* A step that overflowed was skipped, and the next one has a smaller scale: nothing is wrong until
 * there is no smaller one. */
static enum status check_scale(struct loop *l, const struct step_record *r)
{
    const struct config *cfg = l->s->config;
    bool fixed = cfg->loss_scale > 0;
    bool least = fixed || r->loss_scale <= cfg->min_loss_scale;
    l->n_stuck = r->skipped && least ? l->n_stuck + 1 : 0;
    if (l->n_stuck < STUCK_STEPS)
        return OK;
    return FAIL(ERR_NUMERIC,
                "step %lld: %d steps in a row overflowed with the loss scale at %g, %s. The model "
                "does not stay inside half precision: lower learning_rate (%g), or use bf16: true "
                "or f32%s",
                (long long)r->step, (int)STUCK_STEPS, r->loss_scale,
                fixed ? "which loss_scale fixes" : "the least that min_loss_scale allows", r->lr,
                fixed ? ", or loss_scale: 0 to let it adapt" : "");
}

static enum status check_finite(struct loop *l, const struct step_record *r)
{
    if (r->loss_scale > 0)
        TRY(check_scale(l, r));
    if ((isfinite(r->loss) && isfinite(r->grad_norm)) || r->skipped || r->n_units == 0)
        return OK;
    return FAIL(ERR_NUMERIC,
                "step %lld: the %s is %s. Lower learning_rate (%g), warm up longer, or set "
                "max_grad_norm; %s%s",
                (long long)r->step, isfinite(r->loss) ? "gradient norm" : "loss",
                isnan(isfinite(r->loss) ? r->grad_norm : r->loss) ? "NaN" : "infinite", r->lr,
                l->result->last_checkpoint ? "the last good checkpoint is " : "nothing was saved",
                l->result->last_checkpoint ? l->result->last_checkpoint : "");
}

/* A change of budgets that found no way back has left no arenas. */
static void measure_memory(const struct loop *l)
{
    struct engine *e = &l->s->engine;
    struct train_result *result = l->result;
    if (!e->executor)
        return;
    result->arena_bytes = executor_high_water(e->executor, TIER_DEVICE);
    result->host_bytes = executor_high_water(e->executor, TIER_HOST);
    result->device_bytes = MAX(result->device_bytes, e->device->ops->used_bytes(e->device));
    result->resident_bytes = process_peak();
    result->disk_bytes = executor_disk_bytes(e->executor);
}

static void record_memory(const struct loop *l, struct step_record *r)
{
    const struct train_result *result = l->result;
    const struct forecast *f = &l->s->engine.forecast;
    measure_memory(l);
    r->arena_bytes = result->arena_bytes;
    r->host_bytes = result->host_bytes;
    r->device_bytes = result->device_bytes;
    r->arena_predicted = f->arena_bytes;
    r->device_predicted = f->process_bytes;
}

/* Model FLOPs utilisation: of what the model's matrix products could reach. A step that was faster
 * shows that the rate was measured while the machine was busy: then that step is the measure. */
static double mfu_of(struct loop *l, double seconds)
{
    bool half = dtype_size(l->s->engine.settings.numerics.precision.weights) == 2;
    double reached = l->s->engine.forecast.step_flops / seconds;
    l->peak_flops = MAX(l->peak_flops, device_matmul_rate(&l->s->engine.device->rates, half));
    if (reached > l->peak_flops) {
        if (!l->peak_doubted)
            log_warn("a step went beyond the rate of matrix products that was measured when the "
                     "run began (the machine was busy then): MFU is of the fastest step");
        l->peak_doubted = true;
        l->peak_flops = reached;
    }
    return reached / l->peak_flops;
}

/* What is minimised, and by its name each of several losses that it is made of. */
static void record_losses(struct loop *l, struct step_record *r)
{
    const struct model_graph *io = &l->s->train->io;
    double sums[MODEL_MOST_SUMS];
    r->loss = (double)NAN;
    if (l->stepper.n_labels == 0)
        return;
    for (int i = 0; i < io->n_sums; i++)
        sums[i] = output(l, io->sums[i].name);
    r->loss = losses_total(io, sums);
    r->losses = l->losses;
    for (int i = 0; i < io->n_losses; i++) {
        if (losses_is_told(io, i))
            l->losses[r->n_losses++] =
                (struct metric_value){losses_name(io, i), losses_mean(io, i, sums), true};
    }
}

static struct step_record record_step(struct loop *l, double lr, double seconds)
{
    bool ran = l->stepper.n_labels > 0;
    double norm = ran ? output(l, "grad_norm") : 0.0;
    bool scaled = l->s->engine.settings.numerics.precision.loss_scaling;
    struct step_record r = {
        .step = l->state.step,
        .n_steps = l->n_steps,
        .epoch = epoch_of(l),
        .grad_norm = norm,
        .phase = phase_name(l->state.phases.kind),
        .loss_scale = scaled ? output(l, "loss_scale") : 0.0,
        .skipped = scaled && !isfinite(norm),
        .lr = lr,
        .unit = &l->s->engine.task.def->unit,
        .n_units = l->stepper.n_labels,
        .seconds = seconds,
        .units_per_s = (double)step_units(l->s) / seconds,
        .mfu = mfu_of(l, seconds),
    };
    record_losses(l, &r);
    l->state.n_units += r.n_units;
    r.n_units_total = l->state.n_units;
    double mean =
        (now_s() - l->started - l->paused_s) / (double)MAX(l->result->n_steps, (int64_t)1);
    r.eta_s = mean * (double)(l->n_steps - l->state.step);
    record_memory(l, &r);
    return r;
}

static enum status tell_step(struct loop *l, const struct step_record *r)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_step)
            TRY(x->on_step(x->user, r));
    }
    return OK;
}

static enum status tell_phase(struct loop *l, enum train_phase phase)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_phase)
            TRY(x->on_phase(x->user, phase, l->state.step));
    }
    return OK;
}

/* ---- between steps --------------------------------------------------------------------------- */

/* *is_best: it is the best so far. Before the first step nothing counts. */
static enum status evaluate(struct loop *l, bool is_due, bool *is_best)
{
    struct eval_record r = {.step = l->state.step, .epoch = epoch_of(l)};
    TRY(tell_phase(l, TRAIN_PHASE_EVAL));
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
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_eval)
            TRY(x->on_eval(x->user, &r));
    }
    return tell_phase(l, TRAIN_PHASE_STEPS);
}

static enum status save(struct loop *l)
{
    if (l->state.saved_step == l->state.step)
        return OK;
    TRY(tell_phase(l, TRAIN_PHASE_SAVE));
    TRY(step_finish(&l->stepper));
    double start = now_s();
    char *path = NULL;
    TRY(train_save(l->s, l->start, &l->state, epoch_of(l), &path));
    mem_free(l->result->last_checkpoint);
    l->result->last_checkpoint = path;
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_save)
            TRY(x->on_save(x->user, l->state.step, path, now_s() - start));
    }
    return tell_phase(l, TRAIN_PHASE_STEPS);
}

/* True when a step-counted or epoch-counted action is due after the step just done. */
static bool due(const struct loop *l, enum config_interval when, int64_t every, bool epoch_ended)
{
    if (when == CONFIG_INTERVAL_STEPS)
        return every > 0 && l->state.step % every == 0;
    return when == CONFIG_INTERVAL_EPOCH && epoch_ended;
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

/* A request from outside, `touch output_dir/NAME`: anything but a plain file of that name is
 * somebody's own. */
static bool is_there(const struct loop *l, const char *name, char path[4096])
{
    struct stat st;
    (void)snprintf(path, 4096, "%s/%s", l->s->config->output_dir, name);
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* SAVE and STOP are taken once. */
static bool requested(const struct loop *l, const char *name)
{
    char path[4096];
    if (!is_there(l, name, path))
        return false;
    if (unlink(path) != 0)
        log_warn("%s: cannot remove: %s", path, strerror(errno));
    return true;
}

static enum status tell_budget(struct loop *l, const struct budget_record *r)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_budget)
            TRY(x->on_budget(x->user, r));
    }
    return OK;
}

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
    if (status == OK && r.text)
        status = tell_budget(l, &r);
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

/* What was asked for, what others have left, what may be planned for beforehand. */
static enum status adapt(struct loop *l)
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
    return elastic_plan_ahead(l->s, l->result->n_steps);
}

/* While output_dir/PAUSE is there the run waits, unless it is told to stop or its time is over. */
static enum status wait_while_paused(struct loop *l)
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
        if (l->state.step > 0 && requested(l, "SAVE"))
            TRY(save(l));
        (void)nanosleep(&while_s, NULL);
    }
    l->paused_s += now_s() - from;
    return tell_phase(l, TRAIN_PHASE_STEPS);
}

static enum status after_step(struct loop *l, bool epoch_ended, bool *done)
{
    const struct config *cfg = l->s->config;
    bool out_of_time = cfg->max_time > 0 && now_s() - l->started >= cfg->max_time;
    bool ends_early = requested(l, "STOP") || out_of_time;
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
    bool keep = cfg->save_strategy != CONFIG_INTERVAL_NO;
    bool keeps_best = is_best && cfg->load_best_model_at_end;
    if (keeps_best || requested(l, "SAVE") ||
        due(l, cfg->save_strategy, cfg->save_steps, epoch_ended) || stop != OK || ends_early ||
        (last && keep)) {
        /* FAIL keeps one message: say the reason for stopping again after saving. */
        TRY(save(l));
        stop = stopped(l);
    }
    *done = last || stop != OK;
    return *done ? stop : adapt(l);
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
    for (size_t i = 0; i < l->o->n_observers && happened; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_jump)
            TRY(x->on_jump(x->user, &jump));
    }
    return OK;
}

static enum status train_step(struct loop *l, bool *done)
{
    struct loader_cursor before, after;
    double lr = rate_has_plateau(l->s->config) ? l->state.best.plateau.lr
                                               : schedule_at(&l->schedule, l->state.step);
    loader_get_cursor(l->s->loader, &before);
    double seconds;
    TRY(run_profiled(l, lr, &seconds));
    l->state.step++;
    note_labels(l);
    int64_t kept_at = l->result->n_steps++ % KEPT_STEPS;
    l->result->last_step = l->state.step;
    struct step_record r = record_step(l, lr, seconds);
    loader_get_cursor(l->s->loader, &after);
    r.ends_epoch = after.epoch != before.epoch;
    l->result->losses[kept_at] = r.loss;
    l->result->step_seconds[kept_at] = seconds;
    l->result->n_skipped += r.skipped;
    l->result->loss_scale = r.loss_scale;
    TRY(check_finite(l, &r));
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

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The kept steps lie in a ring: the one after the last is the first. */
static void unroll(const struct train_result *r, double *ring, double *scratch)
{
    size_t n = (size_t)r->n_kept, first = (size_t)(r->n_steps % r->n_kept);
    memcpy(scratch, ring, n * sizeof(*ring));
    for (size_t i = 0; i < n; i++)
        ring[i] = scratch[(first + i) % n];
}

static void summarise_phases(struct loop *l)
{
    const struct phase_state *p = &l->state.phases;
    double seconds = l->result->phases.seconds, all = now_s() - l->started - l->paused_s;
    l->result->phases = (struct phase_totals){.has_phases = p->kind != PHASE_NONE,
                                              .n_accepted = p->n_accepted,
                                              .n_rejected = p->n_rejected,
                                              .n_withheld = p->n_withheld,
                                              .n_undone = p->n_undone,
                                              .n_jumped = p->n_jumped,
                                              .seconds = seconds,
                                              .share = seconds > 0 ? seconds / all : 0};
}

static void summarise(struct loop *l)
{
    struct train_result *r = l->result;
    const struct config *cfg = l->s->config;
    double *sorted;
    r->n_kept = MIN(r->n_steps, (int64_t)KEPT_STEPS);
    if (r->n_kept == 0 || mem_try_array(&sorted, (size_t)r->n_kept, sizeof(*sorted)) != OK)
        return;
    unroll(r, r->losses, sorted);
    unroll(r, r->step_seconds, sorted);
    qsort(sorted, (size_t)r->n_kept, sizeof(*sorted), compare_doubles);
    r->median_step_s = sorted[r->n_kept / 2];
    mem_free(sorted);
    r->samples_per_s = (double)cfg->train_batch_size / r->median_step_s;
    r->units_per_s = (double)step_units(l->s) / r->median_step_s;
    r->mfu = mfu_of(l, r->median_step_s);
}

/* What a profile has found; where there is no memory left for it the run is no worse. */
static void take_profile(struct loop *l)
{
    struct str text = {0};
    if (l->profile.steps.n > 0 && profile_times(&l->profile, &l->result->times) != OK)
        log_warn("no memory is left for the times of the profile");
    profile_table(&l->profile, &text);
    if (text.n > 0 && !text.failed)
        l->result->profile = str_take(&text);
    str_release(&text);
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
    l->started = now_s();
    while (!done) {
        TRY(wait_while_paused(l));
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
    *result = (struct train_result){0};
    enum status status;
    TRY_GOTO(train_total_steps(s, &l.n_steps), out);
    l.schedule = rate_schedule(s->config, l.n_steps);
    TRY_GOTO(best_check(s), out);
    TRY_GOTO(check_profile(s, o), out);
    TRY_GOTO(train_state_init(&l.state, s->config), out);
    TRY_GOTO(train_resume(s, start, &l.state), out);
    elastic_init(&l.elastic, s);
    TRY_GOTO(reference_fill(s, !start->checkpoint), out);
    size_t n = (size_t)MIN(MAX(l.n_steps - l.state.step, (int64_t)1), (int64_t)KEPT_STEPS);
    TRY_GOTO(mem_try_array(&result->losses, n, sizeof(double)), out);
    TRY_GOTO(mem_try_array(&result->step_seconds, n, sizeof(double)), out);
    if (o->profile)
        TRY_GOTO(profile_init(&l.profile, s, o->profile, l.n_steps - l.state.step), out);
    status = run_loop(&l);
    loader_stop(s->loader);
    measure_memory(&l); /* with the last evaluation and checkpoint */
    if (result->n_unlabelled > 0)
        log_warn("%lld of %lld steps had no labels and updated nothing",
                 (long long)result->n_unlabelled, (long long)result->n_steps);
    summarise(&l);
    summarise_phases(&l);
    if (o->profile)
        take_profile(&l);
out:
    profile_release(&l.profile);
    train_state_release(&l.state);
    return status;
}

int64_t train_state_bytes(const struct config *cfg)
{
    int64_t n_steps = cfg->max_steps > 0 ? cfg->max_steps : HISTORY_MOST;
    return history_json_bytes(2 * n_steps); /* each may have an evaluation */
}

int64_t train_result_bytes(const struct config *cfg)
{
    int64_t n_steps = cfg->max_steps > 0 ? MIN(cfg->max_steps, (int64_t)KEPT_STEPS) : KEPT_STEPS;
    /* losses, times, times sorted; what is noted for checkpoints */
    return 3 * n_steps * (int64_t)sizeof(double) + history_bytes();
}

void train_result_release(struct train_result *r)
{
    mem_free(r->losses);
    mem_free(r->step_seconds);
    mem_free(r->last_checkpoint);
    mem_free(r->profile);
    instr_times_release(&r->times);
    *r = (struct train_result){0};
}
