/* elementwise.h: how the gradient of gelu_bias, the gradient of embedding and transposes are cut.
 */
#ifndef SNUG_DEVICE_CUDA_DECLARED_ELEMENTWISE_H
#define SNUG_DEVICE_CUDA_DECLARED_ELEMENTWISE_H

#include "device/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- gelu_bias_grad (kernels/gelu_bias.cu) --------------------------------------------------- */

enum {
    GELU_GRAD_THREADS = 512,
    GELU_STAGES = 6, /* vectors of a thread on their way */
    GELU_LEAST = 4,  /* rows of a thread */
    GELU_BLOCKS = 2, /* on a multiprocessor, by their registers */
};

struct strip_cut {
    unsigned n_strips, n_bands, lanes, lines;
};
struct strip_cut gelu_strip_cut(const struct op_call *c, const struct kernel_env *env);

/* ---- embedding_grad (kernels/embedding.cu) --------------------------------------------------- */

enum {
    EMBEDDING_SORT_ITEMS = 2048, /* pairs that a block sorts */
    EMBEDDING_DIGITS = 256,
    EMBEDDING_PIECE = 32, /* sorted pairs whose rows a block adds up */
};

/* The workspace: two sets of pairs, the counts, the edges; each at a multiple of 64 bytes. */
struct embedding_layout {
    int64_t pairs_bytes, counts_bytes, edges_bytes;
};
struct embedding_layout embedding_layout_of(const struct op_call *c);

/* ---- ternary_weight (kernels/ternary.cu) ----------------------------------------------------- */

enum { TERNARY_PARTS = 256 }; /* sums of a piece, and threads that add them up */

/* ---- rotary (kernels/rotary.cu) -------------------------------------------------------------- */

enum { ROTARY_MOST_PAIRS = 512 }; /* of a head, where vectors are loaded */

/* ---- transpose (kernels/move.cu) ------------------------------------------------------------- */

enum { TRANSPOSE_TILE = 32 };

/* The source's last axis is the output's axis `fast`: that axis and the output's last one make a
 * plane, which is transposed tile by tile through shared memory; the other axes count planes. */
struct planes {
    struct permutation p;
    int fast;
    int64_t n_rows, n_columns; /* of a plane of the output: axis fast, last axis */
    int64_t dst_step;          /* elements between rows of the output's planes */
    int64_t below;             /* planes between two indices of the axis before `fast` */
    int64_t n_planes;
};
struct planes transpose_planes(const struct permutation *p);

#ifdef __cplusplus
}
#endif
#endif
