#include "search/refusal.h"

#include "base/str.h"

int64_t shortage_limit(const struct shortage *s)
{
    return s->is_given ? s->budget->n_bytes[s->tier] : s->budget->had[s->tier];
}

static enum status fail_run(const struct shortage *s, const struct advice *advice, const char *have,
                            const char *fix)
{
    enum tier t = s->tier;
    int64_t needs = s->budget->needs[t];
    char need[BYTES_TEXT], then[BYTES_TEXT], over[BYTES_TEXT], most[BYTES_TEXT];
    format_bytes(need, needs);
    format_bytes(over, needs - shortage_limit(s));
    format_bytes(then, advice->n_bytes);
    if (advice->found)
        return FAIL(ERR_FIT,
                    "does not fit: %s memory needs %s (%lld bytes), %s, %s too little; it fits in "
                    "%s %s",
                    tier_name(t), need, (long long)needs, have, over, then, advice->text);
    if (t != TIER_DEVICE)
        return FAIL(ERR_FIT, "does not fit: %s memory needs %s (%lld bytes), %s, %s too little: %s",
                    tier_name(t), need, (long long)needs, have, over, fix);
    return FAIL(ERR_FIT,
                "does not fit: %s memory needs %s (%lld bytes), %s of them %s, %s, %s too little; "
                "no change of settings that was looked at brings it below %s: %s, or choose a "
                "smaller model",
                tier_name(t), need, (long long)needs, format_bytes(most, advice->most_bytes),
                memory_class_name(advice->most), have, over, then, fix);
}

enum status refuse_run(const struct shortage *s, const struct advice *advice)
{
    char fix[320];
    struct str have = {0};
    budget_add_text(s->budget, s->tier, s->is_given, &have);
    enum status status =
        fail_run(s, advice, str_text(&have), budget_fix(s->budget, s->tier, s->is_given, fix));
    str_release(&have);
    return status;
}

enum status refuse_use(const struct shortage *s, int64_t storage_bytes, int64_t n_tokens)
{
    char need[BYTES_TEXT], weights[BYTES_TEXT], fix[320];
    int64_t needs = s->budget->needs[s->tier];
    struct str have = {0};
    budget_add_text(s->budget, s->tier, s->is_given, &have);
    enum status status = FAIL(
        ERR_FIT,
        "does not fit: the model in use needs %s (%lld bytes) of %s memory, %s of it weights and a "
        "cache of %lld tokens; %s: %s, or ask for fewer tokens",
        format_bytes(need, needs), (long long)needs, tier_name(s->tier),
        format_bytes(weights, storage_bytes), (long long)n_tokens, str_text(&have),
        budget_fix(s->budget, s->tier, s->is_given, fix));
    str_release(&have);
    return status;
}
