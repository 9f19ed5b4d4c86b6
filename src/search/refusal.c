#include "search/refusal.h"

#include "base/str.h"

int64_t shortage_limit(const struct shortage *s)
{
    return s->is_given ? s->budget->n_bytes[s->tier] : s->budget->had[s->tier];
}

/* What a remedy asks for in exchange. */
static void add_price(const struct advice *a, const struct remedy *r, struct str *out)
{
    char bytes[BYTES_TEXT];
    const struct variant *v = &r->variant;
    if (v->way == WAY_MORE || v->way == WAY_HOST)
        str_add(out, v->way == WAY_HOST && a->host_is_elsewhere ? "where there is that much, "
                                                                : "there is that much, ");
    if (v->way == WAY_DISK)
        str_addf(out, "%s of the disk, ", format_bytes(bytes, r->needs[TIER_DISK]));
    if (v->way >= WAY_LORA)
        str_add(out, "trains an adapter instead of the model");
    else if (v->changes || (v->n_parts > 1 && a->parts_matter))
        str_add(out, "other numerics");
    else
        str_add(out, v->n_parts > 1 ? "the same sums in another order" : "the same losses");
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
static void add_remedies(const struct advice *a, struct str *out)
{
    char bytes[BYTES_TEXT], rate[BYTES_TEXT];
    str_add(out, "; it fits with any of these settings:");
    for (int i = 0; i < a->n; i++) {
        const struct remedy *r = &a->remedies[i];
        str_addf(out, "\n  %s   (needs %s, ", r->text, format_bytes(bytes, r->n_bytes));
        if (r->units_s > 0)
            str_addf(out, "%s %s/s, ", format_rate(rate, r->units_s), a->unit);
        add_price(a, r, out);
        str_add(out, ")");
    }
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
    if (advice->n > 0)
        add_remedies(advice, &text);
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
