#include "train/plan_trials_run.h"

#include "base/log.h"

/* Where the plan that runs was changed after the search, the others want that too: they are
 * searched for. */
static bool is_as_found(const struct engine *e)
{
    return !e->settings.decisions.defer_updates && !e->device->disk;
}

/* What there is no memory for is searched for. */
static void list_findings(struct plan_trials_run *x, const struct search_report *r)
{
    while (x->n_listed < r->n_findings && decisions_keep(&r->findings[x->n_listed].decisions,
                                                         &x->pool, &x->listed[x->n_listed]) == OK)
        x->n_listed++;
}

void plan_trials_run_init(struct plan_trials_run *x, const struct session *s)
{
    const struct engine *e = &s->engine;
    *x = (struct plan_trials_run){0};
    pool_init(&x->pool);
    plan_trials_init(&x->trials, &e->report, (int)s->config->plan_trials, e->forecast.step_s);
    if (x->trials.n_plans > 1 && is_as_found(e))
        list_findings(x, &e->report);
}

void plan_trials_run_release(struct plan_trials_run *x)
{
    pool_release(&x->pool);
}

static const struct decisions *find_listed(const struct plan_trials_run *x, int rank)
{
    return rank <= x->n_listed ? &x->listed[rank - 1] : NULL;
}

/* Where the plan that runs is not the first of them, it may be the one that is asked for: then it
 * is the one before that. So it is where times that were measured since have changed the order. */
static enum status change_to_new(const struct plan_trials_run *x, struct session *s,
                                 struct session_change *c)
{
    c->known = find_listed(x, c->rank);
    TRY(session_change(s, c));
    if (!c->is_idle || c->rank < 2)
        return OK;
    c->known = find_listed(x, --c->rank);
    return session_change(s, c);
}

static enum status change_to_known(const struct plan_trials_run *x, struct session *s,
                                   struct session_change *c)
{
    c->known = &x->known[x->trials.i_wanted];
    return session_change(s, c);
}

/* What it takes to come back to the plan that runs; plans run for the first time in this order. */
static enum status know_running(struct plan_trials_run *x, const struct session *s)
{
    if (x->trials.i_running < x->n_known)
        return OK;
    return decisions_keep(&s->engine.settings.decisions, &x->pool, &x->known[x->n_known++]);
}

static enum status change_plan(struct plan_trials_run *x, struct session *s, enum trials_wish *wish,
                               struct trials_record *r)
{
    struct plan_trials *t = &x->trials;
    struct session_change c = {.limits = s->engine.settings.limits,
                               .rank = plan_trials_wanted(t),
                               .anew = t->i_wanted == t->i_running,
                               .over.folder = s->config->output_dir};
    enum status status = know_running(x, s);
    if (status == OK)
        status = t->i_wanted < t->n_tried ? change_to_known(x, s, &c) : change_to_new(x, s, &c);
    if (c.is_lost)
        return status;
    if (status != OK)
        log_info("plan %d cannot be had: %s", plan_trials_wanted(t), status_message());
    r->changed = status == OK && !c.is_idle;
    r->was_planned = r->changed && c.was_planned;
    r->planning_s = c.planning_s;
    r->carrying_s = c.carrying_s;
    *wish = r->changed ? plan_trials_changed(t, s->engine.forecast.step_s) : plan_trials_refused(t);
    return OK;
}

enum status plan_trials_run_follow(struct plan_trials_run *x, struct session *s,
                                   enum trials_wish wish, struct trials_record *r)
{
    const struct plan_trials *t = &x->trials;
    while (wish == TRIALS_CHANGE)
        TRY(change_plan(x, s, &wish, r));
    r->rank = t->tried[t->i_running].rank;
    r->is_settled = wish == TRIALS_SETTLED;
    r->tried = t->tried;
    r->n_tried = t->n_tried;
    r->forecast = &s->engine.forecast;
    return OK;
}
