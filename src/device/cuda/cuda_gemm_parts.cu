/* cuda_gemm_parts.cu: what surrounds a product, for where the library does not do it itself: bias,
 * GELU and its gradient over the result, and the bias gradient, sums of a over k. */
#include "device/cuda/cuda_columns.cuh"
#include "device/cuda/cuda_gelu.cuh"
#include "device/cuda/cuda_gemm_library.cuh"

/* ---- over the result ------------------------------------------------------------------------ */

template <typename C> struct finish {
    C *c;
    const C *bias; /* NULL: none */
    C *aux;        /* NULL: none */
    int64_t m, n, c_row, aux_row;
    enum cuda_epilogue epilogue;
};

/* N elements of a row at a time; n is a multiple of N. */
template <typename C, int N>
static __global__ void __launch_bounds__(MAP_THREADS) finish_kernel(const struct finish<C> f)
{
    constexpr bool FAST = sizeof(C) == 2;
    const int64_t per_row = f.n / N;
    for (int64_t at = grid_thread(); at < f.m * per_row; at += grid_threads()) {
        int64_t i = at / per_row, j = at % per_row * N;
        float z[N], aux[N];
        load_f32(z, f.c + i * f.c_row + j);
        if (f.bias) {
            load_f32(aux, f.bias + j);
#pragma unroll
            for (int e = 0; e < N; e++)
                z[e] += aux[e];
        }
        if (f.epilogue == CUDA_EPILOGUE_GELU) {
            if (f.aux)
                store_f32(f.aux + i * f.aux_row + j, z);
#pragma unroll
            for (int e = 0; e < N; e++)
                z[e] = gelu_tanh_fn::at<FAST>(z[e]);
        } else if (f.epilogue == CUDA_EPILOGUE_GELU_GRAD) {
            load_f32(aux, f.aux + i * f.aux_row + j);
#pragma unroll
            for (int e = 0; e < N; e++)
                z[e] = gelu_tanh_grad_fn::at<FAST>(z[e], aux[e]);
        }
        store_f32(f.c + i * f.c_row + j, z);
    }
}

template <typename C>
static void launch_finish(const struct kernel_ctx *x, const struct finish<C> *f)
{
    constexpr int N = per_16_bytes<C>::n;
    bool vectors = f->n % N == 0 && f->c_row % N == 0 && (!f->aux || f->aux_row % N == 0) &&
                   is_aligned(f->c, 16) && is_aligned(f->bias, 16) && is_aligned(f->aux, 16);
    int64_t most = grid_full(&x->env, MAP_THREADS);
    if (vectors)
        finish_kernel<C, N>
            <<<grid_for(f->m * (f->n / N), MAP_THREADS, most), MAP_THREADS, 0, cuda_stream(x)>>>(
                *f);
    else
        finish_kernel<C, 1>
            <<<grid_for(f->m * f->n, MAP_THREADS, most), MAP_THREADS, 0, cuda_stream(x)>>>(*f);
}

enum status gemm_finish(const struct kernel_ctx *x, const struct cuda_gemm *g, bool with_bias,
                        bool with_epilogue)
{
    if (!with_bias && !with_epilogue)
        return OK;
    CUDA_DISPATCH_FLOAT(g->c_dtype, C, {
        struct finish<C> f = {
        };
        f.c = (C *)g->c + g->c_offset;
        f.bias = with_bias ? (const C *)g->bias : NULL;
        f.aux = with_epilogue ? (C *)g->aux : NULL;
        f.m = g->m;
        f.n = g->n;
        f.c_row = g->c_row;
        f.aux_row = g->aux_row;
        f.epilogue = with_epilogue ? g->epilogue : CUDA_EPILOGUE_NONE;
        launch_finish<C>(x, &f);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- the bias gradient ---------------------------------------------------------------------- */

/* a as it lies in memory when transposed: [k, m], rows of `row` elements. A block takes
 * COLUMNS_LANES * N columns of one band of rows. */
template <typename T, int N>
static __global__ void __launch_bounds__(COLUMNS_LANES *COLUMNS_LINES)
    column_bands_kernel(const T *a, int64_t row, int64_t m, int64_t k, int64_t band_rows,
                        float *partial)
{
    __shared__ float sums[COLUMNS_LINES][COLUMNS_LANES * N];
    const int64_t column = ((int64_t)blockIdx.x * COLUMNS_LANES + threadIdx.x) * N;
    const int64_t first = blockIdx.y * band_rows;
    const int64_t end = first + band_rows < k ? first + band_rows : k;
    float sum[N] = {};
    if (column < m) {
#pragma unroll 4
        for (int64_t i = first + threadIdx.y; i < end; i += COLUMNS_LINES) {
            float v[N];
            load_f32(v, a + i * row + column);
#pragma unroll
            for (int e = 0; e < N; e++)
                sum[e] += v[e];
        }
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        sums[threadIdx.y][threadIdx.x * N + e] = sum[e];
    __syncthreads();
    /* Threads of the block side by side over its columns. */
    int lane = threadIdx.y * COLUMNS_LANES + threadIdx.x;
    for (int j = lane; j < COLUMNS_LANES * N; j += COLUMNS_LANES * COLUMNS_LINES) {
        int64_t at = (int64_t)blockIdx.x * COLUMNS_LANES * N + j;
        if (at >= m)
            continue;
        float total = sums[0][j];
        for (int line = 1; line < COLUMNS_LINES; line++)
            total += sums[line][j];
        partial[blockIdx.y * m + at] = total;
    }
}

/* a as it lies in memory otherwise: [m, k]. One block per row. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    row_sums_kernel(const T *a, int64_t row, int64_t k, float *partial)
{
    __shared__ float scratch[WARP];
    const T *from = a + (int64_t)blockIdx.x * row;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < k; i += MAP_THREADS)
        sum += to_f32(from[i]);
    sum = block_sum<MAP_THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* Elements a thread takes side by side: depends on the layout alone, as the number of bands must.
 */
static int64_t vector_of(const struct cuda_gemm *g)
{
    int64_t n = 16 / dtype_size(g->dtype);
    return g->m % n == 0 && g->a.row % n == 0 && g->a.offset % n == 0 ? n : 1;
}

static int64_t column_blocks(const struct cuda_gemm *g)
{
    return ceil_div(g->m, COLUMNS_LANES * vector_of(g));
}

static int64_t bands_of(const struct kernel_env *env, const struct cuda_gemm *g)
{
    return g->a.transposed ? columns_bands(env, g->k, column_blocks(g)) : 1;
}

int64_t gemm_bias_grad_workspace(const struct kernel_env *env, const struct cuda_gemm *g)
{
    return ceil_div(bands_of(env, g) * g->m * (int64_t)sizeof(float), GEMM_ALIGN) * GEMM_ALIGN;
}

template <typename T>
static void launch_sums(const struct kernel_ctx *x, const struct cuda_gemm *g, int64_t n_bands,
                        float *partial)
{
    const T *a = (const T *)g->a.data + g->a.offset;
    if (!g->a.transposed) {
        row_sums_kernel<T>
            <<<(unsigned)g->m, MAP_THREADS, 0, cuda_stream(x)>>>(a, g->a.row, g->k, partial);
        return;
    }
    constexpr int N = per_16_bytes<T>::n;
    dim3 grid((unsigned)column_blocks(g), (unsigned)n_bands), block(COLUMNS_LANES, COLUMNS_LINES);
    int64_t band_rows = ceil_div(g->k, n_bands);
    if (vector_of(g) > 1)
        column_bands_kernel<T, N>
            <<<grid, block, 0, cuda_stream(x)>>>(a, g->a.row, g->m, g->k, band_rows, partial);
    else
        column_bands_kernel<T, 1>
            <<<grid, block, 0, cuda_stream(x)>>>(a, g->a.row, g->m, g->k, band_rows, partial);
}

enum status gemm_bias_grad(const struct kernel_ctx *x, void *workspace, const struct cuda_gemm *g)
{
    float *partial = (float *)workspace;
    int64_t n_bands = bands_of(&x->env, g);
    if (g->m == 0)
        return OK;
    CUDA_DISPATCH_FLOAT(g->dtype, T, launch_sums<T>(x, g, n_bands, partial));
    CUDA_TRY(cudaGetLastError());
    struct tensor out = {};
    out.dtype = g->c_dtype;
    out.data = g->bias_grad;
    return columns_finish_run(x, &out, NULL, g->bias_grad_add ? &out : NULL, partial, 1, n_bands,
                              g->m, 1.0);
}
