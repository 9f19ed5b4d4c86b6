#include "device/cuda/attention/sdpa_graph.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void fail(struct sdpa_graph *g, cudnnStatus_t status, const char *step)
{
    if (g->failed == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        g->failed = status;
        g->step = step;
    }
}

static cudnnBackendDescriptor_t make(struct sdpa_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (g->failed != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (g->n_all == SDPA_MAX_DESCRIPTORS) {
        fail(g, CUDNN_STATUS_INTERNAL_ERROR, "too many descriptors");
        return NULL;
    }
    fail(g, cudnnBackendCreateDescriptor(type, &d), "create descriptor");
    if (d)
        g->all[g->n_all++] = d;
    return d;
}

static void set(struct sdpa_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (g->failed == CUDNN_STATUS_SUCCESS)
        fail(g, cudnnBackendSetAttribute(d, name, type, n, values), "set attribute");
}

static void set_descriptor(struct sdpa_graph *g, cudnnBackendDescriptor_t d,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(struct sdpa_graph *g, cudnnBackendDescriptor_t d, const char *step)
{
    if (g->failed == CUDNN_STATUS_SUCCESS)
        fail(g, cudnnBackendFinalize(d), step);
}

static void add_op(struct sdpa_graph *g, cudnnBackendDescriptor_t op, const char *step)
{
    finalize(g, op, step);
    if (g->n_ops == SDPA_MAX_OPS)
        fail(g, CUDNN_STATUS_INTERNAL_ERROR, "too many operations");
    else
        g->ops[g->n_ops++] = op;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static struct sdpa_tensor tensor(struct sdpa_graph *g, int slot, bool by_value,
                                 cudnnDataType_t type, const int64_t dim[4],
                                 const int64_t stride[4])
{
    struct sdpa_tensor t = {.type = type};
    int64_t uid = ++g->n_tensors, alignment = 16;
    bool is_virtual = slot == SDPA_VIRTUAL;
    memcpy(t.dim, dim, sizeof t.dim);
    memcpy(t.stride, stride, sizeof t.stride);
    t.descriptor = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, t.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(g, t.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(g, t.descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(g, t.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, t.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, t.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finalize(g, t.descriptor, "tensor");
    if (!is_virtual && g->n_data == SDPA_MAX_DATA) {
        fail(g, CUDNN_STATUS_INTERNAL_ERROR, "too many tensors");
    } else if (!is_virtual) {
        g->uid[g->n_data] = uid;
        g->slot[g->n_data++] = slot;
    }
    return t;
}

struct sdpa_tensor sdpa_tensor_new(struct sdpa_graph *g, int slot, cudnnDataType_t type,
                                   const int64_t dim[4], const int64_t stride[4])
{
    return tensor(g, slot, false, type, dim, stride);
}

struct sdpa_tensor sdpa_scalar(struct sdpa_graph *g, int slot, cudnnDataType_t type)
{
    const int64_t one[4] = {1, 1, 1, 1};
    return tensor(g, slot, true, type, one, one);
}

struct sdpa_tensor sdpa_like(struct sdpa_graph *g, const struct sdpa_tensor *t,
                             cudnnDataType_t type)
{
    return tensor(g, SDPA_VIRTUAL, false, type, t->dim, t->stride);
}

void sdpa_exchange(int64_t pair[4])
{
    int64_t third = pair[2];
    pair[2] = pair[3];
    pair[3] = third;
}

/* ---- operations ------------------------------------------------------------------------------ */

void sdpa_pointwise(struct sdpa_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                    const struct sdpa_tensor *x, const struct sdpa_tensor *b,
                    const struct sdpa_tensor *t, const struct sdpa_tensor *y, int64_t axis)
{
    float one = 1.0f;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(g, d, "elementwise step");
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->descriptor);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y->descriptor);
    if (b)
        set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor);
    if (t)
        set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->descriptor);
    set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
    add_op(g, op, "elementwise operation");
}

struct sdpa_tensor sdpa_apply(struct sdpa_graph *g, cudnnPointwiseMode_t mode,
                              const struct sdpa_tensor *x, const struct sdpa_tensor *b)
{
    struct sdpa_tensor y = sdpa_like(g, x, CUDNN_DATA_FLOAT);
    sdpa_pointwise(g, mode, CUDNN_DATA_FLOAT, x, b, NULL, &y, 0);
    return y;
}

void sdpa_matmul(struct sdpa_graph *g, const struct sdpa_tensor *a, const struct sdpa_tensor *b,
                 const struct sdpa_tensor *c)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, d, "product");
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a->descriptor);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b->descriptor);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c->descriptor);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    add_op(g, op, "product operation");
}

void sdpa_reduce(struct sdpa_graph *g, cudnnReduceTensorOp_t operator, const struct sdpa_tensor * x,
                 const struct sdpa_tensor *y)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operator);
    set(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, d, "reduction");
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x->descriptor);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y->descriptor);
    add_op(g, op, "reduction operation");
}

void sdpa_view(struct sdpa_graph *g, const struct sdpa_tensor *x, const struct sdpa_tensor *y)
{
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x->descriptor);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y->descriptor);
    add_op(g, op, "view operation");
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Forgets descriptors made since there were n; the failure, too, was theirs. */
static void back_to(struct sdpa_graph *g, int n)
{
    while (g->n_all > n)
        (void)cudnnBackendDestroyDescriptor(g->all[--g->n_all]);
    g->failed = CUDNN_STATUS_SUCCESS;
}

static bool is_nondeterministic(struct sdpa_graph *g, cudnnBackendDescriptor_t config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0, n_notes = 0;
    cudnnBackendDescriptor_t engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine ||
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &engine) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                 &n_notes, notes) != CUDNN_STATUS_SUCCESS)
        return true; /* nothing is promised */
    for (int64_t i = 0; i < n_notes && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return true;
    }
    return false;
}

/* Tries one configuration; true when g->plan is a plan. */
static bool try_config(struct sdpa_graph *g, cudnnHandle_t handle, cudnnBackendDescriptor_t config,
                       int64_t most_bytes)
{
    int64_t n = 0, n_bytes = 0;
    if (is_nondeterministic(g, config)) {
        fail(g, CUDNN_STATUS_NOT_SUPPORTED, "the engine is not deterministic");
        return false;
    }
    cudnnBackendDescriptor_t plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalize(g, plan, "plan");
    if (g->failed == CUDNN_STATUS_SUCCESS)
        fail(g,
             cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                      CUDNN_TYPE_INT64, 1, &n, &n_bytes),
             "workspace size");
    if (n_bytes > most_bytes)
        fail(g, CUDNN_STATUS_NOT_SUPPORTED, "the workspace is too large");
    if (n_bytes < 0)
        fail(g, CUDNN_STATUS_NOT_SUPPORTED, "the workspace has more bytes than the engine counts");
    if (g->failed != CUDNN_STATUS_SUCCESS)
        return false;
    g->plan = plan;
    g->n_bytes = n_bytes;
    return true;
}

enum { MAX_CONFIGS = 16 };

/* Configurations in cuDNN's order, best first. */
static int heuristic_configs(struct sdpa_graph *g, cudnnBackendDescriptor_t graph,
                             cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs)
{
    int64_t n = 0;
    cudnnBackendDescriptor_t heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(g, heuristic, "heuristic");
    for (int i = 0; i < MAX_CONFIGS; i++)
        configs[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->failed == CUDNN_STATUS_SUCCESS)
        fail(g,
             cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n, configs),
             "engines for this graph");
    if (g->failed == CUDNN_STATUS_SUCCESS && n == 0)
        fail(g, CUDNN_STATUS_NOT_SUPPORTED, "no engine takes this graph");
    return g->failed == CUDNN_STATUS_SUCCESS ? (int)(n < MAX_CONFIGS ? n : MAX_CONFIGS) : 0;
}

/* Every reason counts: the best engine's is the interesting one, the last engine's the usual one.
 */
struct refusals {
    char text[384];
    size_t n;
};

static void note_refusal(struct refusals *r, const struct sdpa_graph *g)
{
    int n = snprintf(r->text + r->n, sizeof r->text - r->n, "%s%s: %s", r->n > 0 ? "; " : "",
                     g->step ? g->step : "plan", cudnnGetErrorString(g->failed));
    if (n > 0)
        r->n = MIN(r->n + (size_t)n, sizeof r->text - 1);
}

/* Tries the engines that one heuristic names; leaves only the graph behind when none will do. */
static bool try_heuristic(struct sdpa_graph *g, cudnnHandle_t handle,
                          cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                          int64_t most_bytes, struct refusals *r)
{
    cudnnBackendDescriptor_t configs[MAX_CONFIGS];
    int n_before = g->n_all, n = heuristic_configs(g, graph, mode, configs), n_after = g->n_all;
    for (int k = 0; k < n; k++) {
        if (try_config(g, handle, configs[k], most_bytes))
            return true;
        note_refusal(r, g);
        back_to(g, n_after);
    }
    if (n == 0)
        note_refusal(r, g);
    back_to(g, n_before);
    return false;
}

enum status sdpa_graph_finish(struct sdpa_graph *g, cudnnHandle_t handle, int64_t most_bytes)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    struct refusals r = {.n = 0};
    cudnnBackendDescriptor_t graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
    finalize(g, graph, "operation graph");
    if (g->failed != CUDNN_STATUS_SUCCESS)
        note_refusal(&r, g);
    for (size_t i = 0; i < ARRAY_LEN(modes) && g->failed == CUDNN_STATUS_SUCCESS; i++) {
        if (try_heuristic(g, handle, graph, modes[i], most_bytes, &r))
            return OK;
    }
    char words[256] = "";
    cudnnGetLastErrorString(words, sizeof words);
    return FAIL(ERR_UNSUPPORTED, "cuDNN attention: %s %s", r.text, words);
}

void sdpa_graph_release(struct sdpa_graph *g)
{
    back_to(g, 0);
}
