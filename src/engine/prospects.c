#include "engine/prospects.h"

#include <stdio.h>

#include "engine/numeric_changes.h"

/* ---- what binds ------------------------------------------------------------------------------ */

/* Seconds of a step by what the computing queue does. */
static void find_times(const struct engine *e, struct prospects *out)
{
    const struct stage *s = engine_stage(e, STAGE_TRAIN);
    const struct program *p = s->program;
    double busy = 0;
    for (size_t x = 0; x < p->sections.n; x++) {
        const struct section *section = &p->sections.items[x];
        double runs = (double)section_runs(s->program, section, s->n_micro);
        for (int32_t k = section->first; k < section->first + section->n; k++) {
            const struct instr *i = &p->instrs.items[k];
            bool alone = !e->device->ops->queue; /* copies take their turn there */
            if (i->kind == INSTR_COMPUTE)
                busy += runs * s->prediction.seconds[k];
            else if (alone)
                out->waiting_s += runs * s->prediction.seconds[k];
            if (i->kind == INSTR_COMPUTE && i->recompute)
                out->recompute_s += runs * s->prediction.seconds[k];
        }
    }
    if (e->device->ops->queue)
        out->waiting_s = MAX(e->forecast.step_s - busy, 0.0);
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Plans with these settings and notes what comes out. */
static enum status add_plan(const struct engine *e, const struct settings *s,
                            struct prospect prospect, struct prospects *out)
{
    struct engine trial;
    if (out->n == MOST_PROSPECTS)
        return OK;
    struct settings best = *s;
    best.bounds.rank = 1;
    engine_init(&trial, &best, e->task, e->device);
    trial.times = e->times;
    trial.cache_folder = e->cache_folder; /* another look finds what this one has */
    trial.replans = e->replans;
    enum status status = engine_plan(&trial, &e->request);
    if (status == OK) {
        prospect.fits = trial.forecast.fits;
        prospect.step_s = trial.forecast.step_s;
        prospect.device_needs = trial.forecast.budget.needs[TIER_DEVICE];
        out->items[out->n++] = prospect;
    }
    trial.times = NULL; /* not its own */
    engine_close(&trial);
    return status;
}

/* One GiB more, and as much as could be used. */
static enum status add_budget(const struct engine *e, enum tier t, int64_t n_bytes,
                              struct prospects *out)
{
    struct settings s;
    struct prospect prospect = {.is_budget = true};
    char text[BYTES_TEXT];
    TRY(settings_from_config(&s, e->config, e->device));
    s.limits.n_bytes[t] = n_bytes;
    if (n_bytes == INT64_MAX)
        (void)snprintf(prospect.setting, sizeof(prospect.setting), "%s_memory without limit",
                       tier_name(t));
    else
        (void)snprintf(prospect.setting, sizeof(prospect.setting), "%s_memory=%s", tier_name(t),
                       room_setting(n_bytes, text));
    return add_plan(e, &s, prospect, out);
}

static enum status add_change(const struct engine *e, int i, struct prospects *out)
{
    struct settings s;
    struct config c;
    struct str text = {0};
    struct prospect prospect = {0};
    enum status status = OK;
    if (numeric_change_alone(i, e, &c, &text) && str_status(&text) == OK &&
        settings_from_config(&s, &c, e->device) == OK) {
        (void)snprintf(prospect.setting, sizeof(prospect.setting), "%s", str_text(&text));
        status = add_plan(e, &s, prospect, out);
    }
    str_release(&text);
    return status;
}

enum status engine_prospects(const struct engine *e, struct prospects *out)
{
    const struct budget *b = &e->forecast.budget;
    const int64_t more = (int64_t)1 << 30;
    const struct stage *s = engine_stage(e, STAGE_TRAIN);
    *out = (struct prospects){0};
    if (!s || !e->config || !e->forecast.fits)
        return FAIL(ERR_USAGE, "only a plan to train that fits its budgets has prospects");
    find_times(e, out);
    out->keeps_all = !decisions_copy(&e->settings.decisions) &&
                     e->settings.decisions.form_bytes == 0 && s->plan.n_blocks_recomputed == 0;
    if (out->keeps_all)
        return OK; /* whatever saves memory saves nothing that is missed */
    if (b->n_bytes[TIER_DEVICE] < INT64_MAX - more)
        TRY(add_budget(e, TIER_DEVICE, b->n_bytes[TIER_DEVICE] + more, out));
    if (b->given[TIER_HOST] && b->n_bytes[TIER_HOST] < INT64_MAX - more)
        TRY(add_budget(e, TIER_HOST, b->n_bytes[TIER_HOST] + more, out));
    TRY(add_budget(e, TIER_DEVICE, INT64_MAX, out));
    for (int i = 0; i < numeric_changes_count(); i++)
        TRY(add_change(e, i, out));
    return OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

enum { WORTH_PERCENT = 1 }; /* less is within what predictions are good for */

static double gain_percent(const struct prospect *x, const struct forecast *now)
{
    return x->fits && x->step_s > 0 ? 100.0 * (now->step_s / x->step_s - 1.0) : 0;
}

static void add_binding(const struct prospects *p, const struct forecast *now, struct str *out)
{
    char spare[BYTES_TEXT];
    double step = now->step_s > 0 ? now->step_s : 1;
    if (p->keeps_all) {
        const struct budget *b = &now->budget;
        str_addf(out,
                 "arithmetic binds: everything is kept on the device, %s to spare; more memory, "
                 "recomputing, offloading or smaller states would not make it faster\n",
                 format_bytes(spare, b->n_bytes[TIER_DEVICE] - b->needs[TIER_DEVICE]));
        return;
    }
    double again = 100.0 * p->recompute_s / step, waits = 100.0 * p->waiting_s / step;
    str_addf(out,
             "%s binds: %.1f%% of a step computes something again, %.1f%% of it waits for copies\n",
             again + waits < 2 * WORTH_PERCENT ? "arithmetic" : "memory", again, waits);
}

/* One GiB more may be as good as all that could be used. */
static bool is_said(const struct prospects *p, int i)
{
    const struct prospect *x = &p->items[i];
    bool is = false;
    for (int k = 0; k < i; k++)
        is |= p->items[k].is_budget && x->is_budget && p->items[k].step_s == x->step_s &&
              p->items[k].device_needs == x->device_needs;
    return is;
}

static void add_gains(const struct prospects *p, const struct forecast *now, struct str *out)
{
    char step[BYTES_TEXT], needs[BYTES_TEXT];
    for (int i = 0; i < p->n; i++) {
        const struct prospect *x = &p->items[i];
        double gain = gain_percent(x, now);
        if (gain >= WORTH_PERCENT && !is_said(p, i))
            str_addf(out, "%s: %s per step, %.1f%% faster (%s of the device%s)\n", x->setting,
                     format_duration(step, x->step_s), gain, format_bytes(needs, x->device_needs),
                     x->is_budget ? ", the same losses" : ", other numerics");
    }
}

static void add_useless(const struct prospects *p, const struct forecast *now, struct str *out)
{
    const char *before = "no use here, as the step would be as long: ";
    for (int i = 0; i < p->n; i++) {
        if (gain_percent(&p->items[i], now) >= WORTH_PERCENT)
            continue;
        str_addf(out, "%s%s", before, p->items[i].setting);
        before = ", ";
    }
    if (*before == ',')
        str_add(out, "\n");
}

void prospects_add_text(const struct prospects *p, const struct forecast *now, struct str *out)
{
    add_binding(p, now, out);
    add_gains(p, now, out);
    add_useless(p, now, out);
}
