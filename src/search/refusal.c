#include "search/refusal.h"

#include "base/str.h"

static const int64_t mebibyte = (int64_t)1 << 20;

int64_t shortage_limit(const struct shortage *s)
{
    return s->is_given ? s->budget->n_bytes[s->tier] : s->budget->had[s->tier];
}

/* What a remedy changes beside memory. */
static const char *price_of(const struct variant *v)
{
    if (v->changes)
        return "other numerics";
    return v->n_parts > 1 ? "the same sums in another order" : "the same losses";
}

/* A line each, as settings that can be pasted. */
static void add_remedies(const struct shortage *s, const struct advice *a, struct str *out)
{
    char bytes[BYTES_TEXT];
    int64_t needs = s->budget->needs[s->tier];
    str_add(out, "; it fits with any of these settings:");
    for (int i = 0; i < a->n; i++)
        str_addf(out, "\n  %s   (%s, %s)", a->remedies[i].text,
                 format_bytes(bytes, a->remedies[i].n_bytes), price_of(&a->remedies[i].variant));
    if (s->is_given && needs <= s->budget->had[s->tier])
        str_addf(out, "\n  %s_memory=%lldMiB   (there is that much, the same losses)",
                 tier_name(s->tier), (long long)(align_up(needs, mebibyte) / mebibyte));
}

/* Nothing that was looked at helps. */
static void add_way_out(const struct shortage *s, const struct advice *a, struct str *out)
{
    char fix[320], most[BYTES_TEXT], least[BYTES_TEXT];
    budget_fix(s->budget, s->tier, s->is_given, fix);
    if (s->tier == TIER_DEVICE)
        str_addf(out,
                 "; %s of them are %s, and no change of settings that was looked at brings it "
                 "below %s: %s, or choose a smaller model",
                 format_bytes(most, a->most_bytes), memory_class_name(a->most),
                 format_bytes(least, a->least), fix);
    else
        str_addf(out, ": %s", fix);
}

enum status refuse_run(const struct shortage *s, const struct advice *advice)
{
    char need[BYTES_TEXT], over[BYTES_TEXT];
    int64_t needs = s->budget->needs[s->tier];
    struct str text = {0};
    str_addf(&text, "%s memory needs %s (%lld bytes), ", tier_name(s->tier),
             format_bytes(need, needs), (long long)needs);
    budget_add_text(s->budget, s->tier, s->is_given, &text);
    str_addf(&text, ", %s too little", format_bytes(over, needs - shortage_limit(s)));
    if (advice->n > 0)
        add_remedies(s, advice, &text);
    else
        add_way_out(s, advice, &text);
    enum status status = FAIL(ERR_FIT, "does not fit: %s", str_text(&text));
    str_release(&text);
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
