/* wgmma.cuh: tensor cores and copy engine of compute capability 9.0 (sm_90a): products of a
 * warpgroup (four warps) with both operands in shared memory, tiles that the copy engine brings,
 * and the barriers they complete on.
 *
 * A tile in shared memory is made of rows of 128 bytes (64 elements of 16 bits), no padding, at a
 * multiple of 1024 bytes. The 16-byte chunk c of row r lies at chunk c ^ (r & 7): the copy engine
 * writes it so (CU_TENSOR_MAP_SWIZZLE_128B) and the tensor cores read it so.
 *
 *     by terms of a sum: [rows][64 terms]. The next 16 terms are 32 bytes on; eight rows are 1024
 *         bytes, the descriptor's stride.
 *     by rows:           [terms][64 rows]. The next 16 terms are 2048 bytes on; eight terms are
 *         1024 bytes, the stride; the next 64 rows are `leading` bytes on.
 *
 * Results of one 64 x 256 x 16 product, warp w of four, lane = 4 g + t:
 *     sum[4 j], sum[4 j + 1]      row 16 w + g,     columns 8 j + 2 t ..
 *     sum[4 j + 2], sum[4 j + 3]  row 16 w + g + 8
 *
 * Other GPUs compile none of this; the host never launches it there.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_WGMMA_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_WGMMA_CUH

#include <cuda.h>

#include "device/cuda/support/support.cuh"

enum { WARPGROUP = 128 }; /* threads */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- barriers --------------------------------------------------------------------------------
 *
 * A barrier completes a phase when so many have arrived and all bytes it was told to expect are
 * there. Phases have parity 0, 1, 0 ...; to wait for the one before the first returns at once.
 */

static __device__ __forceinline__ void barrier_init(uint32_t barrier, int n_arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals)
                 : "memory");
}

/* By the thread that has initialised barriers, before the others and the copy engine see them. */
static __device__ __forceinline__ void barriers_ready()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void barrier_arrive_expecting(uint32_t barrier, int n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(n_bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;\n"
                     "}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

/* ---- the copy engine -------------------------------------------------------------------------
 *
 * A map describes matrices [matrices][rows][columns] and a box of them; what lies outside arrives
 * as zeros, and counts as bytes all the same.
 */

static __device__ __forceinline__ void map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"((uint64_t)map) : "memory");
}

static __device__ __forceinline__ void box_copy(uint32_t shared, const CUtensorMap *map,
                                                uint32_t barrier, int32_t column, int32_t row,
                                                int32_t matrix)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared),
                 "l"((uint64_t)map), "r"(barrier), "r"(column), "r"(row), "r"(matrix)
                 : "memory");
}

/* After ordinary stores to shared memory, before the barrier that lets tensor cores or the copy
 * engine at it. */
static __device__ __forceinline__ void stores_before_engines()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* 16 bytes of zeros. */
static __device__ __forceinline__ void clear_16(uint32_t shared)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(shared), "r"(0) : "memory");
}

/* A barrier of N threads of the block, whole warps of them; number 0 is __syncthreads'. */
template <int NUMBER, int N> static __device__ __forceinline__ void sync_some()
{
    asm volatile("bar.sync %0, %1;" ::"n"(NUMBER), "n"(N) : "memory");
}

/* ---- registers ------------------------------------------------------------------------------- */

template <int N> static __device__ __forceinline__ void registers_grow()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void registers_shrink()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- products -------------------------------------------------------------------------------- */

/* How tensor cores find a tile at `shared`; `leading` counts where a tile by rows has more than 64
 * of them. 16 bytes more is one more in the result. */
static __device__ __forceinline__ uint64_t tile_descriptor(uint32_t shared, uint32_t leading)
{
    constexpr uint64_t swizzle_128 = 1, stride = 1024;
    return swizzle_128 << 62 | stride >> 4 << 32 | (uint64_t)(leading >> 4) << 16 | shared >> 4;
}

/* Before the first product, and where registers of sums were written between products. */
static __device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until all committed products but the last N are done. */
template <int N> static __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* After products_wait<0>: the compiler reads no sum before. */
static __device__ __forceinline__ void sums_arrived(float (&sum)[128])
{
#pragma unroll
    for (int i = 0; i < 128; i++)
        asm volatile("" : "+f"(sum[i])::"memory");
}

// clang-format off
#define WGMMA_SUMS \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"
#define WGMMA_4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define WGMMA_16(i) WGMMA_4(i), WGMMA_4(i + 4), WGMMA_4(i + 8), WGMMA_4(i + 12)
#define WGMMA_64(i) WGMMA_16(i), WGMMA_16(i + 16), WGMMA_16(i + 32), WGMMA_16(i + 48)
// clang-format on

/* sum += a b of 64 rows, 256 columns, 16 terms; A_ROWS, B_ROWS: the operand's tile is by rows. */
#define WGMMA_ASM(type)                                                                      \
    asm volatile("{\n"                                                                       \
                 ".reg .pred add;\n"                                                         \
                 "setp.ne.b32 add, 1, 0;\n"                                                  \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " " WGMMA_SUMS \
                 ", %128, %129, add, 1, 1, %130, %131;\n"                                    \
                 "}"                                                                         \
                 : WGMMA_64(0), WGMMA_64(64)                                                 \
                 : "l"(a), "l"(b), "n"(A_ROWS ? 1 : 0), "n"(B_ROWS ? 1 : 0))

template <typename T> struct is_bf16 {
    static constexpr bool value = false;
};
template <> struct is_bf16<__nv_bfloat16> {
    static constexpr bool value = true;
};

template <bool A_ROWS, bool B_ROWS, typename T>
static __device__ __forceinline__ void wgmma(float (&sum)[128], uint64_t a, uint64_t b)
{
    if constexpr (is_bf16<T>::value)
        WGMMA_ASM("bf16");
    else
        WGMMA_ASM("f16");
}

#undef WGMMA_ASM
#undef WGMMA_64
#undef WGMMA_16
#undef WGMMA_4
#undef WGMMA_SUMS

#endif
#endif
