#include "train/session.h"

#include <string.h>

#include "base/host_memory.h"
#include "base/log.h"
#include "base/machine.h"
#include "train/control_run.h"
#include "train/elastic_budgets.h"
#include "train/jump.h"
#include "train/micro_batch.h"
#include "train/probe.h"
#include "train/trainer.h"

/* Prefetch rings, in the plan. */
#define RING_NAME      "data ring"
#define EVAL_RING_NAME "evaluation ring"

/* ---- opening --------------------------------------------------------------------------------- */

static enum status open_data(struct session *s)
{
    const struct engine *e = &s->engine;
    const struct task_data_options o = {
        .config = s->config,
        .task = &e->task,
        .model_folder = e->model_folder,
        .cache_folder = s->options.cache_folder,
        .train = s->options.train,
        .evaluate = s->options.evaluate,
    };
    TRY(e->task.def->data->open(&s->data, &o));
    s->data_bytes = e->task.def->data->read_bytes(s->data);
    return OK;
}

static struct loader_options loader_options(const struct session *s, const struct config *cfg,
                                            bool eval)
{
    const struct task *task = &s->engine.task;
    bool split = !cfg->eval_datasets.n && cfg->val_set_size > 0;
    struct loader_options o = {
        .split = !split ? SPLIT_ALL
                 : eval ? SPLIT_EVAL
                        : SPLIT_TRAIN,
        .val_set_size = cfg->val_set_size,
        .shuffle = eval ? 0 : cfg->shuffle,
        .seed = (uint64_t)cfg->data_seed,
        .keep_last = eval || !cfg->dataloader_drop_last,
        .n_ranks = 1,
        .n_slots = cfg->dataloader_prefetch,
        .group_batches = !eval && cfg->group_by_length ? cfg->gradient_accumulation_steps : 0,
    };
    const struct batch_sizes sizes = {
        .rows = eval ? cfg->per_device_eval_batch_size : cfg->per_device_train_batch_size,
        .length = cfg->max_seq_length,
        .weights = s->engine.settings.numerics.precision.weights,
    };
    if (!eval && task->def->needs_full_batches && task->def->needs_full_batches(task))
        o.keep_last = 0;
    task->def->describe(task, &sizes, &o.batch);
    return o;
}

struct loader_options session_loader_options(const struct session *s, bool eval)
{
    return loader_options(s, s->config, eval);
}

static enum status add_stage(const struct session *s, struct session_shape *x,
                             enum stage_purpose purpose)
{
    bool eval = purpose == STAGE_EVAL;
    struct engine_request *r = &x->request;
    struct loader_options loader = loader_options(s, &x->config, eval);
    x->rings[r->n_reserves++] = (struct reserve){.name = eval ? EVAL_RING_NAME : RING_NAME,
                                                 .n_bytes = (int64_t)loader_ring_bytes(&loader)};
    return request_from_config(&x->stages[r->n_stages++], purpose, &x->config, &s->engine.task);
}

/* Quarters of the length, as multiples of what kernels like; the whole comes first. */
static void list_lengths(struct session *s)
{
    enum { UNIT = 16 };
    int64_t whole = s->config->max_seq_length;
    s->n_lengths = 0;
    for (int quarters = 4; quarters >= 1; quarters--) {
        int64_t length = quarters == 4 ? whole : (whole * quarters / 4 + UNIT - 1) / UNIT * UNIT;
        if (s->n_lengths == 0 || length < s->lengths[s->n_lengths - 1])
            s->lengths[s->n_lengths++] = length;
        if (!s->config->group_by_length)
            return;
    }
}

static enum status add_training(const struct session *s, struct session_shape *x)
{
    struct engine_request *r = &x->request;
    TRY(add_stage(s, x, STAGE_TRAIN));
    for (int i = 1; i < s->n_lengths; i++) {
        struct stage_request *stage = &x->stages[r->n_stages++];
        *stage = x->stages[0];
        stage->full_len = stage->seq_len;
        stage->seq_len = s->lengths[i];
    }
    return OK;
}

/* Its batches are read into the ring of training, or of evaluation where there is no training. */
static enum status add_reference(const struct session *s, struct session_shape *x)
{
    struct stage_request *stage = &x->stages[x->request.n_stages++];
    TRY(request_from_config(stage, STAGE_REFERENCE, &x->config, &s->engine.task));
    if (!s->options.train)
        stage->batch = x->config.per_device_eval_batch_size;
    return OK;
}

/* What predictive phases need beside: a forward-only program for batches as training has them,
 * and snapshots of the weights. */
static enum status add_probe(const struct session *s, struct session_shape *x)
{
    struct engine_request *r = &x->request;
    x->rings[r->n_reserves++] = (struct reserve){.name = SNAPSHOTS_NAME,
                                                 .n_bytes = jump_bytes(),
                                                 .n_copies = x->config.snapshot_count,
                                                 .is_kept = true};
    return request_from_config(&x->stages[r->n_stages++], STAGE_PROBE, &x->config, &s->engine.task);
}

/* What predicted gradients need: their program, one that holds them against true ones, and the
 * batches of a step. */
static enum status add_prediction(const struct session *s, struct session_shape *x)
{
    struct engine_request *r = &x->request;
    TRY(control_check(s));
    x->rings[r->n_reserves++] =
        (struct reserve){.name = STEP_BATCHES_NAME, .n_bytes = control_bytes(s, &x->config)};
    TRY(request_from_config(&x->stages[r->n_stages++], STAGE_PREDICT, &x->config, &s->engine.task));
    return request_from_config(&x->stages[r->n_stages++], STAGE_MEASURE, &x->config,
                               &s->engine.task);
}

/* Both go by batches that no step has; predictions come after, so that training is the first. */
static enum status add_probing(const struct session *s, struct session_shape *x)
{
    bool jumps = x->config.predictive_phases != CONFIG_PHASES_NONE;
    bool predicts = x->config.predicted_gradients != CONFIG_PREDICTION_NONE;
    if (!s->options.train || (!jumps && !predicts))
        return OK;
    x->rings[x->request.n_reserves++] =
        (struct reserve){.name = PROBE_NAME, .n_bytes = probe_bytes(s), .is_kept = true};
    if (jumps)
        TRY(add_probe(s, x));
    return predicts ? add_prediction(s, x) : OK;
}

static void add_samples(const struct session *s, struct session_shape *x)
{
    struct engine_request *r = &x->request;
    x->stages[r->n_stages++] = sample_texts_stage(s->samples);
    x->rings[r->n_reserves++] = sample_texts_scratch(s->samples);
}

/* All but the config, which says what the sizes are. */
static enum status fill_shape(const struct session *s, struct session_shape *x)
{
    struct engine_request *r = &x->request;
    const struct config *cfg = &x->config;
    *r = (struct engine_request){.stages = x->stages, .reserves = x->rings};
    if (s->options.train)
        TRY(add_training(s, x));
    if (s->options.evaluate)
        TRY(add_stage(s, x, STAGE_EVAL));
    if (s->engine.task.def->has_reference)
        TRY(add_reference(s, x));
    TRY(add_probing(s, x));
    if (s->samples)
        add_samples(s, x);
    r->result_bytes = s->options.train ? train_result_bytes(cfg) : 0;
    r->data_bytes = s->data_bytes;
    r->state_bytes = s->options.train ? train_state_bytes(cfg) : 0;
    r->saves = s->options.train; /* with save_strategy: no, too: when it is stopped */
    r->loads = !s->options.train || s->engine.model_folder || cfg->resume_from_checkpoint ||
               cfg->load_best_model_at_end;
    r->plans_ahead = s->options.train && (elastic_plans_ahead(cfg) || cfg->plan_trials > 1);
    return OK;
}

enum status session_shape(const struct session *s, int64_t batch, struct session_shape *out)
{
    out->config = micro_batch_config(s->config, batch);
    return fill_shape(s, out);
}

struct config session_first_config(const struct session *s)
{
    return s->first_batch > 0 ? micro_batch_config(s->config, s->first_batch) : *s->config;
}

/* The engine's request is of arrays that stay where they are. */
static void take_shape(struct session *s, const struct session_shape *x, struct engine_request *r)
{
    memcpy(s->stages, x->stages, sizeof(s->stages));
    memcpy(s->rings, x->rings, sizeof(s->rings));
    r->stages = s->stages;
    r->reserves = s->rings;
}

static void find_stages(struct session *s)
{
    s->train = engine_stage(&s->engine, STAGE_TRAIN);
    s->eval = engine_stage(&s->engine, STAGE_EVAL);
    s->reference = engine_stage(&s->engine, STAGE_REFERENCE);
    s->probe = engine_stage(&s->engine, STAGE_PROBE);
    s->predict = engine_stage(&s->engine, STAGE_PREDICT);
    s->measure = engine_stage(&s->engine, STAGE_MEASURE);
}

static enum status plan(struct session *s)
{
    struct session_shape x = {.config = *s->config};
    if (s->options.train)
        list_lengths(s);
    TRY(fill_shape(s, &x));
    take_shape(s, &x, &x.request);
    TRY(engine_plan(&s->engine, &x.request));
    find_stages(s);
    return OK;
}

enum status session_open(struct session *s, const struct config *cfg,
                         const struct session_options *o)
{
    const struct engine_options engine = {.hub_folder = o->hub_folder,
                                          .cache_folder = o->cache_folder,
                                          .gpu = o->gpu,
                                          .n_threads = o->n_threads,
                                          .untimed = o->untimed,
                                          .replans = o->replans,
                                          .task = o->task};
    *s = (struct session){.config = cfg, .options = *o};
    TRY(engine_open(&s->engine, cfg, &engine));
    enum status status = open_data(s);
    if (status == OK && o->train && cfg->sample_prompts.n > 0)
        status = sample_texts_open(&s->samples, &s->engine);
    if (status == OK)
        status = micro_batch_is_open(cfg) || micro_batch_may_change(s) ? micro_batch_choose(s, plan)
                                                                       : plan(s);
    if (status == OK && o->train && elastic_plans_ahead(cfg))
        status = elastic_open(s);
    if (status != OK)
        session_close(s);
    return status;
}

/* ---- data ------------------------------------------------------------------------------------ */

static enum status open_loader(struct session *s, bool eval)
{
    struct loader_options o = session_loader_options(s, eval);
    struct dataset data;
    TRY(s->engine.task.def->data->dataset(s->data, eval, &data));
    if (o.group_batches > 0 && !data.length)
        return FAIL(
            ERR_CONFIG,
            "%s: group_by_length is for records of several lengths, and all %s of this data "
            "have %lld %s: leave it out",
            config_where(s->config, "group_by_length"), data.noun, (long long)data.size,
            data.size_noun);
    return loader_open(eval ? &s->eval_loader : &s->loader, &data, &o);
}

enum status session_data(struct session *s)
{
    const struct budget *b = &s->engine.forecast.budget;
    int64_t spare_bytes = b->n_bytes[TIER_HOST] - b->needs[TIER_HOST];
    TRY(s->engine.task.def->data->read(s->data, spare_bytes));
    if (s->options.train)
        TRY(open_loader(s, false));
    if (s->options.evaluate)
        TRY(open_loader(s, true));
    mem_trim();
    return OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* What goes into a program beside its batches is the trainer's to fill. */
static enum status open_feeds(struct session *s)
{
    static const char *const step_inputs[] = {LOSS_SEED, "lr", "step", "rng", NULL};
    static const char *const none[] = {NULL};
    struct executor *x = s->engine.executor;
    struct loader_options train = session_loader_options(s, false);
    struct loader_options eval = session_loader_options(s, true);
    for (int i = 0; s->train && i < s->n_lengths; i++) {
        const struct stage *stage = &s->engine.work.stages[i];
        TRY(feed_init(&s->feeds[i], x, stage->handle, stage->program, &train.batch, step_inputs));
    }
    s->feed = s->feeds[0];
    if (s->reference)
        TRY(feed_init_some(&s->reference_feed, x, s->reference->handle, s->reference->program,
                           s->train ? &train.batch : &eval.batch));
    if (s->probe)
        TRY(feed_init(&s->probe_feed, x, s->probe->handle, s->probe->program, &train.batch, none));
    if (s->predict)
        TRY(feed_init(&s->predict_feed, x, s->predict->handle, s->predict->program, &train.batch,
                      step_inputs));
    if (s->measure)
        TRY(feed_init(&s->measure_feed, x, s->measure->handle, s->measure->program, &train.batch,
                      step_inputs));
    if (s->eval)
        TRY(feed_init(&s->eval_feed, x, s->eval->handle, s->eval->program, &eval.batch, none));
    if (s->samples)
        sample_texts_join(s->samples, &s->engine);
    return OK;
}

enum status session_start_with(struct session *s, const char *weights_folder)
{
    TRY(engine_start(&s->engine, weights_folder));
    return open_feeds(s);
}

enum status session_start(struct session *s)
{
    return session_start_with(s, s->engine.model_folder);
}

void session_choose_length(struct session *s, const struct batch *b)
{
    int i = 0;
    while (i + 1 < s->n_lengths && b->length > 0 && b->length <= s->lengths[i + 1])
        i++;
    s->train = &s->engine.work.stages[i];
    s->feed = s->feeds[i];
    s->length = s->lengths[i];
}

void *session_ring(const struct session *s, bool eval)
{
    return engine_reserve(&s->engine, eval ? EVAL_RING_NAME : RING_NAME, NULL);
}

enum status session_start_loader(struct session *s, bool eval)
{
    int64_t n_bytes;
    void *ring = engine_reserve(&s->engine, eval ? EVAL_RING_NAME : RING_NAME, &n_bytes);
    return loader_start(eval ? s->eval_loader : s->loader, ring, (size_t)n_bytes);
}

/* Where another micro-batch cuts the data otherwise, from where the run stands. */
static enum status recut(struct session *s)
{
    struct loader_options o = session_loader_options(s, false);
    struct loader *next;
    struct loader_cursor at;
    loader_get_cursor(s->loader, &at);
    TRY(loader_open(&next, loader_dataset(s->loader), &o));
    enum status status = loader_set_cursor(next, &at);
    if (status != OK) {
        loader_free(next);
        return status;
    }
    loader_free(s->loader);
    s->loader = next;
    return OK;
}

/* The ring of the loader lies in the arena that goes. */
static enum status change_over(struct session *s, struct engine *next, struct session_change *c)
{
    struct engine *e = &s->engine;
    loader_stop(s->loader);
    enum status status = engine_change_over(e, next, &c->over);
    c->is_lost = e->executor == NULL;
    if (c->is_lost)
        return status;
    find_stages(s);
    return status;
}

/* What goes into the programs that run from here on. */
static enum status feed_programs(struct session *s, bool other_batch)
{
    if (other_batch)
        TRY(recut(s));
    TRY(open_feeds(s));
    return session_start_loader(s, false);
}

static void take_batch(struct session *s, const struct config *cfg)
{
    s->own_config = *cfg;
    s->config = s->engine.config = &s->own_config;
}

/* The shape that is wanted takes the place of the one there is; where the programs do not, it goes
 * back. */
static enum status change_shape(struct session *s, const struct session_shape *x,
                                struct engine *next, struct session_change *c)
{
    struct session_shape before = {.config = *s->config};
    bool other = x->stages[0].batch != s->stages[0].batch;
    memcpy(before.stages, s->stages, sizeof(s->stages));
    memcpy(before.rings, s->rings, sizeof(s->rings));
    take_shape(s, x, &next->request);
    next->work.reserves = s->rings;
    enum status status = change_over(s, next, c);
    if (c->is_lost)
        return status;
    if (status != OK)
        take_shape(s, &before, &s->engine.request);
    else if (other)
        take_batch(s, &x->config);
    enum status fed = feed_programs(s, status == OK && other);
    c->is_lost = fed != OK;
    return fed != OK ? fed : status;
}

/* With a plan that was made beforehand, where there is one that still fits. */
static enum status replan(struct session *s, struct session_change *c,
                          const struct session_shape *x, struct engine *next)
{
    struct replan r = {.limits = c->limits,
                       .request = &x->request,
                       .config = &x->config,
                       .known = c->known,
                       .rank = c->rank};
    const struct ahead_plan *p =
        s->ahead && !c->known ? ahead_find(s->ahead, &c->limits, x->stages[0].batch, c->hurries)
                              : NULL;
    if (p)
        r.known = &p->decisions;
    c->was_planned = r.known && engine_replan(&s->engine, &r, next) == OK;
    r.known = NULL;
    return c->was_planned ? OK : engine_replan(&s->engine, &r, next);
}

/* Plans are told apart by their time; equal ones with equal arenas are the same. */
static bool is_same_plan(const struct engine *a, const struct engine *b)
{
    return a->forecast.step_s == b->forecast.step_s &&
           memcmp(a->work.n_bytes, b->work.n_bytes, sizeof(a->work.n_bytes)) == 0;
}

static bool is_idle(const struct session *s, const struct session_change *c,
                    const struct engine *next)
{
    if (c->if_faster && next->forecast.step_s >= 0.99 * s->engine.forecast.step_s)
        return true;
    return c->rank > 0 && !c->anew && is_same_plan(&s->engine, next);
}

enum status session_change(struct session *s, struct session_change *c)
{
    double began = now_s();
    struct engine next;
    struct session_shape x;
    c->is_lost = false;
    if (s->ahead)
        ahead_stop(s->ahead);
    TRY(session_shape(s, c->batch > 0 ? c->batch : s->stages[0].batch, &x));
    TRY(replan(s, c, &x, &next));
    c->planning_s = now_s() - began;
    c->is_idle = is_idle(s, c, &next);
    if (c->is_idle) {
        engine_discard(&next);
        return OK;
    }
    enum status status = change_shape(s, &x, &next, c);
    engine_discard(&next);
    mem_trim(); /* neither the old programs nor planning stay */
    c->carrying_s = now_s() - began - c->planning_s;
    if (status != OK)
        return status;
    process_forget_peak(); /* that of other arenas */
    if (s->ahead && ahead_keep(s->ahead, &s->engine, s->stages[0].batch) != OK)
        log_warn("%s: the way back to this budget is not planned", status_message());
    return OK;
}

void session_close(struct session *s)
{
    ahead_free(s->ahead);
    mem_free(s->shapes);
    sample_texts_free(s->samples);
    loader_free(s->loader);
    loader_free(s->eval_loader);
    if (s->data)
        s->engine.task.def->data->close(s->data);
    engine_close(&s->engine);
    *s = (struct session){0};
}
