#include "train/session.h"

#include "train/trainer.h"

/* Prefetch rings, in the plan. */
#define RING_NAME      "data ring"
#define EVAL_RING_NAME "evaluation ring"

static enum status add_stage(struct session *s, struct engine_request *r,
                             enum stage_purpose purpose)
{
    bool eval = purpose == STAGE_EVAL;
    struct loader_options loader = session_loader_options(s, eval);
    s->rings[r->n_reserves++] =
        (struct reserve){eval ? EVAL_RING_NAME : RING_NAME, (int64_t)loader_ring_bytes(&loader)};
    return request_from_config(&s->stages[r->n_stages++], purpose, s->config, s->engine.model);
}

static enum status plan(struct session *s)
{
    struct engine_request r = {.stages = s->stages, .reserves = s->rings};
    if (s->options.train)
        TRY(add_stage(s, &r, STAGE_TRAIN));
    if (s->options.evaluate)
        TRY(add_stage(s, &r, STAGE_EVAL));
    r.result_bytes = s->options.train ? train_result_bytes(s->config) : 0;
    r.data_bytes = session_data_bytes(s);
    TRY(engine_plan(&s->engine, &r));
    s->train = engine_stage(&s->engine, STAGE_TRAIN);
    s->eval = engine_stage(&s->engine, STAGE_EVAL);
    return OK;
}

enum status session_open(struct session *s, const struct config *cfg,
                         const struct session_options *o)
{
    const struct engine_options engine = {.hub_folder = o->hub_folder,
                                          .cache_folder = o->cache_folder,
                                          .n_threads = o->n_threads,
                                          .untimed = o->untimed};
    *s = (struct session){.config = cfg, .options = *o};
    TRY(engine_open(&s->engine, cfg, &engine));
    enum status status = plan(s);
    if (status != OK)
        session_close(s);
    return status;
}

/* What goes into a program beside its batches is the trainer's to fill. */
static enum status open_feeds(struct session *s)
{
    static const char *const step_inputs[] = {LOSS_SEED, "lr", "step", "rng", NULL};
    static const char *const none[] = {NULL};
    struct executor *x = s->engine.executor;
    struct loader_options train = session_loader_options(s, false);
    struct loader_options eval = session_loader_options(s, true);
    if (s->train)
        TRY(feed_init(&s->feed, x, s->train->handle, s->train->program, &train.batch, step_inputs));
    if (s->eval)
        TRY(feed_init(&s->eval_feed, x, s->eval->handle, s->eval->program, &eval.batch, none));
    return OK;
}

enum status session_start(struct session *s)
{
    TRY(engine_start(&s->engine, s->engine.model_folder));
    return open_feeds(s);
}

enum status session_start_loader(struct session *s, bool eval)
{
    int64_t n_bytes;
    void *ring = engine_reserve(&s->engine, eval ? EVAL_RING_NAME : RING_NAME, &n_bytes);
    return loader_start(eval ? s->eval_loader : s->loader, ring, (size_t)n_bytes);
}

void session_close(struct session *s)
{
    loader_free(s->loader);
    loader_free(s->eval_loader);
    windows_free(s->windows);
    windows_free(s->eval_windows);
    source_free(s->source);
    source_free(s->eval_source);
    tokenizer_free(s->tokenizer);
    engine_close(&s->engine);
    *s = (struct session){0};
}
