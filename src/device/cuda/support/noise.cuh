/* noise.cuh: benchmark inputs: random contents for tensors whose kernels are timed. */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_NOISE_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_NOISE_CUH

#include "base/rng.h"
#include "device/cuda/support/support.cuh"

/* Small numbers of both signs: zeros would run faster than real data. */
template <typename T> static __global__ void fill_noise(T *p, int64_t n)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        struct philox4 bits = philox(1, 2, (uint64_t)i);
        p[i] = from_f32<T>(rng_uniform(bits.v[0]) - 0.5f);
    }
}

#endif
