/* outer.cu: weight gradients of a few rows: dw[n, k] = sum over i of dy[i, n] x[i, k] (+ acc).
 *
 * With so few terms the product is as long as it takes to write it. A block has some columns of
 * some rows of dw; a thread keeps its columns of x in registers, and the rows pass by. Every
 * element is the sum of its own terms in their order: rows by themselves are the bits of those rows
 * of the whole, so that slices of a gradient can be made where they are wanted.
 */
#include "device/cuda/declared/product.h"
#include "device/cuda/support/any.cuh"

static constexpr int THREADS = 256, ROWS = OUTER_BLOCK_ROWS;

struct outer_args {
    struct any dy, x, acc, dw; /* acc.data NULL: nothing to add to */
    int64_t n_out;             /* columns of dy */
    int64_t first, n_rows;     /* rows of dw that are made, among these */
    int64_t n_in;
    int64_t column_blocks;
    int n_terms;
};

/* Elements of a thread: four, or one where vectors would not be aligned. */
template <bool VECTORS>
static __device__ __forceinline__ void load(float (&v)[4], const struct any &a, int64_t at)
{
    if (VECTORS)
        any4_unpack(v, any4_load(a, at / 4), a.dtype);
    else
        v[0] = any_get_f32(a, at);
}

template <int TERMS, bool VECTORS>
static __global__ void __launch_bounds__(THREADS)
    outer_kernel(__grid_constant__ const struct outer_args a)
{
    constexpr int WIDTH = VECTORS ? 4 : 1;
    __shared__ float dy[TERMS][ROWS];
    const int64_t row = (int64_t)blockIdx.x / a.column_blocks * ROWS;
    const int64_t column = ((int64_t)blockIdx.x % a.column_blocks * THREADS + threadIdx.x) * WIDTH;
    const int n_rows = a.n_rows - row < ROWS ? (int)(a.n_rows - row) : ROWS;
    for (int i = threadIdx.x; i < TERMS * ROWS; i += THREADS) {
        const int term = i / ROWS, r = i % ROWS;
        if (term < a.n_terms && r < n_rows)
            dy[term][r] = any_get_f32(a.dy, term * a.n_out + a.first + row + r);
    }
    __syncthreads();
    if (column >= a.n_in)
        return;
    float x[TERMS][4];
#pragma unroll
    for (int term = 0; term < TERMS; term++) {
        if (term < a.n_terms)
            load<VECTORS>(x[term], a.x, term * a.n_in + column);
    }
    for (int r = 0; r < n_rows; r++) {
        const int64_t at = (row + r) * a.n_in + column;
        float sum[4] = {}, old[4] = {};
        if (a.acc.data)
            load<VECTORS>(old, a.acc, at);
#pragma unroll
        for (int term = 0; term < TERMS; term++) {
#pragma unroll
            for (int k = 0; term < a.n_terms && k < WIDTH; k++)
                sum[k] = fmaf(dy[term][r], x[term][k], sum[k]);
        }
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            sum[k] += old[k];
        if (VECTORS)
            any4_store(a.dw, at / 4, any4_pack(sum, a.dw.dtype));
        else
            any_set_f32(a.dw, at, sum[0]);
    }
}

template <int TERMS>
static void launch(const struct kernel_ctx *x, struct outer_args *a, bool vectors)
{
    a->column_blocks = ceil_div(a->n_in, THREADS * (vectors ? 4 : 1));
    unsigned n_blocks = (unsigned)(a->column_blocks * ceil_div(a->n_rows, ROWS));
    if (vectors)
        outer_kernel<TERMS, true><<<n_blocks, THREADS, 0, cuda_stream(x)>>>(*a);
    else
        outer_kernel<TERMS, false><<<n_blocks, THREADS, 0, cuda_stream(x)>>>(*a);
}

static enum status grad_weight(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cuda_gemm g = linear_grad_weight_product(c);
    struct outer_args a = {.dy = any_of(&c->in[0]),
                           .x = any_of(&c->in[1]),
                           .acc = {NULL, c->out[0].dtype},
                           .dw = any_of(&c->out[0]),
                           .n_out = g.a.row,
                           .first = g.a.offset,
                           .n_rows = g.m,
                           .n_in = g.n,
                           .n_terms = (int)g.k};
    if (g.m == 0 || g.n == 0)
        return OK;
    if (call_has(c, 2))
        a.acc = any_of(&c->in[2]);
    bool vectors = a.n_in % 4 == 0 && any4_aligned(a.x) && any4_aligned(a.dw) &&
                   (!a.acc.data || any4_aligned(a.acc));
    if (g.k <= 2)
        launch<2>(x, &a, vectors);
    else if (g.k <= 4)
        launch<4>(x, &a, vectors);
    else if (g.k <= 8)
        launch<8>(x, &a, vectors);
    else
        launch<OUTER_TERMS>(x, &a, vectors);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(linear_grad_weight, outer, grad_weight)
