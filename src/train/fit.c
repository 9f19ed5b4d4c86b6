/* fit.c: what to say when a plan does not fit: the constraint in bytes, and the nearest change that
 * would fit. */
#include "base/str.h"
#include "train/advice.h"
#include "train/pipeline.h"

static enum status refuse(const struct budget *b, enum tier t, int64_t limit,
                          const struct advice *advice, const char *have, const char *fix)
{
    char need[BYTES_TEXT], then[BYTES_TEXT], over[BYTES_TEXT], most[BYTES_TEXT];
    format_bytes(need, b->needs[t]);
    format_bytes(over, b->needs[t] - limit);
    format_bytes(then, advice->n_bytes);
    if (advice->found)
        return FAIL(ERR_FIT,
                    "does not fit: %s memory needs %s (%lld bytes), %s, %s too little; it fits in "
                    "%s with %s",
                    tier_name(t), need, (long long)b->needs[t], have, over, then, advice->text);
    if (t != TIER_DEVICE)
        return FAIL(ERR_FIT, "does not fit: %s memory needs %s (%lld bytes), %s, %s too little: %s",
                    tier_name(t), need, (long long)b->needs[t], have, over, fix);
    return FAIL(ERR_FIT,
                "does not fit: %s memory needs %s (%lld bytes), %s of them %s, %s, %s too little; "
                "no change of settings that was looked at brings it below %s: %s, or choose a "
                "smaller model",
                tier_name(t), need, (long long)b->needs[t], format_bytes(most, advice->most_bytes),
                memory_class_name(advice->most), have, over, then, fix);
}

/* Refuses for the bytes that tier `t` lacks: of its budget, or of what can be had. */
static enum status refuse_tier(const struct pipeline *p, const struct pipeline_options *o,
                               const struct budget *b, enum tier t, bool is_given)
{
    char fix[320];
    int64_t limit = is_given ? b->n_bytes[t] : b->had[t];
    struct advice advice = {0};
    struct str have = {0};
    if (t == TIER_DEVICE) /* settings change little of what a process holds beside its arena */
        advice_find(p, o, t, limit, &advice);
    budget_add_text(b, t, is_given, &have);
    enum status status =
        refuse(b, t, limit, &advice, str_text(&have), budget_fix(b, t, is_given, fix));
    str_release(&have);
    return status;
}

enum status pipeline_require_room(const struct pipeline *p, const struct pipeline_options *o)
{
    struct budget now;
    budget_read(&now, p->device, p->config, p->forecast.budget.needs);
    enum tier t = budget_short(&now);
    return t == TIER_COUNT ? OK : refuse_tier(p, o, &now, t, false);
}

enum status pipeline_require_fit(const struct pipeline *p, const struct pipeline_options *o)
{
    const struct budget *b = &p->forecast.budget;
    enum tier t = budget_over(b);
    return t == TIER_COUNT ? OK : refuse_tier(p, o, b, t, b->given[t]);
}
