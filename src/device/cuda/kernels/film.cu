/* film.cu: x gamma + beta by sample and channel, and its gradient. Calls are cut as
 * declared/channel_norm.h says. The gradient is three launches: sums over bands, by channel; the
 * sums of a sample; dx, row by row. */
#include "device/cuda/kernels/channel_rows.cuh"
#include "device/cuda/support/any.cuh"

struct film_args {
    struct channel_extent e;
    struct channel_cut cut;
    const void *x, *dy; /* dy: of the gradient */
    void *out;
    const void *gamma, *beta; /* beta may be NULL */
    double *sums;             /* [n_samples, n_bands, CHANNEL_SUMS, channels] */
};

/* y = in gamma + beta, where `in` is x or, of a gradient, dy; out may be in. */
template <typename T, int N>
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    film_kernel(const struct film_args a, const T *in)
{
    const struct channel_spot s = channel_spot_of<N>(a.e, a.cut);
    const int64_t of = s.sample * a.e.channels + s.channel, step = a.cut.lines;
    float gamma[N], beta[N] = {};
    if (!s.is_there)
        return;
    load_f32(gamma, (const T *)a.gamma + of);
    if (a.beta)
        load_f32(beta, (const T *)a.beta + of);
    for (int64_t row = s.first + s.line; row < s.last; row += CHANNEL_AHEAD * step) {
        float v[CHANNEL_AHEAD][N];
#pragma unroll
        for (int u = 0; u < CHANNEL_AHEAD; u++) {
            if (row + u * step < s.last)
                load_f32(v[u], in + channel_at(a.e, s, row + u * step));
        }
#pragma unroll
        for (int u = 0; u < CHANNEL_AHEAD; u++) {
            if (row + u * step >= s.last)
                break;
#pragma unroll
            for (int k = 0; k < N; k++)
                v[u][k] = v[u][k] * gamma[k] + beta[k];
            store_f32((T *)a.out + channel_at(a.e, s, row + u * step), v[u]);
        }
    }
}

/* sum dy x and sum dy of a band. */
template <typename T, int N>
static __global__ void __launch_bounds__(CHANNEL_THREADS) film_sums_kernel(const struct film_args a)
{
    const struct channel_spot s = channel_spot_of<N>(a.e, a.cut);
    const int64_t step = a.cut.lines;
    double sum[CHANNEL_SUMS][N] = {};
    for (int64_t row = s.first + s.line; s.is_there && row < s.last; row += CHANNEL_AHEAD * step) {
        float v[CHANNEL_AHEAD][N] = {}, d[CHANNEL_AHEAD][N] = {}, part[CHANNEL_SUMS][N] = {};
#pragma unroll
        for (int u = 0; u < CHANNEL_AHEAD; u++) {
            if (row + u * step >= s.last)
                break;
            load_f32(v[u], (const T *)a.x + channel_at(a.e, s, row + u * step));
            load_f32(d[u], (const T *)a.dy + channel_at(a.e, s, row + u * step));
        }
#pragma unroll
        for (int u = 0; u < CHANNEL_AHEAD; u++) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                part[0][k] += d[u][k] * v[u][k];
                part[1][k] += d[u][k];
            }
        }
#pragma unroll
        for (int k = 0; k < N; k++) {
            sum[0][k] += (double)part[0][k];
            sum[1][k] += (double)part[1][k];
        }
    }
    const int64_t tile_first = s.channel - threadIdx.x % a.cut.lanes * N;
    for (int q = 0; q < CHANNEL_SUMS; q++) {
        const int64_t line = (s.sample * a.cut.n_bands + s.band) * CHANNEL_SUMS + q;
        channel_sum_lines<N>(a.cut, a.e.channels - tile_first, sum[q],
                             a.sums + line * a.e.channels + tile_first);
    }
}

/* Of every channel of every sample, over its bands: a warp each. */
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    film_weights_kernel(const struct film_args a, struct any dgamma, struct any dbeta)
{
    const int64_t i = grid_thread() / WARP, channels = a.e.channels;
    const int64_t sample = i / channels, channel = i % channels;
    double product = 0.0, sum = 0.0;
    if (i >= a.e.n_samples * channels)
        return;
    for (int64_t band = threadIdx.x % WARP; band < a.cut.n_bands; band += WARP) {
        const int64_t line = (sample * a.cut.n_bands + band) * CHANNEL_SUMS;
        product += a.sums[line * channels + channel];
        sum += a.sums[(line + 1) * channels + channel];
    }
    product = warp_sum(product);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) {
        any_set_f32(dgamma, i, (float)product);
        any_set_f32(dbeta, i, (float)sum);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static void launch_rows(const struct kernel_ctx *x, const struct op_call *c, struct film_args a)
{
    a.cut = channel_cut_rows(c);
    unsigned n = channel_blocks(&a.e, &a.cut);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        const T *in = (const T *)c->in[0].data;
        if (a.cut.vector > 1)
            film_kernel<T, N><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(a, in);
        else
            film_kernel<T, 1><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(a, in);
    });
}

static enum status film_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct film_args a = {};
    TRY(cuda_require_aligned(c, 16));
    a.e = channel_extent_of(c);
    a.out = c->out[0].data;
    a.gamma = c->in[1].data;
    a.beta = call_has(c, 2) ? c->in[2].data : NULL;
    launch_rows(x, c, a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status film_grad_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    struct film_args a = {};
    TRY(cuda_require_aligned(c, 16));
    a.e = channel_extent_of(c);
    a.cut = channel_cut_sums(c, &x->env);
    a.dy = c->in[0].data;
    a.x = c->in[1].data;
    a.gamma = c->in[2].data;
    a.out = c->out[0].data;
    a.sums = (double *)x->workspace;
    unsigned n = channel_blocks(&a.e, &a.cut);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        constexpr int N = per_16_bytes<T>::n;
        if (a.cut.vector > 1)
            film_sums_kernel<T, N><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(a);
        else
            film_sums_kernel<T, 1><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(a);
    });
    film_weights_kernel<<<grid_for(a.e.n_samples * a.e.channels, CHANNEL_THREADS / WARP),
                          CHANNEL_THREADS, 0, cuda_stream(x)>>>(a, any_of(&c->out[1]),
                                                                any_of(&c->out[2]));
    launch_rows(x, c, a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(film, rows, film_rows)
CUDA_RUN(film_grad, bands, film_grad_bands)
