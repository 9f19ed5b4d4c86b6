/* sdpa_build.h: attention and its gradient as cuDNN operation graphs, and which memory each of
 * their tensors is.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_SDPA_BUILD_H
#define SNUG_DEVICE_CUDA_ATTENTION_SDPA_BUILD_H

#include "device/cuda/declared/sdpa_part.h"
#include "device/cuda/support/dnn_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whose memory a tensor with memory is. Numbers by value come last. */
enum sdpa_slot {
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_OUT,
    SLOT_LSE,
    SLOT_DOUT,
    SLOT_DQ,
    SLOT_DK,
    SLOT_DV,
    SLOT_DELTA, /* f32 [B, H, T] in the workspace */
    SLOT_SCALE,
    SLOT_MASKED,
    SLOT_WINDOW,
    SLOT_ONE,
    SLOT_COUNT
};

/* Adds the operations of a call of this shape to an empty graph, and sets the numbers of the slots
 * by value. Failures stick to the graph. */
void sdpa_build(struct dnn_graph *g, const struct sdpa_shape *shape, float number[SLOT_COUNT]);

#ifdef __cplusplus
}
#endif
#endif
