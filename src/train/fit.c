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
    if (pipeline_build(&trial, changed, p->model, p->device, o) != OK)
        return -1;
    int64_t n_bytes = pipeline_needs(&trial, tier);
    pipeline_release(&trial);
    return n_bytes;
}

static bool try_change(const struct pipeline *p, const struct config *changed,
                       const struct pipeline_options *o, struct change *best)
{
    enum tier tier = p->forecast.binding;
    best->n_bytes = bytes_with(p, changed, o, tier);
    return best->n_bytes >= 0 && best->n_bytes <= p->forecast.budget[tier];
}

/* Changes that keep the mathematics, from the cheapest in time to the dearest. */
static bool find_change(const struct pipeline *p, const struct pipeline_options *o,
                        struct change *found)
{
    struct config changed = *p->config;
    bool recomputes = strcmp(changed.gradient_checkpointing, "true") == 0;
    changed.gradient_checkpointing = "true";
    if (!recomputes && try_change(p, &changed, o, found)) {
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
        if (!try_change(p, &changed, o, found))
            continue;
        (void)snprintf(found->text, sizeof(found->text),
                       "%sper_device_train_batch_size: %lld with gradient_accumulation_steps: %lld",
                       recomputes ? "" : "gradient_checkpointing: true and ",
                       (long long)(batch / parts), (long long)(accumulation * parts));
        return true;
    }
    return false;
}

enum status pipeline_require_fit(const struct pipeline *p, const struct pipeline_options *o)
{
    const struct forecast *f = &p->forecast;
    if (f->fits)
        return OK;
    char need[BYTES_TEXT], have[BYTES_TEXT], then[BYTES_TEXT], over[BYTES_TEXT];
    enum tier t = f->binding;
    struct change change = {.text = ""};
    bool found = find_change(p, o, &change);
    int64_t n_bytes = pipeline_needs(p, t);
    format_bytes(need, n_bytes);
    format_bytes(have, f->budget[t]);
    format_bytes(over, n_bytes - f->budget[t]);
    if (found)
        return FAIL(ERR_FIT,
                    "does not fit: %s memory needs %s (%lld bytes), the budget is %s (%lld bytes), "
                    "%s too little; it fits in %s with %s",
                    tier_name(t), need, (long long)n_bytes, have, (long long)f->budget[t], over,
                    format_bytes(then, change.n_bytes), change.text);
    return FAIL(
        ERR_FIT,
        "does not fit: %s memory needs %s (%lld bytes), the budget is %s (%lld bytes), %s "
        "too little; recomputing every block and a micro-batch of 1 do not bring it down far "
        "enough: raise %s_memory, shorten max_seq_length or choose a smaller model",
        tier_name(t), need, (long long)n_bytes, have, (long long)f->budget[t], over, tier_name(t));
}
