/* rotary.cu: rotary position embedding of the query and key heads of a packed row, a block to a
 * row.
 *
 * rotate_vectors: the block works out the row's cosines and sines once, in shared memory, while its
 * first vectors are on their way. rotate_rows, for heads that are no whole vectors, very long, or
 * turn in part: a thread has one or four pairs of the row's angles, and turns that pair of every
 * few heads.
 *
 * Elements are read before they are written by the same thread, so the output may be the input.
 */
#include "device/cuda/declared/elementwise.h"
#include "device/cuda/support/weight.cuh"
#include "ops/layer_support.h"

enum { THREADS = 128, MOST_PAIRS = ROTARY_MOST_PAIRS, AHEAD = 2, BLOCKS = 8 };

struct rotary_args {
    int64_t n_rows; /* batch * n_tokens */
    int64_t n_tokens,
        width; /* positions go round after so many rows: all, where each has its own */
    int n_all, n_rotated, half; /* heads of a row, how many of them turn, pairs of a head that do */
    int head_dim;
    float scale, sign;
    const float *inv_freq;    /* [half] */
    const int32_t *positions; /* [n_tokens] or NULL */
};

/* The angle of a long position has more digits than f32 keeps: product and reduction in double, to
 * the fraction of half a turn. */
static __device__ void cosine_and_sine(double angle, float *cosine, float *sine)
{
    double turns = angle * 0.15915494309189533577; /* 1 / (2 pi) */
    sincospif((float)(2.0 * (turns - rint(turns))), sine, cosine);
}

/* One block per row. V neighbouring pairs per thread move as one access; `lanes` threads cover a
 * head, and the block's other threads take other heads. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    rotate_rows(struct rotary_args a, int lanes, const T *in, T *out)
{
    int slot = (int)threadIdx.x / lanes, n_slots = THREADS / lanes;
    int64_t row = blockIdx.x, token = row % a.n_tokens;
    double position = a.positions ? (double)a.positions[token] : (double)token;
    if (slot >= n_slots)
        return;
    for (int e = (int)threadIdx.x % lanes * V; e < a.half; e += lanes * V) {
        float cosine[V], sine[V];
#pragma unroll
        for (int i = 0; i < V; i++) {
            cosine_and_sine(position * (double)a.inv_freq[e + i], &cosine[i], &sine[i]);
            cosine[i] *= a.scale;
            sine[i] *= a.sign;
        }
        for (int head = slot; head < a.n_all; head += n_slots) {
            int64_t at = row * a.width + (int64_t)head * a.head_dim + e;
            pack<T, V> x = *(const pack<T, V> *)(in + at);
            pack<T, V> y = *(const pack<T, V> *)(in + at + a.half);
#pragma unroll
            for (int i = 0; i < V && head < a.n_rotated; i++) {
                float u = to_f32(x.v[i]), w = to_f32(y.v[i]);
                x.v[i] = from_f32<T>(u * cosine[i] - w * sine[i]);
                y.v[i] = from_f32<T>(w * cosine[i] + u * sine[i]);
            }
            *(pack<T, V> *)(out + at) = x;
            *(pack<T, V> *)(out + at + a.half) = y;
        }
    }
    /* In place the channels that do not turn are there already. */
    int n_still = in == out ? 0 : a.head_dim - 2 * a.half;
    for (int64_t i = threadIdx.x; i < (int64_t)a.n_all * n_still; i += n_slots * lanes) {
        int64_t at = row * a.width + i / n_still * a.head_dim + 2 * a.half + i % n_still;
        out[at] = in[at];
    }
}

/* Pairs of vectors of a row: item i is vector i % per_head of both halves of head i / per_head. */
template <typename T> struct rotary_items {
    const T *in;
    T *out;
    int n, per_head, half;
};

template <typename T>
static __device__ __forceinline__ int item_at(const struct rotary_items<T> &r, int i)
{
    return (i / r.per_head * 2 * r.half) + i % r.per_head * per_16_bytes<T>::n;
}

template <typename T> struct items_ahead {
    struct raw x[AHEAD], y[AHEAD];
};

template <typename T>
static __device__ __forceinline__ void fetch(struct items_ahead<T> &to,
                                             const struct rotary_items<T> &r, int first)
{
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        const int i = first + u * THREADS;
        if (i < r.n) {
            to.x[u] = raw_load(r.in + item_at(r, i));
            to.y[u] = raw_load(r.in + item_at(r, i) + r.half);
        }
    }
}

template <typename T>
static __device__ __forceinline__ void turn(const struct items_ahead<T> &items,
                                            const struct rotary_items<T> &r, int first,
                                            const float *cosines, const float *sines, int n_rotated)
{
    constexpr int N = per_16_bytes<T>::n;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        const int i = first + u * THREADS;
        if (i >= r.n)
            break;
        float x[N], y[N], cosine[N], sine[N];
        raw_get<T>(x, items.x[u]);
        raw_get<T>(y, items.y[u]);
        if (i / r.per_head < n_rotated) {
            load_f32(cosine, cosines + i % r.per_head * N);
            load_f32(sine, sines + i % r.per_head * N);
#pragma unroll
            for (int e = 0; e < N; e++) {
                const float v = x[e], w = y[e];
                x[e] = v * cosine[e] - w * sine[e];
                y[e] = w * cosine[e] + v * sine[e];
            }
        }
        store_f32(r.out + item_at(r, i), x);
        store_f32(r.out + item_at(r, i) + r.half, y);
    }
}

/* One block per row; all channels of a head turn, half of them are whole vectors and at most
 * MOST_PAIRS elements. */
template <typename T>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    rotate_vectors(const struct rotary_args a, const T *in, T *out)
{
    __shared__ alignas(16) float cosines[MOST_PAIRS], sines[MOST_PAIRS];
    const int64_t row = blockIdx.x, token = row % a.n_tokens;
    const int per_head = a.half / per_16_bytes<T>::n, first = threadIdx.x;
    const rotary_items<T> r = {in + row * a.width, out + row * a.width, a.n_all * per_head,
                               per_head, a.half};
    struct items_ahead<T> items;
    fetch<T>(items, r, first);
    const double position = a.positions ? (double)a.positions[token] : (double)token;
    for (int e = threadIdx.x; e < a.half; e += THREADS) {
        float cosine, sine;
        cosine_and_sine(position * (double)a.inv_freq[e], &cosine, &sine);
        cosines[e] = cosine * a.scale;
        sines[e] = sine * a.sign;
    }
    __syncthreads();
    for (int i = first; i < r.n; i += AHEAD * THREADS) {
        if (i != first)
            fetch<T>(items, r, i);
        turn<T>(items, r, i, cosines, sines, a.n_rotated);
    }
}

template <typename T, int V>
static enum status launch(const struct kernel_ctx *x, const struct rotary_args *a, const void *in,
                          void *out)
{
    int lanes = MIN(a->half / V, (int)THREADS);
    rotate_rows<T, V>
        <<<(unsigned)a->n_rows, THREADS, 0, cuda_stream(x)>>>(*a, lanes, (const T *)in, (T *)out);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static struct rotary_args rotary_args_of(const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    struct rotary_args a = {};
    a.n_rows = d.batch * d.n_tokens;
    a.n_tokens = d.n_tokens;
    a.width = d.width;
    a.n_rotated = (int)(d.heads + d.kv_heads);
    /* In place the values are there already. */
    a.n_all = c->in[0].data == c->out[0].data ? a.n_rotated : (int)(d.heads + 2 * d.kv_heads);
    a.half = (int)c->in[1].shape.dim[0];
    a.head_dim = (int)d.head_dim;
    a.scale = (float)call_float(c, ROTARY_SCALE);
    a.sign = call_bool(c, ROTARY_INVERSE) ? -a.scale : a.scale;
    a.inv_freq = (const float *)c->in[1].data;
    a.positions = call_has(c, 2) ? (const int32_t *)c->in[2].data : NULL;
    if (a.positions && c->in[2].shape.rank == 2)
        a.n_tokens = a.n_rows;
    return a;
}

static enum status run_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct rotary_args a = rotary_args_of(c);
    if (a.n_rows == 0)
        return OK;
    const void *in = c->in[0].data;
    void *out = c->out[0].data;
    bool vectors =
        a.half % 4 == 0 && a.head_dim % 4 == 0 && is_aligned(in, 16) && is_aligned(out, 16);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        if (vectors)
            return (launch<T, 4>(x, &a, in, out));
        return (launch<T, 1>(x, &a, in, out));
    });
    return OK;
}

static enum status run_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    struct rotary_args a = rotary_args_of(c);
    const void *in = c->in[0].data;
    void *out = c->out[0].data;
    if (a.n_rows == 0)
        return OK;
    TRY(cuda_require_aligned(c, 16));
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        rotate_vectors<T>
            <<<(unsigned)a.n_rows, THREADS, 0, cuda_stream(x)>>>(a, (const T *)in, (T *)out);
    });
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(rotary, vectors, run_vectors)
CUDA_RUN(rotary, rows, run_rows)
