/* attention.cuh: what the attention kernels share: the shapes and pointers of one call, which
 * (query, key) pairs it sees, and the entry of each implementation.
 *
 * Queries, keys and values are heads of one packed row per token (ops/layer_support.h); `width` is
 * the distance between rows. Query head h reads key/value head h / group.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_ATTENTION_CUH
#define SNUG_DEVICE_CUDA_ATTENTION_ATTENTION_CUH

#include "device/cuda/attention/attention_dropout.cuh"
#include "device/cuda/declared/attention.h"
#include "device/cuda/support/map.cuh"
#include "ops/layer_support.h"

/* At most 128 bytes: the compiler keeps larger arguments in other ways, at more registers. */
struct attention_args {
    int batch, n_tokens, heads, kv_heads, group, head_dim;
    int window; /* 0: none; always below n_tokens */
    float scale;
    float cap; /* on scores; 0: none */
    bool causal;
    uint8_t dtype;            /* enum dtype */
    uint16_t block;           /* the window consists of whole blocks; 0: of tokens */
    int64_t width;            /* elements between packed rows: (heads + 2 kv_heads) * head_dim */
    const void *qkv;          /* [B, T, width] */
    void *out;                /* [B, T, out_width]; written forwards, read backwards */
    float *lse;               /* [B, H, T]; written forwards, read backwards */
    const void *dout;         /* [B, T, out_width] */
    void *dqkv;               /* [B, T, width] */
    float *delta;             /* [B, H, T]: sum over a head of dout * out */
    const int32_t *positions; /* [B, T]: places in samples that share a row; NULL: a row is one */
    struct attention_dropout dropout;
};
static_assert(sizeof(struct attention_args) <= 128, "");

/* Of an attention call; qkv is input i, the random state input i_rng, positions come behind it. The
 * other pointers are the caller's to set. */
static inline struct attention_args attention_args_of(const struct op_call *c, int i, int i_rng)
{
    struct qkv_dims d = qkv_dims_of(c, i);
    struct attention_args a = {};
    int64_t window = call_int(c, ATTENTION_WINDOW);
    a.batch = (int)d.batch;
    a.n_tokens = (int)d.n_tokens;
    a.heads = (int)d.heads;
    a.kv_heads = (int)d.kv_heads;
    a.group = (int)(d.heads / d.kv_heads);
    a.head_dim = (int)d.head_dim;
    a.causal = call_bool(c, ATTENTION_CAUSAL);
    a.window = window < d.n_tokens ? (int)window : 0;
    a.block = (uint16_t)call_int(c, ATTENTION_BLOCK);
    a.scale = (float)attention_scale(c, ATTENTION_SCALE, &d);
    a.cap = (float)call_float(c, ATTENTION_CAP);
    a.width = d.width;
    a.dtype = (uint8_t)c->in[i].dtype;
    a.qkv = c->in[i].data;
    a.dropout = attention_dropout_of(c, i_rng, d.n_tokens);
    a.positions = call_has(c, i_rng + 1) ? (const int32_t *)c->in[i_rng + 1].data : NULL;
    return a;
}

/* Elements between rows of outputs. */
static __device__ __forceinline__ int64_t out_width(const struct attention_args &a)
{
    return (int64_t)a.heads * a.head_dim;
}

/* ---- which pairs count ----------------------------------------------------------------------- */

/* The first key that the window lets query i see, perhaps before all keys; where there is one. */
static __device__ __forceinline__ int window_first(const struct attention_args &a, int i)
{
    return (a.block ? i - i % a.block + a.block : i + 1) - a.window;
}

static __device__ __forceinline__ bool pair_visible(const struct attention_args &a, int i, int j)
{
    return i < a.n_tokens && j < a.n_tokens && (!a.causal || j <= i) &&
           (a.window == 0 || j >= window_first(a, i));
}

/* The first key of query i's own sample, 0 past the last query; it never falls from one query to
 * the next. */
static __device__ __forceinline__ int sample_of(const struct attention_args &a, int batch, int i)
{
    return i < a.n_tokens ? i - a.positions[(int64_t)batch * a.n_tokens + i] : 0;
}

/* The first key that query i sees. */
static __device__ __forceinline__ int first_key(const struct attention_args &a, int batch, int i)
{
    int first = a.window > 0 ? max(window_first(a, i), 0) : 0;
    return a.positions ? max(first, sample_of(a, batch, i)) : first;
}

/* The same as pair_visible, of a query whose first key is known. */
static __device__ __forceinline__ bool pair_visible_from(const struct attention_args &a, int i,
                                                         int j, int first)
{
    return i < a.n_tokens && j < a.n_tokens && (!a.causal || j <= i) && j >= first;
}

/* Keys [first, last) that queries [i, i + n) see, rounded out to nothing in particular. */
static __device__ __forceinline__ void keys_of(const struct attention_args &a, int batch, int i,
                                               int n, int *first, int *last)
{
    *first = first_key(a, batch, i);
    *last = a.causal && i + n < a.n_tokens ? i + n : a.n_tokens;
}

/* Where samples share a row: the first query from i on, before `last`, whose sample begins after
 * key j. */
static __device__ inline int samples_end(const struct attention_args &a, int batch, int i, int last,
                                         int j)
{
    while (i < last) {
        int middle = i + (last - i) / 2;
        if (sample_of(a, batch, middle) > j)
            last = middle;
        else
            i = middle + 1;
    }
    return last;
}

/* Queries [first, last) that see keys [j, j + n). */
static __device__ __forceinline__ void queries_of(const struct attention_args &a, int batch, int j,
                                                  int n, int *first, int *last)
{
    *first = a.causal ? j : 0;
    int from = j + n - 1; /* the last key: with blocks, the first of its block */
    from -= a.block ? from % a.block : 0;
    *last = a.window > 0 && from < a.n_tokens - a.window ? from + a.window : a.n_tokens;
    if (a.positions)
        *last = samples_end(a, batch, *first, *last, j + n - 1);
}

/* True when every pair of queries [i, i + n_i) and keys [j, j + n_j) counts. */
static __device__ __forceinline__ bool all_visible(const struct attention_args &a, int i, int n_i,
                                                   int j, int n_j)
{
    return i + n_i <= a.n_tokens && j + n_j <= a.n_tokens && (!a.causal || j + n_j - 1 <= i) &&
           (a.window == 0 || j >= window_first(a, i + n_i - 1));
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* s under a cap, 0 for none; and the slope there, from what came out. */
static __device__ __forceinline__ float capped(float s, float cap)
{
    return cap > 0.0f ? map_softcap<false>(s, cap) : s;
}
static __device__ __forceinline__ float cap_slope(float score, float cap)
{
    return cap > 0.0f ? map_softcap_slope<false>(score, cap) : 1.0f;
}

/* ---- where heads begin ----------------------------------------------------------------------- */

static __device__ __forceinline__ int64_t query_at(const struct attention_args &a, int batch,
                                                   int head)
{
    return (int64_t)batch * a.n_tokens * a.width + (int64_t)head * a.head_dim;
}
static __device__ __forceinline__ int64_t key_at(const struct attention_args &a, int batch, int kv)
{
    return query_at(a, batch, a.heads + kv);
}
static __device__ __forceinline__ int64_t value_at(const struct attention_args &a, int batch,
                                                   int kv)
{
    return query_at(a, batch, a.heads + a.kv_heads + kv);
}
static __device__ __forceinline__ int64_t out_at(const struct attention_args &a, int batch,
                                                 int head)
{
    return (int64_t)batch * a.n_tokens * out_width(a) + (int64_t)head * a.head_dim;
}
static __device__ __forceinline__ int64_t statistic_at(const struct attention_args &a, int batch,
                                                       int head)
{
    return ((int64_t)batch * a.heads + head) * a.n_tokens;
}

/* Dot product of two heads of n elements over the lanes of a warp; every lane has the result. */
template <typename T> static __device__ float head_dot(const T *x, const T *y, int n)
{
    float sum = 0.0f;
    for (int e = threadIdx.x % WARP; e < n; e += WARP)
        sum = fmaf(to_f32(x[e]), to_f32(y[e]), sum);
    return warp_sum(sum);
}

/* ---- implementations ------------------------------------------------------------------------- */

/* One block per query (per key): any head_dim up to PLAIN_MAX_HEAD_DIM. */
enum status cuda_attention_plain(cudaStream_t s, const struct attention_args *a) MUST_CHECK;
enum status cuda_attention_grad_plain(cudaStream_t s, const struct attention_args *a) MUST_CHECK;
/* Tiles in shared memory, f32 multiply-adds. */
enum status cuda_attention_tiles(cudaStream_t s, const struct attention_args *a) MUST_CHECK;
enum status cuda_attention_grad_tiles(cudaStream_t s, const struct attention_args *a) MUST_CHECK;
/* Tiles on tensor cores, of calls that cuda_attention_tensor_cores_declines does not
 * decline. */
enum status cuda_attention_mma(cudaStream_t s, const struct attention_args *a) MUST_CHECK;
enum status cuda_attention_grad_mma(cudaStream_t s, const struct attention_args *a) MUST_CHECK;
/* delta of every query: what all gradients begin with. */
enum status cuda_attention_delta(cudaStream_t s, const struct attention_args *a) MUST_CHECK;

#endif
