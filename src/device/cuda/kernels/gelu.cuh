/* gelu.cuh: GELU and its slope at one element; the entries of gelu_bias's kernels
 * (gelu_bias.cu), which activation.cu lists.
 *
 * A function has at, y at one element, and slope, which gives that y on the way, to the bit:
 *
 *     template <bool FAST> static __device__ float at(float x);
 *     template <bool FAST> static __device__ float slope(float x, float &y);
 *
 * The compiler may join a product and the sum it goes into, and does so in one kernel and not in
 * the next: where that could be, fmaf says it.
 */
#ifndef SNUG_DEVICE_CUDA_KERNELS_GELU_CUH
#define SNUG_DEVICE_CUDA_KERNELS_GELU_CUH

#include "device/cuda/support/map.cuh"

#define GELU_CUBIC 0.044715f
#define GELU_SCALE 0.79788456080f /* sqrt(2 / pi) */
#define NORMAL_PDF 0.39894228040f /* 1 / sqrt(2 pi) */

struct gelu_exact_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float x)
    {
        return x * normcdff(x);
    }
    template <bool FAST> static __device__ __forceinline__ float slope(float x, float &y)
    {
        const float cdf = normcdff(x);
        y = x * cdf;
        return fmaf(x * NORMAL_PDF, map_exp<FAST>(-0.5f * x * x), cdf);
    }
};

/* (1 + tanh t) / 2 = sigmoid(2 t), which keeps its accuracy where tanh is close to -1. Constants
 * are multiplied together beforehand: the kernels have few instructions to spare beside memory. */
template <bool FAST> static __device__ __forceinline__ float gelu_gate(float x, float square)
{
    if constexpr (FAST) {
        constexpr float first = -2.0f * GELU_SCALE * MAP_LOG2_E, third = first * GELU_CUBIC;
        return map_inverse_short(1.0f + map_exp2_short(x * fmaf(third, square, first)));
    } else {
        return map_sigmoid<FAST>(2.0f * GELU_SCALE * fmaf(GELU_CUBIC * square, x, x));
    }
}

struct gelu_tanh_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float x)
    {
        return x * gelu_gate<FAST>(x, x * x);
    }
    template <bool FAST> static __device__ __forceinline__ float slope(float x, float &y)
    {
        constexpr float first = 2.0f * GELU_SCALE, third = 3.0f * first * GELU_CUBIC;
        const float square = x * x, s = gelu_gate<FAST>(x, square);
        y = x * s;
        return fmaf(fmaf(-s, s, s), x * fmaf(third, square, first), s);
    }
};

/* dx at one element, of the gradient of F. */
template <typename F> struct gelu_grad_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float dy, float x)
    {
        float y;
        return dy * F::template slope<FAST>(x, y);
    }
};

enum status cuda_gelu_bias(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;
enum status cuda_gelu_bias_grad(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;
enum status cuda_gelu_bias_with_grad(const struct kernel_ctx *x,
                                     const struct op_call *c) MUST_CHECK;

#endif
