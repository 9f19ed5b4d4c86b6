/* norm.cu: layer_norm and rms_norm with their gradients, and the list of head_norm's kernels.
 *
 * Rows whose length is a whole number of 16-byte vectors are held in registers, read once and
 * written once: by a warp up to 1024 elements (cuda_norm_warps.cuh), by a block up to 8192. Other
 * rows are read again for each pass. layer_norm is the CENTRED case of the same kernels; rms_norm
 * has no mean and no bias.
 *
 * The gradient of a held row: a block keeps its rows' share of dw and db in registers and leaves
 * them in the workspace, one line per block; columns_finish adds the lines. For other rows the sums
 * over columns come first, because dx may lie over dy or x.
 */
#include "device/cuda/cuda_norm.cuh"

#include "device/cuda/cuda_columns.cuh"
#include "device/cuda/cuda_norm_warps.cuh"

static constexpr int THREADS = 256, MOST_HELD = 32, /* floats of a row per thread */
    HELD_ROW = THREADS * MOST_HELD, SHORT_ROW = 1024;

/* ---- forward ----------------------------------------------------------------------------------
 */

template <typename T>
static struct norm_args<T> norm_args_of(const struct op_call *c, bool centred) {
    struct norm_args<T> a = {
    };
    a.y = (T *)c->out[0].data;
    a.x = (const T *)c->in[0].data;
    a.w = weight_of<T>(c, 1);
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

/* ---- gradient of held rows ---------------------------------------------------------------------
 */

template <typename T>
static struct norm_grad_args<T> norm_grad_args_of(const struct kernel_ctx *x,
                                                  const struct op_call *c, bool centred) {
    struct norm_grad_args<T> a = {
    };
    a.dx = (T *)c->out[0].data;
    a.dy = (const T *)c->in[0].data;
    a.x = (const T *)c->in[1].data;
    a.w = weight_of<T>(c, 2);
    a.mean = centred ? (const float *)c->in[3].data : NULL;
    a.rstd = (const float *)c->in[centred ? 4 : 3].data;
    const int add = centred ? 5 : 4;
    a.add = call_has(c, add) ? (const T *)c->in[add].data : NULL;
    a.partial = (float *)x->workspace;
    a.n = shape_last(&c->in[0].shape);
    a.n_rows = shape_elems(&c->in[0].shape) / a.n;
    return a;
}

/* How the gradient is cut, by the shape and the GPU. */
struct grad_cut {
    bool warps, held; /* a warp, a block holds a row */
    int vectors_each; /* per thread of a row */
    int threads;
    int64_t n_blocks, n_bands;
};

static constexpr int GRAD_MAX_THREADS = 512;

static struct grad_cut grad_cut_of(const struct op_call *c, const struct kernel_env *env)
{
    int64_t n = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / n;
    int64_t per_vector = 16 / dtype_size(c->in[0].dtype), n_vectors = n / per_vector;
    struct grad_cut cut = {};
    cut.vectors_each = 1;
    while (cut.vectors_each * per_vector < 16 &&
           ceil_div(n_vectors, cut.vectors_each) > GRAD_MAX_THREADS)
        cut.vectors_each *= 2;
    int64_t threads = ceil_div(ceil_div(n_vectors, cut.vectors_each), WARP) * WARP;
    cut.warps = warps_take(n, c->in[0].dtype);
    cut.held = n % per_vector == 0 && threads <= GRAD_MAX_THREADS;
    cut.threads = cut.held ? (int)threads : GRAD_MAX_THREADS;
    /* About 1024 threads on a multiprocessor keep enough loads going (a block has two rows on the
     * way) and fit by their registers; more blocks would mean more lines to add up. */
    int64_t per_sm = cut.vectors_each == 1 ? 1024 / cut.threads : 1;
    per_sm = per_sm < 1 ? 1 : per_sm > 8 ? 8 : per_sm;
    int64_t n_blocks = per_sm * cuda_libraries_of(env)->n_multiprocessors;
    cut.n_blocks = n_blocks < n_rows ? n_blocks : n_rows;
    if (cut.warps)
        cut.n_blocks = warps_grad_blocks(env, n_rows, n);
    cut.n_bands = columns_bands(env, n_rows, ceil_div(n, COLUMNS_LANES));
    return cut;
}

/* K vectors of each thread, as they lie in memory, and the row's statistics. */
template <int K> struct row_part {
    struct raw dy[K], x[K];
    float mean, rstd;
};

template <int K, bool CENTRED, typename T>
static __device__ __forceinline__ void fetch(struct row_part<K> &part,
                                             const struct norm_grad_args<T> &a, int64_t row)
{
    constexpr int N = per_16_bytes<T>::n;
    part.rstd = a.rstd[row];
    part.mean = CENTRED ? a.mean[row] : 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int64_t j = (int64_t)(threadIdx.x + k * blockDim.x) * N;
        if (j < a.n) {
            part.dy[k] = raw_load(a.dy + row * a.n + j);
            part.x[k] = raw_load(a.x + row * a.n + j);
        }
    }
}

/* Both sums over the block. `scratch` holds one pair per warp; two of them take turns, so that one
 * barrier is enough: a warp writes a turn's pairs again only after the barrier of the turn between,
 * which everyone reaches after reading. */
static __device__ __forceinline__ float2 pair_sum(float2 v, float2 *scratch)
{
    v.x = warp_sum(v.x);
    v.y = warp_sum(v.y);
    if (threadIdx.x % WARP == 0)
        scratch[threadIdx.x / WARP] = v;
    __syncthreads();
    float2 sum = {0.0f, 0.0f};
    for (int i = 0; i < (int)(blockDim.x / WARP); i++) {
        sum.x += scratch[i].x;
        sum.y += scratch[i].y;
    }
    return sum;
}

/* A block takes rows blockIdx.x, + gridDim.x, ...; thread t holds the same columns of each. The
 * next row is on its way while one is worked on. dx may be dy, x or add: a row is written by the
 * block that read it. */
template <int K, bool CENTRED, typename T>
static __global__ void __launch_bounds__(GRAD_MAX_THREADS, K == 1 ? 2 : 1)
    norm_grad_held(const struct norm_grad_args<T> a)
{
    constexpr int N = per_16_bytes<T>::n;
    __shared__ float2 scratch[2][WARP];
    const float share = 1.0f / (float)a.n;
    float w[K][N], dw[K][N] = {}, db[K][N] = {};
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int64_t j = (int64_t)(threadIdx.x + k * blockDim.x) * N;
        if (j < a.n)
            weight_load(w[k], a.w, j, 1.0f);
    }
    struct row_part<K> next;
    fetch<K, CENTRED, T>(next, a, blockIdx.x);
    int turn = 0;
    for (int64_t row = blockIdx.x; row < a.n_rows; row += gridDim.x, turn ^= 1) {
        const struct row_part<K> part = next;
        const float rstd = part.rstd, mean = part.mean;
        if (row + gridDim.x < a.n_rows)
            fetch<K, CENTRED, T>(next, a, row + gridDim.x);
        float g[K][N], h[K][N]; /* dy w, normalised x */
        float2 sums = {0.0f, 0.0f};
#pragma unroll
        for (int k = 0; k < K; k++) {
            if ((int64_t)(threadIdx.x + k * blockDim.x) * N >= a.n)
                break;
            float dy[N];
            raw_get<T>(dy, part.dy[k]);
            raw_get<T>(h[k], part.x[k]);
#pragma unroll
            for (int e = 0; e < N; e++) {
                h[k][e] = (h[k][e] - mean) * rstd;
                g[k][e] = dy[e] * w[k][e];
                dw[k][e] += dy[e] * h[k][e];
                db[k][e] += dy[e];
                sums.x += g[k][e];
                sums.y += g[k][e] * h[k][e];
            }
        }
        sums = pair_sum(sums, scratch[turn]);
        const float avg_g = CENTRED ? sums.x * share : 0.0f, avg_gh = sums.y * share;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int64_t j = (int64_t)(threadIdx.x + k * blockDim.x) * N;
            if (j >= a.n)
                break;
#pragma unroll
            for (int e = 0; e < N; e++)
                g[k][e] = rstd * (g[k][e] - avg_g - h[k][e] * avg_gh);
            if (a.add)
                vector_add(g[k], a.add + row * a.n + j);
            store_f32(a.dx + row * a.n + j, g[k]);
        }
    }
    float *line = a.partial + blockIdx.x * (CENTRED ? 2 : 1) * a.n;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int64_t j = (int64_t)(threadIdx.x + k * blockDim.x) * N;
        if (j >= a.n)
            break;
#pragma unroll
        for (int e = 0; e < N; e++) {
            line[j + e] = dw[k][e];
            if constexpr (CENTRED)
                line[a.n + j + e] = db[k][e];
        }
    }
}

/* ---- gradient of other rows --------------------------------------------------------------------
 */

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

/* ---- gradient: launches ------------------------------------------------------------------------
 */

template <bool CENTRED>
static int64_t norm_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct grad_cut cut = grad_cut_of(c, env);
    int64_t n_lines = cut.held && cut.n_blocks > cut.n_bands ? cut.n_blocks : cut.n_bands;
    return n_lines * (CENTRED ? 2 : 1) * shape_last(&c->in[0].shape) * (int64_t)sizeof(float);
}

template <bool CENTRED, typename T>
static void launch_held(const struct kernel_ctx *x, const struct grad_cut *cut,
                        const struct norm_grad_args<T> &a)
{
    unsigned grid = (unsigned)cut->n_blocks;
    if (cut->vectors_each == 1)
        norm_grad_held<1, CENTRED, T><<<grid, cut->threads, 0, cuda_stream(x)>>>(a);
    else if (cut->vectors_each == 2)
        norm_grad_held<2, CENTRED, T><<<grid, cut->threads, 0, cuda_stream(x)>>>(a);
    else if constexpr (sizeof(T) == 4)
        norm_grad_held<4, CENTRED, T><<<grid, cut->threads, 0, cuda_stream(x)>>>(a);
}

template <bool CENTRED, typename T>
static void launch_any(const struct kernel_ctx *x, const struct grad_cut *cut,
                       const struct norm_grad_args<T> &a)
{
    int64_t n_tiles = ceil_div(a.n, COLUMNS_LANES);
    bool is_short = a.n <= SHORT_ROW;
    unsigned grid = grid_for(a.n_rows, is_short ? THREADS / WARP : 1);
    norm_grad_columns<CENTRED, T>
        <<<grid_for(cut->n_bands * n_tiles, 1), dim3(COLUMNS_LANES, COLUMNS_LINES), 0,
           cuda_stream(x)>>>(a, cut->n_bands, n_tiles);
    if (is_short)
        norm_grad_any<WARP, CENTRED, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
    else
        norm_grad_any<THREADS, CENTRED, T><<<grid, THREADS, 0, cuda_stream(x)>>>(a);
}

template <bool CENTRED>
static enum status norm_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct grad_cut cut = grad_cut_of(c, &x->env);
    int64_t n_lines = cut.n_bands, n = shape_last(&c->in[0].shape);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        struct norm_grad_args<T> a = norm_grad_args_of<T>(x, c, CENTRED);
        bool held = cut.held && is_aligned(a.dx, 16) && is_aligned(a.dy, 16) &&
                    is_aligned(a.x, 16) && is_aligned(a.add, 16) && weight_aligned(a.w);
        if (held && cut.warps) {
            n_lines = cut.n_blocks;
            norm_grad_warps_run<CENTRED, T>(x, a);
        } else if (held) {
            n_lines = cut.n_blocks;
            launch_held<CENTRED, T>(x, &cut, a);
        } else {
            launch_any<CENTRED, T>(x, &cut, a);
        }
    });
    CUDA_TRY(cudaGetLastError());
    return columns_finish_run(x, &c->out[1], CENTRED ? &c->out[2] : NULL, NULL,
                              (const float *)x->workspace, 1, n_lines, n * (CENTRED ? 2 : 1), 1.0);
}

/* ---- lists ------------------------------------------------------------------------------------
 */

#define LIST(name, workspace, run)                           \
    extern "C" const struct kernel cuda_kernels_##name[] = { \
        {"rows", cuda_declines_f64, workspace, run},         \
        KERNEL_END,                                          \
    };
LIST(layer_norm, NULL, norm_rows<true>)
LIST(layer_norm_grad, norm_grad_workspace<true>, norm_grad_rows<true>)
LIST(rms_norm, NULL, norm_rows<false>)
LIST(rms_norm_grad, norm_grad_workspace<false>, norm_grad_rows<false>)
LIST(head_norm, NULL, cuda_head_norm)
LIST(head_norm_grad, cuda_head_norm_grad_workspace, cuda_head_norm_grad)
