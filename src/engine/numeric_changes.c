#include "engine/numeric_changes.h"

static bool to_bf16(struct config *c, const struct engine *e)
{
    bool can = c->bf16 == CONFIG_TRISTATE_FALSE && !c->fp16 && !e->device->lacks_bf16;
    c->bf16 = CONFIG_TRISTATE_TRUE;
    return can;
}

/* Where there is no bf16. */
static bool to_fp16(struct config *c, const struct engine *e)
{
    bool can = c->bf16 == CONFIG_TRISTATE_FALSE && !c->fp16 && e->device->lacks_bf16;
    c->fp16 = true;
    return can;
}

static bool to_bf16_gradients(struct config *c, const struct engine *e)
{
    (void)e;
    bool can = c->bf16 == CONFIG_TRISTATE_TRUE && c->gradient_dtype != CONFIG_BF16;
    c->gradient_dtype = CONFIG_BF16;
    return can;
}

static bool to_bf16_states(struct config *c, const struct engine *e)
{
    (void)e;
    bool can = config_optim_moments(c) > 0 && !config_optim_is_8bit(c) &&
               c->optim_state_dtype != CONFIG_BF16;
    c->optim_state_dtype = CONFIG_BF16;
    return can;
}

/* Instead of bf16 states, not on top of them. */
static bool to_8bit_states(struct config *c, const struct engine *e)
{
    (void)e;
    bool can = c->optim == CONFIG_OPTIM_ADAMW && c->optim_state_dtype != CONFIG_BF16;
    c->optim = CONFIG_OPTIM_ADAMW_8BIT;
    return can;
}

static bool to_bf16_masters(struct config *c, const struct engine *e)
{
    (void)e;
    bool can = c->bf16 == CONFIG_TRISTATE_TRUE && c->master_dtype != CONFIG_MASTER_BF16;
    c->master_dtype = CONFIG_MASTER_BF16;
    return can;
}

/* Without a norm to wait for, each gradient goes into its update at once. */
static bool to_no_clipping(struct config *c, const struct engine *e)
{
    (void)e;
    bool can = c->max_grad_norm > 0 && c->gradient_accumulation_steps == 1;
    c->max_grad_norm = 0;
    return can;
}

/* Helps where what depends on the sequences is most of it. */
static bool to_half_length(struct config *c, const struct engine *e)
{
    const int64_t *b = e->forecast.breakdown;
    int64_t by_length =
        b[MEMORY_ACTIVATIONS] + b[MEMORY_RECOMPUTE] + b[MEMORY_LOGITS] + b[MEMORY_WORKSPACE];
    bool can = task_has_length(&e->task) && c->max_seq_length >= 2 &&
               2 * by_length > e->forecast.arena_bytes;
    c->max_seq_length /= 2;
    return can;
}

static bool to_sgd(struct config *c, const struct engine *e)
{
    (void)e;
    bool can = c->optim != CONFIG_OPTIM_SGD;
    c->optim = CONFIG_OPTIM_SGD;
    return can;
}

static const struct change {
    const char *text; /* the setting; of the length its key */
    int harshness;
    bool for_evaluation; /* does something without an optimizer */
    bool (*apply)(struct config *c, const struct engine *e); /* false: it cannot be made */
} changes[] = {
    {"bf16=true", 1, true, to_bf16},
    {"fp16=true", 1, true, to_fp16},
    {"gradient_dtype=bf16", 2, false, to_bf16_gradients},
    {"optim_state_dtype=bf16", 3, false, to_bf16_states},
    {"max_grad_norm=0", 3, false, to_no_clipping},
    {"master_dtype=bf16", 4, false, to_bf16_masters},
    {"optim=adamw_8bit", 5, false, to_8bit_states},
    {"max_seq_length", 7, true, to_half_length},
    {"optim=sgd", 12, false, to_sgd},
};

int numeric_changes_count(void)
{
    return ARRAY_LEN(changes);
}

int numeric_change_harshness(int i)
{
    return changes[i].harshness;
}

static bool is_in(unsigned set, size_t i)
{
    return set >> i & 1;
}

bool numeric_changes_apply(unsigned set, const struct engine *e, struct config *c)
{
    const bool trains = engine_stage(e, STAGE_TRAIN) != NULL;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        if (!is_in(set, i))
            continue;
        if ((!trains && !changes[i].for_evaluation) || !changes[i].apply(c, e))
            return false;
    }
    return true;
}

void numeric_changes_add_text(unsigned set, const struct config *c, struct str *out)
{
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        if (!is_in(set, i))
            continue;
        str_addf(out, "%s%s", out->n ? " " : "", changes[i].text);
        if (changes[i].apply == to_half_length)
            str_addf(out, "=%lld", (long long)c->max_seq_length);
    }
}

bool numeric_change_alone(int i, const struct engine *e, struct config *c, struct str *text)
{
    enum { HARSH = 7 }; /* from here on less is learnt from a step */
    *c = *e->config;
    if (changes[i].harshness >= HARSH || !changes[i].apply(c, e) || config_check_numerics(c) != OK)
        return false;
    numeric_changes_add_text(1u << i, c, text);
    return true;
}
