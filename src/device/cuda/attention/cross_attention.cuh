/* cross_attention.cuh: attention between two sequences: shapes and pointers of one call, and what
 * its kernels share.
 *
 * Layouts are those of ops/cross_attention_support.h. What a padded key and its value hold is never
 * multiplied by anything: it is loaded as zeros, or not read.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_CROSS_ATTENTION_CUH
#define SNUG_DEVICE_CUDA_ATTENTION_CROSS_ATTENTION_CUH

#include "device/cuda/attention/attention_tiles.cuh"
#include "ops/cross_attention_support.h"

struct cross_args {
    int batch, n_queries, n_keys, heads, kv_heads, group, head_dim;
    float scale;
    enum dtype dtype;
    const void *q, *kv;  /* [B, Tq, H D], [B, Tk, 2 KV D] */
    const int32_t *mask; /* [B, Tk]: 0 is padding; NULL: none is */
    void *out;           /* [B, Tq, H D]; written forwards, read backwards */
    float *lse;          /* [B, H, Tq]; written forwards, read backwards */
    const void *dout;
    void *dq, *dkv;
    float *delta; /* [B, H, Tq]: sum over a head of dout * out */
    struct attention_dropout dropout;
};

/* Queries are input i_q, the mask is input i_mask. Outputs and gradients are the caller's to set.
 */
static inline struct cross_args cross_args_of(const struct op_call *c, int i_q, int i_mask)
{
    struct cross_dims d = cross_dims_of(c, i_q);
    struct cross_args a = {};
    a.batch = (int)d.batch;
    a.n_queries = (int)d.n_queries;
    a.n_keys = (int)d.n_keys;
    a.heads = (int)d.heads;
    a.kv_heads = (int)d.kv_heads;
    a.group = (int)(d.heads / d.kv_heads);
    a.head_dim = (int)d.head_dim;
    a.scale = (float)cross_scale(c, &d);
    a.dtype = c->in[i_q].dtype;
    a.q = c->in[i_q].data;
    a.kv = c->in[i_q + 1].data;
    a.mask = call_has(c, i_mask) ? (const int32_t *)c->in[i_mask].data : NULL;
    a.dropout = cross_dropout_of(c, i_mask + 1, &d);
    return a;
}

/* Elements between rows of queries, and between rows of keys. */
static __device__ __forceinline__ int64_t q_width(const struct cross_args &a)
{
    return (int64_t)a.heads * a.head_dim;
}
static __device__ __forceinline__ int64_t kv_width(const struct cross_args &a)
{
    return 2 * (int64_t)a.kv_heads * a.head_dim;
}

/* Where query 0 of a head, key 0 and value 0 of a key/value head, and its statistics begin. */
static __device__ __forceinline__ int64_t cross_query_at(const struct cross_args &a, int batch,
                                                         int head)
{
    return (int64_t)batch * a.n_queries * q_width(a) + (int64_t)head * a.head_dim;
}
static __device__ __forceinline__ int64_t cross_key_at(const struct cross_args &a, int batch,
                                                       int kv)
{
    return (int64_t)batch * a.n_keys * kv_width(a) + (int64_t)kv * a.head_dim;
}
static __device__ __forceinline__ int64_t cross_value_at(const struct cross_args &a, int batch,
                                                         int kv)
{
    return cross_key_at(a, batch, kv) + (int64_t)a.kv_heads * a.head_dim;
}
static __device__ __forceinline__ int64_t cross_statistic_at(const struct cross_args &a, int batch,
                                                             int head)
{
    return ((int64_t)batch * a.heads + head) * a.n_queries;
}

/* Is there a key j, and is it more than padding? */
static __device__ __forceinline__ bool cross_is_key(const struct cross_args &a, int batch, int j)
{
    return j < a.n_keys && (!a.mask || a.mask[(int64_t)batch * a.n_keys + j] != 0);
}

/* Rows [first, first + N) of a head's queries; zeros where there is no such query or element. */
template <typename T, int DP, int N>
static __device__ void load_queries(float *tile, const T *head, int first,
                                    const struct cross_args &a)
{
    for (int at = threadIdx.x; at < N * DP; at += TILE_THREADS) {
        int row = at / DP, e = at % DP;
        bool inside = first + row < a.n_queries && e < a.head_dim;
        tile[row * tile_row<DP>::n + e] =
            inside ? to_f32(head[(first + row) * q_width(a) + e]) : 0.0f;
    }
}

/* The same of keys or values of a sample; padding is zeros. */
template <typename T, int DP, int N>
static __device__ void load_keys(float *tile, const T *head, int first, int batch,
                                 const struct cross_args &a)
{
    for (int at = threadIdx.x; at < N * DP; at += TILE_THREADS) {
        int row = at / DP, e = at % DP;
        bool inside = e < a.head_dim && cross_is_key(a, batch, first + row);
        tile[row * tile_row<DP>::n + e] =
            inside ? to_f32(head[(first + row) * kv_width(a) + e]) : 0.0f;
    }
}

/* Writes rows first + ty + 16 r of a head, of n_rows, `width` apart. */
template <typename T, int R, int C>
static __device__ void cross_store(T *head, int n_rows, int64_t width, int first,
                                   const float (&x)[R][C], const struct cross_args &a, int ty,
                                   int tx)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        int i = first + ty + TILE_SIDE * r;
#pragma unroll
        for (int c = 0; c < C; c++) {
            int e = tx + TILE_SIDE * c;
            if (i < n_rows && e < a.head_dim)
                head[i * width + e] = from_f32<T>(x[r][c]);
        }
    }
}

/* Tiles in shared memory; and a block per query (per key), for heads that are too large for tiles.
 */
enum status cuda_cross_attention_grad_tiles(cudaStream_t s, const struct cross_args *a) MUST_CHECK;
enum status cuda_cross_attention_grad_plain(cudaStream_t s, const struct cross_args *a) MUST_CHECK;

#endif
