#include "train/plan_trials_run.h"

#include "base/log.h"

void plan_trials_run_init(struct plan_trials_run *x, const struct session *s)
{
    const struct engine *e = &s->engine;
    *x = (struct plan_trials_run){0};
    pool_init(&x->pool);
    plan_trials_init(&x->trials, &e->report, (int)s->config->plan_trials, e->forecast.step_s);
}

void plan_trials_run_release(struct plan_trials_run *x)
{
    pool_release(&x->pool);
}

/* Times that were measured since the search may have exchanged what runs and the plan before the
 * one that is asked for: then it is that one. */
static enum status change_session(struct session *s, struct session_change *c)
{
    TRY(session_change(s, c));
    if (!c->is_idle || c->known || c->rank < 2)
        return OK;
    c->rank--;
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
                               .over.folder = s->config->output_dir};
    if (t->i_wanted < t->n_tried)
        c.known = &x->known[t->i_wanted];
    enum status status = know_running(x, s);
    if (status == OK)
        status = change_session(s, &c);
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
