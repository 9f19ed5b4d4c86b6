/* cuda_norm.cuh: what layer_norm, rms_norm and head_norm share: their arguments, sums over the
 * threads that hold a row, and the entries of head_norm's kernels (cuda_head_norm.cu), which
 * norm.cu lists. */
#ifndef SNUG_DEVICE_CUDA_CUDA_NORM_CUH
#define SNUG_DEVICE_CUDA_CUDA_NORM_CUH

#include "device/cuda/cuda_weight.cuh"

/* Over the G threads that share a row: a warp, or the block. */
template <int G> static __device__ __forceinline__ float group_sum(float v, float *scratch)
{
    if constexpr (G == WARP)
        return warp_sum(v);
    else
        return block_sum<G>(v, scratch);
}

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
int64_t cuda_head_norm_grad_workspace(const struct op_call *c, const struct kernel_env *env);
enum status cuda_head_norm_grad(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;

#endif
