/* The graphs follow the pattern that cuDNN's attention engines recognise: scores, mask by row and
 * column index, softmax from a maximum and a sum, product with the values; backwards the
 * probabilities from the statistics, then the five products. Order and types matter to them. */
#include "device/cuda/attention/sdpa_build.h"

#include <float.h>
#include <math.h>

/* What the graphs are built from. */
struct build {
    struct sdpa_graph *g;
    const struct sdpa_shape *s;
    float *number; /* of the slots by value */
    cudnnDataType_t type;
};

/* ---- tensors with memory --------------------------------------------------------------------- */

/* Heads of the packed rows, or of keys and values repeated for every query head
 * (sdpa_groups.h). `transposed` gives [B, H, D, T]. */
static struct sdpa_tensor packed(struct build *b, enum sdpa_slot slot, bool transposed)
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
        sdpa_exchange(dim);
        sdpa_exchange(stride);
    }
    return sdpa_tensor_new(b->g, (int)slot, b->type, dim, stride);
}

/* out or dout. */
static struct sdpa_tensor output(struct build *b, enum sdpa_slot slot)
{
    const struct sdpa_shape *s = b->s;
    int64_t width = s->row_heads * s->head_dim;
    int64_t dim[4] = {s->batch, s->heads, s->n_tokens, s->head_dim};
    int64_t stride[4] = {s->n_tokens * width, s->head_dim, width, 1};
    return sdpa_tensor_new(b->g, (int)slot, b->type, dim, stride);
}

/* One number per query and head: lse, delta, or inside the graph. Row by row even in a part: that
 * has all heads, or one row. */
static struct sdpa_tensor statistic(struct build *b, int slot)
{
    const struct sdpa_shape *s = b->s;
    int64_t dim[4] = {s->batch, s->heads, s->n_tokens, 1};
    int64_t stride[4] = {s->heads * s->n_tokens, s->n_tokens, 1, 1};
    return sdpa_tensor_new(b->g, slot, CUDNN_DATA_FLOAT, dim, stride);
}

/* [B, H, T, n] row by row; n columns. */
static struct sdpa_tensor full(struct build *b, int slot, cudnnDataType_t type, int64_t n)
{
    const struct sdpa_shape *s = b->s;
    int64_t dim[4] = {s->batch, s->heads, s->n_tokens, n};
    int64_t stride[4] = {s->heads * s->n_tokens * n, s->n_tokens * n, n, 1};
    return sdpa_tensor_new(b->g, slot, type, dim, stride);
}

static struct sdpa_tensor number(struct build *b, enum sdpa_slot slot, float value)
{
    b->number[slot] = value;
    return sdpa_scalar(b->g, (int)slot, CUDNN_DATA_FLOAT);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static struct sdpa_tensor position(struct build *b, const struct sdpa_tensor *scores, int64_t axis)
{
    struct sdpa_tensor index = sdpa_like(b->g, scores, CUDNN_DATA_INT32);
    sdpa_pointwise(b->g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, scores, NULL, NULL, &index,
                   axis);
    return index;
}

/* scores where mode(left, right), else masked. */
static struct sdpa_tensor keep_where(struct build *b, const struct sdpa_tensor *scores,
                                     cudnnPointwiseMode_t mode, const struct sdpa_tensor *left,
                                     const struct sdpa_tensor *right)
{
    float nothing = cudnnGetVersion() < 91000 ? -FLT_MAX : -INFINITY;
    struct sdpa_tensor masked = number(b, SLOT_MASKED, nothing);
    struct sdpa_tensor keep = sdpa_like(b->g, scores, CUDNN_DATA_BOOLEAN);
    struct sdpa_tensor out = sdpa_like(b->g, scores, CUDNN_DATA_FLOAT);
    sdpa_pointwise(b->g, mode, CUDNN_DATA_BOOLEAN, left, right, NULL, &keep, 0);
    sdpa_pointwise(b->g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, scores, &masked, &keep,
                   &out, 0);
    return out;
}

/* row >= column when causal; column + window > row when there is a window. */
static struct sdpa_tensor mask(struct build *b, struct sdpa_tensor scores)
{
    if (b->s->causal) {
        struct sdpa_tensor row = position(b, &scores, 2), column = position(b, &scores, 3);
        scores = keep_where(b, &scores, CUDNN_POINTWISE_CMP_GE, &row, &column);
    }
    if (b->s->window > 0) {
        struct sdpa_tensor row = position(b, &scores, 2), column = position(b, &scores, 3);
        struct sdpa_tensor window = number(b, SLOT_WINDOW, (float)b->s->window);
        struct sdpa_tensor reach = sdpa_apply(b->g, CUDNN_POINTWISE_ADD, &column, &window);
        scores = keep_where(b, &scores, CUDNN_POINTWISE_CMP_GT, &reach, &row);
    }
    return scores;
}

/* ---- the graphs ------------------------------------------------------------------------------ */

static void build_forward(struct build *b)
{
    struct sdpa_graph *g = b->g;
    struct sdpa_tensor q = packed(b, SLOT_Q, false), k = packed(b, SLOT_K, true);
    struct sdpa_tensor v = packed(b, SLOT_V, false), out = output(b, SLOT_OUT);
    struct sdpa_tensor lse = statistic(b, SLOT_LSE), scale = number(b, SLOT_SCALE, b->s->scale);
    struct sdpa_tensor scores = full(b, SDPA_VIRTUAL, CUDNN_DATA_FLOAT, b->s->n_tokens);
    sdpa_matmul(g, &q, &k, &scores);
    scores = sdpa_apply(g, CUDNN_POINTWISE_MUL, &scores, &scale);
    scores = mask(b, scores);
    struct sdpa_tensor top = statistic(b, SDPA_VIRTUAL), sum = statistic(b, SDPA_VIRTUAL);
    sdpa_reduce(g, CUDNN_REDUCE_TENSOR_MAX, &scores, &top);
    struct sdpa_tensor below = sdpa_apply(g, CUDNN_POINTWISE_SUB, &scores, &top);
    struct sdpa_tensor p = sdpa_apply(g, CUDNN_POINTWISE_EXP, &below, NULL);
    sdpa_reduce(g, CUDNN_REDUCE_TENSOR_ADD, &p, &sum);
    struct sdpa_tensor log_sum = sdpa_apply(g, CUDNN_POINTWISE_LOG, &sum, NULL);
    sdpa_pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, &top, &log_sum, NULL, &lse, 0);
    struct sdpa_tensor weights = sdpa_like(g, &p, b->type);
    sdpa_pointwise(g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, &p, &sum, NULL, &weights, 0);
    sdpa_matmul(g, &weights, &v, &out);
}

/* The transpose of a [B, H, T, T] inside the graph, in 16 bits. */
static struct sdpa_tensor transposed_view(struct build *b, const struct sdpa_tensor *x)
{
    struct sdpa_tensor y = *x;
    sdpa_exchange(y.dim);
    sdpa_exchange(y.stride);
    y = sdpa_tensor_new(b->g, SDPA_VIRTUAL, b->type, y.dim, y.stride);
    sdpa_view(b->g, x, &y);
    return y;
}

/* into = m^T x for every head, summed over the heads that share a key/value head. */
static void head_product(struct build *b, const struct sdpa_tensor *m, const struct sdpa_tensor *x,
                         enum sdpa_slot slot)
{
    struct sdpa_tensor m_t = transposed_view(b, m), into = packed(b, slot, false);
    if (b->s->heads == b->s->kv_heads || b->s->repeated) {
        sdpa_matmul(b->g, &m_t, x, &into);
        return;
    }
    struct sdpa_tensor every = full(b, SDPA_VIRTUAL, b->type, b->s->head_dim);
    sdpa_matmul(b->g, &m_t, x, &every);
    sdpa_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, &every, &into);
}

/* delta = sum over a head of dout * out. The engines know it with a factor (for dropout): here 1.
 */
static struct sdpa_tensor build_delta(struct build *b, const struct sdpa_tensor *dout)
{
    struct sdpa_tensor out = output(b, SLOT_OUT), one = number(b, SLOT_ONE, 1.0f);
    struct sdpa_tensor product = full(b, SDPA_VIRTUAL, CUDNN_DATA_FLOAT, b->s->head_dim);
    struct sdpa_tensor sum = statistic(b, SDPA_VIRTUAL), delta = statistic(b, SLOT_DELTA);
    sdpa_pointwise(b->g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, dout, &out, NULL, &product, 0);
    sdpa_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, &product, &sum);
    sdpa_pointwise(b->g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, &sum, &one, NULL, &delta, 0);
    return delta;
}

/* dq = ds k */
static void build_query_grad(struct build *b, const struct sdpa_tensor *ds,
                             const struct sdpa_tensor *k_t)
{
    struct sdpa_tensor k = *k_t, dq = packed(b, SLOT_DQ, false);
    sdpa_exchange(k.dim);
    sdpa_exchange(k.stride);
    k = sdpa_tensor_new(b->g, SDPA_VIRTUAL, b->type, k.dim, k.stride);
    sdpa_view(b->g, k_t, &k);
    sdpa_matmul(b->g, ds, &k, &dq);
}

static void build_grad(struct build *b)
{
    struct sdpa_graph *g = b->g;
    struct sdpa_tensor q = packed(b, SLOT_Q, false), k = packed(b, SLOT_K, true);
    struct sdpa_tensor v = packed(b, SLOT_V, true), dout = output(b, SLOT_DOUT);
    struct sdpa_tensor lse = statistic(b, SLOT_LSE), scale = number(b, SLOT_SCALE, b->s->scale);
    struct sdpa_tensor delta = build_delta(b, &dout);
    struct sdpa_tensor scores = full(b, SDPA_VIRTUAL, CUDNN_DATA_FLOAT, b->s->n_tokens);
    sdpa_matmul(g, &q, &k, &scores);
    scores = sdpa_apply(g, CUDNN_POINTWISE_MUL, &scores, &scale);
    scores = sdpa_apply(g, CUDNN_POINTWISE_SUB, &scores, &lse);
    scores = mask(b, scores);
    struct sdpa_tensor p = sdpa_apply(g, CUDNN_POINTWISE_EXP, &scores, NULL);
    head_product(b, &p, &dout, SLOT_DV);
    struct sdpa_tensor dp = full(b, SDPA_VIRTUAL, CUDNN_DATA_FLOAT, b->s->n_tokens);
    sdpa_matmul(g, &dout, &v, &dp);
    struct sdpa_tensor ds = sdpa_apply(g, CUDNN_POINTWISE_SUB, &dp, &delta);
    ds = sdpa_apply(g, CUDNN_POINTWISE_MUL, &ds, &p);
    ds = sdpa_apply(g, CUDNN_POINTWISE_MUL, &ds, &scale);
    head_product(b, &ds, &q, SLOT_DK);
    build_query_grad(b, &ds, &k);
}

void sdpa_build(struct sdpa_graph *g, const struct sdpa_shape *shape, float number[SLOT_COUNT])
{
    struct build b = {.g = g, .s = shape, .number = number};
    b.type = shape->dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    if (shape->kind == SDPA_FORWARD)
        build_forward(&b);
    else
        build_grad(&b);
}
