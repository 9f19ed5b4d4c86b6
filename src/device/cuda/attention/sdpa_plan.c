#include "device/cuda/attention/sdpa_plan.h"

#include "base/alloc.h"
#include "device/cuda/attention/sdpa_build.h"
#include "device/cuda/attention/sdpa_groups.h"
#include "device/cuda/declared/attention.h"
#include "device/cuda/support/dnn_graph.h"

struct sdpa_plan {
    struct sdpa_shape shape;
    struct dnn_graph graph;
    float number[SLOT_COUNT]; /* of the slots by value */
    /* Bytes, in the workspace; copies and their gradients where keys and values are repeated. */
    struct sdpa_space space;
    int64_t size;
};

/* ---- plans ----------------------------------------------------------------------------------- */

enum status sdpa_plan_new(struct sdpa_plan **out, cudnnHandle_t handle,
                          const struct sdpa_shape *shape, int64_t most_bytes)
{
    const struct dnn_limits limits = {.most_bytes = most_bytes,
                                      .refused = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                                      .n_configs = 16};
    struct sdpa_plan *plan = NULL;
    enum status status = OK;
    TRY(mem_try_array(&plan, 1, sizeof *plan));
    plan->shape = *shape;
    sdpa_build(&plan->graph, &plan->shape, plan->number);
    TRY_GOTO(dnn_graph_finish(&plan->graph, handle, &limits, "attention"), out);
    plan->space = sdpa_space_of(&plan->shape);
    plan->size = plan->space.engine_at + plan->graph.n_bytes;
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
    dnn_graph_release(&plan->graph);
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

/* ---- running --------------------------------------------------------------------------------- */

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

/* A part's keys, values and their gradients in the packed rows. */
struct packed_heads {
    void *keys, *values, *dkeys, *dvalues;
};

static struct packed_heads packed_heads_of(const struct sdpa_shape *s,
                                           const struct sdpa_pointers *p, const struct start *at)
{
    int64_t width = s->row_heads + 2 * s->row_kv_heads;
    int64_t key = s->row_heads + at->kv_head, value = key + s->row_kv_heads;
    struct packed_heads h = {.keys = head_at(s, p->qkv, at->row, width, key),
                             .values = head_at(s, p->qkv, at->row, width, value)};
    if (s->kind != SDPA_FORWARD) {
        h.dkeys = head_at(s, p->dqkv, at->row, width, key);
        h.dvalues = head_at(s, p->dqkv, at->row, width, value);
    }
    return h;
}

/* The same heads where the graph finds them: in the packed rows, or as copies. */
static struct packed_heads graph_heads_of(const struct sdpa_plan *plan,
                                          const struct sdpa_pointers *p, const struct start *at)
{
    const struct sdpa_shape *s = &plan->shape;
    if (!s->repeated)
        return packed_heads_of(s, p, at);
    char *copies = (char *)p->workspace + plan->space.copies_at;
    char *grads = (char *)p->workspace + plan->space.copies_grad_at;
    int64_t to_values = s->heads * s->head_dim * dtype_size(s->dtype);
    return (struct packed_heads){copies, copies + to_values, grads, grads + to_values};
}

static void fill_pointers(const struct sdpa_plan *plan, const struct sdpa_pointers *p,
                          const struct start *at, void *by_slot[SLOT_COUNT])
{
    const struct sdpa_shape *s = &plan->shape;
    int64_t width = s->row_heads + 2 * s->row_kv_heads;
    struct packed_heads h = graph_heads_of(plan, p, at);
    char *workspace = p->workspace;
    for (int i = 0; i < SLOT_COUNT; i++)
        by_slot[i] = (void *)(uintptr_t)&plan->number[i];
    by_slot[SLOT_Q] = head_at(s, p->qkv, at->row, width, at->head);
    by_slot[SLOT_K] = h.keys;
    by_slot[SLOT_V] = h.values;
    by_slot[SLOT_OUT] = head_at(s, p->out, at->row, s->row_heads, at->head);
    by_slot[SLOT_LSE] = (float *)p->lse + (at->row * s->row_heads + at->head) * s->n_tokens;
    if (s->kind == SDPA_FORWARD)
        return;
    by_slot[SLOT_DOUT] = head_at(s, p->dout, at->row, s->row_heads, at->head);
    by_slot[SLOT_DQ] = head_at(s, p->dqkv, at->row, width, at->head);
    by_slot[SLOT_DK] = h.dkeys;
    by_slot[SLOT_DV] = h.dvalues;
    by_slot[SLOT_DELTA] = workspace + plan->space.delta_at;
}

static enum status run_part(const struct sdpa_plan *plan, cudnnHandle_t handle, cudaStream_t stream,
                            const struct sdpa_pointers *p, const struct start *at)
{
    const struct sdpa_shape *part = &plan->shape;
    char *workspace = p->workspace;
    struct packed_heads h = packed_heads_of(part, p, at);
    void *by_slot[SLOT_COUNT];
    fill_pointers(plan, p, at, by_slot);
    if (part->repeated)
        TRY(sdpa_groups_repeat(stream, part, h.keys, h.values, workspace + plan->space.copies_at));
    TRY(dnn_graph_run(&plan->graph, handle, by_slot, workspace + plan->space.engine_at,
                      "attention"));
    if (part->repeated && part->kind != SDPA_FORWARD)
        TRY(sdpa_groups_add(stream, part, workspace + plan->space.copies_grad_at, h.dkeys,
                            h.dvalues));
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
