#include "task/language.h"

#include <math.h>

#include "data/windows.h"
#include "ops/layer_support.h"

static double perplexity(const struct model_graph *io, const double *sums)
{
    return exp(losses_mean(io, 0, sums));
}

static const struct task_metric metrics[] = {
    {.name = "perplexity", .value = perplexity, .is_logged = true}};

enum status language_check(const struct task *t, const struct config *cfg)
{
    long long length = (long long)cfg->max_seq_length,
              context = (long long)t->model->language.context;
    if (length <= context)
        return OK;
    if (config_is_set(cfg, "max_seq_length"))
        return FAIL(ERR_CONFIG, "%s: max_seq_length is %lld, but the model has positions for %lld",
                    config_where(cfg, "max_seq_length"), length, context);
    return FAIL(ERR_CONFIG,
                "the model has positions for %lld tokens, and max_seq_length is %lld unless it is "
                "given: set max_seq_length=%lld",
                context, length, context);
}

static void configure(struct task *t, const struct config *cfg)
{
    t->packed = language_packs(cfg);
}

static void describe(const struct task *t, const struct batch_sizes *sizes, struct batch *out)
{
    windows_describe(out, sizes->rows, sizes->length, t->packed);
}

static enum status build_graph(const struct task *t, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    struct model_request request = *r;
    request.packed = t->packed && (r->purpose == MODEL_TRAIN || r->purpose == MODEL_EVAL);
    return model_build(t->model, b, &request, out);
}

static int64_t units(const struct task *t, int64_t length)
{
    (void)t;
    return length;
}

/* 2 per weight and token forward, twice that backward; an untied embedding table is only looked up.
 * Attention: q k^T and p v over half of T keys on average (of blocks: those in reach), 2 flops
 * each, times 3. */
double language_flops(const struct task *t, int64_t n_active, int64_t length)
{
    const struct model *m = t->model;
    const struct language_facts *l = &m->language;
    int64_t window = l->local_blocks * l->block_size;
    double n = (double)length, n_keys = n / 2.0;
    if (window > 0 && window < length)
        n_keys = attention_causal_pairs(length, window, l->block_size) / n;
    double lookups = m->language.tied ? 0.0 : (double)m->language.vocab_size * (double)m->hidden;
    double attention = (double)m->n_layers * (double)l->attention_width * n_keys;
    return 6.0 * ((double)n_active - lookups) + 12.0 * attention;
}

int64_t language_n_blocks(const struct task *t)
{
    return t->model->n_layers;
}

const struct task_def task_language = {
    .name = "language modelling",
    .unit = {.one = "token",
             .many = "tokens",
             .rate = "tok/s",
             .rate_key = "tok_s",
             .rate_tag = "tokens_per_second"},
    .masked = "-100",
    .has_model = true,
    .metrics = metrics,
    .n_metrics = ARRAY_LEN(metrics),
    .data = &language_data,
    .check = language_check,
    .configure = configure,
    .describe = describe,
    .build = build_graph,
    .n_blocks = language_n_blocks,
    .units = units,
    .flops = language_flops,
};

struct task language_task(const struct model *model)
{
    return (struct task){.def = &task_language, .model = model};
}
