/* gemm_bias.cu: the bias of a product, for where the library does not add it itself. */
#include "device/cuda/products/gemm_library.cuh"

static constexpr int THREADS = 256;

/* N elements of a row at a time; n is a multiple of N. */
template <typename C, int N>
static __global__ void __launch_bounds__(THREADS)
    add_bias(C *c, const C *bias, int64_t m, int64_t n, int64_t c_row)
{
    const int64_t per_row = n / N;
    for (int64_t at = grid_thread(); at < m * per_row; at += grid_threads()) {
        const int64_t i = at / per_row, j = at % per_row * N;
        float z[N], b[N];
        load_f32(z, c + i * c_row + j);
        load_f32(b, bias + j);
#pragma unroll
        for (int e = 0; e < N; e++)
            z[e] += b[e];
        store_f32(c + i * c_row + j, z);
    }
}

template <typename C> static void launch(const struct kernel_ctx *x, const struct cuda_gemm *g)
{
    constexpr int N = per_16_bytes<C>::n;
    C *c = (C *)g->c + g->c_offset;
    const C *bias = (const C *)g->bias;
    bool vectors = g->n % N == 0 && g->c_row % N == 0 && is_aligned(c, 16) && is_aligned(bias, 16);
    unsigned grid =
        grid_for(g->m * (g->n / (vectors ? N : 1)), THREADS, grid_full(&x->env, THREADS));
    if (vectors)
        add_bias<C, N><<<grid, THREADS, 0, cuda_stream(x)>>>(c, bias, g->m, g->n, g->c_row);
    else
        add_bias<C, 1><<<grid, THREADS, 0, cuda_stream(x)>>>(c, bias, g->m, g->n, g->c_row);
}

enum status gemm_add_bias(const struct kernel_ctx *x, const struct cuda_gemm *g)
{
    CUDA_DISPATCH_FLOAT(g->c_dtype, C, launch<C>(x, g));
    CUDA_TRY(cudaGetLastError());
    return OK;
}
