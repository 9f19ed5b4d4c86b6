/* channel_norm.cu: x is [n_samples, n_places, groups, width] and is cut as declared/channel_norm.h
 * says. Three launches: sums over bands, by channel; from them what a group needs, in f64; the
 * result, row by row. Sums of squares are of distances from the sample's first row, so that a mean
 * far from 0 costs no digits. */
#include "device/cuda/kernels/channel_norm.cuh"

#include "device/cuda/kernels/channel_rows.cuh"
#include "device/cuda/support/any.cuh"

/* What all kernels get. */
struct channel_args {
    struct channel_extent e;
    struct channel_cut cut;
    const void *x, *dy; /* dy: of gradients */
    void *out;          /* y or dx */
    struct any gamma, beta;
    /* [n_samples, groups]; the mean may be NULL, and so may rstd where the variance is given. */
    const float *mean, *rstd, *variance;
    float *mean_out, *rstd_out;
    double epsilon;
    double *sums;  /* [n_samples, n_bands, CHANNEL_SUMS, channels] */
    float *shares; /* [n_samples, groups, CHANNEL_SUMS] */
};

/* The group of channel k of the thread, among those of all samples. */
static __device__ __forceinline__ int64_t channel_group(const struct channel_args &a,
                                                        const struct channel_spot &s, int k)
{
    return s.sample * a.e.groups + (s.channel + k) / a.e.width;
}

/* ---- sums over bands ------------------------------------------------------------------------- */

/* sum x' and sum x'^2, x' = x - first row; of a gradient sum dy and sum dy (x - mean). */
template <bool GRAD, typename T, int N>
static __device__ void channel_add_rows(const struct channel_args &a, const struct channel_spot &s,
                                        const float (&from)[N], double (&sum)[CHANNEL_SUMS][N])
{
    channel_each_row<GRAD ? 4 : 8>(a.cut, s, [&](int64_t row, auto number) {
        constexpr int U = decltype(number)::value;
        channel_lines<T, N, U> x, dy;
        float part[CHANNEL_SUMS][N] = {};
        x.load(a.x, a.e, a.cut, s, row);
        if constexpr (GRAD)
            dy.load(a.dy, a.e, a.cut, s, row);
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float h = to_f32(x.v[u].v[k]) - from[k];
                const float first = GRAD ? to_f32(dy.v[u].v[k]) : h;
                part[0][k] += first;
                part[1][k] += first * h;
            }
        }
#pragma unroll
        for (int k = 0; k < N; k++) {
            sum[0][k] += (double)part[0][k];
            sum[1][k] += (double)part[1][k];
        }
    });
}

template <bool GRAD, typename T, int N>
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    channel_sums_kernel(const struct channel_args a)
{
    const struct channel_spot s = channel_spot_of<N>(a.e, a.cut);
    double sum[CHANNEL_SUMS][N] = {};
    float from[N];
    if (s.is_there) {
        if constexpr (GRAD) {
#pragma unroll
            for (int k = 0; k < N; k++)
                from[k] = a.mean[channel_group(a, s, k)];
        } else {
            load_f32(from, (const T *)a.x + channel_at(a.e, s, 0));
        }
        channel_add_rows<GRAD, T, N>(a, s, from, sum);
    }
    const int64_t tile_first = s.channel - threadIdx.x % a.cut.lanes * N;
    for (int q = 0; q < CHANNEL_SUMS; q++) {
        const int64_t line = (s.sample * a.cut.n_bands + s.band) * CHANNEL_SUMS + q;
        channel_sum_lines<N>(a.cut, a.e.channels - tile_first, sum[q],
                             a.sums + line * a.e.channels + tile_first);
    }
}

/* Calls f(sum 0, sum 1, channel, first band?) for every band and channel of a sample's group, by
 * the lanes of a warp in turn. */
template <typename F>
static __device__ void channel_each_sum(const struct channel_args &a, int64_t sample, int64_t group,
                                        F f)
{
    const int64_t width = a.e.width, channels = a.e.channels;
    for (int64_t i = threadIdx.x % WARP; i < a.cut.n_bands * width; i += WARP) {
        const int64_t band = i / width, channel = group * width + i % width;
        const double *at =
            a.sums + (sample * a.cut.n_bands + band) * CHANNEL_SUMS * channels + channel;
        f(at[0], at[channels], channel, band == 0);
    }
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* A warp for each group of each sample. With p the first row's element of a channel, of which there
 * are n: sum (x - m)^2 = sum (x - p)^2 - 2 (m - p) sum (x - p) + n (m - p)^2. */
template <typename T>
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    statistics_kernel(const struct channel_args a)
{
    const int64_t i = grid_thread() / WARP, sample = i / a.e.groups, group = i % a.e.groups;
    if (i >= a.e.n_samples * a.e.groups)
        return;
    const T *first = (const T *)a.x + sample * a.e.n_places * a.e.channels;
    const double n = (double)a.e.n_places;
    double sum = 0.0, squares = 0.0;
    channel_each_sum(a, sample, group, [&](double s, double, int64_t channel, bool once) {
        sum += s + (once ? n * (double)to_f32(first[channel]) : 0.0);
    });
    const double mean = warp_sum(sum) / (n * (double)a.e.width);
    channel_each_sum(a, sample, group, [&](double s, double q, int64_t channel, bool once) {
        const double d = mean - (double)to_f32(first[channel]);
        squares += q - 2.0 * d * s + (once ? n * d * d : 0.0);
    });
    const double variance = fmax(warp_sum(squares) / (n * (double)a.e.width), 0.0);
    if (threadIdx.x % WARP == 0) {
        a.mean_out[i] = (float)mean;
        a.rstd_out[i] = (float)(1.0 / sqrt(variance + a.epsilon));
    }
}

/* Of every group of every sample: sum gamma dy / n and sum gamma dy h / n, h = (x - mean) rstd. */
static __global__ void __launch_bounds__(CHANNEL_THREADS) shares_kernel(const struct channel_args a)
{
    const int64_t i = grid_thread() / WARP, sample = i / a.e.groups, group = i % a.e.groups;
    if (i >= a.e.n_samples * a.e.groups)
        return;
    double sum = 0.0, product = 0.0;
    channel_each_sum(a, sample, group, [&](double s, double p, int64_t channel, bool) {
        const double gamma = a.gamma.data ? (double)any_get_f32(a.gamma, channel) : 1.0;
        sum += gamma * s;
        product += gamma * p;
    });
    const double n = (double)a.e.n_places * (double)a.e.width;
    sum = warp_sum(sum) / n;
    product = warp_sum(product) * (double)a.rstd[i] / n;
    if (threadIdx.x % WARP == 0) {
        a.shares[i * CHANNEL_SUMS] = (float)sum;
        a.shares[i * CHANNEL_SUMS + 1] = (float)product;
    }
}

/* dgamma and dbeta of every channel: a warp each, over the samples and bands. */
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    weights_kernel(const struct channel_args a, struct any dgamma, struct any dbeta)
{
    const int64_t channel = grid_thread() / WARP, group = channel / a.e.width;
    if (channel >= a.e.channels)
        return;
    double sum = 0.0, product = 0.0;
    for (int64_t i = threadIdx.x % WARP; i < a.e.n_samples * a.cut.n_bands; i += WARP) {
        const double *at = a.sums + i * CHANNEL_SUMS * a.e.channels + channel;
        sum += at[0];
        product += at[a.e.channels] * (double)a.rstd[i / a.cut.n_bands * a.e.groups + group];
    }
    sum = warp_sum(sum);
    product = warp_sum(product);
    if (threadIdx.x % WARP == 0) {
        any_set_f32(dgamma, channel, (float)product);
        any_set_f32(dbeta, channel, (float)sum);
    }
}

/* ---- row by row ------------------------------------------------------------------------------ */

/* y = (x - mean) scale + beta; out may be x. */
template <typename T, int N>
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    normalise_kernel(const struct channel_args a)
{
    const struct channel_spot s = channel_spot_of<N>(a.e, a.cut);
    float mean[N], scale[N], beta[N];
    if (!s.is_there)
        return;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int64_t group = channel_group(a, s, k), channel = s.channel + k;
        const float gamma = a.gamma.data ? any_get_f32(a.gamma, channel) : 1.0f;
        const float rstd =
            a.rstd ? a.rstd[group] : (float)(1.0 / sqrt((double)a.variance[group] + a.epsilon));
        mean[k] = a.mean ? a.mean[group] : 0.0f;
        scale[k] = rstd * gamma;
        beta[k] = a.beta.data ? any_get_f32(a.beta, channel) : 0.0f;
    }
    channel_each_row<CHANNEL_AHEAD>(a.cut, s, [&](int64_t row, auto number) {
        constexpr int U = decltype(number)::value;
        channel_lines<T, N, U> lines;
        lines.load(a.x, a.e, a.cut, s, row);
#pragma unroll
        for (int u = 0; u < U; u++) {
            float y[N];
#pragma unroll
            for (int k = 0; k < N; k++)
                y[k] = (to_f32(lines.v[u].v[k]) - mean[k]) * scale[k] + beta[k];
            store_f32((T *)a.out + channel_at(a.e, s, row + u * a.cut.lines), y);
        }
    });
}

/* dx = rstd (gamma dy - share 0 - h share 1); out may be dy or x. */
template <typename T, int N>
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    normalise_grad_kernel(const struct channel_args a)
{
    const struct channel_spot s = channel_spot_of<N>(a.e, a.cut);
    float mean[N], scale[N], shift[N], slope[N];
    if (!s.is_there)
        return;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int64_t group = channel_group(a, s, k);
        const float gamma = a.gamma.data ? any_get_f32(a.gamma, s.channel + k) : 1.0f;
        const float rstd = a.rstd[group];
        mean[k] = a.mean[group];
        scale[k] = rstd * gamma;
        shift[k] = rstd * a.shares[group * CHANNEL_SUMS];
        slope[k] = rstd * rstd * a.shares[group * CHANNEL_SUMS + 1];
    }
    channel_each_row<CHANNEL_AHEAD>(a.cut, s, [&](int64_t row, auto number) {
        constexpr int U = decltype(number)::value;
        channel_lines<T, N, U> x, dy;
        x.load(a.x, a.e, a.cut, s, row);
        dy.load(a.dy, a.e, a.cut, s, row);
#pragma unroll
        for (int u = 0; u < U; u++) {
            float dx[N];
#pragma unroll
            for (int k = 0; k < N; k++)
                dx[k] = scale[k] * to_f32(dy.v[u].v[k]) - shift[k] -
                        (to_f32(x.v[u].v[k]) - mean[k]) * slope[k];
            store_f32((T *)a.out + channel_at(a.e, s, row + u * a.cut.lines), dx);
        }
    });
}

/* ---- launches -------------------------------------------------------------------------------- */

static unsigned blocks_of(const struct channel_args *a)
{
    return channel_blocks(&a->e, &a->cut);
}

template <bool GRAD>
static void launch_sums(const struct kernel_ctx *x, enum dtype dtype, const struct channel_args *a)
{
    CUDA_DISPATCH_FLOAT(dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        if (a->cut.vector > 1)
            channel_sums_kernel<GRAD, T, N>
                <<<blocks_of(a), CHANNEL_THREADS, 0, cuda_stream(x)>>>(*a);
        else
            channel_sums_kernel<GRAD, T, 1>
                <<<blocks_of(a), CHANNEL_THREADS, 0, cuda_stream(x)>>>(*a);
    });
}

/* The result in rows, cut anew. */
static void launch_rows(const struct kernel_ctx *x, const struct op_call *c, struct channel_args a)
{
    a.cut = channel_cut_rows(c);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        unsigned n = blocks_of(&a);
        if (a.dy && a.cut.vector > 1)
            normalise_grad_kernel<T, N><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(a);
        else if (a.dy)
            normalise_grad_kernel<T, 1><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(a);
        else if (a.cut.vector > 1)
            normalise_kernel<T, N><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(a);
        else
            normalise_kernel<T, 1><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(a);
    });
}

static struct any weight_of(const struct op_call *c, int i)
{
    struct any none = {NULL, DTYPE_F32};
    return call_has(c, i) ? any_of(&c->in[i]) : none;
}

static unsigned warps_for(int64_t n)
{
    return grid_for(n, (int)CHANNEL_THREADS / (int)WARP);
}

/* mean and rstd of x; *to is all that the result in rows needs. */
static enum status launch_statistics(const struct kernel_ctx *x, const struct op_call *c,
                                     double epsilon, struct channel_args *to)
{
    struct channel_args a = {};
    TRY(cuda_require_aligned(c, 16));
    a.e = channel_extent_of(c);
    a.cut = channel_cut_sums(c, &x->env);
    a.x = c->in[0].data;
    a.out = c->out[0].data;
    a.gamma = weight_of(c, 1);
    a.beta = weight_of(c, 2);
    a.mean = a.mean_out = (float *)c->out[1].data;
    a.rstd = a.rstd_out = (float *)c->out[2].data;
    a.epsilon = epsilon;
    a.sums = (double *)x->workspace;
    launch_sums<false>(x, c->in[0].dtype, &a);
    CUDA_DISPATCH_FLOAT(
        c->in[0].dtype, T,
        statistics_kernel<T>
        <<<warps_for(a.e.n_samples * a.e.groups), CHANNEL_THREADS, 0, cuda_stream(x)>>>(a));
    CUDA_TRY(cudaGetLastError());
    *to = a;
    return OK;
}

enum status channel_norm_statistics(const struct kernel_ctx *x, const struct op_call *c,
                                    double epsilon)
{
    struct channel_args a;
    return launch_statistics(x, c, epsilon, &a);
}

enum status channel_norm(const struct kernel_ctx *x, const struct op_call *c, double epsilon)
{
    struct channel_args a;
    TRY(launch_statistics(x, c, epsilon, &a));
    launch_rows(x, c, a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

enum status channel_norm_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct channel_args a = {};
    TRY(cuda_require_aligned(c, 16));
    a.e = channel_extent_of(c);
    a.cut = channel_cut_sums(c, &x->env);
    a.dy = c->in[0].data;
    a.x = c->in[1].data;
    a.out = c->out[0].data;
    a.gamma = weight_of(c, 2);
    a.mean = (const float *)c->in[3].data;
    a.rstd = (const float *)c->in[4].data;
    a.sums = (double *)x->workspace;
    a.shares = (float *)((char *)x->workspace + channel_sums_bytes(c, &x->env));
    launch_sums<true>(x, c->in[0].dtype, &a);
    weights_kernel<<<warps_for(a.e.channels), CHANNEL_THREADS, 0, cuda_stream(x)>>>(
        a, any_of(&c->out[1]), any_of(&c->out[2]));
    shares_kernel<<<warps_for(a.e.n_samples * a.e.groups), CHANNEL_THREADS, 0, cuda_stream(x)>>>(a);
    launch_rows(x, c, a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

enum status channel_norm_given(const struct kernel_ctx *x, const struct op_call *c, double epsilon)
{
    struct channel_args a = {};
    TRY(cuda_require_aligned(c, 16));
    a.e = channel_extent_of(c);
    a.x = c->in[0].data;
    a.out = c->out[0].data;
    a.gamma = weight_of(c, 1);
    a.beta = weight_of(c, 2);
    a.mean = call_has(c, 3) ? (const float *)c->in[3].data : NULL;
    a.variance = (const float *)c->in[4].data;
    a.epsilon = epsilon;
    launch_rows(x, c, a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}
