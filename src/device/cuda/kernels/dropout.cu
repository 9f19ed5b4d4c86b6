/* dropout.cu: which element is kept is defined in src/ops/dropout.c: the bits are the CPU's. */
#include "base/rng.h"
#include "device/cuda/kernels/channel_rows.cuh"
#include "device/cuda/support/map.cuh"
#include "ops/dropout_support.h"

/* A dropped infinity is 0, not NaN. */
static __device__ __forceinline__ float keep(float x, uint32_t bits, float p, float factor)
{
    return rng_uniform(bits) >= p ? x * factor : 0.0f;
}

/* A thread takes the four elements of one draw, as a vector where all four are there. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    dropout_kernel(T *y, const T *x, int64_t n, bool vectors, const int64_t *rng, int64_t seed,
                   float p, float factor)
{
    const uint64_t key = (uint64_t)rng[0];
    const uint64_t counter_hi = dropout_counter(rng[1], seed);
    for (int64_t i = grid_thread(); i * 4 < n; i += grid_threads()) {
        const int64_t at = i * 4;
        const struct philox4 bits = philox(key, counter_hi, (uint64_t)i);
        if (vectors && at + 4 <= n) {
            float v[4];
            load_f32(v, x + at);
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[k] = keep(v[k], bits.v[k], p, factor);
            store_f32(y + at, v);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (at + k < n)
                    y[at + k] = from_f32<T>(keep(to_f32(x[at + k]), bits.v[k], p, factor));
            }
        }
    }
}

/* ---- whole channels -------------------------------------------------------------------------- */

struct channels_args {
    struct channel_extent e;
    struct channel_cut cut;
    const int64_t *rng;
    int64_t seed;
    float p, factor;
};

/* All places of a sample's channel share a draw, so a thread draws once for its channels. */
template <typename T, int N>
static __global__ void __launch_bounds__(CHANNEL_THREADS)
    dropout_channels_kernel(T *y, const T *x, const struct channels_args a)
{
    const struct channel_spot s = channel_spot_of<N>(a.e, a.cut);
    const uint64_t counter_hi = dropout_counter(a.rng[1], a.seed);
    uint32_t bits[N];
    if (!s.is_there)
        return;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int64_t i = s.sample * a.e.channels + s.channel + k;
        bits[k] = philox((uint64_t)a.rng[0], counter_hi, (uint64_t)(i / 4)).v[i % 4];
    }
    for (int64_t row = s.first + s.line; row < s.last; row += a.cut.lines) {
        const int64_t at = channel_at(a.e, s, row);
        float v[N];
        load_f32(v, x + at);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = keep(v[k], bits[k], a.p, a.factor);
        store_f32(y + at, v);
    }
}

static enum status dropout_of_channels(const struct kernel_ctx *x, const struct op_call *c)
{
    double p = call_float(c, DROPOUT_P);
    struct channels_args a = {};
    if (shape_elems(&c->out[0].shape) == 0)
        return OK;
    TRY(cuda_require_aligned(c, 16));
    a.e = channel_extent_of(c);
    a.cut = channel_cut_rows(c);
    a.rng = (const int64_t *)c->in[1].data;
    a.seed = call_int(c, DROPOUT_SEED);
    a.p = (float)p;
    a.factor = (float)(1.0 / (1.0 - p));
    unsigned n = channel_blocks(&a.e, &a.cut);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        T *y = (T *)c->out[0].data;
        const T *in = (const T *)c->in[0].data;
        constexpr int N = per_16_bytes<T>::n;
        if (a.cut.vector > 1)
            dropout_channels_kernel<T, N><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(y, in, a);
        else
            dropout_channels_kernel<T, 1><<<n, CHANNEL_THREADS, 0, cuda_stream(x)>>>(y, in, a);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

static enum status dropout_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    double p = call_float(c, DROPOUT_P);
    if (call_bool(c, DROPOUT_CHANNELS))
        return dropout_of_channels(x, c);
    CUDA_DISPATCH_FLOAT(c->out[0].dtype, T, {
        T *y = (T *)c->out[0].data;
        const T *in = (const T *)c->in[0].data;
        bool vectors = is_aligned(y, 4 * sizeof(T)) && is_aligned(in, 4 * sizeof(T));
        dropout_kernel<T>
            <<<grid_for(ceil_div(n, 4), MAP_THREADS), MAP_THREADS, 0, cuda_stream(x)>>>(
                y, in, n, vectors, (const int64_t *)c->in[1].data, call_int(c, DROPOUT_SEED),
                (float)p, (float)(1.0 / (1.0 - p)));
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(dropout, vectors, dropout_vectors)
