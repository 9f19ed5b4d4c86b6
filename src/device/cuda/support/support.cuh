/* support.cuh: what the CUDA kernel files share: error macros, 16-bit floats in and out of f32
 * in vectors of 16 bytes, sums over warps and blocks in a fixed order, launch sizes.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_SUPPORT_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_SUPPORT_CUH

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <math.h>
#include <stdint.h>

#include "base/status.h"
#include "device/cuda/cuda_kernels.h"
#include "device/cuda/cuda_libraries.h"
#include "device/cuda/declared/runs.h"
#include "device/cuda/declared/sums.h"
#include "device/kernel.h"

/* ---- errors --------------------------------------------------------------------------------- */

/* The status a CUDA error becomes. */
static inline enum status cuda_status(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation:
        return ERR_DEVICE_MEMORY;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
        return ERR_UNSUPPORTED;
    default:
        return ERR_FAILED;
    }
}

/* CUDA_TRY(cudaGetLastError()) after a launch: passes a failure on with CUDA's own words, and
 * clears the error so that it is not reported again by an innocent call. */
#define CUDA_TRY(call)                                                                   \
    do {                                                                                 \
        cudaError_t cuda_error_ = (call);                                                \
        if (cuda_error_ != cudaSuccess) {                                                \
            (void)cudaGetLastError();                                                    \
            return FAIL(cuda_status(cuda_error_), "CUDA: %s (%s)",                       \
                        cudaGetErrorString(cuda_error_), cudaGetErrorName(cuda_error_)); \
        }                                                                                \
    } while (0)

#define CUBLAS_TRY(call)                                                                     \
    do {                                                                                     \
        cublasStatus_t cublas_error_ = (call);                                               \
        if (cublas_error_ != CUBLAS_STATUS_SUCCESS)                                          \
            return FAIL(ERR_FAILED, "cuBLASLt: %s", cublasLtGetStatusString(cublas_error_)); \
    } while (0)

#define CUDNN_TRY(call)                                                              \
    do {                                                                             \
        cudnnStatus_t cudnn_error_ = (call);                                         \
        if (cudnn_error_ != CUDNN_STATUS_SUCCESS)                                    \
            return FAIL(ERR_FAILED, "cuDNN: %s", cudnnGetErrorString(cudnn_error_)); \
    } while (0)

static inline cudaStream_t cuda_stream(const struct kernel_ctx *x)
{
    return (cudaStream_t)x->queue;
}

/* ---- dtypes --------------------------------------------------------------------------------- */

static __device__ __forceinline__ float to_f32(float x)
{
    return x;
}
static __device__ __forceinline__ float to_f32(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ float to_f32(__half x)
{
    return __half2float(x);
}

template <typename T> static __device__ __forceinline__ T from_f32(float x);
template <> __device__ __forceinline__ float from_f32<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_f32<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half from_f32<__half>(float x)
{
    return __float2half_rn(x);
}

/* Runs the statement with `T` naming the element type of a float dtype (f32, bf16, f16); other
 * dtypes do nothing: kernels decline them (cuda_declines_f64). */
#define CUDA_DISPATCH_FLOAT(dtype, T, ...)  \
    do {                                    \
        if ((dtype) == DTYPE_F32) {         \
            using T = float;                \
            __VA_ARGS__;                    \
        } else if ((dtype) == DTYPE_BF16) { \
            using T = __nv_bfloat16;        \
            __VA_ARGS__;                    \
        } else if ((dtype) == DTYPE_F16) {  \
            using T = __half;               \
            __VA_ARGS__;                    \
        }                                   \
    } while (0)

/* ---- vectors -------------------------------------------------------------------------------- */

/* N elements that move as one access; N * sizeof(T) is 2, 4, 8 or 16. */
template <typename T, int N> struct alignas(sizeof(T) * N) pack {
    T v[N];
};

/* Elements of T in 16 bytes. */
template <typename T> struct per_16_bytes {
    static constexpr int n = 16 / (int)sizeof(T);
};

static inline bool is_aligned(const void *p, size_t n_bytes)
{
    return (uintptr_t)p % n_bytes == 0;
}

/* For kernels that load vectors only. Programs align every operand to more than that. */
static inline enum status cuda_require_aligned(const struct op_call *c, size_t n_bytes)
{
    bool aligned = true;
    for (int i = 0; i < c->n_in; i++)
        aligned = aligned && is_aligned(c->in[i].data, n_bytes);
    for (int i = 0; i < c->n_out; i++)
        aligned = aligned && is_aligned(c->out[i].data, n_bytes);
    return aligned ? OK
                   : FAIL(ERR_INTERNAL, "%s: an operand does not begin at a multiple of %d bytes",
                          op_get(c->op)->name, (int)n_bytes);
}

/* N elements at p as f32; p is aligned to min(16, N * sizeof(T)) bytes. */
template <int N, typename T>
static __device__ __forceinline__ void load_f32(float (&out)[N], const T *p)
{
    constexpr int step = N * (int)sizeof(T) > 16 ? 16 / (int)sizeof(T) : N;
    static_assert(N % step == 0, "whole vectors");
#pragma unroll
    for (int i = 0; i < N; i += step) {
        pack<T, step> x = *reinterpret_cast<const pack<T, step> *>(p + i);
#pragma unroll
        for (int k = 0; k < step; k++)
            out[i + k] = to_f32(x.v[k]);
    }
}

/* Two elements as the word they make in memory. */
static __device__ __forceinline__ uint32_t word_of(float low, float high, const __nv_bfloat16 *)
{
    const __nv_bfloat162_raw r = __floats2bfloat162_rn(low, high);
    return r.x | (uint32_t)r.y << 16;
}
static __device__ __forceinline__ uint32_t word_of(float low, float high, const __half *)
{
    const __half2_raw r = __floats2half2_rn(low, high);
    return r.x | (uint32_t)r.y << 16;
}

/* N elements to p, as load_f32 has them. Elements of 16 bits go as words: single ones the compiler
 * may store one by one. */
template <int N, typename T>
static __device__ __forceinline__ void store_f32(T *p, const float (&in)[N])
{
    if constexpr (sizeof(T) == 2 && N % 8 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 8)
            *reinterpret_cast<uint4 *>(p + i) =
                make_uint4(word_of(in[i], in[i + 1], p), word_of(in[i + 2], in[i + 3], p),
                           word_of(in[i + 4], in[i + 5], p), word_of(in[i + 6], in[i + 7], p));
    } else if constexpr (sizeof(T) == 2 && N == 4) {
        *reinterpret_cast<uint2 *>(p) =
            make_uint2(word_of(in[0], in[1], p), word_of(in[2], in[3], p));
    } else {
        constexpr int step = N * (int)sizeof(T) > 16 ? 16 / (int)sizeof(T) : N;
        static_assert(N % step == 0, "whole vectors");
#pragma unroll
        for (int i = 0; i < N; i += step) {
            pack<T, step> x;
#pragma unroll
            for (int k = 0; k < step; k++)
                x.v[k] = from_f32<T>(in[i + k]);
            *reinterpret_cast<pack<T, step> *>(p + i) = x;
        }
    }
}

/* The same for one vector of 16 bytes in global memory, which is stored as such whatever the
 * compiler thinks: after a loop's worth of arithmetic it likes to take a vector apart, and a kernel
 * that could be as fast as a copy then reaches half of it. */
template <typename T>
static __device__ __forceinline__ void store_vector(T *p, const float (&in)[per_16_bytes<T>::n])
{
    uint32_t w[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if constexpr (sizeof(T) == 2)
            w[k] = word_of(in[2 * k], in[2 * k + 1], p);
        else
            w[k] = __float_as_uint(in[k]);
    }
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
                 "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                 : "memory");
}

/* ---- sums and maxima in a fixed order --------------------------------------------------------
 *
 * The butterfly adds the same pairs in every lane (a + b equals b + a), so all lanes hold the same
 * bits and two runs agree. All 32 lanes of every warp take part.
 */

enum { WARP = 32 };

template <typename F> static __device__ __forceinline__ F warp_sum(F x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* Over a block of `THREADS` threads (a multiple of 32, at most 1024); every thread receives the
 * result. `scratch` is shared memory of 32 elements; it may be used again after the call without a
 * barrier. */
template <int THREADS, typename F> static __device__ __forceinline__ F block_sum(F x, F *scratch)
{
    constexpr int warps = THREADS / WARP;
    x = warp_sum(x);
    if constexpr (warps > 1) {
        if (threadIdx.x % WARP == 0)
            scratch[threadIdx.x / WARP] = x;
        __syncthreads();
        F y = threadIdx.x % WARP < warps ? scratch[threadIdx.x % WARP] : (F)0;
        x = warp_sum(y);
        __syncthreads();
    }
    return x;
}

template <int THREADS> static __device__ __forceinline__ float block_max(float x, float *scratch)
{
    constexpr int warps = THREADS / WARP;
    x = warp_max(x);
    if constexpr (warps > 1) {
        if (threadIdx.x % WARP == 0)
            scratch[threadIdx.x / WARP] = x;
        __syncthreads();
        float y = threadIdx.x % WARP < warps ? scratch[threadIdx.x % WARP] : -INFINITY;
        x = warp_max(y);
        __syncthreads();
    }
    return x;
}

/* Over the G threads that share a row: a warp, or the block. */
template <int G> static __device__ __forceinline__ float group_sum(float v, float *scratch)
{
    if constexpr (G == WARP)
        return warp_sum(v);
    else
        return block_sum<G>(v, scratch);
}

template <int G> static __device__ __forceinline__ float group_max(float v, float *scratch)
{
    if constexpr (G == WARP)
        return warp_max(v);
    else
        return block_max<G>(v, scratch);
}

/* ---- launches ------------------------------------------------------------------------------- */

/* Blocks for n items with `per_block` each, at least one; `most` bounds grid-stride launches. */
static inline unsigned grid_for(int64_t n, int64_t per_block, int64_t most = 0x7fffffff)
{
    int64_t blocks = ceil_div(n, per_block);
    blocks = blocks < 1 ? 1 : blocks;
    return (unsigned)(blocks < most ? blocks : most);
}

/* Enough blocks to fill the GPU `waves` times with `threads` threads each. */
static inline int64_t grid_full(const struct kernel_env *env, int threads, int waves = 4)
{
    const struct gpu_model *gpu = env->gpu;
    return (int64_t)gpu->n_multiprocessors * (gpu->threads_per_multiprocessor / threads) * waves;
}

/* 64-bit index of this thread and the number of threads of the grid: for (i = grid_thread(); i < n;
 * i += grid_threads()). */
static __device__ __forceinline__ int64_t grid_thread()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ __forceinline__ int64_t grid_threads()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* Defines what runs a kernel of declared/kernels.def: the function that is named last. */
#define CUDA_RUN(op, name, ...)                                                             \
    enum status cuda_run_##op##_##name(const struct kernel_ctx *x, const struct op_call *c) \
    {                                                                                       \
        return __VA_ARGS__(x, c);                                                           \
    }

/* Lets a kernel use more than 48 KiB of dynamic shared memory. */
template <typename K> static inline enum status cuda_allow_shared(K kernel, int n_bytes)
{
    CUDA_TRY(cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes));
    return OK;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* An empty kernel in every source file, and its address in a section that the linker makes one
 * table of: through it load.cu finds all kernels of the file. */
static __global__ void cuda_file_anchor()
{
}
#ifndef __CUDA_ARCH__
__attribute__((section("snug_cuda_files"), used)) static const void *const cuda_file_entry =
    reinterpret_cast<const void *>(cuda_file_anchor);
#endif

#endif
