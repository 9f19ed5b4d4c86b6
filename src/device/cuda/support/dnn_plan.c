#include "device/cuda/support/dnn_graph.h"

#include <stddef.h>
#include <stdio.h>

/* ---- plans ----------------------------------------------------------------------------------- */

/* Forgets descriptors made since there were n; the failure, too, was theirs. */
static void back_to(struct dnn_graph *g, int n)
{
    while (g->n_all > n)
        (void)cudnnBackendDestroyDescriptor(g->all[--g->n_all]);
    g->failed = CUDNN_STATUS_SUCCESS;
}

/* Whether the engine has none of the numerical notes that are refused. */
static bool keeps(struct dnn_graph *g, cudnnBackendDescriptor_t config, uint32_t refused)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0, n_notes = 0;
    cudnnBackendDescriptor_t engine = dnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine ||
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &engine) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                 &n_notes, notes) != CUDNN_STATUS_SUCCESS)
        return false; /* nothing is promised */
    for (int64_t i = 0; i < n_notes && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        if (refused >> notes[i] & 1u)
            return false;
    }
    return true;
}

/* Tries one configuration; true when g->plan is a plan. */
static bool try_config(struct dnn_graph *g, cudnnHandle_t handle, cudnnBackendDescriptor_t config,
                       const struct dnn_limits *limits)
{
    int64_t n = 0, n_bytes = 0;
    if (!keeps(g, config, limits->refused)) {
        dnn_fail(g, CUDNN_STATUS_NOT_SUPPORTED, "the engine is not deterministic or exact enough");
        return false;
    }
    cudnnBackendDescriptor_t plan = dnn_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    dnn_set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    dnn_set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    dnn_finalize(g, plan, "plan");
    if (g->failed == CUDNN_STATUS_SUCCESS)
        dnn_fail(g,
                 cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &n, &n_bytes),
                 "workspace size");
    if (n_bytes > limits->most_bytes)
        dnn_fail(g, CUDNN_STATUS_NOT_SUPPORTED, "the workspace is too large");
    if (n_bytes < 0)
        dnn_fail(g, CUDNN_STATUS_NOT_SUPPORTED,
                 "the workspace has more bytes than the engine counts");
    if (g->failed != CUDNN_STATUS_SUCCESS)
        return false;
    g->plan = plan;
    g->n_bytes = n_bytes;
    return true;
}

/* Configurations in cuDNN's order, best first. */
static int heuristic_configs(struct dnn_graph *g, cudnnBackendDescriptor_t graph,
                             cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs,
                             int n_most)
{
    int64_t n = 0;
    cudnnBackendDescriptor_t heuristic = dnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    dnn_set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    dnn_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    dnn_finalize(g, heuristic, "heuristic");
    for (int i = 0; i < n_most; i++)
        configs[i] = dnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->failed == CUDNN_STATUS_SUCCESS)
        dnn_fail(g,
                 cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, n_most, &n, configs),
                 "engines for this graph");
    if (g->failed == CUDNN_STATUS_SUCCESS && n == 0)
        dnn_fail(g, CUDNN_STATUS_NOT_SUPPORTED, "no engine takes this graph");
    return g->failed == CUDNN_STATUS_SUCCESS ? (int)MIN(n, (int64_t)n_most) : 0;
}

/* Every reason counts: the best engine's is the interesting one, the last engine's the usual one.
 */
struct refusals {
    char text[384];
    size_t n;
};

static void note_refusal(struct refusals *r, const struct dnn_graph *g)
{
    int n = snprintf(r->text + r->n, sizeof r->text - r->n, "%s%s: %s", r->n > 0 ? "; " : "",
                     g->step ? g->step : "plan", cudnnGetErrorString(g->failed));
    if (n > 0)
        r->n = MIN(r->n + (size_t)n, sizeof r->text - 1);
}

/* A search for a plan: what it has to keep to, and what has come of it so far. */
struct search {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t graph;
    const struct dnn_limits *limits;
    int n_passed_over;
    struct refusals refusals;
};

/* Tries the engines that one heuristic names; leaves only the graph behind when none will do. */
static bool try_heuristic(struct dnn_graph *g, cudnnBackendHeurMode_t mode, struct search *s)
{
    cudnnBackendDescriptor_t configs[DNN_MOST_CONFIGS];
    int n_most = MIN(s->limits->n_configs, (int)DNN_MOST_CONFIGS), n_before = g->n_all;
    int n = heuristic_configs(g, s->graph, mode, configs, n_most), n_after = g->n_all;
    for (int k = 0; k < n; k++) {
        bool found = try_config(g, s->handle, configs[k], s->limits);
        if (found && s->n_passed_over++ == s->limits->n_passed_over)
            return true;
        if (!found)
            note_refusal(&s->refusals, g);
        back_to(g, n_after);
    }
    if (n == 0)
        note_refusal(&s->refusals, g);
    back_to(g, n_before);
    return false;
}

enum status dnn_graph_finish(struct dnn_graph *g, cudnnHandle_t handle,
                             const struct dnn_limits *limits, const char *what)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    struct search s = {.handle = handle, .limits = limits};
    s.graph = dnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    dnn_set(g, s.graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    dnn_set(g, s.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops,
            g->ops);
    dnn_finalize(g, s.graph, "operation graph");
    if (g->failed != CUDNN_STATUS_SUCCESS)
        note_refusal(&s.refusals, g);
    for (size_t i = 0; i < ARRAY_LEN(modes) && g->failed == CUDNN_STATUS_SUCCESS; i++) {
        if (try_heuristic(g, modes[i], &s))
            return OK;
    }
    char words[256] = "";
    cudnnGetLastErrorString(words, sizeof words);
    return FAIL(ERR_UNSUPPORTED, "cuDNN %s: %s %s", what, s.refusals.text, words);
}

/* ---- running --------------------------------------------------------------------------------- */

static cudnnStatus_t execute(const struct dnn_graph *g, cudnnHandle_t handle, void **data,
                             void *workspace)
{
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
                                     1, &workspace);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(pack);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendExecute(handle, g->plan, pack);
    if (pack)
        (void)cudnnBackendDestroyDescriptor(pack);
    return s;
}

enum status dnn_graph_run(const struct dnn_graph *g, cudnnHandle_t handle, void *const *by_slot,
                          void *workspace, const char *what)
{
    void *data[DNN_MAX_DATA];
    for (int i = 0; i < g->n_data; i++)
        data[i] = by_slot[g->slot[i]];
    cudnnStatus_t s = execute(g, handle, data, workspace);
    return s == CUDNN_STATUS_SUCCESS
               ? OK
               : FAIL(ERR_FAILED, "cuDNN %s: %s", what, cudnnGetErrorString(s));
}

void dnn_graph_release(struct dnn_graph *g)
{
    back_to(g, 0);
}
