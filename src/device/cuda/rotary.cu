/* rotary.cu: rotary position embedding of the query and key heads of a packed row.
 *
 * A thread has one or four (token, pair)s of the angle table: it computes cosine and sine once and
 * turns that pair of every few heads. Elements are read before they are written by the
 * same thread, so the output may be the input.
 */
#include "device/cuda/cuda_support.cuh"
#include "ops/layer_support.h"

enum { THREADS = 128 };

struct rotary_args {
    int64_t n_rows; /* batch * n_tokens */
    int64_t n_tokens, width;
    int n_all, n_rotated, half; /* heads of a row, how many of them turn, pairs of a head */
    float scale, sign;
    const float *inv_freq;    /* [half] */
    const int32_t *positions; /* [n_tokens] or NULL */
};

/* The angle of a long position has more digits than f32 keeps: product and reduction in double, as
 * 2 pi times the fraction of a turn. */
static __device__ void cosine_and_sine(double angle, float *cosine, float *sine)
{
    double turns = angle * 0.15915494309189533577; /* 1 / (2 pi) */
    float fraction = (float)((turns - rint(turns)) * 6.28318530717958647693);
    sincosf(fraction, sine, cosine);
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
            int64_t at = row * a.width + (int64_t)head * 2 * a.half + e;
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

static enum status run_rotary(const struct kernel_ctx *x, const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    struct rotary_args a = {};
    a.n_rows = d.batch * d.n_tokens;
    a.n_tokens = d.n_tokens;
    a.width = d.width;
    a.n_rotated = (int)(d.heads + d.kv_heads);
    /* In place the values are there already. */
    a.n_all = c->in[0].data == c->out[0].data ? a.n_rotated : (int)(d.heads + 2 * d.kv_heads);
    a.half = (int)(d.head_dim / 2);
    a.scale = (float)call_float(c, ROTARY_SCALE);
    a.sign = call_bool(c, ROTARY_INVERSE) ? -a.scale : a.scale;
    a.inv_freq = (const float *)c->in[1].data;
    a.positions = call_has(c, 2) ? (const int32_t *)c->in[2].data : NULL;
    if (a.n_rows == 0)
        return OK;
    const void *in = c->in[0].data;
    void *out = c->out[0].data;
    /* A row and a half head are whole vectors of four when half a head is. */
    bool vectors = a.half % 4 == 0 && is_aligned(in, 16) && is_aligned(out, 16);
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        if (vectors)
            return (launch<T, 4>(x, &a, in, out));
        return (launch<T, 1>(x, &a, in, out));
    });
    return OK;
}

static const char *declines(const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    if (d.heads + 2 * d.kv_heads > (1 << 20) || d.head_dim > (1 << 20))
        return "too many heads or too long ones";
    if (d.batch * d.n_tokens > 0x7fffffff)
        return "more blocks than a launch has";
    return cuda_declines_f64(c);
}

extern "C" const struct kernel cuda_kernels_rotary[] = {
    {.name = "rotate_rows", .declines = declines, .workspace = NULL, .run = run_rotary},
    KERNEL_END,
};
