#include "train/session.h"

#include "base/host_memory.h"
#include "engine/changeover.h"
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

struct loader_options session_loader_options(const struct session *s, bool eval)
{
    const struct config *cfg = s->config;
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

static enum status add_stage(struct session *s, struct engine_request *r,
                             enum stage_purpose purpose)
{
    bool eval = purpose == STAGE_EVAL;
    struct loader_options loader = session_loader_options(s, eval);
    s->rings[r->n_reserves++] = (struct reserve){.name = eval ? EVAL_RING_NAME : RING_NAME,
                                                 .n_bytes = (int64_t)loader_ring_bytes(&loader)};
    return request_from_config(&s->stages[r->n_stages++], purpose, s->config, &s->engine.task);
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

static enum status add_training(struct session *s, struct engine_request *r)
{
    list_lengths(s);
    TRY(add_stage(s, r, STAGE_TRAIN));
    for (int i = 1; i < s->n_lengths; i++) {
        struct stage_request *stage = &s->stages[r->n_stages++];
        *stage = s->stages[0];
        stage->full_len = stage->seq_len;
        stage->seq_len = s->lengths[i];
    }
    return OK;
}

/* Its batches are read into the ring of training, or of evaluation where there is no training. */
static enum status add_reference(struct session *s, struct engine_request *r)
{
    struct stage_request *stage = &s->stages[r->n_stages++];
    TRY(request_from_config(stage, STAGE_REFERENCE, s->config, &s->engine.task));
    if (!s->options.train)
        stage->batch = s->config->per_device_eval_batch_size;
    return OK;
}

/* What predictive phases need beside: a forward-only program for batches as training has them,
 * these batches, and snapshots of the weights. */
static enum status add_probe(struct session *s, struct engine_request *r)
{
    s->rings[r->n_reserves++] =
        (struct reserve){.name = PROBE_NAME, .n_bytes = probe_bytes(s), .is_kept = true};
    s->rings[r->n_reserves++] = (struct reserve){.name = SNAPSHOTS_NAME,
                                                 .n_bytes = jump_bytes(),
                                                 .n_copies = s->config->snapshot_count,
                                                 .is_kept = true};
    return request_from_config(&s->stages[r->n_stages++], STAGE_PROBE, s->config, &s->engine.task);
}

static void find_stages(struct session *s)
{
    s->train = engine_stage(&s->engine, STAGE_TRAIN);
    s->eval = engine_stage(&s->engine, STAGE_EVAL);
    s->reference = engine_stage(&s->engine, STAGE_REFERENCE);
    s->probe = engine_stage(&s->engine, STAGE_PROBE);
}

static enum status plan(struct session *s)
{
    struct engine_request r = {.stages = s->stages, .reserves = s->rings};
    if (s->options.train)
        TRY(add_training(s, &r));
    if (s->options.evaluate)
        TRY(add_stage(s, &r, STAGE_EVAL));
    if (s->engine.task.def->has_reference)
        TRY(add_reference(s, &r));
    if (s->options.train && s->config->predictive_phases != CONFIG_PHASES_NONE)
        TRY(add_probe(s, &r));
    r.result_bytes = s->options.train ? train_result_bytes(s->config) : 0;
    r.data_bytes = s->data_bytes;
    r.state_bytes = s->options.train ? train_state_bytes(s->config) : 0;
    r.saves = s->options.train; /* with save_strategy: no, too: when it is stopped */
    r.loads = !s->options.train || s->engine.model_folder || s->config->resume_from_checkpoint ||
              s->config->load_best_model_at_end;
    TRY(engine_plan(&s->engine, &r));
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
                                          .task = o->task};
    *s = (struct session){.config = cfg, .options = *o};
    TRY(engine_open(&s->engine, cfg, &engine));
    enum status status = open_data(s);
    if (status == OK)
        status = micro_batch_is_open(cfg) ? micro_batch_choose(s, plan) : plan(s);
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
    if (s->eval)
        TRY(feed_init(&s->eval_feed, x, s->eval->handle, s->eval->program, &eval.batch, none));
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

/* The ring of the loader lies in the arena that goes. */
static enum status change_over(struct session *s, struct engine *next, const char *folder,
                               bool *lost)
{
    struct engine *e = &s->engine;
    loader_stop(s->loader);
    enum status status = engine_change_over(e, next, folder);
    *lost = e->executor == NULL;
    if (*lost)
        return status;
    find_stages(s);
    enum status found = open_feeds(s);
    if (found == OK)
        found = session_start_loader(s, false);
    *lost = found != OK;
    return found != OK ? found : status;
}

enum status session_change_limits(struct session *s, const struct limits *limits,
                                  const char *folder, bool *lost)
{
    struct engine next;
    *lost = false;
    TRY(engine_replan(&s->engine, limits, &next));
    enum status status = change_over(s, &next, folder, lost);
    engine_discard(&next);
    mem_trim(); /* neither the old programs nor planning stay */
    if (status == OK)
        process_forget_peak(); /* that of other arenas */
    return status;
}

void session_close(struct session *s)
{
    loader_free(s->loader);
    loader_free(s->eval_loader);
    if (s->data)
        s->engine.task.def->data->close(s->data);
    engine_close(&s->engine);
    *s = (struct session){0};
}
