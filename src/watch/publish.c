#include "watch/publish.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "report/observe.h"
#include "train/step.h"
#include "watch/plan_table.h"

static void copy(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text ? text : "");
}

/* ---- what only a budget changes ----------------------------------------------------------------
 */

/* What the process may have of a memory. On the CPU there is one: device_memory bounds the arena in
 * it, host_memory the rest of the process; a part without a budget may be as large as it is. */
static void note_memories(struct live_run *r, const struct forecast *f)
{
    const struct budget *b = &f->budget;
    r->is_shared = b->is_shared;
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++) {
        r->needs[t] = b->needs[t];
        r->budget[t] = b->given[t] ? b->n_bytes[t] : INT64_MAX;
    }
    r->room[TIER_DEVICE] = room_available(&b->room);
    r->room[TIER_HOST] = room_available(&b->host);
    if (!b->is_shared)
        return;
    int64_t whole = INT64_MAX;
    if (b->given[TIER_DEVICE] && b->n_bytes[TIER_DEVICE] < INT64_MAX / 4) {
        int64_t rest = b->given[TIER_HOST] ? b->n_bytes[TIER_HOST] : b->needs[TIER_HOST];
        whole = rest < INT64_MAX / 4 ? b->n_bytes[TIER_DEVICE] + rest : INT64_MAX;
    }
    r->needs[TIER_HOST] = r->needs[TIER_DEVICE] = f->resident_bytes;
    r->budget[TIER_HOST] = r->budget[TIER_DEVICE] = MAX(whole, f->resident_bytes);
}

static void describe(struct live_run *r, const struct session *s, const char *id,
                     const char *precision)
{
    const struct engine *e = &s->engine;
    const struct device *d = e->device;
    const struct task_unit *unit = &e->task.def->unit;
    *r = (struct live_run){
        .pid = getpid(),
        .process_start = live_process_start(getpid()),
        .began = observe_wall_time(),
        .n_params = e->forecast.n_params,
        .step_s = e->forecast.step_s,
        .units_per_s = e->forecast.step_s > 0 ? (double)step_units(s) / e->forecast.step_s : 0,
        .follows = !d->ops->queue,
        .resident_bytes = e->forecast.resident_bytes,
    };
    memcpy(r->arena, e->work.n_bytes, sizeof(r->arena));
    copy(r->id, sizeof(r->id), id);
    copy(r->model, sizeof(r->model), e->model ? e->model->model_type : "");
    copy(r->device, sizeof(r->device), d->description);
    copy(r->address, sizeof(r->address), d->address);
    copy(r->precision, sizeof(r->precision), precision);
    copy(r->rate, sizeof(r->rate), unit->rate);
    copy(r->unit, sizeof(r->unit), unit->many);
    note_memories(r, &e->forecast);
}

void publisher_open(struct publisher *p, struct session *s, const char *id, const char *precision)
{
    struct live_run run;
    const char *folder = s->config->output_dir;
    *p = (struct publisher){.session = s};
    describe(&run, s, id, precision);
    enum status status = plan_table_write(folder, &s->engine.work);
    if (status == OK)
        status = live_create(&p->live, folder, &run);
    if (status != OK) {
        log_warn("%s: snug monitor will not see this run", status_message());
        return;
    }
    live_begin(p->live);
    live_add_event(p->live, 0, "started, process %lld", (long long)run.pid);
    live_end(p->live);
    executor_publish(s->engine.executor, &p->live->position);
}

/* Other programs: their table, and what was said of the run, anew. */
static void publish_again(struct publisher *p)
{
    struct live *l = p->live;
    const struct session *s = p->session;
    struct live_run run, before = l->run;
    describe(&run, s, before.id, before.precision);
    run.began = before.began;
    run.n_changes = before.n_changes + 1;
    if (plan_table_write(s->config->output_dir, &s->engine.work) != OK)
        log_warn("%s: snug monitor has no plan of this run from here on", status_message());
    live_begin(l);
    l->run = run;
    live_end(l);
    executor_publish(s->engine.executor, &l->position);
}

/* ---- what does ------------------------------------------------------------------------------- */

static enum status on_step(void *user, const struct step_record *r)
{
    struct live *l = ((struct publisher *)user)->live;
    struct live_now *n = &l->now;
    live_begin(l);
    n->state = LIVE_TRAINING;
    n->step = r->step;
    n->n_steps = r->n_steps;
    n->n_units = r->n_units_total;
    n->epoch = r->epoch;
    n->loss = r->loss;
    n->grad_norm = r->grad_norm;
    n->lr = r->lr;
    n->loss_scale = r->loss_scale;
    n->seconds = r->seconds;
    n->units_per_s = r->units_per_s;
    n->mfu = r->mfu;
    n->eta_s = r->eta_s;
    n->arena_bytes = r->arena_bytes;
    n->device_bytes = r->device_bytes;
    n->host_bytes = r->host_bytes;
    if (r->skipped)
        live_add_event(l, r->step, "skipped: scaled gradients overflowed (scale %g)",
                       r->loss_scale);
    live_end(l);
    return OK;
}

static enum status on_eval(void *user, const struct eval_record *r)
{
    struct live *l = ((struct publisher *)user)->live;
    live_begin(l);
    l->now.eval_loss = r->result.loss;
    l->now.eval_step = r->step;
    live_add_event(l, r->step, "evaluated: loss %.4f", r->result.loss);
    live_end(l);
    return OK;
}

static enum status on_sample(void *user, const struct sample_record *r)
{
    struct live *l = ((struct publisher *)user)->live;
    live_begin(l);
    live_add_sample(l, r->step, r->prompt, r->text);
    live_end(l);
    return OK;
}

static enum status on_save(void *user, int64_t step, const char *path, double seconds)
{
    struct live *l = ((struct publisher *)user)->live;
    const char *name = strrchr(path, '/');
    live_begin(l);
    live_add_event(l, step, "saved %.60s in %.1f s", name ? name + 1 : path, seconds);
    live_end(l);
    return OK;
}

static enum status on_phase(void *user, enum train_phase phase, int64_t step)
{
    struct live *l = ((struct publisher *)user)->live;
    static const enum live_state states[] = {[TRAIN_PHASE_STEPS] = LIVE_TRAINING,
                                             [TRAIN_PHASE_EVAL] = LIVE_EVALUATING,
                                             [TRAIN_PHASE_SAMPLE] = LIVE_SAMPLING,
                                             [TRAIN_PHASE_SAVE] = LIVE_SAVING,
                                             [TRAIN_PHASE_PAUSE] = LIVE_PAUSED};
    live_begin(l);
    if (phase == TRAIN_PHASE_PAUSE)
        live_add_event(l, step, "paused");
    else if (l->now.state == LIVE_PAUSED)
        live_add_event(l, step, "goes on");
    l->now.state = (int32_t)states[phase];
    live_end(l);
    return OK;
}

static enum status on_budget(void *user, const struct budget_record *r)
{
    struct publisher *p = user;
    char planning[BYTES_TEXT], carrying[BYTES_TEXT], took[4 * BYTES_TEXT] = "";
    if (r->changed) {
        publish_again(p);
        (void)snprintf(took, sizeof(took), ", in %s of planning and %s of carrying",
                       format_duration(planning, r->planning_s),
                       format_duration(carrying, r->carrying_s));
    }
    live_begin(p->live);
    live_add_event(p->live, r->step, "%s: %s%s%s%s%s", r->changed ? "budget" : "refused", r->wanted,
                   r->changed && r->was_planned ? ", planned beforehand" : "", took,
                   r->why ? "; " : "", r->why ? r->why : "");
    live_end(p->live);
    return OK;
}

static enum status on_trials(void *user, const struct trials_record *r)
{
    struct publisher *p = user;
    if (r->changed)
        publish_again(p);
    live_begin(p->live);
    live_add_event(p->live, r->step, "plan %d %s", r->rank,
                   r->is_settled ? "goes on: it is the fastest of those tried" : "is tried");
    live_end(p->live);
    return OK;
}

struct train_observer publisher_observer(struct publisher *p)
{
    return (struct train_observer){.user = p,
                                   .on_step = on_step,
                                   .on_eval = on_eval,
                                   .on_sample = on_sample,
                                   .on_save = on_save,
                                   .on_phase = on_phase,
                                   .on_budget = on_budget,
                                   .on_trials = on_trials};
}

void publisher_end(struct publisher *p, enum status how)
{
    struct live *l = p->live;
    if (!l)
        return;
    live_begin(l);
    l->now.state = LIVE_ENDED;
    l->now.exit_code = status_exit_code(how);
    l->now.eta_s = 0;
    if (how != OK)
        copy(l->now.message, sizeof(l->now.message), status_message());
    live_add_event(l, l->now.step, how == OK ? "ended: all steps are done" : "ended: %s",
                   l->now.message);
    live_end(l);
}

void publisher_close(struct publisher *p)
{
    if (!p->live)
        return;
    if (p->session->engine.executor)
        executor_publish(p->session->engine.executor, NULL);
    live_close(p->live);
    p->live = NULL;
}
