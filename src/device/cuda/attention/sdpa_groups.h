/* sdpa_groups.h: keys and values repeated for every query head that reads them, and the
 * gradients of those copies added up again: how grouped heads run where cuDNN's engines want as
 * many key/value heads as query heads.
 *
 * Copies are [B, T, 2 H, D]: the keys of all query heads of a token, then its values.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_SDPA_GROUPS_H
#define SNUG_DEVICE_CUDA_ATTENTION_SDPA_GROUPS_H

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "device/cuda/declared/sdpa_part.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `keys` and `values` are the first heads of the part in packed rows. head_dim is a multiple of 8
 * and all pointers are aligned to 16 bytes. */
enum status sdpa_groups_repeat(cudaStream_t stream, const struct sdpa_shape *part, const void *keys,
                               const void *values, void *copies) MUST_CHECK;
/* One f32 sum per element, query head after query head, rounded once. */
enum status sdpa_groups_add(cudaStream_t stream, const struct sdpa_shape *part, const void *copies,
                            void *keys, void *values) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
