/* fit.c: whether what was planned fits, for every command. */
#include "base/log.h"
#include "engine/engine.h"

/* They change little of what a process holds beside its arenas. */
static bool settings_matter(const struct engine *e, const struct shortage *s)
{
    return s->tier == TIER_DEVICE ||
           e->forecast.host_bytes > s->budget->needs[TIER_HOST] - shortage_limit(s);
}

static enum status refuse(const struct engine *e, const struct budget *b, enum tier t,
                          bool is_given)
{
    const struct shortage s = {b, t, is_given};
    struct advice advice = {0};
    if (engine_stage(e, STAGE_DECODE) && !engine_stage(e, STAGE_TRAIN))
        return refuse_use(&s, e->work.storage.n_bytes[t], e->request.stages[0].cache_len);
    if (settings_matter(e, &s)) {
        if (!e->around) /* that is short, and in the middle of a run's lines */
            log_info("it does not fit: looking for settings with which it would");
        engine_advise_short(e, &s, &advice);
    }
    return refuse_run(&s, &advice);
}

enum status engine_require_fit(const struct engine *e)
{
    const struct budget *b = &e->forecast.budget;
    enum tier t = budget_over(b);
    return t == TIER_COUNT ? OK : refuse(e, b, t, b->given[t]);
}

enum status engine_require_room(const struct engine *e)
{
    struct surroundings read;
    struct budget now;
    if (!e->around)
        surroundings_read(&read, e->device);
    budget_make(&now, e->around ? e->around : &read, !e->device->ops->memory_is_apart,
                &e->settings.limits, e->forecast.budget.needs);
    enum tier t = budget_short(&now);
    return t == TIER_COUNT ? OK : refuse(e, &now, t, false);
}
