/* attention_plain.cu: attention and its gradient without tiles: one block per query, or per
 * key for the key and value gradients. Slow and simple; takes any head_dim that the others do not.
 *
 * Every block walks its pairs in chunks: warps compute the chunk's dot products (lanes over
 * head_dim), then threads, each of which owns elements e = thread, thread + THREADS, ... of the
 * result, add the chunk to their sums in shared memory.
 */
#include "device/cuda/attention/attention.cuh"

enum { THREADS = 128, WARPS = THREADS / WARP, CHUNK = 128 };

/* blockIdx.x = (batch * heads + head) * n_tokens + i. */
template <typename T> static __global__ void plain_forward(struct attention_args a)
{
    extern __shared__ float sums[]; /* [head_dim] */
    __shared__ float p[CHUNK];
    int i = (int)(blockIdx.x % (unsigned)a.n_tokens);
    int row = (int)(blockIdx.x / (unsigned)a.n_tokens);
    int batch = row / a.heads, head = row % a.heads, warp = threadIdx.x / WARP;
    const T *qkv = (const T *)a.qkv;
    const T *q = qkv + query_at(a, batch, head) + i * a.width;
    const T *k = qkv + key_at(a, batch, head / a.group);
    const T *v = qkv + value_at(a, batch, head / a.group);
    float top = -INFINITY, total = 0.0f;
    int first, last;
    keys_of(a, batch, i, 1, &first, &last);
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        sums[e] = 0.0f;
    for (int from = first; from < last; from += CHUNK) {
        int n = min(CHUNK, last - from);
        for (int j = warp; j < n; j += WARPS) {
            float s = capped(a.scale * head_dot(q, k + (from + j) * a.width, a.head_dim), a.cap);
            if (threadIdx.x % WARP == 0)
                p[j] = s;
        }
        __syncthreads();
        float above = top;
        for (int j = 0; j < n; j++)
            above = fmaxf(above, p[j]);
        __syncthreads();
        if ((int)threadIdx.x < n)
            p[threadIdx.x] = expf(p[threadIdx.x] - above);
        __syncthreads();
        float shrink = expf(top - above);
        top = above;
        total *= shrink;
        for (int j = 0; j < n; j++)
            total += p[j];
        if (a.dropout.rng) {
            __syncthreads(); /* before what was summed is dropped */
            if ((int)threadIdx.x < n)
                p[threadIdx.x] *= pair_multiplier(a.dropout, row, i, from + (int)threadIdx.x);
            __syncthreads();
        }
        for (int e = threadIdx.x; e < a.head_dim; e += THREADS) {
            float sum = sums[e] * shrink;
            for (int j = 0; j < n; j++)
                sum = fmaf(p[j], to_f32(v[(from + j) * a.width + e]), sum);
            sums[e] = sum;
        }
        __syncthreads();
    }
    T *out = (T *)a.out + out_at(a, batch, head) + i * out_width(a);
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        out[e] = from_f32<T>(sums[e] / total);
    if (threadIdx.x == 0)
        a.lse[statistic_at(a, batch, head) + i] = top + logf(total);
}

/* One warp per (batch, head, query). */
template <typename T> static __global__ void delta_kernel(struct attention_args a, int64_t n_rows)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= n_rows)
        return;
    int i = (int)(row % a.n_tokens), head = (int)(row / a.n_tokens % a.heads);
    int batch = (int)(row / a.n_tokens / a.heads);
    int64_t at = out_at(a, batch, head) + i * out_width(a);
    float sum = head_dot((const T *)a.dout + at, (const T *)a.out + at, a.head_dim);
    if (threadIdx.x % WARP == 0)
        a.delta[row] = sum;
}

/* The pair's probability, times its multiplier, and the gradient of its score, in every lane of a
 * warp. */
template <typename T>
static __device__ void pair(const struct attention_args &a, const T *q, const T *k, const T *v,
                            const T *dout, float lse, float delta, float multiplier, float *p,
                            float *ds)
{
    float score = capped(a.scale * head_dot(q, k, a.head_dim), a.cap), whole = expf(score - lse);
    *p = multiplier * whole;
    *ds = a.scale * cap_slope(score, a.cap) * whole *
          (multiplier * head_dot(dout, v, a.head_dim) - delta);
}

/* blockIdx.x = (batch * heads + head) * n_tokens + i. */
template <typename T> static __global__ void plain_query_grad(struct attention_args a)
{
    extern __shared__ float sums[]; /* [head_dim] */
    __shared__ float ds[CHUNK];
    int i = (int)(blockIdx.x % (unsigned)a.n_tokens);
    int row = (int)(blockIdx.x / (unsigned)a.n_tokens);
    int batch = row / a.heads, head = row % a.heads, warp = threadIdx.x / WARP;
    const T *qkv = (const T *)a.qkv;
    const T *q = qkv + query_at(a, batch, head) + i * a.width;
    const T *k = qkv + key_at(a, batch, head / a.group);
    const T *v = qkv + value_at(a, batch, head / a.group);
    const T *dout = (const T *)a.dout + out_at(a, batch, head) + i * out_width(a);
    float lse = a.lse[statistic_at(a, batch, head) + i];
    float delta = a.delta[statistic_at(a, batch, head) + i];
    int first, last;
    keys_of(a, batch, i, 1, &first, &last);
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        sums[e] = 0.0f;
    for (int from = first; from < last; from += CHUNK) {
        int n = min(CHUNK, last - from);
        for (int j = warp; j < n; j += WARPS) {
            int64_t at = (from + j) * a.width;
            float p, d, multiplier = pair_multiplier(a.dropout, row, i, from + j);
            pair(a, q, k + at, v + at, dout, lse, delta, multiplier, &p, &d);
            if (threadIdx.x % WARP == 0)
                ds[j] = d;
        }
        __syncthreads();
        for (int e = threadIdx.x; e < a.head_dim; e += THREADS) {
            float sum = sums[e];
            for (int j = 0; j < n; j++)
                sum = fmaf(ds[j], to_f32(k[(from + j) * a.width + e]), sum);
            sums[e] = sum;
        }
        __syncthreads();
    }
    T *dq = (T *)a.dqkv + query_at(a, batch, head) + i * a.width;
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        dq[e] = from_f32<T>(sums[e]);
}

/* blockIdx.x = (batch * kv_heads + kv) * n_tokens + j. */
template <typename T> static __global__ void plain_key_grad(struct attention_args a)
{
    extern __shared__ float sums[]; /* [2, head_dim]: of the key, of the value */
    __shared__ float ps[CHUNK], ds[CHUNK];
    int j = (int)(blockIdx.x % (unsigned)a.n_tokens);
    int row = (int)(blockIdx.x / (unsigned)a.n_tokens);
    int batch = row / a.kv_heads, kv = row % a.kv_heads, warp = threadIdx.x / WARP;
    const T *qkv = (const T *)a.qkv;
    const T *k = qkv + key_at(a, batch, kv) + j * a.width;
    const T *v = qkv + value_at(a, batch, kv) + j * a.width;
    int first, last;
    queries_of(a, batch, j, 1, &first, &last);
    for (int e = threadIdx.x; e < 2 * a.head_dim; e += THREADS)
        sums[e] = 0.0f;
    __syncthreads(); /* a key that no query sees is done with them at once */
    for (int head = kv * a.group; head < (kv + 1) * a.group; head++) {
        const T *q = qkv + query_at(a, batch, head);
        const T *dout = (const T *)a.dout + out_at(a, batch, head);
        int64_t statistic = statistic_at(a, batch, head);
        for (int from = first; from < last; from += CHUNK) {
            int n = min(CHUNK, last - from);
            for (int i = warp; i < n; i += WARPS) {
                float p, d,
                    multiplier =
                        pair_multiplier(a.dropout, (int64_t)batch * a.heads + head, from + i, j);
                pair(a, q + (from + i) * a.width, k, v, dout + (from + i) * out_width(a),
                     a.lse[statistic + from + i], a.delta[statistic + from + i], multiplier, &p,
                     &d);
                if (threadIdx.x % WARP == 0) {
                    ps[i] = p;
                    ds[i] = d;
                }
            }
            __syncthreads();
            for (int e = threadIdx.x; e < a.head_dim; e += THREADS) {
                float of_key = sums[e], of_value = sums[a.head_dim + e];
                for (int i = 0; i < n; i++) {
                    of_key = fmaf(ds[i], to_f32(q[(from + i) * a.width + e]), of_key);
                    of_value = fmaf(ps[i], to_f32(dout[(from + i) * out_width(a) + e]), of_value);
                }
                sums[e] = of_key;
                sums[a.head_dim + e] = of_value;
            }
            __syncthreads();
        }
    }
    T *dk = (T *)a.dqkv + key_at(a, batch, kv) + j * a.width;
    T *dv = (T *)a.dqkv + value_at(a, batch, kv) + j * a.width;
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS) {
        dk[e] = from_f32<T>(sums[e]);
        dv[e] = from_f32<T>(sums[a.head_dim + e]);
    }
}

enum status cuda_attention_plain(cudaStream_t s, const struct attention_args *a)
{
    unsigned n_blocks = (unsigned)((int64_t)a->batch * a->heads * a->n_tokens);
    size_t n_bytes = (size_t)a->head_dim * sizeof(float);
    if (n_blocks == 0)
        return OK;
    CUDA_DISPATCH_FLOAT(a->dtype, T, (plain_forward<T><<<n_blocks, THREADS, n_bytes, s>>>(*a)));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

enum status cuda_attention_delta(cudaStream_t s, const struct attention_args *a)
{
    int64_t n_rows = (int64_t)a->batch * a->heads * a->n_tokens;
    unsigned n_blocks = grid_for(n_rows, WARPS);
    if (n_rows == 0)
        return OK;
    CUDA_DISPATCH_FLOAT(a->dtype, T, (delta_kernel<T><<<n_blocks, THREADS, 0, s>>>(*a, n_rows)));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

enum status cuda_attention_grad_plain(cudaStream_t s, const struct attention_args *a)
{
    int64_t n_rows = (int64_t)a->batch * a->n_tokens;
    unsigned n_queries = (unsigned)(n_rows * a->heads), n_keys = (unsigned)(n_rows * a->kv_heads);
    size_t n_bytes = (size_t)a->head_dim * sizeof(float);
    if (n_rows == 0)
        return OK;
    TRY(cuda_attention_delta(s, a));
    CUDA_DISPATCH_FLOAT(a->dtype, T, (plain_query_grad<T><<<n_queries, THREADS, n_bytes, s>>>(*a)));
    CUDA_TRY(cudaGetLastError());
    CUDA_DISPATCH_FLOAT(a->dtype, T, (plain_key_grad<T><<<n_keys, THREADS, 2 * n_bytes, s>>>(*a)));
    CUDA_TRY(cudaGetLastError());
    return OK;
}
