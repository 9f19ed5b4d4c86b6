/* head_loss.h: how the output projection with its loss is cut into chunks of rows, and the products
 * of a chunk. products/head_loss.cu says why it is cut like this. */
#ifndef SNUG_DEVICE_CUDA_DECLARED_HEAD_LOSS_H
#define SNUG_DEVICE_CUDA_DECLARED_HEAD_LOSS_H

#include "device/cuda/declared/product.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HEAD_PRODUCTS_MOST = 3, /* after a chunk's gradient */
    HEAD_VECTOR = 8,        /* elements of a row that are read at a time */
};

struct head_sizes {
    int64_t n_rows, n_words, n_columns;
    int64_t chunk_rows;
    int64_t row;        /* of the logits, elements */
    int64_t row_bytes;  /* the same in bytes */
    int64_t n_products; /* words the products run over: n_words, or row over a padded copy of w */
    int64_t n_main;     /* words whose dw is one product; the rest goes through the sums */
    bool padded;        /* the copy of w is there */
    bool summed;        /* dw of all words is summed in workspace */
    bool makes_dw;      /* w is trained */
};
struct head_sizes head_sizes_of(const struct op_call *c, bool gradient);

/* Where a call's workspace has what:
 *
 *     | logits [chunk_rows, row] x's dtype | losses [n_rows] f32 | weights | sums | products' own |
 */
struct head_work {
    void *logits, *weights, *gemm;
    float *losses, *sums;
};
struct head_work head_work_of(const struct op_call *c, const struct head_sizes *s, void *workspace);

/* Of the chunk of n rows from `first` on: logits[n, V] = x[first .. first + n, C] w[V, C]^T */
struct cuda_gemm head_logits_product(const struct op_call *c, const struct head_sizes *s,
                                     const struct head_work *w, int64_t first, int64_t n);
/* The products that follow a chunk's gradient: dw's words up to n_main into dw, the others into
 * the sums, then dx. Returns how many. */
int head_gradient_products(const struct op_call *c, const struct head_sizes *s,
                           const struct head_work *w, int64_t first, int64_t n,
                           struct cuda_gemm out[HEAD_PRODUCTS_MOST]);

#ifdef __cplusplus
}
#endif
#endif
