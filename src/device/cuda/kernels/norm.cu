/* norm.cu: layer_norm and rms_norm with their gradients, and the list of head_norm's kernels.
 *
 * Rows whose length is a whole number of 16-byte vectors are read once and written once: held in
 * registers by a warp up to 2048 elements (norm_warps.cuh), by a block up to 8192; in the
 * gradient by teams of warps up to 8192 (norm_teams.cuh). Other rows are read again for each
 * pass, and the gradient's sums over columns come first, because dx may lie over dy, x or add.
 * layer_norm is the CENTRED case of the same kernels; rms_norm has no mean and no bias.
 */
#include "device/cuda/kernels/norm.cuh"

#include "device/cuda/kernels/norm_teams.cuh"
#include "device/cuda/support/columns.cuh"
#include "ops/layer_support.h"

static constexpr int THREADS = 256, MOST_HELD = 32, /* floats of a row per thread */
    HELD_ROW = THREADS * MOST_HELD, SHORT_ROW = 1024;

/* ---- forward --------------------------------------------------------------------------------- */

template <typename T> static norm_args<T> norm_args_of(const struct op_call *c, bool centred)
{
    norm_args<T> a = {};
    a.y = (T *)c->out[0].data;
    a.x = (const T *)c->in[0].data;
    a.w = weight_of<T>(c, 1, centred ? 0.0 : call_float(c, RMS_NORM_OFFSET));
    if (centred)
        a.b = weight_of<T>(c, 2);
    a.mean = centred ? (float *)c->out[1].data : NULL;
    a.rstd = (float *)c->out[centred ? 2 : 1].data;
    a.n = shape_last(&c->in[0].shape);
    a.n_rows = shape_elems(&c->in[0].shape) / a.n;
    a.epsilon = (float)call_float(c, 0);
    return a;
}

/* A block holds a row in registers; rows are whole vectors and at most THREADS * HELD long. y may
 * be x. */
template <int HELD, bool CENTRED, typename T>
static __global__ void __launch_bounds__(THREADS) norm_held(const struct norm_args<T> a)
{
    constexpr int N = per_16_bytes<T>::n, K = HELD / N, G = THREADS;
    __shared__ float scratch[WARP];
    const int64_t row = blockIdx.x;
    if (row >= a.n_rows)
        return;
    const int first = threadIdx.x * N, n = (int)a.n;
    const T *x = a.x + row * a.n;
    float v[K][N], sum = 0.0f, mean = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (first + k * G * N < n)
            load_f32(v[k], x + first + k * G * N);
    }
    if constexpr (CENTRED) {
#pragma unroll
        for (int k = 0; k < K; k++) {
#pragma unroll
            for (int e = 0; e < N; e++)
                sum += first + k * G * N < n ? v[k][e] : 0.0f;
        }
        mean = group_sum<G>(sum, scratch) / (float)n;
        sum = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int e = 0; e < N; e++) {
            float d = first + k * G * N < n ? v[k][e] - mean : 0.0f;
            sum += d * d;
        }
    }
    const float rstd = 1.0f / sqrtf(group_sum<G>(sum, scratch) / (float)n + a.epsilon);
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int j = first + k * G * N;
        if (j >= n)
            break;
        float w[N], b[N];
        weight_load(w, a.w, j, 1.0f);
        weight_load(b, a.b, j, 0.0f);
#pragma unroll
        for (int e = 0; e < N; e++)
            v[k][e] = (v[k][e] - mean) * rstd * w[e] + b[e];
        store_f32(a.y + row * a.n + j, v[k]);
    }
    if (threadIdx.x == 0) {
        a.rstd[row] = rstd;
        if constexpr (CENTRED)
            a.mean[row] = mean;
    }
}

/* Rows of any length, element by element. */
template <int G, bool CENTRED, typename T>
static __global__ void __launch_bounds__(THREADS) norm_any(const struct norm_args<T> a)
{
    __shared__ float scratch[WARP];
    const int64_t row = grid_thread() / G;
    if (row >= a.n_rows)
        return;
    const int first = threadIdx.x % G;
    const T *x = a.x + row * a.n;
    float sum = 0.0f, mean = 0.0f;
    if constexpr (CENTRED) {
        for (int64_t j = first; j < a.n; j += G)
            sum += to_f32(x[j]);
        mean = group_sum<G>(sum, scratch) / (float)a.n;
        sum = 0.0f;
    }
    for (int64_t j = first; j < a.n; j += G) {
        float d = to_f32(x[j]) - mean;
        sum += d * d;
    }
    const float rstd = 1.0f / sqrtf(group_sum<G>(sum, scratch) / (float)a.n + a.epsilon);
    for (int64_t j = first; j < a.n; j += G) {
        float h = (to_f32(x[j]) - mean) * rstd;
        a.y[row * a.n + j] = from_f32<T>(h * weight_at(a.w, j, 1.0f) + weight_at(a.b, j, 0.0f));
    }
    if (first == 0) {
        a.rstd[row] = rstd;
        if constexpr (CENTRED)
            a.mean[row] = mean;
    }
}

template <bool CENTRED>
static enum status norm_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        struct norm_args<T> a = norm_args_of<T>(c, CENTRED);
        bool held = a.n % per_16_bytes<T>::n == 0 && a.n <= HELD_ROW && is_aligned(a.y, 16) &&
                    is_aligned(a.x, 16) && weight_aligned(a.w) && weight_aligned(a.b);
        bool is_short = a.n <= SHORT_ROW;
        unsigned grid = grid_for(a.n_rows, is_short ? THREADS / WARP : 1);
        if (held && warps_take(a.n, c->in[0].dtype))
            norm_warps_run<CENTRED, T>(x, a);
        else if (held && a.n <= THREADS * 8)
            norm_held<8, CENTRED, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
        else if (held && a.n <= THREADS * 16)
            norm_held<16, CENTRED, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
        else if (held)
            norm_held<MOST_HELD, CENTRED, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
        else if (is_short)
            norm_any<WARP, CENTRED, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
        else
            norm_any<THREADS, CENTRED, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- gradient: arguments --------------------------------------------------------------------- */

template <typename T>
static norm_grad_args<T> norm_grad_args_of(const struct kernel_ctx *x, const struct op_call *c,
                                           bool centred)
{
    norm_grad_args<T> a = {};
    a.dx = (T *)c->out[0].data;
    a.dy = (const T *)c->in[0].data;
    a.x = (const T *)c->in[1].data;
    a.w = weight_of<T>(c, 2, centred ? 0.0 : call_float(c, RMS_NORM_GRAD_OFFSET));
    a.mean = centred ? (const float *)c->in[3].data : NULL;
    a.rstd = (const float *)c->in[centred ? 4 : 3].data;
    const int add = centred ? 5 : 4;
    a.add = call_has(c, add) ? (const T *)c->in[add].data : NULL;
    a.partial = (float *)x->workspace;
    a.n = shape_last(&c->in[0].shape);
    a.n_rows = shape_elems(&c->in[0].shape) / a.n;
    return a;
}

/* ---- gradient of other rows ------------------------------------------------------------------ */

/* partial[band] = sums over the band's rows of dy h, and of dy. */
template <bool CENTRED, typename T>
static __global__ void __launch_bounds__(COLUMNS_LANES *COLUMNS_LINES)
    norm_grad_columns(const struct norm_grad_args<T> a, int64_t n_bands, int64_t n_tiles)
{
    __shared__ float2 sums[COLUMNS_LINES][COLUMNS_LANES];
    const int64_t band = blockIdx.x / n_tiles;
    const int64_t column = blockIdx.x % n_tiles * COLUMNS_LANES + threadIdx.x;
    const int64_t band_rows = (a.n_rows + n_bands - 1) / n_bands, first = band * band_rows;
    const int64_t last = first + band_rows < a.n_rows ? first + band_rows : a.n_rows;
    float2 sum = {0.0f, 0.0f};
    if (column < a.n) {
        for (int64_t row = first + threadIdx.y; row < last; row += COLUMNS_LINES) {
            const float dy = to_f32(a.dy[row * a.n + column]);
            const float mean = CENTRED ? a.mean[row] : 0.0f;
            sum.x += dy * ((to_f32(a.x[row * a.n + column]) - mean) * a.rstd[row]);
            sum.y += dy;
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= a.n)
        return;
    for (int line = 1; line < COLUMNS_LINES; line++) {
        sum.x += sums[line][threadIdx.x].x;
        sum.y += sums[line][threadIdx.x].y;
    }
    float *line = a.partial + band * (CENTRED ? 2 : 1) * a.n;
    line[column] = sum.x;
    if constexpr (CENTRED)
        line[a.n + column] = sum.y;
}

/* dx may be dy, x or add: an element is read and written by one thread, after the sums. */
template <int G, bool CENTRED, typename T>
static __global__ void __launch_bounds__(THREADS) norm_grad_any(const struct norm_grad_args<T> a)
{
    __shared__ float scratch[WARP];
    const int64_t row = grid_thread() / G;
    if (row >= a.n_rows)
        return;
    const float rstd = a.rstd[row], mean = CENTRED ? a.mean[row] : 0.0f;
    float sum_g = 0.0f, sum_gh = 0.0f;
    for (int64_t j = threadIdx.x % G; j < a.n; j += G) {
        const float g = to_f32(a.dy[row * a.n + j]) * weight_at(a.w, j, 1.0f);
        sum_g += g;
        sum_gh += g * ((to_f32(a.x[row * a.n + j]) - mean) * rstd);
    }
    const float avg_g = CENTRED ? group_sum<G>(sum_g, scratch) / (float)a.n : 0.0f;
    const float avg_gh = group_sum<G>(sum_gh, scratch) / (float)a.n;
    for (int64_t j = threadIdx.x % G; j < a.n; j += G) {
        const float g = to_f32(a.dy[row * a.n + j]) * weight_at(a.w, j, 1.0f);
        const float h = (to_f32(a.x[row * a.n + j]) - mean) * rstd;
        const float dx = rstd * (g - avg_g - h * avg_gh);
        a.dx[row * a.n + j] = from_f32<T>(a.add ? dx + to_f32(a.add[row * a.n + j]) : dx);
    }
}

/* ---- gradient: launches ---------------------------------------------------------------------- */

template <bool CENTRED, typename T>
static void launch_any(const struct kernel_ctx *x, const struct norm_grad_args<T> &a,
                       int64_t n_bands)
{
    int64_t n_tiles = ceil_div(a.n, COLUMNS_LANES);
    bool is_short = a.n <= SHORT_ROW;
    unsigned grid = grid_for(a.n_rows, is_short ? THREADS / WARP : 1);
    norm_grad_columns<CENTRED, T>
        <<<grid_for(n_bands * n_tiles, 1), dim3(COLUMNS_LANES, COLUMNS_LINES), 0, cuda_stream(x)>>>(
            a, n_bands, n_tiles);
    if (is_short)
        norm_grad_any<WARP, CENTRED, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
    else
        norm_grad_any<THREADS, CENTRED, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
}

template <bool CENTRED>
static enum status norm_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct team_cut cut = norm_team_cut(c, &x->env, CENTRED);
    int64_t n_lines = norm_bands(c, &x->env), n = shape_last(&c->in[0].shape);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        struct norm_grad_args<T> a = norm_grad_args_of<T>(x, c, CENTRED);
        bool vectors = cut.fits && is_aligned(a.dx, 16) && is_aligned(a.dy, 16) &&
                       is_aligned(a.x, 16) && is_aligned(a.add, 16) && weight_aligned(a.w);
        if (vectors) {
            n_lines = cut.n_blocks;
            TRY((norm_grad_teams_run<CENTRED, T>(x, a, cut)));
        } else {
            launch_any<CENTRED, T>(x, a, n_lines);
        }
    });
    CUDA_TRY(cudaGetLastError());
    return columns_finish_run(x, &c->out[1], CENTRED ? &c->out[2] : NULL, NULL,
                              (const float *)x->workspace, 1, n_lines, n * (CENTRED ? 2 : 1), 1.0);
}

/* ---- lists ----------------------------------------------------------------------------------- */

CUDA_RUN(layer_norm, rows, norm_rows<true>)
CUDA_RUN(layer_norm_grad, rows, norm_grad_rows<true>)
CUDA_RUN(rms_norm, rows, norm_rows<false>)
CUDA_RUN(rms_norm_grad, rows, norm_grad_rows<false>)
CUDA_RUN(head_norm, rows, cuda_head_norm)
CUDA_RUN(head_norm_grad, rows, cuda_head_norm_grad)
