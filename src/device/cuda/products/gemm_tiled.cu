/* gemm_tiled.cu: the plain GEMM of the cuda_gemm family: every dtype, every GPU, every
 * combination of what gemm.h describes, in tiles of 16 x 16. Slow, and what the library's
 * results are compared with. */
#include "device/cuda/products/gemm_library.cuh"

enum { TILE = PRODUCT_TILE };

struct strides {
    int64_t row, column;
};

/* Where a tile's sums go. */
template <typename C> struct outcome {
    C *c;
    const C *before; /* laid out as c; NULL: nothing is added. May be c */
    const C *bias;
    int64_t c_row;
};

template <typename C>
static __device__ void put(const struct outcome<C> *o, int64_t i, int64_t j, float z)
{
    if (o->bias)
        z += to_f32(o->bias[j]);
    if (o->before)
        z += to_f32(o->before[i * o->c_row + j]);
    o->c[i * o->c_row + j] = from_f32<C>(z);
}

/* One 16 x 16 tile of c per block; tiles run along n first. */
template <typename T, typename C>
static __global__ void tiled(int64_t m, int64_t n, int64_t k, const T *a, struct strides sa,
                             const T *b, struct strides sb, const struct outcome<C> out)
{
    __shared__ float as[TILE][TILE + 1], bs[TILE][TILE + 1];
    int64_t tiles_n = (n + TILE - 1) / TILE;
    int64_t i = (int64_t)(blockIdx.x / tiles_n) * TILE + threadIdx.y;
    int64_t j = (int64_t)(blockIdx.x % tiles_n) * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int64_t first = 0; first < k; first += TILE) {
        int64_t ka = first + threadIdx.x, kb = first + threadIdx.y;
        as[threadIdx.y][threadIdx.x] =
            i < m && ka < k ? to_f32(a[i * sa.row + ka * sa.column]) : 0.0f;
        bs[threadIdx.y][threadIdx.x] =
            j < n && kb < k ? to_f32(b[kb * sb.row + j * sb.column]) : 0.0f;
        __syncthreads();
#pragma unroll
        for (int p = 0; p < TILE; p++)
            sum += as[threadIdx.y][p] * bs[p][threadIdx.x];
        __syncthreads();
    }
    if (i < m && j < n)
        put<C>(&out, i, j, sum);
}

static struct strides strides_of(const struct cuda_matrix *x)
{
    struct strides s = {x->row, 1};
    if (x->transposed)
        s = {1, x->row};
    return s;
}

template <typename T, typename C>
static void launch_tiled(const struct kernel_ctx *x, const struct cuda_gemm *g)
{
    int64_t tiles = ceil_div(g->m, TILE) * ceil_div(g->n, TILE);
    const C *before = (const C *)(g->add ? g->c : g->residual);
    struct outcome<C> out;
    out.c = (C *)g->c + g->c_offset;
    out.before = before ? before + g->c_offset : NULL;
    out.bias = (const C *)g->bias;
    out.c_row = g->c_row;
    tiled<T, C><<<(unsigned)tiles, dim3(TILE, TILE), 0, cuda_stream(x)>>>(
        g->m, g->n, g->k, (const T *)g->a.data + g->a.offset, strides_of(&g->a),
        (const T *)g->b.data + g->b.offset, strides_of(&g->b), out);
}

enum status cuda_gemm_tiled(const struct kernel_ctx *x, const struct cuda_gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return OK;
    CUDA_DISPATCH_FLOAT(g->dtype, T,
                        CUDA_DISPATCH_FLOAT(g->c_dtype, C, (launch_tiled<T, C>(x, g))));
    CUDA_TRY(cudaGetLastError());
    return OK;
}
