/* variants.c: the settings that advice may change, what each would take, and its words. */
#include <stdio.h>
#include <string.h>

#include "engine/numeric_changes.h"
#include "engine/ways.h"

enum {
    MOST_LOOKS = 4,         /* closer ones, in one piece of advice */
    HARSHNESS_OF_PARTS = 4, /* where micro-batches are more than an order of sums */
};

static const double AS_FAST = 0.98, CLEARLY = 1.1;

#define MEBIBYTE   ((int64_t)1 << 20)
#define ANY_AMOUNT ((int64_t)1 << 44) /* of a memory that is another machine's */

/* ---- settings of a variant ------------------------------------------------------------------- */

/* Variants are asked for one after the other; those that differ in decisions alone share a graph.
 */
struct trials {
    const struct engine *e; /* as it is */
    bool trains;
    enum tier tier;                  /* that is short */
    int64_t limit;                   /* bytes of it that there are */
    const struct shortage *short_of; /* NULL: only changes of the numbers are wanted */
    bool is_capped;                  /* what there is is less than the budget that was given */
    struct ways ways;
    int n_looks;                   /* closer ones, that were taken */
    struct variant built;          /* whose graphs `trial` has */
    struct engine trial;           /* no graphs: all zero */
    struct surroundings around;    /* of all trials, */
    struct surroundings with_disk; /* and of those that have one */
    struct stage_request *stages;  /* of the trial */
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
    if (!numeric_changes_apply(v->changes, t->e, c))
        return false;
    cut_batch(t, c, v->n_parts);
    if (v->release)
        config_release(c);
    if (v->way >= WAY_LORA && !ways_take_adapter(t->e, v->way, c))
        return false;
    return config_check_numerics(c) == OK;
}

/* NULL: it has no such device. */
static struct device *device_of(struct trials *t, const struct variant *v)
{
    return v->way == WAY_DISK ? ways_device(&t->ways) : t->e->device;
}

static enum status make_settings(struct trials *t, const struct variant *v, struct config *c,
                                 struct settings *s)
{
    const struct device *device = device_of(t, v);
    if (!device || !make_config(t, v, c))
        return FAIL(ERR_INTERNAL, "a variant that there is not");
    return settings_from_config(s, c, device);
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
    struct trials *t = user;
    struct config c;
    struct settings s;
    if (make_settings(t, v, &c, &s) != OK)
        return INT64_MAX;
    if (v->way != WAY_NONE)
        return 0; /* not known without planning */
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
           t->built.n_parts == v->n_parts && t->built.way == v->way;
}

/* A trial without graphs, and what is asked of it. */
static enum status begin_trial(struct trials *t, const struct variant *v, const struct config *c,
                               const struct settings *s, struct engine_request *r)
{
    struct task task;
    engine_close(&t->trial);
    TRY(ways_task(&t->ways, v->way, c, &task));
    *r = t->e->request;
    for (int i = 0; i < r->n_stages; i++) {
        t->stages[i] = t->e->request.stages[i]; /* generation has sizes of its own */
        if (t->stages[i].purpose != STAGE_DECODE)
            TRY(request_from_config(&t->stages[i], t->stages[i].purpose, c, &task));
    }
    r->stages = t->stages;
    engine_init(&t->trial, s, task, device_of(t, v));
    return OK;
}

static enum status build_trial(struct trials *t, const struct variant *v, const struct config *c,
                               const struct settings *s)
{
    struct engine_request r;
    TRY(begin_trial(t, v, c, s, &r));
    t->built = *v;
    enum status status = engine_build(&t->trial, &r);
    if (status != OK)
        engine_close(&t->trial);
    return status;
}

/* Not much more than there is: a closer look, of a second or so, may find that it fits. */
static bool is_worth_a_look(struct trials *t, const struct forecast *f)
{
    const int64_t needs = f->budget.needs[t->tier], limit = f->budget.n_bytes[t->tier];
    return t->tier == TIER_DEVICE && needs > limit && needs - limit <= limit / 4 &&
           search_is_quick(&t->trial.work) && t->n_looks++ < MOST_LOOKS;
}

static const struct surroundings *around_of(struct trials *t, const struct variant *v)
{
    if (v->way != WAY_DISK)
        return &t->around;
    surroundings_read(&t->with_disk, &t->ways.device);
    return &t->with_disk;
}

/* What it comes to. */
static enum status plan_trial(struct trials *t, const struct variant *v, struct forecast *f)
{
    struct config c;
    struct settings s;
    *f = (struct forecast){0};
    TRY(make_settings(t, v, &c, &s));
    if (t->is_capped)
        s.limits.n_bytes[t->tier] = LIMIT_OPEN;
    if (v->way == WAY_HOST)
        s.limits.n_bytes[TIER_HOST] = t->e->device->is_absent ? ANY_AMOUNT : LIMIT_OPEN;
    if (!has_graphs_of(t, v))
        TRY(build_trial(t, v, &c, &s));
    t->trial.work.around = around_of(t, v);
    const struct decisions configured = s.decisions;
    TRY(search_least(&t->trial.work, &s.limits, &s.bounds, &s.decisions));
    forecast_memory(f, &t->trial.work, &s.limits);
    if (!is_worth_a_look(t, f))
        return OK;
    s.decisions = configured;
    *f = (struct forecast){0};
    TRY(search_smallest(&t->trial.work, &s.limits, &s.bounds, &s.decisions));
    forecast_memory(f, &t->trial.work, &s.limits);
    return OK;
}

/* No other tier than that is short. */
static bool is_alone(const struct budget *b, enum tier tier)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        if (t != (int)tier && b->needs[t] > b->n_bytes[t])
            return false;
    }
    return true;
}

/* The memory that is short, as it is: more of it may be given where there is more. */
static bool has_more(const struct trials *t)
{
    const struct budget *b = t->short_of->budget;
    return t->short_of->is_given && b->needs[t->tier] <= b->had[t->tier] && is_alone(b, t->tier);
}

/* Where what there is was too little, budgets that were given are no help. */
static bool is_there(const struct trials *t, const struct budget *b)
{
    return !t->is_capped || budget_short(b) == TIER_COUNT;
}

/* More of the host is for what may leave the device; of this machine no more than there is. */
static bool may_have_host(const struct trials *t)
{
    return t->tier == TIER_DEVICE &&
           (t->e->device->is_absent || t->e->forecast.budget.given[TIER_HOST]);
}

static bool plan_variant(void *user, const struct variant *v, int64_t needs[TIER_COUNT])
{
    struct trials *t = user;
    struct forecast f;
    if (v->way == WAY_MORE) {
        memcpy(needs, t->short_of->budget->needs, sizeof(f.budget.needs));
        return has_more(t);
    }
    if ((v->way == WAY_HOST && !may_have_host(t)) || plan_trial(t, v, &f) != OK)
        return false;
    memcpy(needs, f.budget.needs, sizeof(f.budget.needs));
    return is_alone(&f.budget, t->tier) && is_there(t, &f.budget);
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

static void add_way(const struct trials *t, const struct remedy *r, struct str *out)
{
    static const char *const adapters[] = {
        [WAY_LORA] = "adapter=lora", [WAY_QLORA] = "adapter=qlora"};
    const enum tier tier = r->variant.way == WAY_HOST ? TIER_HOST : t->tier;
    if (r->variant.way >= WAY_LORA)
        add_setting(out, adapters[r->variant.way]);
    else if (r->variant.way == WAY_DISK) {
        add_setting(out, "offload_folder=");
        ways_add_folder(t->e, out);
    } else if (r->variant.way != WAY_NONE)
        str_addf(out, "%s_memory=%lldMiB", tier_name(tier),
                 (long long)(budget_enough(tier, r->needs[tier]) / MEBIBYTE));
}

static void describe(void *user, const struct remedy *r, struct str *out)
{
    const struct trials *t = user;
    const struct variant *v = &r->variant;
    char limit[BYTES_TEXT];
    struct config c;
    if (!make_config(t, v, &c))
        return;
    add_way(t, r, out);
    numeric_changes_add_text(v->changes, &c, out);
    if (v->n_parts > 1)
        add_batch(t, &c, out);
    if (v->release)
        config_add_held(t->e->config, out);
    if (t->is_capped)
        str_addf(out, "%s%s_memory=auto", out->n ? " " : "", tier_name(t->tier));
    else if (out->n == 0) /* the settings are fine: they were planned for more room */
        str_addf(out, "%s_memory=%s", tier_name(t->tier), room_setting(t->limit, limit));
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* With what is advised to give. */
static void give_memory(const struct trials *t, const struct remedy *r, struct limits *limits)
{
    const enum tier tier = r->variant.way == WAY_HOST ? TIER_HOST : t->tier;
    if (t->is_capped)
        limits->n_bytes[t->tier] = LIMIT_OPEN;
    if (r->variant.way == WAY_MORE || r->variant.way == WAY_HOST)
        limits->n_bytes[tier] = budget_enough(tier, r->needs[tier]);
}

static double units_of(const struct engine_request *r, const struct task *task)
{
    for (int i = 0; i < r->n_stages; i++) {
        if (r->stages[i].purpose == STAGE_TRAIN)
            return (double)request_units(&r->stages[i], task);
    }
    return 0;
}

/* As it would be planned. */
static bool plan_priced(struct trials *t, struct remedy *r, int64_t needs[TIER_COUNT])
{
    struct engine *trial = &t->trial;
    struct config c;
    struct settings s;
    struct engine_request request;
    if (make_settings(t, &r->variant, &c, &s) != OK)
        return false;
    give_memory(t, r, &s.limits);
    s.bounds.rank = 1;
    if (begin_trial(t, &r->variant, &c, &s, &request) != OK)
        return false;
    trial->around = &t->around;
    trial->times = t->e->times;
    bool fits = engine_plan_beside(trial, &request, NULL) == OK && trial->forecast.fits &&
                is_there(t, &trial->forecast.budget);
    if (fits && trial->forecast.step_s > 0)
        r->units_s = units_of(&request, &trial->task) / trial->forecast.step_s;
    memcpy(needs, trial->forecast.budget.needs, sizeof(trial->forecast.budget.needs));
    trial->times = NULL; /* not its own */
    engine_close(trial);
    return fits;
}

/* The smallest plan sends all that it can to the host; the fastest, which needs so much of it,
 * keeps on the device what it has room for, and mostly runs in no more. */
static void ask_for_less(struct trials *t, int64_t host_bytes, struct remedy *r)
{
    struct remedy less = *r;
    int64_t needs[TIER_COUNT];
    less.needs[TIER_HOST] = host_bytes;
    if (!plan_priced(t, &less, needs) || less.units_s <= AS_FAST * r->units_s)
        return;
    less.n_bytes = needs[t->tier];
    *r = less;
}

/* Micro-batches that only just fit may have much computed again: half of them may be much faster.
 */
static void cut_once_more(struct trials *t, struct remedy *r)
{
    struct remedy more = *r;
    struct config c = *t->e->config;
    int64_t needs[TIER_COUNT], batch = *batch_of(t, &c), *n = &more.variant.n_parts;
    do {
        ++*n;
    } while (*n < batch && batch % *n != 0);
    if (*n > batch || !plan_variant(t, &more.variant, more.needs))
        return;
    if (!plan_priced(t, &more, needs) || more.units_s <= CLEARLY * r->units_s)
        return;
    more.n_bytes = MIN(more.needs[t->tier], needs[t->tier]);
    *r = more;
}

/* What is on disk is as fast as that: to plan for it takes its time. */
static bool price(void *user, struct remedy *r)
{
    struct trials *t = user;
    int64_t needs[TIER_COUNT];
    if (!t->trains || r->variant.way == WAY_DISK)
        return true;
    if (!plan_priced(t, r, needs))
        return false;
    if (r->variant.way == WAY_HOST) {
        r->n_bytes = needs[t->tier]; /* the smallest may need more of the host */
        ask_for_less(t, needs[TIER_HOST], r);
    }
    if (r->variant.n_parts > 1)
        cut_once_more(t, r);
    return true;
}

/* ---- advice ---------------------------------------------------------------------------------- */

/* Batch norm and the balance of experts go by the samples of a micro-batch. */
static bool is_of_micro_batches(const struct engine *e)
{
    const struct model *m = e->task.model;
    return m && (m->samples.has_batch_norm || m->balances_tokens);
}

static void advise(struct trials *t, struct advice *out)
{
    const struct engine *e = t->e;
    int harshness[MOST_NUMERIC_CHANGES];
    struct config c;
    *out = (struct advice){0};
    t->trains = engine_stage(e, STAGE_TRAIN) != NULL;
    if (!e->config ||
        mem_try_array(&t->stages, (size_t)e->request.n_stages, sizeof(*t->stages)) != OK)
        return;
    if (e->around)
        t->around = *e->around;
    else
        surroundings_read(&t->around, e->device);
    c = *e->config;
    for (int i = 0; i < numeric_changes_count(); i++)
        harshness[i] = numeric_change_harshness(i);
    struct variants x = {.harshness = harshness,
                         .n_changes = numeric_changes_count(),
                         .may_release = config_holds(e->config),
                         .batch = *batch_of(t, &c),
                         .user = t,
                         .least = least_bytes,
                         .plan = plan_variant,
                         .describe = describe,
                         .has_ways = t->short_of != NULL,
                         .price = t->short_of && !e->around ? price : NULL}; /* a run waits */
    if (is_of_micro_batches(e))
        x.harshness_of_parts = HARSHNESS_OF_PARTS;
    ways_init(&t->ways, e);
    advice_find(&x, &e->forecast, t->tier, t->limit, out);
    out->unit = e->task.def->unit.many;
    out->host_is_elsewhere = e->device->is_absent;
    out->parts_matter = x.harshness_of_parts > 0;
    engine_close(&t->trial);
    ways_release(&t->ways);
    mem_free(t->stages);
}

void engine_advise(const struct engine *e, enum tier tier, int64_t n_bytes, struct advice *out)
{
    struct trials t = {.e = e, .tier = tier, .limit = n_bytes};
    advise(&t, out);
}

/* What is free may itself be the advice, as it can be written. */
void engine_advise_short(const struct engine *e, const struct shortage *s, struct advice *out)
{
    int64_t limit = shortage_limit(s);
    struct trials t = {.e = e,
                       .tier = s->tier,
                       .limit = s->is_given ? limit : room_rounded(limit),
                       .short_of = s,
                       .is_capped = !s->is_given && s->budget->given[s->tier]};
    advise(&t, out);
}
