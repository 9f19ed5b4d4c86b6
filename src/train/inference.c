#include "train/inference.h"

#include <string.h>

enum status inference_open(struct inference *x, const struct config *cfg,
                           const struct engine_options *o)
{
    *x = (struct inference){0};
    x->engine = &x->own;
    return engine_open(x->engine, cfg, o);
}

void inference_close(struct inference *x)
{
    engine_close(&x->own);
    *x = (struct inference){0};
}

enum status inference_plan(struct inference *x, const struct inference_sizes *sizes)
{
    struct stage_request stage = {.batch = 1, .n_micro = 1, .cache_len = sizes->cache_len};
    struct engine_request r = {
        .stages = x->stages, .reserves = &x->reserve, .n_reserves = 1, .loads = true};
    const struct model *model = x->engine->model;
    if (sizes->cache_len > model->language.context)
        return FAIL(ERR_USAGE, "a sequence of %lld tokens: the model has positions for %lld",
                    (long long)sizes->cache_len, (long long)model->language.context);
    x->sizes = *sizes;
    x->reserve = (struct reserve){.name = INFERENCE_SCRATCH, .n_bytes = sizes->scratch_bytes};
    if (sizes->chunk > 1) {
        stage.purpose = STAGE_PREFILL;
        stage.seq_len = sizes->chunk;
        x->stages[r.n_stages++] = stage;
    }
    stage.purpose = STAGE_DECODE;
    stage.seq_len = 1;
    x->stages[r.n_stages++] = stage;
    TRY(engine_plan(x->engine, &r));
    x->prefill = engine_stage(x->engine, STAGE_PREFILL);
    x->decode = engine_stage(x->engine, STAGE_DECODE);
    TRY(engine_require_fit(x->engine));
    return engine_require_room(x->engine);
}

enum status inference_load(struct inference *x, const char *folder)
{
    TRY(engine_start(x->engine, folder));
    x->scratch = engine_reserve(x->engine, INFERENCE_SCRATCH, NULL);
    return OK;
}

void inference_join(struct inference *x, struct engine *e, const struct inference_sizes *sizes)
{
    *x = (struct inference){.engine = e,
                            .sizes = *sizes,
                            .decode = engine_stage(e, STAGE_DECODE),
                            .scratch = engine_reserve(e, INFERENCE_SCRATCH, NULL)};
}

/* ---- running --------------------------------------------------------------------------------- */

static enum status run_stage(struct inference *x, const struct stage *s, int64_t n_tokens,
                             const int32_t *tokens, int64_t first)
{
    int32_t *in = engine_input(x->engine, s, "tokens");
    int32_t *positions = engine_input(x->engine, s, "positions");
    int32_t *position = engine_input(x->engine, s, "position");
    memcpy(in, tokens, (size_t)n_tokens * sizeof(*in));
    if (position)
        *position = (int32_t)first;
    for (int64_t t = 0; positions && t < n_tokens; t++)
        positions[t] = (int32_t)(first + t);
    return engine_run(x->engine, s, "forward");
}

enum status inference_extend(struct inference *x, const int32_t *tokens, int64_t n, int64_t first,
                             struct tensor *logits)
{
    if (n < 1 || first < 0 || first + n > x->sizes.cache_len)
        return FAIL(ERR_INTERNAL, "tokens %lld..%lld of a cache of %lld", (long long)first,
                    (long long)(first + n), (long long)x->sizes.cache_len);
    bool in_chunks = x->prefill && n >= x->sizes.chunk;
    const struct stage *used = in_chunks ? x->prefill : x->decode;
    int64_t chunk = in_chunks ? x->sizes.chunk : 1;
    for (int64_t at = 0; at < n; at += chunk) {
        /* The last chunk begins early enough to be whole: what it shares with the one before is
         * written into the cache a second time, the same. */
        int64_t from = MIN(at, n - chunk);
        TRY(run_stage(x, used, chunk, tokens + from, first + from));
    }
    *logits = value_tensor(used->graph, used->io.logits);
    logits->shape = shape_of(1, x->engine->model->language.vocab_size);
    const void *data = engine_output(x->engine, used, "logits");
    memcpy(&logits->data, &data, sizeof(data)); /* a tensor's pointer is not const; it is read */
    return OK;
}
