#include "task/preference.h"

#include "data/examples.h"
#include "task/language.h"

static void configure(struct task *t, const struct config *cfg)
{
    t->beta = cfg->dpo_beta;
    t->smoothing = cfg->label_smoothing_factor;
}

static enum status check(const struct task *t, const struct config *cfg)
{
    const struct model *m = t->model;
    if (m->adapter && m->adapter->saved.n > 0 && cfg->adapter_name_or_path)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: adapter_name_or_path: its modules_to_save have taken the place of the "
                    "model's own, which the answers are compared by: merge the adapter first (snug "
                    "export --merge) and start from the merged model",
                    config_where(cfg, "adapter_name_or_path"));
    return language_check(t, cfg);
}

static void describe(const struct task *t, const struct batch_sizes *sizes, struct batch *out)
{
    (void)t;
    examples_describe_pairs(out, sizes->rows, sizes->length);
}

/* ---- the graph ------------------------------------------------------------------------------- */

static value_id scaled(struct builder *b, value_id x, double factor)
{
    return build(b, OP_scale, IN(x), ATTRS({.name = "factor", .f = factor}));
}

/* Column k of [N, 2]: 0 is the chosen answers', 1 the rejected ones'. */
static value_id column(struct builder *b, value_id x, int64_t k, int64_t n)
{
    value_id y = build(
        b, OP_slice, IN(x),
        ATTRS({.name = "axis", .i = 1}, {.name = "start", .i = k}, {.name = "length", .i = 1}));
    return build_reshape(b, y, shape_of(1, n));
}

static value_id softplus(struct builder *b, value_id x, double factor)
{
    return build(b, OP_softplus, IN(scaled(b, x, factor)), NO_ATTRS);
}

/* -log sigmoid(x) is softplus(-x). */
static value_id pair_losses(const struct task *t, struct builder *b, value_id margins)
{
    value_id right = softplus(b, margins, -1.0);
    if (!(t->smoothing > 0))
        return right;
    value_id wrong = softplus(b, margins, 1.0);
    return build(b, OP_add, IN(scaled(b, right, 1 - t->smoothing), scaled(b, wrong, t->smoothing)),
                 NO_ATTRS);
}

static value_id sum_pairs(struct builder *b, value_id x, value_id is_pair)
{
    value_id counted = build(b, OP_mul, IN(x, is_pair), NO_ATTRS);
    return build_reshape(b, build(b, OP_sum, IN(counted), NO_ATTRS), shape_of(1, INT64_C(1)));
}

/* What is minimised, and what is told beside it under TRL's names. */
static void add_losses(const struct task *t, struct builder *b, value_id log_p, int64_t n,
                       struct model_graph *out)
{
    value_id log_q = build_value(b, "reference", ROLE_INPUT, DTYPE_F32, shape_of(2, n, INT64_C(2)));
    value_id is_pair = build_value(b, "is_pair", ROLE_INPUT, DTYPE_F32, shape_of(1, n));
    value_id rewards = scaled(b, build(b, OP_sub, IN(log_p, log_q), NO_ATTRS), t->beta);
    value_id chosen = column(b, rewards, 0, n), rejected = column(b, rewards, 1, n);
    value_id margins = build(b, OP_sub, IN(chosen, rejected), NO_ATTRS);
    value_id count = build(b, OP_sum, IN(is_pair), NO_ATTRS);
    count = build_reshape(b, count, shape_of(1, INT64_C(1)));
    /* 1 where a margin is above 0: relu's slope. */
    value_id better = build(b, OP_relu_grad, IN(is_pair, margins), NO_ATTRS);
    const struct {
        const char *name;
        double weight;
        value_id of_pairs;
    } told[] = {
        {"loss", 1, pair_losses(t, b, margins)},
        {"rewards/chosen", 0, chosen},
        {"rewards/rejected", 0, rejected},
        {"rewards/accuracies", 0, better},
        {"rewards/margins", 0, margins},
        {"logps/chosen", 0, column(b, log_p, 0, n)},
        {"logps/rejected", 0, column(b, log_p, 1, n)},
    };
    int i_count = losses_add_sum(b, out, "count", count);
    for (size_t i = 0; i < ARRAY_LEN(told); i++)
        losses_add(b, out, told[i].name, told[i].weight, sum_pairs(b, told[i].of_pairs, is_pair),
                   i_count);
}

static enum status build_graph(const struct task *t, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    struct model_request request = *r;
    bool scores = r->purpose == MODEL_TRAIN || r->purpose == MODEL_EVAL;
    if (scores) {
        request.pairs = true;
        request.batch = 2 * r->batch;
        request.label_smoothing = 0; /* of pairs, not of tokens */
    }
    TRY(model_build(t->model, b, &request, out));
    if (!scores)
        return OK;
    value_id losses = build_reshape(b, out->row_losses, shape_of(2, r->batch, INT64_C(2)));
    value_id log_p = scaled(b, losses, -1.0);
    if (r->no_adapter)
        out->reference = log_p;
    else
        add_losses(t, b, log_p, r->batch, out);
    return builder_status(b);
}

/* ---- as a task ------------------------------------------------------------------------------- */

static int64_t units(const struct task *t, int64_t length)
{
    (void)t;
    (void)length;
    return 1;
}

/* Two sequences each. */
static int64_t meetings(const struct task *t, int64_t length)
{
    (void)t;
    return 2 * length;
}

static double flops(const struct task *t, int64_t n_active, int64_t length)
{
    return (double)meetings(t, length) * language_flops(t, n_active, length);
}

const struct task_def task_preference = {
    .name = "preferences",
    .unit = {.one = "pair",
             .many = "pairs",
             .rate = "pair/s",
             .rate_key = "pair_s",
             .rate_tag = "pairs_per_second"},
    .masked = "no answer",
    .has_model = true,
    .has_reference = true,
    .cuts_to_length = true,
    .data = &language_data,
    .check = check,
    .configure = configure,
    .describe = describe,
    .build = build_graph,
    .n_blocks = language_n_blocks,
    .units = units,
    .meetings = meetings,
    .flops = flops,
};
