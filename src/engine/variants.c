/* variants.c: the settings that advice may change, what each would take, and its words. */
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

/* ---- changes of the numerics ----------------------------------------------------------------- */

static bool to_bf16(struct config *c, const struct engine *e)
{
    bool can = c->bf16 == CONFIG_TRISTATE_FALSE && !c->fp16 && !e->device->lacks_bf16;
    c->bf16 = CONFIG_TRISTATE_TRUE;
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
    {"gradient_dtype=bf16", 2, false, to_bf16_gradients},
    {"optim_state_dtype=bf16", 3, false, to_bf16_states},
    {"max_grad_norm=0", 3, false, to_no_clipping},
    {"master_dtype=bf16", 4, false, to_bf16_masters},
    {"optim=adamw_8bit", 5, false, to_8bit_states},
    {"max_seq_length", 7, true, to_half_length},
    {"optim=sgd", 12, false, to_sgd},
};

enum { N_CHANGES = ARRAY_LEN(changes) };

/* ---- settings of a variant ------------------------------------------------------------------- */

/* Variants are asked for one after the other; those that differ in decisions alone share a graph.
 */
struct trials {
    const struct engine *e; /* as it is */
    bool trains;
    enum tier tier;               /* that is short */
    int64_t limit;                /* bytes of it that there are */
    struct variant built;         /* whose graphs `trial` has */
    struct engine trial;          /* no graphs: all zero */
    struct surroundings around;   /* of all trials */
    struct stage_request *stages; /* of the trial */
};

static int64_t *batch_of(const struct trials *t, struct config *c)
{
    return t->trains ? &c->per_device_train_batch_size : &c->per_device_eval_batch_size;
}

/* A larger batch of evaluations would undo it. */
static void cut_batch(const struct trials *t, struct config *c, int64_t n_parts)
{
    if (n_parts == 1)
        return;
    int64_t batch = *batch_of(t, c) / n_parts;
    *batch_of(t, c) = batch;
    c->per_device_eval_batch_size = MIN(c->per_device_eval_batch_size, batch);
    if (t->trains)
        c->gradient_accumulation_steps *= n_parts;
}

/* The config with the variant's settings; false: one of its changes cannot be made, or the config
 * would be refused. */
static bool make_config(const struct trials *t, const struct variant *v, struct config *c)
{
    *c = *t->e->config;
    for (int i = 0; i < N_CHANGES; i++) {
        if (!(v->changes >> i & 1))
            continue;
        if ((!t->trains && !changes[i].for_evaluation) || !changes[i].apply(c, t->e))
            return false;
    }
    cut_batch(t, c, v->n_parts);
    if (v->release)
        config_release(c);
    return config_check_numerics(c) == OK;
}

/* ---- what a variant takes -------------------------------------------------------------------- */

/* It is held on the device. */
static bool stays(const struct settings *s, enum extent e)
{
    return s->bounds.fixed[e] && s->decisions.n[e] == 0;
}

/* What every parameter has beside it, of what may not leave; for the host, what the device has no
 * room for. */
static int64_t least_bytes(void *user, const struct variant *v)
{
    const struct trials *t = user;
    struct config c;
    struct settings s;
    if (!make_config(t, v, &c) || settings_from_config(&s, &c, t->e->device) != OK)
        return INT64_MAX;
    const struct precision *x = &s.numerics.precision;
    int64_t n_params = t->e->forecast.n_params;
    int64_t weights = n_params * dtype_size(x->weights), states = 0, gradients = 0;
    if (t->trains) {
        int n_moments = config_optim_moments(&c);
        bool all_gradients =
            c.gradient_accumulation_steps > 1 || c.max_grad_norm > 0 || x->loss_scaling;
        states = n_params * (!x->masters        ? 0
                             : x->split_masters ? 1
                                                : dtype_size(DTYPE_F32)) +
                 n_moments * format_size(x->states, n_params);
        gradients = n_params * (all_gradients ? dtype_size(x->gradients) : 0);
    }
    if (t->tier == TIER_HOST)
        return weights + states - t->e->forecast.budget.n_bytes[TIER_DEVICE];
    return (stays(&s, EXTENT_WEIGHTS) ? weights : 0) + (stays(&s, EXTENT_STATES) ? states : 0) +
           (stays(&s, EXTENT_GRADIENTS) ? gradients : 0);
}

static bool has_graphs_of(const struct trials *t, const struct variant *v)
{
    return t->trial.work.n_stages > 0 && t->built.changes == v->changes &&
           t->built.n_parts == v->n_parts;
}

static enum status build_trial(struct trials *t, const struct variant *v, const struct config *c,
                               const struct settings *s)
{
    struct engine_request r = t->e->request;
    engine_close(&t->trial);
    for (int i = 0; i < r.n_stages; i++) {
        t->stages[i] = t->e->request.stages[i]; /* generation has sizes of its own */
        if (t->stages[i].purpose != STAGE_DECODE)
            TRY(request_from_config(&t->stages[i], t->stages[i].purpose, c, &t->e->task));
    }
    r.stages = t->stages;
    engine_init(&t->trial, s, t->e->task, t->e->device);
    t->built = *v;
    enum status status = engine_build(&t->trial, &r);
    if (status != OK)
        engine_close(&t->trial);
    return status;
}

/* Not much more than there is: a closer look may find that it fits. */
static bool is_near(const struct forecast *f, enum tier tier)
{
    const int64_t needs = f->budget.needs[tier], limit = f->budget.n_bytes[tier];
    return tier == TIER_DEVICE && needs > limit && needs - limit <= limit;
}

/* What it comes to, with the budget of the host or with all that there is of it. */
static enum status plan_trial(struct trials *t, const struct variant *v, bool all_of_host,
                              struct forecast *f)
{
    struct config c;
    struct settings s;
    *f = (struct forecast){0};
    if (!make_config(t, v, &c))
        return FAIL(ERR_INTERNAL, "a variant that there is not");
    TRY(settings_from_config(&s, &c, t->e->device));
    if (all_of_host)
        s.limits.n_bytes[TIER_HOST] = LIMIT_OPEN;
    if (!has_graphs_of(t, v))
        TRY(build_trial(t, v, &c, &s));
    t->trial.work.around = &t->around;
    const struct decisions configured = s.decisions;
    TRY(search_least(&t->trial.work, &s.limits, &s.bounds, &s.decisions));
    forecast_memory(f, &t->trial.work, &s.limits);
    /* What a closer look makes of all of the host it may not find again in as much as it took. */
    if (all_of_host || !is_near(f, t->tier) || !search_is_quick(&t->trial.work))
        return OK;
    s.decisions = configured;
    *f = (struct forecast){0};
    TRY(search_smallest(&t->trial.work, &s.limits, &s.bounds, &s.decisions));
    forecast_memory(f, &t->trial.work, &s.limits);
    return OK;
}

static bool plan_variant(void *user, const struct variant *v, int64_t *n_bytes)
{
    struct trials *t = user;
    struct forecast f;
    bool is_alone = true; /* no other tier is short */
    if (plan_trial(t, v, false, &f) != OK)
        return false;
    *n_bytes = f.budget.needs[t->tier];
    for (int i = 0; i < TIER_COUNT; i++)
        is_alone &= i == (int)t->tier || f.budget.needs[i] <= f.budget.n_bytes[i];
    return is_alone;
}

/* Bytes of the host with which the settings as they are would fit the device: what may leave it has
 * to go somewhere. 0: the host is not in the way, or there is no more of it. */
static int64_t host_that_helps(struct trials *t)
{
    const struct variant as_it_is = {.n_parts = 1};
    struct forecast f;
    if (t->tier != TIER_DEVICE || !t->e->forecast.budget.given[TIER_HOST] ||
        plan_trial(t, &as_it_is, true, &f) != OK || !f.fits ||
        f.budget.needs[TIER_DEVICE] > t->limit)
        return 0;
    return f.budget.needs[TIER_HOST];
}

/* ---- words ----------------------------------------------------------------------------------- */

static void add_setting(struct str *out, const char *text)
{
    str_addf(out, "%s%s", out->n ? " " : "", text);
}

static void add_number(struct str *out, const char *key, int64_t number)
{
    str_addf(out, "%s%s=%lld", out->n ? " " : "", key, (long long)number);
}

static void add_changes(struct str *out, const struct config *c, unsigned set)
{
    for (int i = 0; i < N_CHANGES; i++) {
        if (!(set >> i & 1))
            continue;
        if (changes[i].apply == to_half_length)
            add_number(out, changes[i].text, c->max_seq_length);
        else
            add_setting(out, changes[i].text);
    }
}

/* Evaluations follow the micro-batch unless the config says otherwise. */
static void add_batch(const struct trials *t, const struct config *c, struct str *out)
{
    const struct config *before = t->e->config;
    if (t->trains) {
        add_number(out, "per_device_train_batch_size", c->per_device_train_batch_size);
        add_number(out, "gradient_accumulation_steps", c->gradient_accumulation_steps);
    }
    if (!t->trains || (config_is_set(before, "per_device_eval_batch_size") &&
                       c->per_device_eval_batch_size < before->per_device_eval_batch_size))
        add_number(out, "per_device_eval_batch_size", c->per_device_eval_batch_size);
}

static void describe(void *user, const struct variant *v, struct str *out)
{
    const struct trials *t = user;
    char limit[BYTES_TEXT];
    struct config c;
    if (!make_config(t, v, &c))
        return;
    add_changes(out, &c, v->changes);
    if (v->n_parts > 1)
        add_batch(t, &c, out);
    if (v->release)
        config_add_held(t->e->config, out);
    if (out->n == 0) /* the settings are fine: they were planned for more room */
        str_addf(out, "%s_memory=%s", tier_name(t->tier), room_setting(t->limit, limit));
}

int engine_n_changes(void)
{
    return N_CHANGES;
}

bool engine_change(const struct engine *e, int i, struct config *c, struct str *text)
{
    enum { HARSH = 7 }; /* from here on less is learnt from a step */
    *c = *e->config;
    if (changes[i].harshness >= HARSH || !changes[i].apply(c, e) || config_check_numerics(c) != OK)
        return false;
    add_changes(text, c, 1u << i);
    return true;
}

/* ---- advice ---------------------------------------------------------------------------------- */

void engine_advise(const struct engine *e, enum tier tier, int64_t n_bytes, struct advice *out)
{
    struct trials t = {
        .e = e, .trains = engine_stage(e, STAGE_TRAIN) != NULL, .tier = tier, .limit = n_bytes};
    int harshness[N_CHANGES];
    struct config c;
    *out = (struct advice){0};
    if (!e->config ||
        mem_try_array(&t.stages, (size_t)e->request.n_stages, sizeof(*t.stages)) != OK)
        return;
    if (e->around)
        t.around = *e->around;
    else
        surroundings_read(&t.around, e->device);
    c = *e->config;
    for (int i = 0; i < N_CHANGES; i++)
        harshness[i] = changes[i].harshness;
    struct variants x = {.harshness = harshness,
                         .n_changes = N_CHANGES,
                         .may_release = config_holds(e->config),
                         .batch = *batch_of(&t, &c),
                         .user = &t,
                         .least = least_bytes,
                         .plan = plan_variant,
                         .describe = describe};
    advice_find(&x, &e->forecast, tier, n_bytes, out);
    out->host_bytes = host_that_helps(&t);
    engine_close(&t.trial);
    mem_free(t.stages);
}
