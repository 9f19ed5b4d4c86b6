/* convolution.h: a convolution or one of its gradients as the CUDA kernels see it, and what they
 * are given. No cuDNN in here.
 *
 *     y[n, p, o] = bias[o] + sum over t, c of x[n, stride p - pad + dilation t, c] w[o, t, c]
 */
#ifndef SNUG_DEVICE_CUDA_DECLARED_CONVOLUTION_H
#define SNUG_DEVICE_CUDA_DECLARED_CONVOLUTION_H

#include "device/kernel.h"
#include "ops/window_support.h"

#ifdef __cplusplus
extern "C" {
#endif

enum conv_kind { CONV_FORWARD, CONV_GRAD_INPUT, CONV_GRAD_WEIGHT };

struct conv_shape {
    enum conv_kind kind;
    enum dtype dtype, out_dtype; /* of what is read (but the bias), of the result */
    bool has_bias;               /* forward only */
    bool adds;                   /* the result is added to another tensor */
    struct conv_dims dims;
};

/* The shape of a call of conv, conv_grad_input or conv_grad_weight. */
struct conv_shape conv_shape_of(const struct op_call *c);
bool conv_shape_equal(const struct conv_shape *a, const struct conv_shape *b);

int64_t conv_x_elems(const struct conv_shape *s);
int64_t conv_w_elems(const struct conv_shape *s);
int64_t conv_y_elems(const struct conv_shape *s);
int64_t conv_out_bytes(const struct conv_shape *s); /* of what the kind makes */
/* A weight gradient in f32 of factors in 16 bits. */
bool conv_widens(const struct conv_shape *s);

/* ---- cuDNN ----------------------------------------------------------------------------------- */

/* What cuDNN is known not to do on the GPU: not worth asking. NULL: it may do it. */
const char *conv_known_limit(const struct gpu_model *gpu, const struct conv_shape *s);

/* cuDNN's engines count elements in 32 bits: calls that have more run in parts (conv_parts.h). */
enum { CONV_MOST_ELEMS = INT32_MAX };

/* The workspace that a call is given when it is planned, in bytes: by its shape and the GPU, so
 * that a plan needs no library to be exact. cuDNN chooses among the engines that do with it. */
int64_t conv_allowance(const struct gpu_model *gpu, const struct conv_shape *s);
/* Of it, at its end: room for a weight gradient that is added to another, that comes in parts, or
 * that is widened, for engines that cannot do that. */
int64_t conv_aside_bytes(const struct conv_shape *s);

/* ---- the plain kernels ----------------------------------------------------------------------- */

enum { CONV_TILE = 64, CONV_STEP = 16 }; /* rows and columns of a block's tile; terms at a time */

/* The product that a call is, for every group: [m, k] times [k, n]. */
struct conv_product {
    int64_t m, n, k;
};
struct conv_product conv_product_of(const struct conv_shape *s);
/* Parts that the sums of a weight gradient are cut into, with no more memory than the allowance has
 * for that; others: 1. */
int64_t conv_bands(const struct conv_shape *s, const struct gpu_model *gpu);

#ifdef __cplusplus
}
#endif
#endif
