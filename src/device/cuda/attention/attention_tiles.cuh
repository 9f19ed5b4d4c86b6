/* attention_tiles.cuh: tiles of heads in shared memory as f32, for the kernels that compute
 * with plain multiply-adds. 256 threads as 16 x 16: thread (ty, tx).
 *
 * A tile has N rows of DP elements (head_dim rounded up, the rest zeros) at a distance of DP + 4:
 * sixteen threads that read 16 bytes of sixteen consecutive rows then meet no bank twice.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_ATTENTION_TILES_CUH
#define SNUG_DEVICE_CUDA_ATTENTION_ATTENTION_TILES_CUH

#include "device/cuda/attention/attention.cuh"

enum { TILE_SIDE = 16, TILE_THREADS = TILE_SIDE * TILE_SIDE };

template <int DP> struct tile_row {
    static constexpr int n = DP + 4;
};

/* Rows [first, first + N) of a head that begins at `head`, rows `stride` apart; zeros where there
 * is no such token or element. */
template <typename T, int DP, int N>
static __device__ void tile_load(float *tile, const T *head, int64_t stride, int first,
                                 const struct attention_args &a)
{
    for (int at = threadIdx.x; at < N * DP; at += TILE_THREADS) {
        int row = at / DP, e = at % DP;
        bool inside = first + row < a.n_tokens && e < a.head_dim;
        tile[row * tile_row<DP>::n + e] = inside ? to_f32(head[(first + row) * stride + e]) : 0.0f;
    }
}

/* sum[r][c] += dot product of x's row ty + 16 r and y's row tx + 16 c. */
template <int DP, int R, int C>
static __device__ __forceinline__ void tile_dots(float (&sum)[R][C], const float *x, const float *y,
                                                 int ty, int tx)
{
#pragma unroll 4
    for (int e = 0; e < DP; e += 4) {
        float4 u[R], w[C];
#pragma unroll
        for (int r = 0; r < R; r++)
            u[r] = *(const float4 *)(x + (ty + TILE_SIDE * r) * tile_row<DP>::n + e);
#pragma unroll
        for (int c = 0; c < C; c++)
            w[c] = *(const float4 *)(y + (tx + TILE_SIDE * c) * tile_row<DP>::n + e);
#pragma unroll
        for (int r = 0; r < R; r++) {
#pragma unroll
            for (int c = 0; c < C; c++) {
                sum[r][c] = fmaf(u[r].x, w[c].x, sum[r][c]);
                sum[r][c] = fmaf(u[r].y, w[c].y, sum[r][c]);
                sum[r][c] = fmaf(u[r].z, w[c].z, sum[r][c]);
                sum[r][c] = fmaf(u[r].w, w[c].w, sum[r][c]);
            }
        }
    }
}

/* sum[r][c] += sum over n of m(ty + 16 r, n) * y[n][tx + 16 c], n < N; the matrix m is at
 * m[row * row_step + n * n_step]. */
template <int DP, int N, int R, int C>
static __device__ __forceinline__ void tile_product(float (&sum)[R][C], const float *m,
                                                    int row_step, int n_step, const float *y,
                                                    int ty, int tx)
{
#pragma unroll 4
    for (int n = 0; n < N; n++) {
        float u[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            u[r] = m[(ty + TILE_SIDE * r) * row_step + n * n_step];
#pragma unroll
        for (int c = 0; c < C; c++) {
            float w = y[n * tile_row<DP>::n + tx + TILE_SIDE * c];
#pragma unroll
            for (int r = 0; r < R; r++)
                sum[r][c] = fmaf(u[r], w, sum[r][c]);
        }
    }
}

/* Over the 16 threads of one ty, which are half a warp. */
static __device__ __forceinline__ float side_max(float x)
{
#pragma unroll
    for (int step = TILE_SIDE / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
static __device__ __forceinline__ float side_sum(float x)
{
#pragma unroll
    for (int step = TILE_SIDE / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* Writes rows first + ty + 16 r of a head where they exist. */
template <typename T, int R, int C>
static __device__ void tile_store(T *head, int64_t stride, int first, const float (&x)[R][C],
                                  const struct attention_args &a, int ty, int tx)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = first + ty + TILE_SIDE * r;
#pragma unroll
        for (int c = 0; c < C; c++) {
            int e = tx + TILE_SIDE * c;
            if (i < a.n_tokens && e < a.head_dim)
                head[i * stride + e] = from_f32<T>(x[r][c]);
        }
    }
}

#endif
