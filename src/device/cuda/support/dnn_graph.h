/* dnn_graph.h: a small builder of cuDNN operation graphs over tensors of up to five axes: products,
 * convolutions, elementwise steps, reductions, views; and the plan that runs one.
 *
 * The first failure sticks: later calls do nothing and dnn_graph_finish reports it. Tensors are
 * small values; every descriptor belongs to the graph.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_DNN_GRAPH_H
#define SNUG_DEVICE_CUDA_SUPPORT_DNN_GRAPH_H

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DNN_MAX_DESCRIPTORS = 320, DNN_MAX_OPS = 48, DNN_MAX_DATA = 24, DNN_MAX_RANK = 5 };
enum { DNN_VIRTUAL = -1 }; /* the slot of a tensor that exists only inside the graph */

struct dnn_tensor {
    cudnnBackendDescriptor_t descriptor;
    cudnnDataType_t type;
    int rank;
    int64_t dim[DNN_MAX_RANK], stride[DNN_MAX_RANK];
};

struct dnn_graph {
    cudnnBackendDescriptor_t all[DNN_MAX_DESCRIPTORS]; /* to destroy, last first */
    int n_all;
    cudnnBackendDescriptor_t ops[DNN_MAX_OPS];
    int n_ops;
    /* Tensors with memory: which of the caller's slots each unique id stands for. */
    int64_t uid[DNN_MAX_DATA];
    int slot[DNN_MAX_DATA];
    int n_data;
    int64_t n_tensors;
    cudnnBackendDescriptor_t plan; /* after dnn_graph_finish */
    int64_t n_bytes;               /* workspace of the plan */
    cudnnStatus_t failed;
    const char *step; /* where it failed */
};

/* ---- tensors --------------------------------------------------------------------------------- */

/* A tensor with these sizes; slot >= 0 when it has memory (the caller's numbering). */
struct dnn_tensor dnn_tensor_new(struct dnn_graph *g, int slot, cudnnDataType_t type, int rank,
                                 const int64_t *dim, const int64_t *stride);
/* One number beside tensors of four axes, read from host memory when the plan runs. */
struct dnn_tensor dnn_scalar(struct dnn_graph *g, int slot, cudnnDataType_t type);
/* A tensor inside the graph shaped like another. */
struct dnn_tensor dnn_like(struct dnn_graph *g, const struct dnn_tensor *t, cudnnDataType_t type);
/* The same memory with the last two of four axes exchanged; for tensors not made yet. */
void dnn_exchange(int64_t pair[4]);

/* ---- operations ------------------------------------------------------------------------------ */

/* y = mode(x, b, t); b and t may be NULL. `axis` is for CUDNN_POINTWISE_GEN_INDEX. */
void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                   const struct dnn_tensor *x, const struct dnn_tensor *b,
                   const struct dnn_tensor *t, const struct dnn_tensor *y, int64_t axis);
/* The usual case: f32 arithmetic, a new tensor inside the graph shaped like x. */
struct dnn_tensor dnn_apply(struct dnn_graph *g, cudnnPointwiseMode_t mode,
                            const struct dnn_tensor *x, const struct dnn_tensor *b);
void dnn_matmul(struct dnn_graph *g, const struct dnn_tensor *a, const struct dnn_tensor *b,
                const struct dnn_tensor *c);
void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, const struct dnn_tensor *x,
                const struct dnn_tensor *y);
void dnn_view(struct dnn_graph *g, const struct dnn_tensor *x, const struct dnn_tensor *y);

/* How a convolution's window moves, axis by axis (two or three of them). */
struct dnn_window {
    int n_axes;
    int64_t stride[3], pad_before[3], pad_after[3], dilation[3];
};

enum dnn_direction { DNN_FORWARD, DNN_GRAD_INPUT, DNN_GRAD_WEIGHT };

/* The tensors of y = x * w in either direction: the one that the direction names is made from the
 * other two, and is added to what it holds when `add`. */
struct dnn_convolution {
    enum dnn_direction direction;
    struct dnn_window window;
    bool add;
    const struct dnn_tensor *x, *w, *y;
};
void dnn_convolve(struct dnn_graph *g, const struct dnn_convolution *c);

/* ---- plans ----------------------------------------------------------------------------------- */

/* What a plan has to keep to. */
struct dnn_limits {
    int64_t most_bytes; /* of workspace */
    uint32_t refused;   /* bit n: engines with cudnnBackendNumericalNote_t n */
    int n_configs;      /* of each heuristic that are tried at most, DNN_MOST_CONFIGS at most */
    int n_passed_over;  /* plans that would do, but are not wanted: to look at every one */
};
enum { DNN_MOST_CONFIGS = 64 };

/* Makes the plan from cuDNN's best configuration that works and keeps the limits. ERR_UNSUPPORTED,
 * with cuDNN's words, when there is none; `what` names the graph in them. */
enum status dnn_graph_finish(struct dnn_graph *g, cudnnHandle_t handle,
                             const struct dnn_limits *limits, const char *what) MUST_CHECK;
/* Runs the plan; by_slot are the addresses of the caller's slots. */
enum status dnn_graph_run(const struct dnn_graph *g, cudnnHandle_t handle, void *const *by_slot,
                          void *workspace, const char *what) MUST_CHECK;
void dnn_graph_release(struct dnn_graph *g);

/* ---- inside of dnn_graph.c and dnn_plan.c ---------------------------------------------------- */

void dnn_fail(struct dnn_graph *g, cudnnStatus_t status, const char *step);
cudnnBackendDescriptor_t dnn_make(struct dnn_graph *g, cudnnBackendDescriptorType_t type);
void dnn_set(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t n, const void *values);
void dnn_set_descriptor(struct dnn_graph *g, cudnnBackendDescriptor_t d,
                        cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void dnn_finalize(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *step);

#ifdef __cplusplus
}
#endif
#endif
