/* cuda_gelu.cuh: the tanh form of GELU and its slope at one element, for the activation kernels and
 * for those that finish a matrix product.
 */
#ifndef SNUG_DEVICE_CUDA_CUDA_GELU_CUH
#define SNUG_DEVICE_CUDA_CUDA_GELU_CUH

#include "device/cuda/cuda_map.cuh"

#define GELU_CUBIC 0.044715f
#define GELU_SCALE 0.79788456080f /* sqrt(2 / pi) */

/* (1 + tanh t) / 2 = sigmoid(2 t), which keeps its accuracy where tanh is close to -1. */
template <bool FAST> static __device__ __forceinline__ float gelu_gate(float x)
{
    return map_sigmoid<FAST>(2.0f * GELU_SCALE * (x + GELU_CUBIC * x * x * x));
}

struct gelu_tanh_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float x)
    {
        return x * gelu_gate<FAST>(x);
    }
};

struct gelu_tanh_grad_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float dy, float x)
    {
        float s = gelu_gate<FAST>(x);
        float inner = 2.0f * GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * x * x);
        return dy * (s + x * s * (1.0f - s) * inner);
    }
};

#endif
