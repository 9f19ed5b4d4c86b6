/* sdpa_plan.h: one cuDNN plan of attention or its gradient for one shape: a call, or each of
 * the parts of one.
 *
 * Tensors are the packed layout's heads as they lie in memory: [B, H, T, D] with the strides of
 * [B, T, width]. A plan is made for one handle and runs on any stream; it holds host memory only.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_SDPA_PLAN_H
#define SNUG_DEVICE_CUDA_ATTENTION_SDPA_PLAN_H

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdint.h>

#include "base/status.h"
#include "device/cuda/declared/sdpa_part.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device pointers of a whole call; those a kind does not use are NULL. */
struct sdpa_pointers {
    const void *qkv; /* [B, T, (H + 2 KV) D] */
    void *out;       /* [B, T, H D] */
    void *lse;       /* [B, H, T] f32 */
    const void *dout;
    void *dqkv;
    void *workspace;
};

struct sdpa_plan;

/* ERR_UNSUPPORTED when cuDNN has no plan with at most most_bytes of workspace; the message says
 * why. */
enum status sdpa_plan_new(struct sdpa_plan **plan, cudnnHandle_t handle,
                          const struct sdpa_shape *shape, int64_t most_bytes) MUST_CHECK;
void sdpa_plan_free(struct sdpa_plan *plan);
int64_t sdpa_plan_bytes(const struct sdpa_plan *plan); /* of workspace */
const struct sdpa_shape *sdpa_plan_shape(const struct sdpa_plan *plan);
/* The call whose shape is `whole`, part after part; every part uses the same workspace. */
enum status sdpa_plan_run(const struct sdpa_plan *plan, const struct sdpa_shape *whole,
                          cudnnHandle_t handle, cudaStream_t stream,
                          const struct sdpa_pointers *p) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
