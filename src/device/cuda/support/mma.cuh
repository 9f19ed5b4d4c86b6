/* mma.cuh: tensor cores, sm_80 and up, for bf16 and f16: the instructions, and tiles of 16-bit
 * rows in shared memory.
 *
 * A tile has N rows of D elements, D = 64 or 128, no padding. The 16-byte chunk c of row r lies at
 * chunk c ^ (r & 7): eight rows read at the same column then meet no bank twice.
 *
 * Fragments of one 16 x 8 x 16 product, lane = 4 g + t:
 *   a (16 x 16): a0 (g, 2t..) a1 (g + 8, 2t..) a2 (g, 2t + 8..) a3 (g + 8, 2t + 8..)
 *   b (16 x 8):  b0 (2t.., g) b1 (2t + 8.., g)
 *   c (16 x 8):  c0 c1 (g, 2t..) c2 c3 (g + 8, 2t..)
 * so two neighbouring c of a product, rounded to 16 bits, are the a of the next one.
 *
 * Older GPUs compile these functions to nothing; the host never launches them there.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_MMA_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_MMA_CUH

#include "device/cuda/support/copies.cuh"

/* c += a b */
template <typename T>
static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                           uint32_t b1);

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define MMA_ASM(type)                                                              \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "    \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
#else
#define MMA_ASM(type) (void)c, (void)a, (void)b0, (void)b1
#endif

template <>
__device__ __forceinline__ void mma<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1)
{
    MMA_ASM("bf16");
}
template <>
__device__ __forceinline__ void mma<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1)
{
    MMA_ASM("f16");
}

/* Two floats as one register of 16-bit floats, the first in the low half. */
template <typename T> static __device__ __forceinline__ uint32_t pack_pair(float low, float high)
{
    pack<T, 2> x = {{from_f32<T>(low), from_f32<T>(high)}};
    return *reinterpret_cast<uint32_t *>(&x);
}

/* Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void matrices_load(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}
/* The same, each transposed. */
static __device__ __forceinline__ void matrices_load_transposed(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

/* Bytes from a tile's beginning to chunk `chunk` of row `row`. */
template <int D> static __device__ __forceinline__ uint32_t swizzled(int row, int chunk)
{
    return (uint32_t)((row * (D / 8) + (chunk ^ (row & 7))) * 16);
}

/* a of rows [row, row + 16), columns [16 k, 16 k + 16). */
template <int D>
static __device__ __forceinline__ void fragment_a(uint32_t (&a)[4], uint32_t tile, int row, int k)
{
    int lane = threadIdx.x % WARP;
    matrices_load(a, tile + swizzled<D>(row + lane % 16, 2 * k + lane / 16));
}

/* b of the product with the transpose of rows [row, row + 16): columns [16 k, 16 k + 16) are summed
 * over. b[0], b[1] are of the first eight rows, b[2], b[3] of the others. */
template <int D>
static __device__ __forceinline__ void fragment_b_rows(uint32_t (&b)[4], uint32_t tile, int row,
                                                       int k)
{
    int lane = threadIdx.x % WARP;
    matrices_load(b, tile + swizzled<D>(row + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
}

/* b of the product with rows [row, row + 16), which are summed over; b[0], b[1] are of columns
 * [16 n, 16 n + 8), b[2], b[3] of the next eight. */
template <int D>
static __device__ __forceinline__ void fragment_b_columns(uint32_t (&b)[4], uint32_t tile, int row,
                                                          int n)
{
    int lane = threadIdx.x % WARP;
    matrices_load_transposed(b, tile + swizzled<D>(row + lane % 16, 2 * n + lane / 16));
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Rows [first, first + N) of a head that begins at `head`, rows `stride` elements apart; zeros from
 * row n_rows on. All THREADS threads take part. */
template <typename T, int D, int N, int THREADS>
static __device__ __forceinline__ void tile_copy(uint32_t tile, const T *head, int64_t stride,
                                                 int first, int n_rows)
{
    constexpr int chunks = D / 8;
    static_assert(N * chunks % THREADS == 0, "whole turns");
#pragma unroll
    for (int turn = 0; turn < N * chunks / THREADS; turn++) {
        int at = turn * THREADS + (int)threadIdx.x, row = at / chunks, chunk = at % chunks;
        bool inside = first + row < n_rows;
        copy_16_or_zeros(tile + swizzled<D>(row, chunk),
                         head + (inside ? (first + row) * stride : 0) + chunk * 8, inside);
    }
}

/* Over the four lanes that share g: the columns of a row of c. */
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

#endif
