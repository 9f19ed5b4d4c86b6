/* attention_cached.cu: attention of new tokens over a cache of keys and values, for generation: one
 * kernel appends, one block per (token, head) then attends.
 *
 * The position is in device memory, so a call past the cache's end cannot be refused from the host:
 * it leaves the cache alone and answers NaN. */
#include "device/cuda/attention/attention.cuh"

enum { THREADS = 128, WARPS = THREADS / WARP, CHUNK = 128 };

struct cached_args {
    int64_t batch, n_tokens, n_slots, width;
    int heads, kv_heads, group, head_dim;
    int64_t window, block;
    float scale, cap;        /* cap 0: none */
    const int32_t *position; /* [1] */
};

static __device__ __forceinline__ bool fits(const struct cached_args &a)
{
    return *a.position >= 0 && *a.position + a.n_tokens <= a.n_slots;
}

/* Elements of [2, batch, n_tokens, kv_heads * head_dim], which in a packed row are the last two
 * stretches. */
template <typename T>
static __global__ void append(struct cached_args a, const T *qkv, T *cache, int64_t n)
{
    int64_t stretch = (int64_t)a.kv_heads * a.head_dim;
    if (!fits(a))
        return;
    for (int64_t at = grid_thread(); at < n; at += grid_threads()) {
        int64_t e = at % stretch, row = at / stretch;
        int64_t token = row % a.n_tokens, batch = row / a.n_tokens % a.batch;
        int64_t kind = row / a.n_tokens / a.batch;
        int64_t from = (batch * a.n_tokens + token) * a.width + (int64_t)a.heads * a.head_dim +
                       kind * stretch + e;
        cache[((kind * a.batch + batch) * a.n_slots + *a.position + token) * stretch + e] =
            qkv[from];
    }
}

/* blockIdx.x = (batch * n_tokens + token) * heads + head. */
template <typename T>
static __global__ void attend(struct cached_args a, const T *qkv, const T *cache, T *out)
{
    extern __shared__ float sums[]; /* [head_dim] */
    __shared__ float p[CHUNK];
    int64_t row = blockIdx.x / (unsigned)a.heads, batch = row / a.n_tokens;
    int head = (int)(blockIdx.x % (unsigned)a.heads), warp = threadIdx.x / WARP;
    int64_t stretch = (int64_t)a.kv_heads * a.head_dim;
    const T *q = qkv + row * a.width + (int64_t)head * a.head_dim;
    const T *k = cache + batch * a.n_slots * stretch + (int64_t)(head / a.group) * a.head_dim;
    const T *v = k + a.batch * a.n_slots * stretch;
    int64_t last = *a.position + row % a.n_tokens;
    int64_t end = a.block > 0 ? last - last % a.block + a.block : last + 1;
    int64_t first = a.window > 0 && end > a.window ? end - a.window : 0;
    float top = -INFINITY, total = fits(a) ? 0.0f : NAN;
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        sums[e] = 0.0f;
    for (int64_t from = first; fits(a) && from <= last; from += CHUNK) {
        int n = (int)min((int64_t)CHUNK, last + 1 - from);
        for (int j = warp; j < n; j += WARPS) {
            float s = capped(a.scale * head_dot(q, k + (from + j) * stretch, a.head_dim), a.cap);
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
        for (int e = threadIdx.x; e < a.head_dim; e += THREADS) {
            float sum = sums[e] * shrink;
            for (int j = 0; j < n; j++)
                sum = fmaf(p[j], to_f32(v[(from + j) * stretch + e]), sum);
            sums[e] = sum;
        }
        __syncthreads();
    }
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        out[(int64_t)blockIdx.x * a.head_dim + e] = from_f32<T>(sums[e] / total);
}

static enum status run_cached(const struct kernel_ctx *x, const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    struct cached_args a = {};
    a.batch = d.batch;
    a.n_tokens = d.n_tokens;
    a.n_slots = c->in[1].shape.dim[2];
    a.width = d.width;
    a.heads = (int)d.heads;
    a.kv_heads = (int)d.kv_heads;
    a.group = (int)(d.heads / d.kv_heads);
    a.head_dim = (int)d.head_dim;
    a.window = call_int(c, CACHED_WINDOW);
    a.block = call_int(c, CACHED_BLOCK);
    a.scale = (float)attention_scale(c, CACHED_SCALE, &d);
    a.cap = (float)call_float(c, CACHED_CAP);
    a.position = (const int32_t *)c->in[2].data;
    cudaStream_t s = cuda_stream(x);
    void *cache = c->out[1].data;
    int64_t n_new = 2 * d.batch * d.n_tokens * d.kv_heads * d.head_dim;
    unsigned n_blocks = (unsigned)(d.batch * d.n_tokens * d.heads);
    size_t n_bytes = (size_t)d.head_dim * sizeof(float);
    if (cache != c->in[1].data)
        CUDA_TRY(cudaMemcpyAsync(cache, c->in[1].data, (size_t)tensor_bytes(&c->out[1]),
                                 cudaMemcpyDeviceToDevice, s));
    if (n_new == 0)
        return OK;
    CUDA_DISPATCH_FLOAT(c->in[0].dtype, T, {
        append<T><<<grid_for(n_new, 256, 1 << 16), 256, 0, s>>>(a, (const T *)c->in[0].data,
                                                                (T *)cache, n_new);
        CUDA_TRY(cudaGetLastError());
        attend<T><<<n_blocks, THREADS, n_bytes, s>>>(a, (const T *)c->in[0].data, (const T *)cache,
                                                     (T *)c->out[0].data);
        CUDA_TRY(cudaGetLastError());
    });
    return OK;
}

CUDA_RUN(attention_cached, heads, run_cached)
