/* norm.cuh: the arguments of layer_norm's and rms_norm's kernels, and the entries of
 * head_norm's (head_norm.cu), which norm.cu lists. */
#ifndef SNUG_DEVICE_CUDA_KERNELS_NORM_CUH
#define SNUG_DEVICE_CUDA_KERNELS_NORM_CUH

#include "device/cuda/support/weight.cuh"

/* layer_norm (CENTRED) and rms_norm, and their gradients. */
template <typename T> struct norm_args {
    T *y;
    const T *x;
    struct weight<T> w, b;
    float *mean, *rstd; /* mean: CENTRED only */
    int64_t n_rows, n;
    float epsilon;
};

template <typename T> struct norm_grad_args {
    T *dx;
    const T *dy, *x;
    const T *add; /* to dx; NULL: nothing */
    struct weight<T> w;
    const float *mean, *rstd; /* mean: CENTRED only */
    float *partial;           /* [n_blocks or n_bands, dw then db] */
    int64_t n_rows, n;
};

enum status cuda_head_norm(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;
enum status cuda_head_norm_grad(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;

#endif
