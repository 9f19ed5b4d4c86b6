/* conv_parts.h: a convolution in parts that have no more elements than an engine counts.
 *
 * Parts are some samples of the batch each, as many in all of them. Where one sample is too large,
 * they are slabs of its outermost axis: rows of what is made (of y for a weight gradient), with the
 * rows of the other tensor that these need. Slabs of x overlap in a forward, slabs of y in an input
 * gradient; what is made does not, but for a weight gradient, which is the sum of its parts.
 */
#ifndef SNUG_DEVICE_CUDA_DECLARED_CONV_PARTS_H
#define SNUG_DEVICE_CUDA_DECLARED_CONV_PARTS_H

#include "device/cuda/declared/convolution.h"

#ifdef __cplusplus
extern "C" {
#endif

struct conv_cut {
    int64_t n_parts; /* 0: there is no such cut */
    int64_t batch;   /* samples of a part */
    int64_t n_slabs; /* of a sample */
    int64_t n_rows;  /* of a slab, but the last may have fewer; 0: samples are whole */
};

struct conv_part {
    struct conv_shape shape;
    int64_t first_x, first_y; /* elements before it */
};

/* x and y of a part have `most` elements at most. */
struct conv_cut conv_cut_of(const struct conv_shape *s, int64_t most);
/* Part i: of one sample after the other. */
struct conv_part conv_part_of(const struct conv_shape *s, const struct conv_cut *cut, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
