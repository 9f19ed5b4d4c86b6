#include "train/elastic_budgets.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/dynamic_batch.h"

bool elastic_plans_ahead(const struct config *cfg)
{
    return cfg->elastic || cfg->elastic_budgets.n > 0;
}

/* ---- which ----------------------------------------------------------------------------------- */

int64_t elastic_host_limit(const struct session *s)
{
    int64_t needs = s->engine.forecast.budget.needs[TIER_HOST];
    return needs + needs / 8;
}

/* Eighths of the arena; what the process takes of the device beside it stays. */
static enum status want_eighths(struct session *s)
{
    const struct forecast *f = &s->engine.forecast;
    struct limits l = s->engine.settings.limits;
    if (f->budget.is_shared && s->config->elastic && l.n_bytes[TIER_HOST] == LIMIT_OPEN)
        l.n_bytes[TIER_HOST] = elastic_host_limit(s);
    int64_t beside = f->budget.needs[TIER_DEVICE] - f->arena_bytes;
    for (int eighths = 7; eighths >= 2; eighths--) {
        l.n_bytes[TIER_DEVICE] = beside + f->arena_bytes * eighths / 8;
        TRY(ahead_want(s->ahead, &l, s->stages[0].batch));
    }
    return OK;
}

/* Other micro-batches, with what the run may take: that is what dynamic_batch asks for, or more. */
static enum status want_batches(struct session *s)
{
    const struct config *cfg = s->config;
    const struct limits *l = &s->engine.settings.limits;
    TRY(mem_try_array(&s->shapes, SESSION_SHAPES, sizeof(*s->shapes)));
    for (int direction = -1, n = 0; direction <= 1; direction += 2) {
        int64_t b = dynamic_neighbour(cfg, s->stages[0].batch, direction);
        for (; b > 0 && n < SESSION_SHAPES; b = dynamic_neighbour(cfg, b, direction)) {
            struct session_shape *x = &s->shapes[n++];
            TRY(session_shape(s, b, x));
            TRY(ahead_want_batch(s->ahead, l, b, &x->request, &x->config));
        }
    }
    return OK;
}

static enum status want(struct session *s, const char *budget)
{
    struct limits l = s->engine.settings.limits;
    if (strcmp(budget, "auto") == 0)
        return want_eighths(s);
    BUG_ON(!parse_bytes(budget, &l.n_bytes[TIER_DEVICE])); /* the config was checked */
    return ahead_want(s->ahead, &l, s->stages[0].batch);
}

enum status elastic_open(struct session *s)
{
    const struct config_list *budgets = &s->config->elastic_budgets;
    TRY(ahead_new(&s->ahead));
    TRY(ahead_keep(s->ahead, &s->engine, s->stages[0].batch));
    if (s->config->dynamic_batch)
        TRY(want_batches(s));
    for (size_t i = 0; i < budgets->n; i++)
        TRY(want(s, budgets->items[i]));
    return budgets->n > 0 ? OK : want_eighths(s);
}

/* ---- when ------------------------------------------------------------------------------------ */

/* Parts of a step are recorded when they run for the second time: what comes before that is not
 * typical of the run. */
enum { FIRST_STEPS = 3 };

enum status elastic_plan_ahead(struct session *s, int64_t n_steps)
{
    char text[BYTES_TEXT];
    if (!s->ahead || n_steps < FIRST_STEPS || ahead_is_busy(s->ahead))
        return OK;
    if (ahead_end(s->ahead))
        log_info("%d budgets are planned for, in at most %s beside the run", ahead_n_done(s->ahead),
                 format_bytes(text, ahead_peak_bytes(s->ahead)));
    return ahead_start(s->ahead, &s->engine);
}
