#include "train/dynamic_batch.h"

#include "engine/changeover.h"

/* ---- when ------------------------------------------------------------------------------------ */

/* Steps from this one to the next look; 0: it is now. */
static int64_t steps_to_look(const struct config *cfg, int64_t step)
{
    int64_t first = MAX(cfg->dynamic_batch_warmup, (int64_t)1), every = cfg->dynamic_batch_every;
    return step <= first ? first - step : (every - (step - first) % every) % every;
}

bool dynamic_reads(const struct config *cfg, int64_t step)
{
    return cfg->dynamic_batch && steps_to_look(cfg, step) < cfg->dynamic_batch_smooth;
}

enum dynamic_wish dynamic_look(struct dynamic_batch *d, const struct config *cfg, int64_t step,
                               double use)
{
    double sum = 0;
    if (d->n_uses < DYNAMIC_READINGS)
        d->uses[d->n_uses++] = (float)use;
    if (steps_to_look(cfg, step) > 0)
        return DYNAMIC_NONE;
    for (int i = 0; i < d->n_uses; i++)
        sum += (double)d->uses[i];
    double mean = sum / d->n_uses;
    d->n_uses = 0;
    if (mean < cfg->dynamic_batch_target - cfg->dynamic_batch_grow)
        return DYNAMIC_GROW;
    return mean > cfg->dynamic_batch_target + cfg->dynamic_batch_shrink ? DYNAMIC_SHRINK
                                                                        : DYNAMIC_NONE;
}

/* ---- which ----------------------------------------------------------------------------------- */

struct choosing {
    struct session *s;
    const struct limits *limits;
    struct surroundings around;
    struct pool *pool;
    struct dynamic_choice best; /* so far */
};

static enum status consider(struct choosing *c, int64_t batch, double step_s,
                            const struct decisions *decisions, bool was_planned, bool *is_better)
{
    struct dynamic_choice *best = &c->best;
    *is_better = best->batch == 0 || step_s < best->step_s;
    if (!*is_better)
        return OK;
    *best = (struct dynamic_choice){.batch = batch, .step_s = step_s, .was_planned = was_planned};
    return decisions_keep(decisions, c->pool, &best->decisions);
}

static enum status search_batch(struct choosing *c, int64_t batch, bool *is_better)
{
    struct session_shape x;
    struct engine next;
    TRY(session_shape(c->s, batch, &x));
    const struct replan r = {
        .limits = *c->limits, .request = &x.request, .config = &x.config, .is_timed = true};
    TRY(engine_replan_beside(&c->s->engine, &r, &c->around, &next));
    enum status status = OK;
    if (next.forecast.fits)
        status =
            consider(c, batch, next.forecast.step_s, &next.settings.decisions, false, is_better);
    engine_discard(&next);
    return status;
}

static enum status plan_batch(struct choosing *c, int64_t batch, bool *is_better)
{
    const struct ahead *ahead = c->s->ahead;
    const struct ahead_plan *p = ahead ? ahead_find(ahead, c->limits, batch, false) : NULL;
    *is_better = false;
    return p ? consider(c, batch, p->step_s, &p->decisions, true, is_better)
             : search_batch(c, batch, is_better);
}

int64_t dynamic_neighbour(const struct config *cfg, int64_t batch, int direction)
{
    int64_t total = cfg->train_batch_size / cfg->n_ranks;
    int64_t most = MIN(cfg->dynamic_batch_max, total);
    for (batch += direction; batch >= cfg->dynamic_batch_min && batch <= most; batch += direction) {
        if (total % batch == 0)
            return batch;
    }
    return 0;
}

/* Memory and time go with the size: when two in a row are no better, none will be. */
static enum status walk(struct choosing *c, int64_t from, int direction)
{
    const struct config *cfg = c->s->config;
    int n_worse = 0;
    for (int64_t b = dynamic_neighbour(cfg, from, direction);
         b > 0 && (n_worse < 2 || c->best.batch == 0); b = dynamic_neighbour(cfg, b, direction)) {
        bool is_better;
        TRY(plan_batch(c, b, &is_better));
        n_worse = is_better ? 0 : n_worse + 1;
        if (!is_better && direction > 0 && c->best.batch == 0)
            return OK; /* what is larger needs more */
    }
    return OK;
}

enum status dynamic_choose(struct session *s, const struct limits *limits, struct pool *pool,
                           struct dynamic_choice *out)
{
    struct choosing c = {.s = s, .limits = limits, .pool = pool};
    int64_t now = s->stages[0].batch;
    bool is_better,
        in_range = now >= s->config->dynamic_batch_min && now <= s->config->dynamic_batch_max;
    surroundings_without(&c.around, &s->engine);
    if (in_range)
        TRY(plan_batch(&c, now, &is_better));
    TRY(walk(&c, now, 1));
    TRY(walk(&c, now, -1));
    *out = c.best;
    return OK;
}
