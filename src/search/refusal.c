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

/* What a process holds beside its arenas is of the host, and varies from one to the next. */
static void add_budget(enum tier t, int64_t n_bytes, struct str *out)
{
    str_addf(out, "\n  %s_memory=%lldMiB   (there is that much, the same losses)", tier_name(t),
             (long long)(align_up(n_bytes, mebibyte) / mebibyte + (t == TIER_HOST)));
}

/* Another budget that the plan is over, too; TIER_COUNT: none. */
static enum tier also_short(const struct shortage *s)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        if (t != (int)s->tier && s->budget->needs[t] > s->budget->n_bytes[t])
            return (enum tier)t;
    }
    return TIER_COUNT;
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
    if (s->is_given && needs <= s->budget->had[s->tier] && also_short(s) == TIER_COUNT)
        add_budget(s->tier, needs, out);
    if (a->host_bytes > 0)
        add_budget(TIER_HOST, a->host_bytes, out);
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
    enum tier other = also_short(s);
    if (other != TIER_COUNT)
        str_addf(&text, ", and %s memory lacks %s of %s", tier_name(other),
                 format_bytes(over, s->budget->needs[other] - s->budget->n_bytes[other]),
                 format_bytes(need, s->budget->needs[other]));
    if (advice->n > 0 || advice->host_bytes > 0)
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
