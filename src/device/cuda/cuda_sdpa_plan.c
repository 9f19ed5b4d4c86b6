/* The graphs follow the pattern that cuDNN's attention engines recognise: scores, mask by row and
 * column index, softmax from a maximum and a sum, product with the values; backwards the
 * probabilities from the statistics, then the five products. Order and types matter to them. */
#include "device/cuda/cuda_sdpa_plan.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "device/cuda/cuda_sdpa_graph.h"
#include "device/device.h"

/* Whose memory a tensor with memory is. Numbers by value come last. */
enum slot {
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_OUT,
    SLOT_LSE,
    SLOT_DOUT,
    SLOT_DQ,
    SLOT_DK,
    SLOT_DV,
    SLOT_DELTA,  /* f32 [B, H, T] in the workspace */
    SLOT_DQ_SUM, /* f32 [B, H, T, D] in the workspace */
    SLOT_SCALE,
    SLOT_MASKED,
    SLOT_WINDOW,
    SLOT_ONE,
    SLOT_COUNT
};

struct sdpa_plan {
    struct sdpa_shape shape;
    struct sdpa_graph graph;
    float number[SLOT_COUNT];                     /* of the slots by value */
    int64_t delta_at, dq_sum_at, engine_at, size; /* bytes, in the workspace */
};

/* What the graphs are built from. */
struct build {
    struct sdpa_plan *plan;
    struct sdpa_graph *g;
    const struct sdpa_shape *s;
    cudnnDataType_t type;
};

/* ---- tensors with memory ----------------------------------------------------------------------
 */

/* Heads of the packed rows. `transposed` gives [B, H, D, T]. */
static struct sdpa_tensor packed(struct build *b, enum slot slot, bool transposed)
{
    const struct sdpa_shape *s = b->s;
    bool is_query = slot == SLOT_Q || slot == SLOT_DQ;
    int64_t width = (s->row_heads + 2 * s->row_kv_heads) * s->head_dim;
    int64_t dim[4] = {s->batch, is_query ? s->heads : s->kv_heads, s->n_tokens, s->head_dim};
    int64_t stride[4] = {s->n_tokens * width, s->head_dim, width, 1};
    if (transposed) {
        sdpa_exchange(dim);
        sdpa_exchange(stride);
    }
    return sdpa_tensor_new(b->g, (int)slot, b->type, dim, stride);
}

/* out or dout. */
static struct sdpa_tensor output(struct build *b, enum slot slot)
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

static struct sdpa_tensor number(struct build *b, enum slot slot, float value)
{
    b->plan->number[slot] = value;
    return sdpa_scalar(b->g, (int)slot, CUDNN_DATA_FLOAT);
}

/* ---- masks ------------------------------------------------------------------------------------
 */

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

/* ---- the graphs -------------------------------------------------------------------------------
 */

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
                         enum slot slot)
{
    struct sdpa_tensor m_t = transposed_view(b, m), into = packed(b, slot, false);
    if (b->s->heads == b->s->kv_heads) {
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

/* dq = ds k, through f32 sums when the engine adds to them with atomics. */
static void build_query_grad(struct build *b, const struct sdpa_tensor *ds,
                             const struct sdpa_tensor *k_t)
{
    struct sdpa_tensor k = *k_t, dq = packed(b, SLOT_DQ, false);
    sdpa_exchange(k.dim);
    sdpa_exchange(k.stride);
    k = sdpa_tensor_new(b->g, SDPA_VIRTUAL, b->type, k.dim, k.stride);
    sdpa_view(b->g, k_t, &k);
    if (b->s->kind == SDPA_GRAD) {
        sdpa_matmul(b->g, ds, &k, &dq);
        return;
    }
    struct sdpa_tensor sums = full(b, SLOT_DQ_SUM, CUDNN_DATA_FLOAT, b->s->head_dim);
    sdpa_matmul(b->g, ds, &k, &sums);
    sdpa_pointwise(b->g, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, &sums, NULL, NULL, &dq, 0);
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

/* ---- plans ------------------------------------------------------------------------------------
 */

static void lay_out_workspace(struct sdpa_plan *plan)
{
    const struct sdpa_shape *s = &plan->shape;
    int64_t n_queries = s->batch * s->heads * s->n_tokens, at = 0;
    plan->delta_at = at;
    if (s->kind != SDPA_FORWARD)
        at += align_up(n_queries * (int64_t)sizeof(float), ARENA_ALIGN);
    plan->dq_sum_at = at;
    if (s->kind == SDPA_GRAD_ATOMIC)
        at += align_up(n_queries * s->head_dim * (int64_t)sizeof(float), ARENA_ALIGN);
    plan->engine_at = at;
    plan->size = at + plan->graph.n_bytes;
}

enum status sdpa_plan_new(struct sdpa_plan **out, cudnnHandle_t handle,
                          const struct sdpa_shape *shape, int64_t most_bytes)
{
    struct sdpa_plan *plan = NULL;
    enum status status = OK;
    TRY(mem_try_array(&plan, 1, sizeof *plan));
    plan->shape = *shape;
    struct build b = {.plan = plan, .g = &plan->graph, .s = &plan->shape};
    b.type = shape->dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    if (shape->kind == SDPA_FORWARD)
        build_forward(&b);
    else
        build_grad(&b);
    TRY_GOTO(sdpa_graph_finish(&plan->graph, handle, shape->kind != SDPA_GRAD_ATOMIC, most_bytes),
             out);
    lay_out_workspace(plan);
    *out = plan;
    plan = NULL;
out:
    sdpa_plan_free(plan);
    return status;
}

void sdpa_plan_free(struct sdpa_plan *plan)
{
    if (!plan)
        return;
    sdpa_graph_release(&plan->graph);
    mem_free(plan);
}

int64_t sdpa_plan_bytes(const struct sdpa_plan *plan)
{
    return plan->size;
}

const struct sdpa_shape *sdpa_plan_shape(const struct sdpa_plan *plan)
{
    return &plan->shape;
}

/* ---- running ----------------------------------------------------------------------------------
 */

/* Where a part begins. */
struct start {
    int64_t row, head, kv_head;
};

/* The beginning of a head in a buffer whose rows of tokens have `width` heads. */
static void *head_at(const struct sdpa_shape *s, const void *rows, int64_t row, int64_t width,
                     int64_t head)
{
    int64_t n = (row * s->n_tokens * width + head) * s->head_dim;
    return (char *)(uintptr_t)rows + n * dtype_size(s->dtype);
}

static void fill_pointers(const struct sdpa_plan *plan, const struct sdpa_pointers *p,
                          const struct start *at, void *by_slot[SLOT_COUNT])
{
    const struct sdpa_shape *s = &plan->shape;
    int64_t width = s->row_heads + 2 * s->row_kv_heads;
    int64_t key = s->row_heads + at->kv_head, value = key + s->row_kv_heads;
    char *workspace = p->workspace;
    for (int i = 0; i < SLOT_COUNT; i++)
        by_slot[i] = (void *)(uintptr_t)&plan->number[i];
    by_slot[SLOT_Q] = head_at(s, p->qkv, at->row, width, at->head);
    by_slot[SLOT_K] = head_at(s, p->qkv, at->row, width, key);
    by_slot[SLOT_V] = head_at(s, p->qkv, at->row, width, value);
    by_slot[SLOT_OUT] = head_at(s, p->out, at->row, s->row_heads, at->head);
    by_slot[SLOT_LSE] = (float *)p->lse + (at->row * s->row_heads + at->head) * s->n_tokens;
    if (s->kind == SDPA_FORWARD)
        return;
    by_slot[SLOT_DOUT] = head_at(s, p->dout, at->row, s->row_heads, at->head);
    by_slot[SLOT_DQ] = head_at(s, p->dqkv, at->row, width, at->head);
    by_slot[SLOT_DK] = head_at(s, p->dqkv, at->row, width, key);
    by_slot[SLOT_DV] = head_at(s, p->dqkv, at->row, width, value);
    by_slot[SLOT_DELTA] = workspace + plan->delta_at;
    by_slot[SLOT_DQ_SUM] = workspace + plan->dq_sum_at;
}

static cudnnStatus_t execute(const struct sdpa_plan *plan, cudnnHandle_t handle, void **data,
                             void *engine)
{
    const struct sdpa_graph *g = &plan->graph;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                     g->n_data, g->uid);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                     CUDNN_TYPE_VOID_PTR, g->n_data, data);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                                     1, &engine);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(pack);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendExecute(handle, g->plan, pack);
    if (pack)
        (void)cudnnBackendDestroyDescriptor(pack);
    return s;
}

static enum status run_part(const struct sdpa_plan *plan, cudnnHandle_t handle, cudaStream_t stream,
                            const struct sdpa_pointers *p, const struct start *at)
{
    const struct sdpa_graph *g = &plan->graph;
    void *by_slot[SLOT_COUNT], *data[SDPA_MAX_DATA];
    fill_pointers(plan, p, at, by_slot);
    for (int i = 0; i < g->n_data; i++)
        data[i] = by_slot[g->slot[i]];
    if (plan->shape.kind == SDPA_GRAD_ATOMIC && cudnnGetVersion() < 90600) {
        size_t n_bytes = (size_t)(plan->engine_at - plan->dq_sum_at);
        if (cudaMemsetAsync(by_slot[SLOT_DQ_SUM], 0, n_bytes, stream) != cudaSuccess)
            return FAIL(ERR_FAILED, "cuDNN attention: cannot clear the workspace");
    }
    cudnnStatus_t s = execute(plan, handle, data, (char *)p->workspace + plan->engine_at);
    if (s != CUDNN_STATUS_SUCCESS)
        return FAIL(ERR_FAILED, "cuDNN attention: %s", cudnnGetErrorString(s));
    return OK;
}

enum status sdpa_plan_run(const struct sdpa_plan *plan, const struct sdpa_shape *whole,
                          cudnnHandle_t handle, cudaStream_t stream, const struct sdpa_pointers *p)
{
    const struct sdpa_shape *part = &plan->shape;
    cudnnStatus_t s = cudnnSetStream(handle, stream);
    if (s != CUDNN_STATUS_SUCCESS)
        return FAIL(ERR_FAILED, "cuDNN attention: %s", cudnnGetErrorString(s));
    for (int64_t row = 0; row < whole->batch; row += part->batch) {
        for (int64_t kv = 0; kv < whole->kv_heads; kv += part->kv_heads) {
            struct start at = {row, kv * (whole->heads / whole->kv_heads), kv};
            TRY(run_part(plan, handle, stream, p, &at));
        }
    }
    return OK;
}
