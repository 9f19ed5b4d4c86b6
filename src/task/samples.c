#include "task/samples.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "data/samples.h"

/* ---- metrics --------------------------------------------------------------------------------- */

/* The share of samples whose label is the likeliest class; NaN where nothing is classified. */
static double accuracy(const struct model_graph *io, const double *sums)
{
    for (int i = 0; i < io->n_sums; i++) {
        if (strcmp(io->sums[i].name, "correct") == 0)
            return sums[i] / sums[losses_count(io)];
    }
    return (double)NAN;
}

static const struct task_metric metrics[] = {
    {.name = "accuracy", .value = accuracy, .is_logged = true, .is_optional = true}};

/* ---- what goes with what --------------------------------------------------------------------- */

static enum status check_keys(const struct config *cfg)
{
    static const char *const of_text[] = {
        "max_seq_length",        "tokenizer", "z_loss",
        "lmhead_chunks",         "packing",   "neftune_noise_alpha",
        "label_smoothing_factor"};
    for (size_t i = 0; i < ARRAY_LEN(of_text); i++) {
        if (config_is_set(cfg, of_text[i]))
            return FAIL(ERR_CONFIG,
                        "%s: %s is a setting of language models, and this network reads no text: "
                        "leave it out%s",
                        config_where(cfg, of_text[i]), of_text[i],
                        strcmp(of_text[i], "label_smoothing_factor") == 0
                            ? " (a network writes loss: {cross_entropy: {label_smoothing: 0.1}})"
                            : "");
    }
    return OK;
}

/* Micro-batches add up to the batch only where no sample knows of another. */
static enum status check(const struct task *t, const struct config *cfg)
{
    const struct sample_facts *facts = &t->model->samples;
    long long n_micro = (long long)cfg->gradient_accumulation_steps;
    TRY(check_keys(cfg));
    if (n_micro > 1 && facts->coupling)
        return FAIL(ERR_CONFIG,
                    "%s: gradient_accumulation_steps is %lld, but %s: micro-batches would change "
                    "what is minimised. Set it to 1, or use another loss",
                    config_where(cfg, "gradient_accumulation_steps"), n_micro, facts->coupling);
    return OK;
}

static void describe(const struct task *t, const struct batch_sizes *sizes, struct batch *out)
{
    samples_describe(out, &t->model->samples, sizes->rows, sizes->weights);
}

static bool needs_full_batches(const struct task *t)
{
    return t->model->samples.has_batch_norm || t->model->samples.coupling;
}

static enum status build_graph(const struct task *t, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    return model_build(t->model, b, r, out);
}

static int64_t n_blocks(const struct task *t)
{
    return t->model->n_layers;
}

static int64_t units(const struct task *t, int64_t length)
{
    (void)t;
    (void)length;
    return 1;
}

/* ---- useful FLOPs ---------------------------------------------------------------------------- */

/* Of the network as it is evaluated, and twice as many for its gradients. */
static double flops(const struct task *t, int64_t n_params, int64_t length)
{
    const struct model_request one = {
        .purpose = MODEL_EVAL, .batch = 1, .seq_len = 1, .dtype = DTYPE_F32};
    struct graph *g = NULL;
    struct builder b;
    struct model_graph io;
    double sum = 0;
    (void)length;
    if (graph_new(&g, "count") != OK)
        return 6.0 * (double)n_params;
    builder_init(&b, g);
    if (model_build(t->model, &b, &one, &io) == OK) {
        for (size_t k = 0; k < g->nodes.n; k++)
            sum += node_flops(g, graph_node(g, (node_id)k));
    }
    graph_free(g);
    return 3.0 * sum;
}

const struct task_def task_samples = {
    .name = "training on samples",
    .unit = {.one = "sample",
             .many = "samples",
             .rate = "samples/s",
             .rate_key = "samples_s",
             .rate_tag = "samples_per_second"},
    .masked = "a label below 0",
    .has_model = true,
    .metrics = metrics,
    .n_metrics = ARRAY_LEN(metrics),
    .data = &samples_data,
    .check = check,
    .describe = describe,
    .needs_full_batches = needs_full_batches,
    .build = build_graph,
    .n_blocks = n_blocks,
    .units = units,
    .flops = flops,
};
