/* activation.cu: silu and gelu with gradients; the list of gelu_bias's kernels, which are in
 * gelu_bias.cu. */
#include "device/cuda/kernels/gelu.cuh"
#include "device/cuda/support/map.cuh"

/* ---- one element ---------------------------------------------------------------------------- */

template <bool FAST> static __device__ __forceinline__ float silu_slope(float x)
{
    float s = map_sigmoid<FAST>(x);
    return s * (1.0f + x * (1.0f - s));
}

struct silu_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float x)
    {
        return x * map_sigmoid<FAST>(x);
    }
};

struct silu_grad_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float dy, float x)
    {
        return dy * silu_slope<FAST>(x);
    }
};

static enum status silu_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_map1<silu_fn>(x, c);
}

static enum status silu_grad_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    return cuda_map2<silu_grad_fn>(x, c);
}

static enum status gelu_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    return call_bool(c, 0) ? cuda_map1<gelu_tanh_fn>(x, c) : cuda_map1<gelu_exact_fn>(x, c);
}

static enum status gelu_grad_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    return call_bool(c, 0) ? cuda_map2<gelu_grad_fn<gelu_tanh_fn>>(x, c)
                           : cuda_map2<gelu_grad_fn<gelu_exact_fn>>(x, c);
}

/* ---- lists ---------------------------------------------------------------------------------- */

CUDA_RUN(silu, vectors, silu_vectors)
CUDA_RUN(silu_grad, vectors, silu_grad_vectors)
CUDA_RUN(gelu, vectors, gelu_vectors)
CUDA_RUN(gelu_grad, vectors, gelu_grad_vectors)

CUDA_RUN(gelu_bias, vectors, cuda_gelu_bias)

CUDA_RUN(gelu_bias_grad, strips, cuda_gelu_bias_grad)

CUDA_RUN(gelu_bias_with_grad, strips, cuda_gelu_bias_with_grad)
