/* head_norm.cu: RMS normalisation of the query and key heads in packed rows; values pass
 * through. Heads are short, so several share a warp: a group of `lanes` threads (a power of two)
 * takes one head.
 *
 * In the gradient a block works on one part only (query, key or value heads): thread t then holds
 * the same columns of the same weight all the time, keeps its share of dw in registers, and the
 * block leaves one line of sums in the workspace. Heads too long for one vector per thread take dw
 * first, in a pass of its own (dx may lie over dy or x).
 */
#include "device/cuda/declared/norms.h"
#include "device/cuda/kernels/norm.cuh"
#include "device/cuda/support/columns.cuh"
#include "ops/layer_support.h"

static constexpr int THREADS = HEAD_THREADS;

/* Sum over the group; all lanes of the warp take part. */
static __device__ __forceinline__ float lanes_sum(float v, int lanes)
{
    for (int step = lanes / 2; step > 0; step /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* ---- forward --------------------------------------------------------------------------------- */

template <typename T> struct head_args {
    T *y;
    const T *x;
    struct weight<T> wq, wk;
    float *rstd;     /* [rows, heads + kv_heads] */
    int64_t n_items; /* rows * heads of all three parts */
    int64_t heads, n_normed, n_all, head_dim;
    float epsilon;
};

template <int N, typename T>
static __global__ void __launch_bounds__(THREADS)
    head_norm_kernel(const struct head_args<T> a, int lanes)
{
    const int64_t item = grid_thread() / lanes, first = threadIdx.x % lanes * N;
    const bool here = item < a.n_items;
    const int64_t row = here ? item / a.n_all : 0, head = here ? item % a.n_all : a.n_normed;
    const bool normed = head < a.n_normed;
    const T *x = a.x + item * a.head_dim;
    float sum = 0.0f;
    for (int64_t j = first; normed && j < a.head_dim; j += lanes * N) {
        float v[N];
        load_f32(v, x + j);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += v[k] * v[k];
    }
    sum = lanes_sum(sum, lanes);
    if (!here)
        return;
    const float rstd = 1.0f / sqrtf(sum / (float)a.head_dim + a.epsilon);
    for (int64_t j = first; j < a.head_dim; j += lanes * N) {
        float v[N], w[N];
        load_f32(v, x + j);
        if (normed) {
            weight_load(w, head < a.heads ? a.wq : a.wk, j, 1.0f);
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] *= rstd * w[k];
        }
        store_f32(a.y + item * a.head_dim + j, v);
    }
    if (normed && first == 0)
        a.rstd[row * a.n_normed + head] = rstd;
}

enum status cuda_head_norm(const struct kernel_ctx *x, const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        head_args<T> a = {};
        a.y = (T *)c->out[0].data;
        a.x = (const T *)c->in[0].data;
        a.wq = weight_of<T>(c, 1, call_float(c, HEAD_NORM_OFFSET));
        a.wk = weight_of<T>(c, 2, call_float(c, HEAD_NORM_OFFSET));
        a.rstd = (float *)c->out[1].data;
        a.heads = d.heads;
        a.n_normed = d.heads + d.kv_heads;
        a.n_all = d.heads + 2 * d.kv_heads;
        a.n_items = d.batch * d.n_tokens * a.n_all;
        a.head_dim = d.head_dim;
        a.epsilon = (float)call_float(c, HEAD_NORM_EPSILON);
        bool vectors = d.head_dim % N == 0 && is_aligned(a.y, 16) && is_aligned(a.x, 16) &&
                       weight_aligned(a.wq) && weight_aligned(a.wk);
        int lanes = head_lanes(d.head_dim, vectors ? N : 1);
        unsigned grid = grid_for(a.n_items * lanes, THREADS);
        if (vectors)
            head_norm_kernel<N, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a, lanes);
        else
            head_norm_kernel<1, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a, lanes);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- gradient -------------------------------------------------------------------------------- */

template <typename T> struct head_grad_args {
    T *dx;
    const T *dy, *x;
    struct weight<T> w[2];
    const float *rstd; /* [rows, n_normed] */
    float *partial;    /* lines of dwq, then lines of dwk */
    int64_t n_rows, n_normed, n_all, head_dim;
    struct head_cut cut;
};

/* Adds the groups' shares of dw, N columns of each thread, and leaves the block's line. */
template <int N>
static __device__ void leave_line(float *line, const float (&dw)[N], int lanes, int64_t head_dim)
{
    __shared__ float shares[THREADS * N];
#pragma unroll
    for (int k = 0; k < N; k++)
        shares[threadIdx.x * N + k] = dw[k];
    __syncthreads();
    const int width = lanes * N; /* columns of a group, those past the head unused */
    for (int j = (int)threadIdx.x; j < head_dim; j += THREADS) {
        float sum = 0.0f;
        for (int group = 0; group < THREADS / lanes; group++)
            sum += shares[group * width + j];
        line[j] = sum;
    }
}

/* HELD: heads of one vector per thread, dw too. Otherwise heads of any length, dx only. */
template <bool HELD, int N, typename T>
static __global__ void __launch_bounds__(THREADS)
    head_norm_grad_kernel(__grid_constant__ const struct head_grad_args<T> a)
{
    const int lanes = a.cut.lanes, groups = THREADS / lanes;
    int i_part = PART_QUERY;
    while (i_part < PART_VALUE && blockIdx.x >= a.cut.part[i_part + 1].first_block)
        i_part++;
    const struct head_part &part = a.cut.part[i_part];
    const bool normed = i_part != PART_VALUE;
    const int64_t n_items = a.n_rows * part.n, step = part.n_blocks * groups;
    const int64_t first = threadIdx.x % lanes * N;
    const struct weight<T> &weights = a.w[i_part == PART_KEY];
    float dw[N] = {};
    /* The block goes round as one, so that every lane reaches the sums. */
    for (int64_t base = (blockIdx.x - part.first_block) * groups; base < n_items; base += step) {
        const int64_t item = base + threadIdx.x / lanes;
        const bool here = item < n_items;
        const int64_t row = here ? item / part.n : 0;
        const int64_t head = part.first + (here ? item % part.n : 0);
        const int64_t at = (row * a.n_all + head) * a.head_dim;
        const float rstd = normed ? a.rstd[row * a.n_normed + head] : 0.0f;
        float sum = 0.0f;
        for (int64_t j = first; here && normed && j < a.head_dim; j += lanes * N) {
            float dy[N], v[N], w[N];
            load_f32(dy, a.dy + at + j);
            load_f32(v, a.x + at + j);
            weight_load(w, weights, j, 1.0f);
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float dyh = dy[k] * (v[k] * rstd);
                sum += dyh * w[k];
                if constexpr (HELD)
                    dw[k] += dyh;
            }
        }
        const float avg_gh = lanes_sum(sum, lanes) / (float)a.head_dim;
        for (int64_t j = first; here && j < a.head_dim; j += lanes * N) {
            float dy[N], v[N], w[N];
            load_f32(dy, a.dy + at + j);
            if (normed) {
                load_f32(v, a.x + at + j);
                weight_load(w, weights, j, 1.0f);
#pragma unroll
                for (int k = 0; k < N; k++)
                    dy[k] = rstd * (dy[k] * w[k] - v[k] * rstd * avg_gh);
            }
            store_f32(a.dx + at + j, dy);
        }
    }
    if constexpr (HELD) {
        if (normed)
            leave_line<N>(a.partial + blockIdx.x * a.head_dim, dw, lanes, a.head_dim);
    }
}

/* partial[part, band, column] = sums over the band's rows and the part's heads of dy x rstd. */
template <typename T>
static __global__ void __launch_bounds__(COLUMNS_LANES *COLUMNS_LINES)
    head_norm_grad_columns(__grid_constant__ const struct head_grad_args<T> a, int64_t n_tiles)
{
    __shared__ float sums[COLUMNS_LINES][COLUMNS_LANES];
    const int64_t n_bands = a.cut.n_bands, i_line = blockIdx.x / n_tiles;
    const int64_t band = i_line % n_bands;
    const struct head_part &part = a.cut.part[i_line / n_bands];
    const int64_t column = blockIdx.x % n_tiles * COLUMNS_LANES + threadIdx.x;
    const int64_t band_rows = (a.n_rows + n_bands - 1) / n_bands, first = band * band_rows;
    const int64_t last = first + band_rows < a.n_rows ? first + band_rows : a.n_rows;
    float sum = 0.0f;
    for (int64_t row = first + threadIdx.y; column < a.head_dim && row < last;
         row += COLUMNS_LINES) {
        float of_row = 0.0f;
        for (int64_t head = part.first; head < part.first + part.n; head++) {
            const int64_t at = (row * a.n_all + head) * a.head_dim + column;
            of_row += to_f32(a.dy[at]) * (to_f32(a.x[at]) * a.rstd[row * a.n_normed + head]);
        }
        sum += of_row;
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= a.head_dim)
        return;
    for (int line = 1; line < COLUMNS_LINES; line++)
        sum += sums[line][threadIdx.x];
    a.partial[i_line * a.head_dim + column] = sum;
}

template <typename T>
static head_grad_args<T> head_grad_args_of(const struct kernel_ctx *x, const struct op_call *c,
                                           const struct head_cut *cut)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    head_grad_args<T> a = {};
    a.dx = (T *)c->out[0].data;
    a.dy = (const T *)c->in[0].data;
    a.x = (const T *)c->in[1].data;
    a.w[0] = weight_of<T>(c, 2, call_float(c, HEAD_NORM_GRAD_OFFSET));
    a.w[1] = weight_of<T>(c, 3, call_float(c, HEAD_NORM_GRAD_OFFSET));
    a.rstd = (const float *)c->in[4].data;
    a.partial = (float *)x->workspace;
    a.n_rows = d.batch * d.n_tokens;
    a.n_normed = d.heads + d.kv_heads;
    a.n_all = d.heads + 2 * d.kv_heads;
    a.head_dim = d.head_dim;
    a.cut = *cut;
    return a;
}

enum status cuda_head_norm_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct head_cut cut = head_cut_of(c, &x->env);
    int64_t head_dim = qkv_dims_of(c, 0).head_dim;
    const struct head_part *last = &cut.part[PART_VALUE];
    unsigned grid = (unsigned)(last->first_block + last->n_blocks);
    bool held = cut.held;
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        struct head_grad_args<T> a = head_grad_args_of<T>(x, c, &cut);
        int64_t n_tiles = ceil_div(head_dim, COLUMNS_LANES);
        held = held && is_aligned(a.dx, 16) && is_aligned(a.dy, 16) && is_aligned(a.x, 16) &&
               weight_aligned(a.w[0]) && weight_aligned(a.w[1]);
        if (held) {
            head_norm_grad_kernel<true, per_16_bytes<T>::n, T>
                <<<grid, THREADS, 0, cuda_stream(x)>>>(a);
        } else {
            head_norm_grad_columns<T>
                <<<grid_for(2 * cut.n_bands * n_tiles, 1), dim3(COLUMNS_LANES, COLUMNS_LINES), 0,
                   cuda_stream(x)>>>(a, n_tiles);
            head_norm_grad_kernel<false, 1, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
        }
    });
    CUDA_TRY(cudaGetLastError());
    const float *partial = (const float *)x->workspace;
    int64_t n_query = held ? cut.part[PART_QUERY].n_blocks : cut.n_bands;
    int64_t n_key = held ? cut.part[PART_KEY].n_blocks : cut.n_bands;
    TRY(columns_finish_run(x, &c->out[1], NULL, NULL, partial, 1, n_query, head_dim, 1.0));
    return columns_finish_run(x, &c->out[2], NULL, NULL, partial + n_query * head_dim, 1, n_key,
                              head_dim, 1.0);
}
