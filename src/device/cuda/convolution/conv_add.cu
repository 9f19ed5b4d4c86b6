/* conv_add.cu: what an engine of cuDNN leaves to others: a sum with what was there, f32, a bias. */
#include "device/cuda/convolution/conv_cudnn.h"
#include "device/cuda/support/map.cuh"

struct add_fn {
    template <bool FAST> static __device__ __forceinline__ float at(float a, float b)
    {
        return a + b;
    }
};

/* a's elements plus those of b, which repeat over a's. */
template <typename T>
static void launch(const struct kernel_ctx *x, T *a, const T *b, int64_t n, int64_t n_b)
{
    constexpr int N = per_16_bytes<T>::n;
    bool whole = is_aligned(a, 16) && is_aligned(b, 16) && (n_b == n || n_b % N == 0);
    int64_t n_packs = whole ? n / N : 0;
    map2_kernel<add_fn, T>
        <<<map_grid(n, n_packs), MAP_THREADS, 0, cuda_stream(x)>>>(a, a, b, n, n_packs, n_b);
}

enum status conv_add(const struct kernel_ctx *x, enum dtype dtype, void *to, const void *from,
                     int64_t n)
{
    CUDA_DISPATCH_FLOAT(dtype, T, launch<T>(x, (T *)to, (const T *)from, n, n));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <typename T> static __global__ void widen(float *to, const T *from, int64_t n, bool adds)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = adds ? to[i] + to_f32(from[i]) : to_f32(from[i]);
}

enum status conv_widen(const struct kernel_ctx *x, enum dtype dtype, void *to, const void *from,
                       int64_t n, bool adds)
{
    CUDA_DISPATCH_FLOAT(dtype, T,
                        widen<T><<<grid_for(n, MAP_THREADS), MAP_THREADS, 0, cuda_stream(x)>>>(
                            (float *)to, (const T *)from, n, adds));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

enum status conv_add_bias(const struct kernel_ctx *x, enum dtype dtype, void *y, const void *bias,
                          int64_t n_rows, int64_t n)
{
    CUDA_DISPATCH_FLOAT(dtype, T, launch<T>(x, (T *)y, (const T *)bias, n_rows * n, n));
    CUDA_TRY(cudaGetLastError());
    return OK;
}
