/* The graphs follow the pattern that cuDNN's attention engines recognise: scores, mask by row and
 * column index, softmax from a maximum and a sum, product with the values; backwards the
 * probabilities from the statistics, then the five products. Order and types matter to them. */
#include "device/cuda/attention/sdpa_build.h"

#include <float.h>
#include <math.h>

/* What the graphs are built from. */
struct build {
    struct dnn_graph *g;
    const struct sdpa_shape *s;
    float *number; /* of the slots by value */
    cudnnDataType_t type;
};

/* ---- tensors with memory --------------------------------------------------------------------- */

/* Heads of the packed rows, or of keys and values repeated for every query head
 * (sdpa_groups.h). `transposed` gives [B, H, D, T]. */
static struct dnn_tensor packed(struct build *b, enum sdpa_slot slot, bool transposed)
{
    const struct sdpa_shape *s = b->s;
    bool is_query = slot == SLOT_Q || slot == SLOT_DQ, is_copy = s->repeated && !is_query;
    int64_t width = (s->row_heads + 2 * s->row_kv_heads) * s->head_dim;
    if (is_copy)
        width = 2 * s->heads * s->head_dim;
    int64_t n_heads = is_query || is_copy ? s->heads : s->kv_heads;
    int64_t dim[4] = {s->batch, n_heads, s->n_tokens, s->head_dim};
    int64_t stride[4] = {s->n_tokens * width, s->head_dim, width, 1};
    if (transposed) {
        dnn_exchange(dim);
        dnn_exchange(stride);
    }
    return dnn_tensor_new(b->g, (int)slot, b->type, 4, dim, stride);
}

/* out or dout. */
static struct dnn_tensor output(struct build *b, enum sdpa_slot slot)
{
    const struct sdpa_shape *s = b->s;
    int64_t width = s->row_heads * s->head_dim;
    int64_t dim[4] = {s->batch, s->heads, s->n_tokens, s->head_dim};
    int64_t stride[4] = {s->n_tokens * width, s->head_dim, width, 1};
    return dnn_tensor_new(b->g, (int)slot, b->type, 4, dim, stride);
}

/* One number per query and head: lse, delta, or inside the graph. Row by row even in a part: that
 * has all heads, or one row. */
static struct dnn_tensor statistic(struct build *b, int slot)
{
    const struct sdpa_shape *s = b->s;
    int64_t dim[4] = {s->batch, s->heads, s->n_tokens, 1};
    int64_t stride[4] = {s->heads * s->n_tokens, s->n_tokens, 1, 1};
    return dnn_tensor_new(b->g, slot, CUDNN_DATA_FLOAT, 4, dim, stride);
}

/* [B, H, T, n] row by row; n columns. */
static struct dnn_tensor full(struct build *b, int slot, cudnnDataType_t type, int64_t n)
{
    const struct sdpa_shape *s = b->s;
    int64_t dim[4] = {s->batch, s->heads, s->n_tokens, n};
    int64_t stride[4] = {s->heads * s->n_tokens * n, s->n_tokens * n, n, 1};
    return dnn_tensor_new(b->g, slot, type, 4, dim, stride);
}

static struct dnn_tensor number(struct build *b, enum sdpa_slot slot, float value)
{
    b->number[slot] = value;
    return dnn_scalar(b->g, (int)slot, CUDNN_DATA_FLOAT);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static struct dnn_tensor position(struct build *b, const struct dnn_tensor *scores, int64_t axis)
{
    struct dnn_tensor index = dnn_like(b->g, scores, CUDNN_DATA_INT32);
    dnn_pointwise(b->g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, scores, NULL, NULL, &index,
                  axis);
    return index;
}

/* scores where mode(left, right), else masked. */
static struct dnn_tensor keep_where(struct build *b, const struct dnn_tensor *scores,
                                    cudnnPointwiseMode_t mode, const struct dnn_tensor *left,
                                    const struct dnn_tensor *right)
{
    float nothing = cudnnGetVersion() < 91000 ? -FLT_MAX : -INFINITY;
    struct dnn_tensor masked = number(b, SLOT_MASKED, nothing);
    struct dnn_tensor keep = dnn_like(b->g, scores, CUDNN_DATA_BOOLEAN);
    struct dnn_tensor out = dnn_like(b->g, scores, CUDNN_DATA_FLOAT);
    dnn_pointwise(b->g, mode, CUDNN_DATA_BOOLEAN, left, right, NULL, &keep, 0);
    dnn_pointwise(b->g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, scores, &masked, &keep,
                  &out, 0);
    return out;
}

/* row >= column when causal; column + window > row when there is a window. */
static struct dnn_tensor mask(struct build *b, struct dnn_tensor scores)
{
    if (b->s->causal) {
        struct dnn_tensor row = position(b, &scores, 2), column = position(b, &scores, 3);
        scores = keep_where(b, &scores, CUDNN_POINTWISE_CMP_GE, &row, &column);
    }
    if (b->s->window > 0) {
        struct dnn_tensor row = position(b, &scores, 2), column = position(b, &scores, 3);
        struct dnn_tensor window = number(b, SLOT_WINDOW, (float)b->s->window);
        struct dnn_tensor reach = dnn_apply(b->g, CUDNN_POINTWISE_ADD, &column, &window);
        scores = keep_where(b, &scores, CUDNN_POINTWISE_CMP_GT, &reach, &row);
    }
    return scores;
}

/* ---- the graphs ------------------------------------------------------------------------------ */

static void build_forward(struct build *b)
{
    struct dnn_graph *g = b->g;
    struct dnn_tensor q = packed(b, SLOT_Q, false), k = packed(b, SLOT_K, true);
    struct dnn_tensor v = packed(b, SLOT_V, false), out = output(b, SLOT_OUT);
    struct dnn_tensor lse = statistic(b, SLOT_LSE), scale = number(b, SLOT_SCALE, b->s->scale);
    struct dnn_tensor scores = full(b, DNN_VIRTUAL, CUDNN_DATA_FLOAT, b->s->n_tokens);
    dnn_matmul(g, &q, &k, &scores);
    scores = dnn_apply(g, CUDNN_POINTWISE_MUL, &scores, &scale);
    scores = mask(b, scores);
    struct dnn_tensor top = statistic(b, DNN_VIRTUAL), sum = statistic(b, DNN_VIRTUAL);
    dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, &scores, &top);
    struct dnn_tensor below = dnn_apply(g, CUDNN_POINTWISE_SUB, &scores, &top);
    struct dnn_tensor p = dnn_apply(g, CUDNN_POINTWISE_EXP, &below, NULL);
    dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, &p, &sum);
    struct dnn_tensor log_sum = dnn_apply(g, CUDNN_POINTWISE_LOG, &sum, NULL);
    dnn_pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, &top, &log_sum, NULL, &lse, 0);
    struct dnn_tensor weights = dnn_like(g, &p, b->type);
    dnn_pointwise(g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, &p, &sum, NULL, &weights, 0);
    dnn_matmul(g, &weights, &v, &out);
}

/* The transpose of a [B, H, T, T] inside the graph, in 16 bits. */
static struct dnn_tensor transposed_view(struct build *b, const struct dnn_tensor *x)
{
    struct dnn_tensor y = *x;
    dnn_exchange(y.dim);
    dnn_exchange(y.stride);
    y = dnn_tensor_new(b->g, DNN_VIRTUAL, b->type, 4, y.dim, y.stride);
    dnn_view(b->g, x, &y);
    return y;
}

/* into = m^T x for every head, summed over the heads that share a key/value head. */
static void head_product(struct build *b, const struct dnn_tensor *m, const struct dnn_tensor *x,
                         enum sdpa_slot slot)
{
    struct dnn_tensor m_t = transposed_view(b, m), into = packed(b, slot, false);
    if (b->s->heads == b->s->kv_heads || b->s->repeated) {
        dnn_matmul(b->g, &m_t, x, &into);
        return;
    }
    struct dnn_tensor every = full(b, DNN_VIRTUAL, b->type, b->s->head_dim);
    dnn_matmul(b->g, &m_t, x, &every);
    dnn_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, &every, &into);
}

/* delta = sum over a head of dout * out. The engines know it with a factor (for dropout): here 1.
 */
static struct dnn_tensor build_delta(struct build *b, const struct dnn_tensor *dout)
{
    struct dnn_tensor out = output(b, SLOT_OUT), one = number(b, SLOT_ONE, 1.0f);
    struct dnn_tensor product = full(b, DNN_VIRTUAL, CUDNN_DATA_FLOAT, b->s->head_dim);
    struct dnn_tensor sum = statistic(b, DNN_VIRTUAL), delta = statistic(b, SLOT_DELTA);
    dnn_pointwise(b->g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, dout, &out, NULL, &product, 0);
    dnn_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, &product, &sum);
    dnn_pointwise(b->g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, &sum, &one, NULL, &delta, 0);
    return delta;
}

/* dq = ds k */
static void build_query_grad(struct build *b, const struct dnn_tensor *ds,
                             const struct dnn_tensor *k_t)
{
    struct dnn_tensor k = *k_t, dq = packed(b, SLOT_DQ, false);
    dnn_exchange(k.dim);
    dnn_exchange(k.stride);
    k = dnn_tensor_new(b->g, DNN_VIRTUAL, b->type, 4, k.dim, k.stride);
    dnn_view(b->g, k_t, &k);
    dnn_matmul(b->g, ds, &k, &dq);
}

static void build_grad(struct build *b)
{
    struct dnn_graph *g = b->g;
    struct dnn_tensor q = packed(b, SLOT_Q, false), k = packed(b, SLOT_K, true);
    struct dnn_tensor v = packed(b, SLOT_V, true), dout = output(b, SLOT_DOUT);
    struct dnn_tensor lse = statistic(b, SLOT_LSE), scale = number(b, SLOT_SCALE, b->s->scale);
    struct dnn_tensor delta = build_delta(b, &dout);
    struct dnn_tensor scores = full(b, DNN_VIRTUAL, CUDNN_DATA_FLOAT, b->s->n_tokens);
    dnn_matmul(g, &q, &k, &scores);
    scores = dnn_apply(g, CUDNN_POINTWISE_MUL, &scores, &scale);
    scores = dnn_apply(g, CUDNN_POINTWISE_SUB, &scores, &lse);
    scores = mask(b, scores);
    struct dnn_tensor p = dnn_apply(g, CUDNN_POINTWISE_EXP, &scores, NULL);
    head_product(b, &p, &dout, SLOT_DV);
    struct dnn_tensor dp = full(b, DNN_VIRTUAL, CUDNN_DATA_FLOAT, b->s->n_tokens);
    dnn_matmul(g, &dout, &v, &dp);
    struct dnn_tensor ds = dnn_apply(g, CUDNN_POINTWISE_SUB, &dp, &delta);
    ds = dnn_apply(g, CUDNN_POINTWISE_MUL, &ds, &p);
    ds = dnn_apply(g, CUDNN_POINTWISE_MUL, &ds, &scale);
    head_product(b, &ds, &q, SLOT_DK);
    build_query_grad(b, &ds, &k);
}

void sdpa_build(struct dnn_graph *g, const struct sdpa_shape *shape, float number[SLOT_COUNT])
{
    struct build b = {.g = g, .s = shape, .number = number};
    b.type = shape->dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    if (shape->kind == SDPA_FORWARD)
        build_forward(&b);
    else
        build_grad(&b);
}
