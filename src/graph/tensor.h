/* tensor.h: what a tensor looks like: dtype, shape, and (at run time) where its elements are.
 *
 * Tensors are dense and row-major. Element counts and offsets are 64-bit everywhere.
 */
#ifndef SNUG_GRAPH_TENSOR_H
#define SNUG_GRAPH_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dtype {
#define DTYPE(name, text, bytes, is_float) DTYPE_##name,
#include "graph/dtypes.def"
#undef DTYPE
    DTYPE_COUNT
};

const char *dtype_name(enum dtype d);
int64_t dtype_size(enum dtype d);
bool dtype_is_float(enum dtype d);
bool dtype_parse(const char *text, enum dtype *d);
/* The dtype statistics and sums of such values are kept in: f64 for f64, f32 for other floats. */
enum dtype dtype_accumulator(enum dtype d);

enum { MAX_RANK = 6 };

struct shape {
    int rank;
    int64_t dim[MAX_RANK];
};

/* shape_of(2, 3, 4) is [3, 4]. */
struct shape shape_of(int rank, ...);
int64_t shape_elems(const struct shape *s); /* 1 for rank 0 */
bool shape_equal(const struct shape *a, const struct shape *b);
/* True when b's dims are the last dims of a (b broadcasts over a's leading dims). */
bool shape_is_suffix(const struct shape *b, const struct shape *a);
/* Product of dims [first, rank): "inner" sizes; of dims [0, last): "outer" sizes. */
int64_t shape_inner(const struct shape *s, int first);
int64_t shape_outer(const struct shape *s, int last);
/* Number of elements along all but the last axis, and along the last (1 for rank 0). */
int64_t shape_rows(const struct shape *s);
int64_t shape_last(const struct shape *s);

/* "[4, 256, 768]" into out; returns out. */
enum { SHAPE_TEXT = 128 };
const char *shape_text(char out[SHAPE_TEXT], const struct shape *s);

/* A tensor handed to shape inference (data is NULL) or to a kernel. dtype NONE: an optional input
 * that is absent. */
struct tensor {
    enum dtype dtype;
    struct shape shape;
    void *data;
};

static inline bool tensor_present(const struct tensor *t)
{
    return t->dtype != DTYPE_NONE;
}

int64_t tensor_bytes(const struct tensor *t);

#ifdef __cplusplus
}
#endif
#endif
