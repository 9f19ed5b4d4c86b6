/* geometry.h: calls reduced to what matters of their shapes, the same for every device. */
#ifndef SNUG_DEVICE_GEOMETRY_H
#define SNUG_DEVICE_GEOMETRY_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reduced axes next to each other make x a box [n_outer, length, n_inner] of which `length` goes.
 */
struct box {
    int64_t n_outer, length, n_inner;
};

/* Axes [first, last] of x in one. */
struct box box_of(const struct shape *x, int first, int last);
/* The reduced axes of sum and mean as a box; false when other axes lie between them. Axes of size 1
 * are free to be on either side. */
bool sum_box(const struct op_call *c, struct box *box);

/* A transpose: axes of size 1 are gone and axes that stay neighbours are one axis. Axes are in the
 * order of the output; dim and the step in the source per index, in elements. Output steps follow
 * from the dims. */
struct permutation {
    int rank;
    int64_t dim[MAX_RANK], src_step[MAX_RANK];
};
struct permutation transpose_simplified(const struct op_call *c);

#ifdef __cplusplus
}
#endif
#endif
