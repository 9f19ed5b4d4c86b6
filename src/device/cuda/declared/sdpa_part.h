/* sdpa_part.h: the shape of an attention call, and the part of it that one cuDNN plan takes at
 * a time. A deterministic gradient keeps partial sums for every tile of keys; in parts, the memory
 * for them stays like that of the activations.
 *
 * A part is some rows of the batch, or some heads of one row. Its size is counted in groups: one
 * key/value head of one row, with the query heads that read it. All parts of a call are alike.
 * No cuDNN in here: this can be tested without a GPU.
 */
#ifndef SNUG_DEVICE_CUDA_DECLARED_SDPA_PART_H
#define SNUG_DEVICE_CUDA_DECLARED_SDPA_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sdpa_kind {
    SDPA_FORWARD,
    SDPA_GRAD, /* by engines that give the same bits every time */
};

struct sdpa_shape {
    enum sdpa_kind kind;
    enum dtype dtype;
    int64_t batch, n_tokens, heads, kv_heads, head_dim;
    /* Heads of a row in memory: more than the above in a part of one row. */
    int64_t row_heads, row_kv_heads;
    int64_t window; /* 0: none */
    bool repeated;  /* the engine gets keys and values once per query head, from the workspace */
    bool causal;
    float scale;
};

/* Groups in a call, the size of its largest part. */
int64_t sdpa_part_whole(const struct sdpa_shape *whole);
/* The smallest possible part with more than n groups; 0 when there is none. */
int64_t sdpa_part_next(const struct sdpa_shape *whole, int64_t n);
/* The largest possible part with fewer than n groups; 0 when there is none. */
int64_t sdpa_part_previous(const struct sdpa_shape *whole, int64_t n);
/* The shape of a part of n groups. */
struct sdpa_shape sdpa_part_shape(const struct sdpa_shape *whole, int64_t n);

/* What the choice of a part depends on beside the call. */
struct sdpa_machine {
    int n_multiprocessors;
    int64_t memory_bytes; /* of the GPU */
};

/* The most workspace a part may have, in bytes. */
int64_t sdpa_part_most_bytes(const struct sdpa_shape *whole, const struct sdpa_machine *m);
/* The part to run at a time when the whole call would need n_bytes: the largest with a fair
 * workspace, or a larger one where that would leave multiprocessors idle. 0: none is acceptable. */
int64_t sdpa_part_choose(const struct sdpa_shape *whole, int64_t n_bytes,
                         const struct sdpa_machine *m);

#ifdef __cplusplus
}
#endif
#endif
