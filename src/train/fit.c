/* fit.c: what to say when a plan does not fit: the constraint in bytes, and the nearest change that
 * would fit. The change is found by planning with it, not by guessing. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "train/pipeline.h"

/* A change of settings and what it brings. */
struct change {
    char text[160];
    int64_t n_bytes; /* of the binding tier */
};

/* Plans a copy of the config; the bytes of `tier` it would need, or -1 when it cannot be planned.
 */
static int64_t bytes_with(const struct pipeline *p, const struct config *changed,
                          const struct pipeline_options *o, enum tier tier)
{
    struct pipeline trial;
    struct pipeline_options untimed = *o;
    untimed.times = NULL; /* bytes are all that is asked for */
    if (pipeline_build(&trial, changed, p->model, p->device, &untimed) != OK)
        return -1;
    int64_t n_bytes = pipeline_needs(&trial, tier);
    pipeline_release(&trial);
    return n_bytes;
}

/* The bytes of a tier that a plan must keep to. */
struct limit {
    enum tier tier;
    int64_t n_bytes;
    const char *fix; /* how to have more of it */
};

static bool try_change(const struct pipeline *p, const struct config *changed,
                       const struct pipeline_options *o, const struct limit *limit,
                       struct change *best)
{
    best->n_bytes = bytes_with(p, changed, o, limit->tier);
    return best->n_bytes >= 0 && best->n_bytes <= limit->n_bytes;
}

/* Changes that keep the mathematics, from the cheapest in time to the dearest. */
static bool find_change(const struct pipeline *p, const struct pipeline_options *o,
                        const struct limit *limit, struct change *found)
{
    struct config changed = *p->config;
    bool recomputes = strcmp(changed.gradient_checkpointing, "true") == 0;
    changed.gradient_checkpointing = "true";
    if (!recomputes && try_change(p, &changed, o, limit, found)) {
        (void)snprintf(found->text, sizeof(found->text), "gradient_checkpointing: true");
        return true;
    }
    int64_t batch = changed.per_device_train_batch_size;
    int64_t accumulation = changed.gradient_accumulation_steps;
    for (int64_t parts = 2; parts <= batch; parts++) {
        if (batch % parts != 0)
            continue;
        changed.per_device_train_batch_size = batch / parts;
        changed.gradient_accumulation_steps = accumulation * parts;
        changed.per_device_eval_batch_size = MIN(changed.per_device_eval_batch_size, batch / parts);
        if (!try_change(p, &changed, o, limit, found))
            continue;
        (void)snprintf(found->text, sizeof(found->text),
                       "%sper_device_train_batch_size: %lld with gradient_accumulation_steps: %lld",
                       recomputes ? "" : "gradient_checkpointing: true and ",
                       (long long)(batch / parts), (long long)(accumulation * parts));
        return true;
    }
    return false;
}

/* `have` says what the limit is and where it comes from. */
static enum status refuse(const struct pipeline *p, const struct pipeline_options *o,
                          const struct limit *limit, const char *have)
{
    char need[BYTES_TEXT], then[BYTES_TEXT], over[BYTES_TEXT];
    const char *tier = tier_name(limit->tier);
    struct change change = {.text = ""};
    bool found = find_change(p, o, limit, &change);
    int64_t n_bytes = pipeline_needs(p, limit->tier);
    format_bytes(need, n_bytes);
    format_bytes(over, n_bytes - limit->n_bytes);
    if (found)
        return FAIL(ERR_FIT,
                    "does not fit: %s memory needs %s (%lld bytes), %s, %s too little; it fits in "
                    "%s with %s",
                    tier, need, (long long)n_bytes, have, over, format_bytes(then, change.n_bytes),
                    change.text);
    return FAIL(ERR_FIT,
                "does not fit: %s memory needs %s (%lld bytes), %s, %s too little; recomputing "
                "every block and a micro-batch of 1 do not bring it down far enough: %s, shorten "
                "max_seq_length or choose a smaller model",
                tier, need, (long long)n_bytes, have, over, limit->fix);
}

/* Refuses for the bytes that tier `t` lacks: of its budget, or of what can be had. */
static enum status refuse_tier(const struct pipeline *p, const struct pipeline_options *o,
                               const struct budget *b, enum tier t, bool is_given)
{
    char fix[320];
    const struct limit limit = {t, is_given ? b->n_bytes[t] : b->had[t],
                                budget_fix(b, t, is_given, fix)};
    struct str have = {0};
    budget_add_text(b, t, is_given, &have);
    enum status status = refuse(p, o, &limit, str_text(&have));
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
