/* watch_json.c: what is seen of a run as JSON: snug monitor --json, and the events of the page. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "report/observe.h"
#include "watch/watch.h"

static json_t *bytes_or_null(int64_t n)
{
    return n == INT64_MAX ? json_null() : json_integer((json_int_t)n);
}

/* Adds `value` (taken over) and gives the object back; NULL, with everything dropped, where there
 * is no memory. */
static json_t *with(json_t *o, const char *name, json_t *value)
{
    if (!o || !value || json_object_set(o, name, value) != 0) {
        json_decref(o);
        o = NULL;
    }
    json_decref(value);
    return o;
}

static json_t *append(json_t *a, json_t *value)
{
    if (!a || !value || json_array_append(a, value) != 0) {
        json_decref(a);
        a = NULL;
    }
    json_decref(value);
    return a;
}

/* ---- the state ------------------------------------------------------------------------------- */

static json_t *pack_run(const struct live_run *r)
{
    return json_pack("{s:I, s:s, s:I, s:s, s:s, s:s, s:I, s:f, s:o, s:o, s:s, s:s}", "pid",
                     (json_int_t)r->pid, "id", r->id, "changes", (json_int_t)r->n_changes, "model",
                     r->model, "device", r->device, "precision", r->precision, "params",
                     (json_int_t)r->n_params, "began", r->began, "step_ms_predicted",
                     json_finite(1e3 * r->step_s), "rate_predicted", json_finite(r->units_per_s),
                     "rate_unit", r->rate, "unit", r->unit);
}

static json_t *pack_progress(const struct live_now *n)
{
    json_t *eval = n->eval_step > 0 ? json_pack("{s:I, s:o}", "step", (json_int_t)n->eval_step,
                                                "loss", json_finite(n->eval_loss))
                                    : json_null();
    return json_pack("{s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o}", "step",
                     (json_int_t)n->step, "n_steps", (json_int_t)n->n_steps, "units",
                     (json_int_t)n->n_units, "epoch", n->epoch, "loss", json_finite(n->loss),
                     "grad_norm", json_finite(n->grad_norm), "lr", json_finite(n->lr), "step_ms",
                     json_finite(1e3 * n->seconds), "rate", json_finite(n->units_per_s), "mfu",
                     json_finite(n->mfu), "eta_s", json_finite(n->eta_s), "time", n->time, "eval",
                     eval);
}

static json_t *pack_tier(const struct watch *w, enum tier t)
{
    json_t *classes = json_object();
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++) {
        if (w->planned.by_class[t][c] > 0)
            classes = with(classes, memory_class_name((enum memory_class)c),
                           json_integer((json_int_t)w->planned.by_class[t][c]));
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "planned_now", (json_int_t)w->planned.total[t],
                     "planned_peak", (json_int_t)watch_peak(w, t), "arena",
                     (json_int_t)w->live.run.arena[t], "classes", classes);
}

static json_t *pack_now(const struct watch *w)
{
    bool inside = (uint32_t)w->position != UINT32_MAX;
    json_t *tiers = json_object();
    for (int t = 0; t < TIER_COUNT; t++)
        tiers = with(tiers, tier_name((enum tier)t), pack_tier(w, (enum tier)t));
    return json_pack("{s:I, s:o, s:s, s:b, s:o}", "program", (json_int_t)(w->position >> 32),
                     "instruction",
                     inside ? json_integer((json_int_t)(uint32_t)w->position) : json_null(), "part",
                     watch_part(w), "estimated", w->is_estimated, "tiers", tiers);
}

static json_t *pack_memory(const struct watch *w, int i)
{
    const struct watch_memory *m = &w->memory[i];
    const struct poll_memory *p = &w->poll.memory[i];
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:I, s:o, s:o}", "health",
                     health_name(m->health.health), "whose", p->whose, "use",
                     json_finite(m->health.use), "planned_use", json_finite(m->health.planned),
                     "risk", json_finite(m->risk), "needs", (json_int_t)m->input.need, "budget",
                     bytes_or_null(m->input.budget), "total",
                     p->known ? json_integer((json_int_t)p->total_bytes) : json_null(), "own",
                     (json_int_t)p->own_bytes, "others",
                     p->known ? json_integer((json_int_t)p->others_bytes) : json_null(), "free",
                     p->known ? json_integer((json_int_t)p->free_bytes) : json_null());
}

static json_t *pack_memories(const struct watch *w)
{
    json_t *o = json_object();
    for (int i = 0; i < MEMORY_VIEWS; i++) {
        if (w->memory[i].is_there && w->is_running)
            o = with(o, tier_name((enum tier)i), pack_memory(w, i));
    }
    return o;
}

static json_t *pack_alerts(const struct watch *w)
{
    json_t *all = json_array();
    for (int i = 0; i < w->n_alerts; i++) {
        const struct watch_alert *a = &w->alerts[i];
        all = append(all, json_pack("{s:s, s:s, s:s?, s:o, s:s}", "level", health_name(a->level),
                                    "about", a->about, "memory",
                                    a->memory < 0 ? NULL : tier_name((enum tier)a->memory), "pid",
                                    a->pid ? json_integer((json_int_t)a->pid) : json_null(), "text",
                                    a->text));
    }
    return all;
}

static json_t *pack_events(const struct live *l)
{
    json_t *all = json_array();
    int64_t first = MAX(l->n_events - LIVE_EVENTS, (int64_t)0);
    for (int64_t i = first; i < l->n_events; i++) {
        const struct live_event *e = &l->events[i % LIVE_EVENTS];
        all = append(all, json_pack("{s:f, s:I, s:s}", "time", e->time, "step", (json_int_t)e->step,
                                    "text", e->text));
    }
    return all;
}

json_t *watch_samples_json(const struct watch *w)
{
    const struct live *l = &w->live;
    json_t *all = json_array();
    for (int64_t i = MAX(l->n_samples - LIVE_SAMPLES, (int64_t)0); i < l->n_samples; i++) {
        const struct live_sample *s = &l->samples[i % LIVE_SAMPLES];
        all = append(all, json_pack("{s:f, s:I, s:s, s:s}", "time", s->time, "step",
                                    (json_int_t)s->step, "prompt", s->prompt, "text", s->text));
    }
    return all;
}

json_t *watch_json(const struct watch *w)
{
    return json_pack(
        "{s:s, s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "state",
        watch_state(w), "health", health_name(w->health), "message",
        w->live.now.message[0] ? json_string(w->live.now.message) : json_null(), "paused",
        watch_requested(w, "PAUSE"), "run", pack_run(&w->live.run), "progress",
        pack_progress(&w->live.now), "now", pack_now(w), "memory", pack_memories(w),
        "pressure_some", w->poll.pressure_some < 0 ? json_null() : json_real(w->poll.pressure_some),
        "pressure_full", w->poll.pressure_full < 0 ? json_null() : json_real(w->poll.pressure_full),
        "alerts", pack_alerts(w), "events", pack_events(&w->live), "samples",
        (json_int_t)w->live.n_samples);
}

/* ---- the curve ------------------------------------------------------------------------------- */

enum { STEP, FIRST, LOSS, LEAST, MOST, RATE_OF_LEARNING, STEPS_PER_S, N_SERIES };
static const char *const series_names[N_SERIES] = {"step", "first", "loss", "least",
                                                   "most", "lr",    "rate"};

static json_t *value_of(const struct watch *w, const struct curve_point *p, int series)
{
    double per_step = w->live.run.step_s > 0 ? w->live.run.units_per_s * w->live.run.step_s : 0;
    switch (series) {
    case STEP:
        return json_integer((json_int_t)p->last);
    case FIRST:
        return json_integer((json_int_t)p->first);
    case LOSS:
        return json_finite(p->n > 0 ? p->sum / (double)p->n : (double)NAN);
    case LEAST:
        return json_finite(p->n > 0 ? p->least : (double)NAN);
    case MOST:
        return json_finite(p->n > 0 ? p->most : (double)NAN);
    case RATE_OF_LEARNING:
        return json_finite(p->lr);
    default: /* units, where it is known how many a step has */
        return json_finite(p->n_rates > 0 ? per_step * p->rate / p->n_rates : (double)NAN);
    }
}

json_t *watch_curve_json(const struct watch *w, int64_t after)
{
    const struct curve *c = &w->curve;
    json_t *o = json_pack("{s:I}", "stride", (json_int_t)c->stride);
    for (int s = 0; s < N_SERIES; s++) {
        json_t *values = json_array();
        for (int i = 0; i < c->n; i++) {
            if (c->points[i].last > after)
                values = append(values, value_of(w, &c->points[i], s));
        }
        o = with(o, series_names[s], values);
    }
    json_t *evals = json_array();
    for (int i = 0; i < c->n_evals; i++)
        evals = append(evals, json_pack("[I, o]", (json_int_t)c->evals[i].step,
                                        json_finite(c->evals[i].loss)));
    return with(o, "evals", evals);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* The fullest instant of a column of instructions. */
static const struct plan_memory *fullest(const struct plan_program *p, int column, int n_columns,
                                         enum tier t)
{
    int64_t n = p->n_instrs;
    int32_t from = (int32_t)(n * column / n_columns), to = (int32_t)(n * (column + 1) / n_columns);
    int32_t best = from;
    for (int32_t k = from; k < MAX(to, from + 1); k++)
        best = p->at[k].total[t] > p->at[best].total[t] ? k : best;
    return &p->at[best];
}

static json_t *pack_classes(const struct plan_program *p, int n_columns, enum tier t)
{
    json_t *classes = json_object();
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++) {
        json_t *bytes = json_array();
        bool any = false;
        for (int k = 0; k < n_columns; k++) {
            int64_t n = fullest(p, k, n_columns, t)->by_class[t][c];
            any |= n > 0;
            bytes = append(bytes, json_integer((json_int_t)n));
        }
        if (any)
            classes = with(classes, memory_class_name((enum memory_class)c), bytes);
        else
            json_decref(bytes);
    }
    return classes;
}

static json_t *pack_parts(const struct plan_program *p)
{
    json_t *marks = json_array();
    int before = -1;
    for (int32_t k = 0; k < p->n_instrs; k++) {
        const char *name = plan_part_name(p->parts[k]);
        bool is_pass = strcmp(name, "forward") == 0 || strcmp(name, "backward") == 0 ||
                       strcmp(name, "update") == 0;
        if (!is_pass || p->parts[k] <= before)
            continue;
        before = p->parts[k];
        marks = append(marks, json_pack("[i, s]", (int)k, name));
    }
    return marks;
}

json_t *watch_timeline_json(const struct watch *w, int n_columns)
{
    if (w->table.n_programs == 0 || w->table.programs[0].n_instrs == 0)
        return json_object();
    const struct plan_program *p = &w->table.programs[0];
    int n = MIN(n_columns, p->n_instrs);
    json_t *tiers = json_object();
    for (int t = 0; t < TIER_COUNT; t++) {
        if (watch_peak(w, (enum tier)t) > 0)
            tiers = with(tiers, tier_name((enum tier)t), pack_classes(p, n, (enum tier)t));
    }
    return json_pack("{s:s, s:i, s:i, s:o, s:o}", "program", p->name, "instructions",
                     (int)p->n_instrs, "columns", n, "marks", pack_parts(p), "tiers", tiers);
}
