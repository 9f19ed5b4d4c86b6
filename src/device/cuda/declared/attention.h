/* attention.h: what the kernels of softmax attention take, and how a call looks to cuDNN. */
#ifndef SNUG_DEVICE_CUDA_DECLARED_ATTENTION_H
#define SNUG_DEVICE_CUDA_DECLARED_ATTENTION_H

#include <stddef.h>

#include "device/cuda/declared/sdpa_part.h"
#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PLAIN_MAX_HEAD_DIM = 4096,
    TILES_MAX_HEAD_DIM = 256,
    TILES_GRAD_ANY_HEAD_DIM = 128, /* of the gradient of any call */
    CROSS_TILES_MAX_HEAD_DIM = 128,
};

/* The shape of a call of attention or attention_grad, as cuDNN sees it. */
struct sdpa_shape sdpa_shape_of(const struct op_call *c);

/* What cuDNN of that version (91002 is 9.10.2) is known not to do on the GPU, or not to do right:
 * not worth asking. NULL: it may do it. */
const char *sdpa_known_limit(const struct gpu_model *gpu, const struct sdpa_shape *s,
                             size_t version);

/* Bytes of a part's workspace beside what the engine asks for: delta, and copies of keys and values
 * where they are repeated. Offsets, in the order of memory; the engine's comes last. */
struct sdpa_space {
    int64_t delta_at, copies_at, copies_grad_at, engine_at;
};
struct sdpa_space sdpa_space_of(const struct sdpa_shape *part);

#ifdef __cplusplus
}
#endif
#endif
