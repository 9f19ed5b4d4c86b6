/* observe_lines.c: events of a run as JSON objects. */
#include <math.h>
#include <time.h>

#include "base/json.h"
#include "report/observe.h"

double observe_wall_time(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void loss_mean_add(struct loss_mean *m, double loss)
{
    if (!isfinite(loss))
        return;
    m->sum += loss;
    m->n++;
}

double loss_mean_take(struct loss_mean *m)
{
    double mean = m->n > 0 ? m->sum / (double)m->n : (double)NAN;
    *m = (struct loss_mean){0};
    return mean;
}

bool observe_is_due(const struct config *cfg, const struct step_record *r)
{
    bool last = r->step == r->n_steps;
    switch (cfg->logging_strategy) {
    case CONFIG_INTERVAL_NO:
        return false;
    case CONFIG_INTERVAL_EPOCH:
        return r->ends_epoch || last;
    case CONFIG_INTERVAL_STEPS:
        return r->step % cfg->logging_steps == 0 || (cfg->logging_first_step && r->step == 1) ||
               last;
    }
    return last;
}

/* {"t": now, "kind": kind} with `rest` added; takes over rest. */
static json_t *line(const char *kind, json_t *rest)
{
    json_t *o = json_pack("{s:f, s:s}", "t", observe_wall_time(), "kind", kind);
    if (!o || !rest || json_object_update(o, rest) != 0) {
        json_decref(o);
        o = NULL;
    }
    json_decref(rest);
    return o;
}

json_t *line_config(const struct config *cfg, const char *run)
{
    json_t *all;
    if (config_json(cfg, &all) != OK)
        return NULL;
    return line("config", json_pack("{s:s, s:o}", "run", run, "config", all));
}

static json_t *breakdown(const struct forecast *f)
{
    json_t *o = json_object();
    for (int c = 0; o && c < MEMORY_CLASS_COUNT; c++) {
        const char *name = memory_class_name((enum memory_class)c);
        if (json_object_set_new(o, name, json_integer((json_int_t)f->breakdown[c])) != 0)
            return NULL;
    }
    return o;
}

json_t *line_plan(const struct forecast *f)
{
    return line("plan",
                json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:o}", "params", (json_int_t)f->n_params,
                          "arena_bytes", (json_int_t)f->arena_bytes, "device_bytes",
                          (json_int_t)f->arena_bytes + (json_int_t)f->context_bytes, "host_bytes",
                          (json_int_t)f->host_bytes, "disk_bytes", (json_int_t)f->disk_bytes,
                          "step_ms", 1e3 * f->step_s, "breakdown", breakdown(f)));
}

/* Adds numbers under their names; takes over the line. */
static json_t *add_values(json_t *o, const struct metric_value *values, int n)
{
    for (int i = 0; o && i < n; i++) {
        if (!values[i].is_logged)
            continue;
        if (json_object_set_new(o, values[i].name, json_finite(values[i].value)) != 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

json_t *line_step(const struct step_record *r)
{
    json_t *memory = json_pack("{s:I, s:I, s:I, s:I, s:I}", "arena", (json_int_t)r->arena_bytes,
                               "arena_pred", (json_int_t)r->arena_predicted, "device",
                               (json_int_t)r->device_bytes, "device_pred",
                               (json_int_t)r->device_predicted, "host", (json_int_t)r->host_bytes);
    json_t *step =
        line("step",
             json_pack("{s:I, s:I, s:f, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o}", "step",
                       (json_int_t)r->step, "n_steps", (json_int_t)r->n_steps, "epoch", r->epoch,
                       "loss", json_finite(r->loss), "grad_norm", json_finite(r->grad_norm), "lr",
                       json_finite(r->lr), r->unit->many, (json_int_t)r->n_units_total,
                       r->unit->rate_key, json_finite(r->units_per_s), "step_ms",
                       json_finite(1e3 * r->seconds), "mfu", json_finite(r->mfu), "mem", memory));
    if (r->loss_scale > 0 && step &&
        (json_object_set_new(step, "loss_scale", json_finite(r->loss_scale)) != 0 ||
         json_object_set_new(step, "skipped", json_boolean(r->skipped)) != 0)) {
        json_decref(step);
        return NULL;
    }
    if (r->phase && step && json_object_set_new(step, "phase", json_string(r->phase)) != 0) {
        json_decref(step);
        return NULL;
    }
    if (r->predicted && step && json_object_set_new(step, "predicted", json_true()) != 0) {
        json_decref(step);
        return NULL;
    }
    return add_values(step, r->losses, r->n_losses);
}

json_t *line_eval(const struct eval_record *r)
{
    const struct evaluation *e = &r->result;
    json_t *eval =
        line("eval", json_pack("{s:I, s:f, s:o, s:I, s:I, s:f}", "step", (json_int_t)r->step,
                               "epoch", r->epoch, "loss", json_finite(e->loss), e->unit->many,
                               (json_int_t)e->n_units, "batches", (json_int_t)e->n_batches,
                               "seconds", e->seconds));
    return add_values(eval, e->values, e->n_values);
}

json_t *line_sample(const struct sample_record *r)
{
    return line("sample",
                json_pack("{s:I, s:i, s:s, s:s, s:I, s:b, s:f}", "step", (json_int_t)r->step,
                          "index", r->i_prompt, "prompt", r->prompt, "text", r->text, "tokens",
                          (json_int_t)r->n_tokens, "ended", r->ended, "seconds", r->seconds));
}

json_t *line_save(int64_t step, const char *path, double seconds)
{
    return line("save", json_pack("{s:I, s:s, s:f}", "step", (json_int_t)step, "path", path,
                                  "seconds", seconds));
}

json_t *line_budget(const struct budget_record *r)
{
    const struct forecast *f = r->forecast;
    return line(
        "budget",
        json_pack("{s:I, s:s, s:s?, s:b, s:b, s:s, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, "
                  "s:I, s:I, s:I, s:I, s:I, s:f}",
                  "step", (json_int_t)r->step, "wanted", r->wanted, "why", r->why, "changed",
                  r->changed, "planned_beforehand", r->was_planned, "text", r->text, "seconds",
                  r->seconds, "planning_s", r->planning_s, "carrying_s", r->carrying_s,
                  "moved_bytes", (json_int_t)r->over.moved_bytes, "by_memory_bytes",
                  (json_int_t)r->over.memory_bytes, "by_file_bytes", (json_int_t)r->over.file_bytes,
                  "held_device_bytes", (json_int_t)r->over.held[TIER_DEVICE], "held_host_bytes",
                  (json_int_t)r->over.held[TIER_HOST], "arena_bytes", (json_int_t)f->arena_bytes,
                  "host_bytes", (json_int_t)f->host_bytes, "disk_bytes", (json_int_t)f->disk_bytes,
                  "micro_batch", (json_int_t)r->batch, "micro_batches", (json_int_t)r->n_micro,
                  "step_ms", 1e3 * f->step_s));
}

/* NULL when out of memory. */
static json_t *tried(const struct trials_record *r)
{
    json_t *all = json_array();
    for (int i = 0; i < r->n_tried; i++) {
        const struct plan_trial *t = &r->tried[i];
        json_t *measured = t->measured_s > 0 ? json_real(1e3 * t->measured_s) : json_null();
        json_t *one = json_pack("{s:i, s:o, s:f, s:i}", "plan_rank", t->rank, "step_ms", measured,
                                "planned_ms", 1e3 * t->planned_s, "turns", t->n_turns);
        if (json_array_append_new(all, one) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

json_t *line_trials(const struct trials_record *r)
{
    const struct forecast *f = r->forecast;
    return line("trials",
                json_pack("{s:I, s:i, s:b, s:b, s:b, s:o, s:f, s:f, s:I, s:I, s:I}", "step",
                          (json_int_t)r->step, "plan_rank", r->rank, "changed", r->changed,
                          "planned_beforehand", r->was_planned, "settled", r->is_settled, "tried",
                          tried(r), "planning_s", r->planning_s, "carrying_s", r->carrying_s,
                          "arena_bytes", (json_int_t)f->arena_bytes, "host_bytes",
                          (json_int_t)f->host_bytes, "disk_bytes", (json_int_t)f->disk_bytes));
}

json_t *line_jump(const struct jump_record *r)
{
    return line("jump",
                json_pack("{s:I, s:s, s:s, s:f, s:f, s:i, s:o, s:o, s:o, s:f}", "step",
                          (json_int_t)r->step, "outcome", jump_outcome_name(r->outcome), "method",
                          r->method, "asked_steps", r->n_steps, "steps", r->length, "tried",
                          r->n_tried, "probe_loss", json_finite(r->probe_loss), "difference",
                          json_finite(r->difference), "standard_error", json_finite(r->error),
                          "seconds", r->seconds));
}

json_t *line_control(const struct control_record *r)
{
    return line("control",
                json_pack("{s:I, s:b, s:o, s:o, s:o, s:f, s:f}", "step", (json_int_t)r->step,
                          "predicts", (int)r->predicts, "correlation", json_finite(r->correlation),
                          "coefficient", json_finite(r->coefficient), "variance_ratio",
                          json_finite(r->variance_ratio), "cost_ratio", r->cost_ratio, "seconds",
                          r->seconds));
}

/* What predicted gradients came to; NULL: there were none. */
static json_t *control(const struct control_totals *c)
{
    if (!c->has_control)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:o, s:f, s:f, s:f, s:f}", "measured",
                     (json_int_t)c->n_measured, "paid", (json_int_t)c->n_paid, "predicted_steps",
                     (json_int_t)c->n_predicted, "variance_ratio", json_finite(c->variance_ratio),
                     "cost_ratio", c->cost_ratio, "time_ratio", c->time_ratio, "seconds",
                     c->seconds, "share", c->share);
}

/* What predictive phases came to; NULL: there were none. */
static json_t *phases(const struct phase_totals *p)
{
    if (!p->has_phases)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "accepted", (json_int_t)p->n_accepted,
                     "rejected", (json_int_t)p->n_rejected, "withheld", (json_int_t)p->n_withheld,
                     "undone", (json_int_t)p->n_undone, "jumped_steps", p->n_jumped, "seconds",
                     p->seconds, "share", p->share);
}

json_t *line_end(const struct train_result *r, const struct task_unit *unit, enum status status)
{
    return line("end",
                json_pack("{s:s, s:i, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:s?, s:o*, s:o*, s:s?}",
                          "status", status_name(status), "exit_code", status_exit_code(status),
                          "steps", (json_int_t)r->n_steps, "last_step", (json_int_t)r->last_step,
                          "step_ms", 1e3 * r->median_step_s, unit->rate_key, r->units_per_s, "mfu",
                          r->mfu, "arena_bytes", (json_int_t)r->arena_bytes, "device_bytes",
                          (json_int_t)r->device_bytes, "last_checkpoint", r->last_checkpoint,
                          "phases", phases(&r->phases), "control", control(&r->control), "message",
                          status == OK ? NULL : status_message()));
}
