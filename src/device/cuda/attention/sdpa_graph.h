/* sdpa_graph.h: a small builder of cuDNN operation graphs over tensors of four axes
 * (batch, head, row, column), as attention needs: products, elementwise steps, reductions, views.
 *
 * The first failure sticks: later calls do nothing and sdpa_graph_finish reports it. Tensors are
 * small values; every descriptor belongs to the graph.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_SDPA_GRAPH_H
#define SNUG_DEVICE_CUDA_ATTENTION_SDPA_GRAPH_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SDPA_MAX_DESCRIPTORS = 256, SDPA_MAX_OPS = 48, SDPA_MAX_DATA = 24 };
enum { SDPA_VIRTUAL = -1 }; /* the slot of a tensor that exists only inside the graph */

struct sdpa_tensor {
    cudnnBackendDescriptor_t descriptor;
    cudnnDataType_t type;
    int64_t dim[4], stride[4];
};

struct sdpa_graph {
    cudnnBackendDescriptor_t all[SDPA_MAX_DESCRIPTORS]; /* to destroy, last first */
    int n_all;
    cudnnBackendDescriptor_t ops[SDPA_MAX_OPS];
    int n_ops;
    /* Tensors with memory: which of the caller's slots each unique id stands for. */
    int64_t uid[SDPA_MAX_DATA];
    int slot[SDPA_MAX_DATA];
    int n_data;
    int64_t n_tensors;
    cudnnBackendDescriptor_t plan; /* after sdpa_graph_finish */
    int64_t n_bytes;               /* workspace of the plan */
    cudnnStatus_t failed;
    const char *step; /* where it failed */
};

/* A tensor with these sizes; slot >= 0 when it has memory (the caller's numbering). */
struct sdpa_tensor sdpa_tensor_new(struct sdpa_graph *g, int slot, cudnnDataType_t type,
                                   const int64_t dim[4], const int64_t stride[4]);
/* One number, read from host memory when the plan runs. */
struct sdpa_tensor sdpa_scalar(struct sdpa_graph *g, int slot, cudnnDataType_t type);
/* A tensor inside the graph shaped like another. */
struct sdpa_tensor sdpa_like(struct sdpa_graph *g, const struct sdpa_tensor *t,
                             cudnnDataType_t type);
/* The same memory with the last two axes exchanged; for tensors not made yet. */
void sdpa_exchange(int64_t pair[4]);

/* y = mode(x, b, t); b and t may be NULL. `axis` is for CUDNN_POINTWISE_GEN_INDEX. */
void sdpa_pointwise(struct sdpa_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                    const struct sdpa_tensor *x, const struct sdpa_tensor *b,
                    const struct sdpa_tensor *t, const struct sdpa_tensor *y, int64_t axis);
/* The usual case: f32 arithmetic, a new tensor inside the graph shaped like x. */
struct sdpa_tensor sdpa_apply(struct sdpa_graph *g, cudnnPointwiseMode_t mode,
                              const struct sdpa_tensor *x, const struct sdpa_tensor *b);
void sdpa_matmul(struct sdpa_graph *g, const struct sdpa_tensor *a, const struct sdpa_tensor *b,
                 const struct sdpa_tensor *c);
void sdpa_reduce(struct sdpa_graph *g, cudnnReduceTensorOp_t op, const struct sdpa_tensor *x,
                 const struct sdpa_tensor *y);
void sdpa_view(struct sdpa_graph *g, const struct sdpa_tensor *x, const struct sdpa_tensor *y);

/* Makes the plan from cuDNN's best configuration that works and gives the same bits every time,
 * with at most most_bytes of workspace. ERR_UNSUPPORTED, with cuDNN's words, when there is none. */
enum status sdpa_graph_finish(struct sdpa_graph *g, cudnnHandle_t handle,
                              int64_t most_bytes) MUST_CHECK;
void sdpa_graph_release(struct sdpa_graph *g);

#ifdef __cplusplus
}
#endif
#endif
