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

struct choice {
    struct session *s;
    const struct limits *limits;
    struct surroundings around;
    struct pool *pool;
    int64_t batch; /* the best so far; 0: none */
    double step_s;
    struct decisions decisions;
};

static enum status plan_batch(struct choice *c, int64_t batch, bool *is_better)
{
    struct session_shape x;
    struct engine next;
    *is_better = false;
    TRY(session_shape(c->s, batch, &x));
    const struct replan r = {
        .limits = *c->limits, .request = &x.request, .config = &x.config, .is_timed = true};
    TRY(engine_replan_beside(&c->s->engine, &r, &c->around, &next));
    const struct forecast *f = &next.forecast;
    enum status status = OK;
    if (f->fits && (c->batch == 0 || f->step_s < c->step_s)) {
        *is_better = true;
        c->batch = batch;
        c->step_s = f->step_s;
        status = decisions_keep(&next.settings.decisions, c->pool, &c->decisions);
    }
    engine_discard(&next);
    return status;
}

/* The next size in that direction that cuts a step into whole micro-batches; 0: there is none. */
static int64_t neighbour(const struct config *cfg, int64_t batch, int direction)
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
static enum status walk(struct choice *c, int64_t from, int direction)
{
    const struct config *cfg = c->s->config;
    int n_worse = 0;
    for (int64_t b = neighbour(cfg, from, direction); b > 0 && (n_worse < 2 || c->batch == 0);
         b = neighbour(cfg, b, direction)) {
        bool is_better;
        TRY(plan_batch(c, b, &is_better));
        n_worse = is_better ? 0 : n_worse + 1;
        if (!is_better && direction > 0 && c->batch == 0)
            return OK; /* what is larger needs more */
    }
    return OK;
}

enum status dynamic_choose(struct session *s, const struct limits *limits, struct pool *pool,
                           int64_t *batch, double *step_s, struct decisions *known)
{
    struct choice c = {.s = s, .limits = limits, .pool = pool};
    int64_t now = s->stages[0].batch;
    bool is_better,
        in_range = now >= s->config->dynamic_batch_min && now <= s->config->dynamic_batch_max;
    surroundings_without(&c.around, &s->engine);
    if (in_range)
        TRY(plan_batch(&c, now, &is_better));
    TRY(walk(&c, now, 1));
    TRY(walk(&c, now, -1));
    *batch = c.batch;
    *step_s = c.step_s;
    *known = c.decisions;
    return OK;
}
