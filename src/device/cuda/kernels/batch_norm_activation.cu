/* batch_norm_activation.cu: a batch norm, the activation behind it and perhaps a scale and a shift
 * by sample in the launches that the norm takes by itself. Calls are cut as declared/channel_norm.h
 * says.
 *
 * The gradient makes z = (x - mean) factor + beta again from x. Launches: sums over bands, by
 * channel (SUM_U ...); behind a scale, those of each sample; from them what a channel needs, in
 * f64; dx, row by row. Behind a scale sum dy f(z), its gradient, is sum u z, as f is two lines
 * through 0: factor sum u (x - mean) + beta sum u.
 */
#include "device/cuda/kernels/channel_norm.cuh"
#include "device/cuda/kernels/channel_rows.cuh"
#include "device/cuda/support/any.cuh"
#include "device/cuda/support/map.cuh"
#include "ops/channel_norm_support.h"

enum { SUM_U, SUM_PRODUCT, SUM_DY };
enum { SHARE_OF_X, SHARE };

/* What stands behind the norm. */
enum class behind { slope, silu, film };

struct activated_args {
    struct channel_extent e;
    struct channel_cut cut;
    const void *x, *dy; /* dy: of gradients */
    void *out;          /* y or dx */
    struct any gamma, beta;
    const void *scale, *shift; /* [n_samples, channels]; shift may be NULL */
    const float *mean, *rstd;  /* [channels] */
    float slope;
    double *sums;  /* [n_samples, n_bands, sums, channels] */
    float *shares; /* [ACTIVATED_SHARES, channels]: dx = u of_u - (x - mean) of_x - share */
};

/* z = (x - mean) factor + beta of a thread's channels, as every kernel here has it. */
template <int N> struct norm_lines {
    float mean[N], factor[N], beta[N];

    __device__ __forceinline__ void load(const struct activated_args &a, int64_t channel)
    {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float gamma = a.gamma.data ? any_get_f32(a.gamma, channel + k) : 1.0f;
            mean[k] = a.mean[channel + k];
            factor[k] = a.rstd[channel + k] * gamma;
            beta[k] = a.beta.data ? any_get_f32(a.beta, channel + k) : 0.0f;
        }
    }
};

template <behind B, typename T>
static __device__ __forceinline__ float activated(float z, float slope)
{
    if constexpr (B == behind::silu)
        return z * map_sigmoid<sizeof(T) == 2>(z);
    return z > 0.0f ? z : slope * z;
}

/* u = dy f'(z) */
template <behind B, typename T>
static __device__ __forceinline__ float slope_times(float dy, float z, float slope)
{
    if constexpr (B == behind::silu) {
        const float s = map_sigmoid<sizeof(T) == 2>(z);
        return dy * (s * fmaf(z, 1.0f - s, 1.0f));
    }
    return z > 0.0f ? dy : slope * dy;
}

/* ---- y --------------------------------------------------------------------------------------- */

/* out may be x. */
template <behind B, typename T, int N>
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    activate_kernel(const struct activated_args a)
{
    const struct channel_spot s = channel_spot_of<N>(a.e, a.cut);
    const int64_t of = s.sample * a.e.channels + s.channel;
    norm_lines<N> v;
    float scale[N] = {}, shift[N] = {};
    if (!s.is_there)
        return;
    v.load(a, s.channel);
    if constexpr (B == behind::film) {
        load_f32(scale, (const T *)a.scale + of);
        if (a.shift)
            load_f32(shift, (const T *)a.shift + of);
    }
    channel_each_row<CHANNEL_AHEAD>(a.cut, s, [&](int64_t row, auto number) {
        constexpr int U = decltype(number)::value;
        channel_lines<T, N, U> x;
        x.load(a.x, a.e, a.cut, s, row);
#pragma unroll
        for (int u = 0; u < U; u++) {
            float y[N];
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float z = (to_f32(x.v[u].v[k]) - v.mean[k]) * v.factor[k] + v.beta[k];
                y[k] = activated<B, T>(z, a.slope);
                if constexpr (B == behind::film)
                    y[k] = y[k] * scale[k] + shift[k];
            }
            store_f32((T *)a.out + channel_at(a.e, s, row + u * a.cut.lines), y);
        }
    });
}

/* ---- sums ------------------------------------------------------------------------------------ */

template <behind B> constexpr int n_sums = B == behind::film ? 3 : 2;

template <behind B, typename T, int N>
static __device__ __forceinline__ void
add_rows(const struct activated_args &a, const struct channel_spot &s, double (&sum)[n_sums<B>][N])
{
    constexpr int AHEAD = N * (int)sizeof(T) <= 8 ? 8 : 4;
    norm_lines<N> v;
    v.load(a, s.channel);
    channel_each_row<AHEAD>(a.cut, s, [&](int64_t row, auto number) {
        constexpr int U = decltype(number)::value;
        channel_lines<T, N, U> x, dy;
        float part[n_sums<B>][N] = {};
        x.load(a.x, a.e, a.cut, s, row);
        dy.load(a.dy, a.e, a.cut, s, row);
#pragma unroll
        for (int r = 0; r < U; r++) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float h = to_f32(x.v[r].v[k]) - v.mean[k], d = to_f32(dy.v[r].v[k]);
                const float u = slope_times<B, T>(d, h * v.factor[k] + v.beta[k], a.slope);
                part[SUM_U][k] += u;
                part[SUM_PRODUCT][k] += u * h;
                if constexpr (B == behind::film)
                    part[SUM_DY][k] += d;
            }
        }
#pragma unroll
        for (int q = 0; q < n_sums<B>; q++) {
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[q][k] += (double)part[q][k];
        }
    });
}

template <behind B, typename T, int N>
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    activated_sums_kernel(const struct activated_args a)
{
    const struct channel_spot s = channel_spot_of<N>(a.e, a.cut);
    double sum[n_sums<B>][N] = {};
    if (s.is_there)
        add_rows<B, T, N>(a, s, sum);
    const int64_t tile_first = s.channel - threadIdx.x % a.cut.lanes * N;
#pragma unroll
    for (int q = 0; q < n_sums<B>; q++) {
        const int64_t line = (s.sample * a.cut.n_bands + s.band) * n_sums<B> + q;
        channel_sum_lines<N>(a.cut, a.e.channels - tile_first, sum[q],
                             a.sums + line * a.e.channels + tile_first);
    }
}

/* A warp for each channel of each sample: the gradients of scale and shift; into the sample's first
 * band go its sums, times the scale. Nobody else reads that column of the sample's bands. */
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    samples_kernel(const struct activated_args a, struct any scale, struct any dscale,
                   struct any dshift)
{
    constexpr int SUMS = n_sums<behind::film>;
    const int64_t i = grid_thread() / WARP, channels = a.e.channels;
    const int64_t sample = i / channels, channel = i % channels;
    double sum[SUMS] = {};
    if (i >= a.e.n_samples * channels)
        return;
    double *at = a.sums + sample * a.cut.n_bands * SUMS * channels + channel;
    for (int64_t band = threadIdx.x % WARP; band < a.cut.n_bands; band += WARP) {
#pragma unroll
        for (int q = 0; q < SUMS; q++)
            sum[q] += at[(band * SUMS + q) * channels];
    }
#pragma unroll
    for (int q = 0; q < SUMS; q++)
        sum[q] = warp_sum(sum[q]);
    if (threadIdx.x % WARP != 0)
        return;
    norm_lines<1> v;
    v.load(a, channel);
    const double s = (double)any_get_f32(scale, i);
    any_set_f32(dscale, i,
                (float)((double)v.factor[0] * sum[SUM_PRODUCT] + (double)v.beta[0] * sum[SUM_U]));
    any_set_f32(dshift, i, (float)sum[SUM_DY]);
    at[SUM_U * channels] = s * sum[SUM_U];
    at[SUM_PRODUCT * channels] = s * sum[SUM_PRODUCT];
}

/* A warp for each channel: n parts of the sums, `step` numbers apart. */
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    channels_kernel(const struct activated_args a, int64_t n, int64_t step, struct any dgamma,
                    struct any dbeta)
{
    const int64_t channel = grid_thread() / WARP;
    double sum = 0.0, product = 0.0;
    if (channel >= a.e.channels)
        return;
    for (int64_t i = threadIdx.x % WARP; i < n; i += WARP) {
        sum += a.sums[i * step + SUM_U * a.e.channels + channel];
        product += a.sums[i * step + SUM_PRODUCT * a.e.channels + channel];
    }
    sum = warp_sum(sum);
    product = warp_sum(product);
    if (threadIdx.x % WARP != 0)
        return;
    norm_lines<1> v;
    v.load(a, channel);
    const double rstd = (double)a.rstd[channel], factor = (double)v.factor[0];
    const double count = (double)a.e.n_samples * (double)a.e.n_places;
    a.shares[SHARE_OF_X * a.e.channels + channel] = (float)(factor * rstd * rstd * product / count);
    a.shares[SHARE * a.e.channels + channel] = (float)(factor * sum / count);
    any_set_f32(dgamma, channel, (float)(product * rstd));
    any_set_f32(dbeta, channel, (float)sum);
}

/* ---- dx -------------------------------------------------------------------------------------- */

/* out may be dy or x. */
template <behind B, typename T, int N>
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    activated_grad_kernel(const struct activated_args a)
{
    const struct channel_spot s = channel_spot_of<N>(a.e, a.cut);
    norm_lines<N> v;
    float of_u[N], of_x[N], share[N];
    if (!s.is_there)
        return;
    v.load(a, s.channel);
    if constexpr (B == behind::film)
        load_f32(of_u, (const T *)a.scale + s.sample * a.e.channels + s.channel);
#pragma unroll
    for (int k = 0; k < N; k++) {
        of_u[k] = B == behind::film ? of_u[k] * v.factor[k] : v.factor[k];
        of_x[k] = a.shares[SHARE_OF_X * a.e.channels + s.channel + k];
        share[k] = a.shares[SHARE * a.e.channels + s.channel + k];
    }
    channel_each_row<CHANNEL_AHEAD>(a.cut, s, [&](int64_t row, auto number) {
        constexpr int U = decltype(number)::value;
        channel_lines<T, N, U> x, dy;
        x.load(a.x, a.e, a.cut, s, row);
        dy.load(a.dy, a.e, a.cut, s, row);
#pragma unroll
        for (int r = 0; r < U; r++) {
            float dx[N];
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float h = to_f32(x.v[r].v[k]) - v.mean[k];
                const float u =
                    slope_times<B, T>(to_f32(dy.v[r].v[k]), h * v.factor[k] + v.beta[k], a.slope);
                dx[k] = u * of_u[k] - h * of_x[k] - share[k];
            }
            store_f32((T *)a.out + channel_at(a.e, s, row + r * a.cut.lines), dx);
        }
    });
}

/* ---- launches -------------------------------------------------------------------------------- */

enum class stage { y, sums, dx };

template <stage P, behind B, typename T, int N>
static void launch_of(const struct kernel_ctx *x, const struct activated_args *a)
{
    const unsigned n = channel_blocks(&a->e, &a->cut);
    if constexpr (P == stage::y)
        activate_kernel<B, T, N><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(*a);
    else if constexpr (P == stage::sums)
        activated_sums_kernel<B, T, N><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(*a);
    else
        activated_grad_kernel<B, T, N><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(*a);
}

template <stage P, behind B>
static void launch(const struct kernel_ctx *x, enum dtype dtype, const struct activated_args *a)
{
    CUDA_DISPATCH_FLOAT(dtype, T, {
        constexpr int MOST = per_16_bytes<T>::n;
        constexpr int N = P == stage::sums && B == behind::film ? 4 : MOST; /* channel_cut_sums */
        if (a->cut.vector > 1)
            launch_of<P, B, T, N>(x, a);
        else
            launch_of<P, B, T, 1>(x, a);
    });
}

template <stage P>
static void launch_behind(const struct kernel_ctx *x, const struct op_call *c, enum behind b,
                          const struct activated_args *a)
{
    if (b == behind::film)
        launch<P, behind::film>(x, c->in[0].dtype, a);
    else if (b == behind::silu)
        launch<P, behind::silu>(x, c->in[0].dtype, a);
    else
        launch<P, behind::slope>(x, c->in[0].dtype, a);
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

static enum status activated_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    const bool scaled = call_has(c, ACTIVATED_SCALE);
    struct activated_args a = {};
    TRY(channel_norm_statistics(x, c, call_float(c, ACTIVATED_EPSILON)));
    a.e = scaled ? channel_extent_by_sample(c) : channel_extent_of(c);
    a.cut = channel_cut_rows_in(c, &a.e);
    a.x = c->in[ACTIVATED_X].data;
    a.out = c->out[0].data;
    a.gamma = weight_of(c, ACTIVATED_GAMMA);
    a.beta = weight_of(c, ACTIVATED_BETA);
    a.scale = weight_of(c, ACTIVATED_SCALE).data;
    a.shift = weight_of(c, ACTIVATED_SHIFT).data;
    a.mean = (const float *)c->out[1].data;
    a.rstd = (const float *)c->out[2].data;
    a.slope = (float)call_float(c, ACTIVATED_SLOPE);
    const enum behind b = scaled                         ? behind::film
                          : call_bool(c, ACTIVATED_SILU) ? behind::silu
                                                         : behind::slope;
    launch_behind<stage::y>(x, c, b, &a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* What the sums make: *a has them, as they were cut. */
static void launch_weights(const struct kernel_ctx *x, const struct op_call *c, enum behind b,
                           const struct activated_args &a)
{
    int64_t n = a.cut.n_bands, step = activated_sums(c) * a.e.channels;
    if (b == behind::film) {
        samples_kernel<<<warps_for(a.e.n_samples * a.e.channels), CHANNEL_THREADS, 0,
                         cuda_stream(x)>>>(a, any_of(&c->in[ACTIVATED_GRAD_SCALE]),
                                           any_of(&c->out[3]), any_of(&c->out[4]));
        step *= n;
        n = a.e.n_samples;
    }
    channels_kernel<<<warps_for(a.e.channels), CHANNEL_THREADS, 0, cuda_stream(x)>>>(
        a, n, step, any_of(&c->out[1]), any_of(&c->out[2]));
}

static enum status grad_bands(const struct kernel_ctx *x, const struct op_call *c, enum behind b)
{
    struct activated_args a = {};
    TRY(cuda_require_aligned(c, 16));
    a.e = channel_extent_of(c);
    a.cut = channel_cut_sums(c, &x->env);
    a.dy = c->in[ACTIVATED_GRAD_DY].data;
    a.x = c->in[ACTIVATED_GRAD_X].data;
    a.out = c->out[0].data;
    a.gamma = weight_of(c, ACTIVATED_GRAD_GAMMA);
    a.beta = weight_of(c, ACTIVATED_GRAD_BETA);
    a.scale = weight_of(c, ACTIVATED_GRAD_SCALE).data;
    a.mean = (const float *)c->in[ACTIVATED_GRAD_MEAN].data;
    a.rstd = (const float *)c->in[ACTIVATED_GRAD_RSTD].data;
    a.slope = (float)call_float(c, ACTIVATED_GRAD_SLOPE);
    a.sums = (double *)x->workspace;
    a.shares = (float *)((char *)x->workspace + activated_sums_bytes(c, &x->env));
    launch_behind<stage::sums>(x, c, b, &a);
    launch_weights(x, c, b, a);
    a.cut = channel_cut_rows(c);
    launch_behind<stage::dx>(x, c, b, &a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status activation_grad_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    return grad_bands(x, c, call_bool(c, ACTIVATED_GRAD_SILU) ? behind::silu : behind::slope);
}

static enum status film_grad_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    return grad_bands(x, c, behind::film);
}

CUDA_RUN(batch_norm_activation, bands, activated_bands)
CUDA_RUN(batch_norm_activation_grad, bands, activation_grad_bands)
CUDA_RUN(batch_norm_film_grad, bands, film_grad_bands)
