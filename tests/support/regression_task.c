#include "support/regression_task.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { F = REGRESSION_FEATURES, K = REGRESSION_TARGETS, H = REGRESSION_HIDDEN, N_BLOCKS = 2 };
enum { ITEM_FEATURES, ITEM_TARGETS, ITEM_VALID };

/* ---- samples --------------------------------------------------------------------------------- */

void regression_sample(int64_t i, float features[F], float targets[K])
{
    struct rng rng = {.key = 3, .stream = (uint64_t)i};
    for (int k = 0; k < F; k++)
        features[k] = (float)rng_below(&rng, 1000) / 500.0f - 1.0f;
    targets[0] = features[0] - 2.0f * features[1];
    targets[1] = features[2] * features[3];
}

static enum status read_sample(void *user, int64_t i, struct batch *b, int64_t row)
{
    (void)user;
    float *valid = batch_row(b, ITEM_VALID, row);
    regression_sample(i, batch_row(b, ITEM_FEATURES, row), batch_row(b, ITEM_TARGETS, row));
    for (int k = 0; k < K; k++)
        valid[k] = 1.0f;
    b->n_valid++;
    return OK;
}

static void blank_sample(void *user, struct batch *b, int64_t row)
{
    (void)user;
    memset(batch_row(b, ITEM_FEATURES, row), 0, F * sizeof(float));
    memset(batch_row(b, ITEM_TARGETS, row), 0, K * sizeof(float));
    memset(batch_row(b, ITEM_VALID, row), 0, K * sizeof(float));
}

static enum status open_data(void **data, const struct task_data_options *o)
{
    (void)o;
    *data = NULL;
    return OK;
}

static void close_data(void *data)
{
    (void)data;
}

static int64_t read_bytes(void *data)
{
    (void)data;
    return 0;
}

static enum status read_data(void *data, int64_t spare_bytes)
{
    (void)data;
    (void)spare_bytes;
    return OK;
}

static enum status dataset(void *data, bool eval, struct dataset *out)
{
    (void)data;
    (void)eval;
    *out = (struct dataset){.n_samples = REGRESSION_SAMPLES,
                            .noun = "rows",
                            .size = F,
                            .size_noun = "features",
                            .read = read_sample,
                            .blank = blank_sample};
    return OK;
}

static enum status identity(const void *data, json_t **out)
{
    (void)data;
    *out = json_pack("{s:i}", "samples", (int)REGRESSION_SAMPLES);
    return *out ? OK : FAIL(ERR_MEMORY, "out of memory for the run's settings");
}

static const struct task_data_def data_def = {
    .open = open_data,
    .close = close_data,
    .read_bytes = read_bytes,
    .read = read_data,
    .dataset = dataset,
    .identity = identity,
};

/* ---- the network ----------------------------------------------------------------------------- */

static void describe(const struct task *t, const struct batch_sizes *sizes, struct batch *out)
{
    int64_t rows = sizes->rows;
    (void)t;
    batch_add(out, "features", DTYPE_F32, shape_of(2, rows, (int64_t)F));
    batch_add(out, "targets", DTYPE_F32, shape_of(2, rows, (int64_t)K));
    batch_add(out, "valid", DTYPE_F32, shape_of(2, rows, (int64_t)K));
}

static value_id linear(struct builder *b, struct model_graph *out, const char *name, value_id x,
                       int64_t n_out, int64_t n_in)
{
    struct shape shape = shape_of(2, n_out, n_in);
    value_id w = build_value(b, name, ROLE_PARAMETER, DTYPE_F32, shape);
    out->params[out->n_params++] = (struct model_param){
        .name = name, .value = w, .shape = shape, .init = INIT_NORMAL, .std = 0.5, .decay = true};
    return build(b, OP_linear, IN(x, w), NO_ATTRS);
}

/* The sum of all squares of x where `valid` is 1. */
static value_id squares(struct builder *b, value_id x, value_id valid)
{
    x = build(b, OP_mul, IN(x, valid), NO_ATTRS);
    value_id sum = build(b, OP_sum, IN(build(b, OP_mul, IN(x, x), NO_ATTRS)), NO_ATTRS);
    return build_reshape(b, sum, shape_of(1, INT64_C(1)));
}

static enum status build_graph(const struct task *t, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    (void)t;
    struct shape in = shape_of(2, r->batch, (int64_t)F), due = shape_of(2, r->batch, (int64_t)K);
    *out = (struct model_graph){.rng = VALUE_NONE,
                                .position = VALUE_NONE,
                                .positions = VALUE_NONE,
                                .logits = VALUE_NONE,
                                .n_blocks = N_BLOCKS};
    TRY(pool_try(&b->g->pool, &out->params, 3 * sizeof(*out->params)));
    value_id x = build_value(b, "features", ROLE_INPUT, DTYPE_F32, in);
    value_id targets = build_value(b, "targets", ROLE_INPUT, DTYPE_F32, due);
    value_id valid = build_value(b, "valid", ROLE_INPUT, DTYPE_F32, due);
    b->block = 0;
    x = build(b, OP_tanh, IN(linear(b, out, "layers.0.weight", x, H, F)), NO_ATTRS);
    b->block = 1;
    x = build(b, OP_tanh, IN(linear(b, out, "layers.1.weight", x, H, H)), NO_ATTRS);
    b->block = BLOCK_NONE;
    value_id y = linear(b, out, "head.weight", x, K, H);
    value_id n = build_reshape(b, build(b, OP_sum, IN(valid), NO_ATTRS), shape_of(1, INT64_C(1)));
    n = build(b, OP_scale, IN(n), ATTRS({.name = "factor", .f = 1.0 / K}));
    int count = losses_add_sum(b, out, "count", n);
    value_id error = build(b, OP_sub, IN(y, targets), NO_ATTRS);
    losses_add(b, out, "error", 1.0, squares(b, error, valid), count);
    losses_add(b, out, "penalty", REGRESSION_PENALTY, squares(b, y, valid), count);
    return builder_status(b);
}

/* ---- the task -------------------------------------------------------------------------------- */

static double distance(const struct model_graph *io, const double *sums)
{
    return sqrt(losses_mean(io, 0, sums));
}

static const struct task_metric metrics[] = {
    {.name = "distance", .value = distance, .is_logged = true}};

static enum status check(const struct task *t, const struct config *cfg)
{
    (void)t;
    (void)cfg;
    return OK;
}

static int64_t n_blocks(const struct task *t)
{
    (void)t;
    return N_BLOCKS;
}

static int64_t units(const struct task *t, int64_t length)
{
    (void)t;
    (void)length;
    return 1;
}

static double flops(const struct task *t, int64_t n_params, int64_t length)
{
    (void)t;
    (void)length;
    return 6.0 * (double)n_params;
}

const struct task_def task_regression = {
    .name = "regression",
    .unit = {.one = "sample",
             .many = "samples",
             .rate = "samples/s",
             .rate_key = "samples_s",
             .rate_tag = "samples_per_second"},
    .masked = "valid: 0",
    .metrics = metrics,
    .n_metrics = ARRAY_LEN(metrics),
    .data = &data_def,
    .check = check,
    .describe = describe,
    .build = build_graph,
    .n_blocks = n_blocks,
    .units = units,
    .flops = flops,
};
