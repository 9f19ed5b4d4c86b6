/* cross_attention.cu: attention between two sequences with padded keys, and the kernel lists of it
 * and of its gradient (cross_attention_grad.cu).
 *
 * Scores exist only as a tile of queries by keys (or a chunk of keys), under an online softmax as
 * in attention_tiles.cu. Tiles of padding alone are passed over.
 */
#include "device/cuda/attention/cross_attention.cuh"

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Shared memory, in floats: queries, then keys and values by turns, then probabilities. */
template <int DP, int BQ, int BK> static constexpr int shared_floats()
{
    return BQ * tile_row<DP>::n + BK * tile_row<DP>::n + BQ * (BK + 1);
}

/* Turns scores into probabilities relative to the new maximum; returns what the sums so far shrink
 * by. A row that has seen no key yet has top -inf: then nothing is subtracted. */
template <int C>
static __device__ __forceinline__ float
softmax_step(float scale, float (&s)[C], const bool (&is_key)[C], float *top, float *total)
{
    float above = *top, sum = 0.0f;
#pragma unroll
    for (int c = 0; c < C; c++) {
        s[c] = is_key[c] ? s[c] * scale : -INFINITY;
        above = fmaxf(above, s[c]);
    }
    above = side_max(above);
    float base = above == -INFINITY ? 0.0f : above;
#pragma unroll
    for (int c = 0; c < C; c++) {
        s[c] = expf(s[c] - base);
        sum += s[c];
    }
    float shrink = expf(*top - base);
    *total = *total * shrink + side_sum(sum);
    *top = above;
    return shrink;
}

/* One block per BQ queries of a head. */
template <typename T, int DP, int BQ, int BK>
static __global__ void __launch_bounds__(TILE_THREADS) tiles_forward(struct cross_args a)
{
    constexpr int R = BQ / TILE_SIDE, C = BK / TILE_SIDE, E = DP / TILE_SIDE;
    extern __shared__ float4 shared[];
    float *q = (float *)shared, *kv = q + BQ * tile_row<DP>::n, *p = kv + BK * tile_row<DP>::n;
    int n_tiles = (a.n_queries + BQ - 1) / BQ, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int i = (int)(blockIdx.x % (unsigned)n_tiles) * BQ, row = (int)(blockIdx.x / (unsigned)n_tiles);
    int batch = row / a.heads, head = row % a.heads;
    const T *keys = (const T *)a.kv + cross_key_at(a, batch, head / a.group);
    const T *values = (const T *)a.kv + cross_value_at(a, batch, head / a.group);
    float top[R], total[R], out[R][E] = {};
#pragma unroll
    for (int r = 0; r < R; r++) {
        top[r] = -INFINITY;
        total[r] = 0.0f;
    }
    load_queries<T, DP, BQ>(q, (const T *)a.q + cross_query_at(a, batch, head), i, a);
    for (int j = 0; j < a.n_keys; j += BK) {
        float s[R][C] = {};
        bool is_key[C];
        if (!__syncthreads_or((int)threadIdx.x < BK &&
                              cross_is_key(a, batch, j + (int)threadIdx.x)))
            continue;
#pragma unroll
        for (int c = 0; c < C; c++)
            is_key[c] = cross_is_key(a, batch, j + tx + TILE_SIDE * c);
        load_keys<T, DP, BK>(kv, keys, j, batch, a);
        if (a.dropout.rng) /* into p: who writes a probability finds what to multiply it by */
            tile_multipliers<BQ, BK, TILE_THREADS>(p, a.dropout, row, i, j);
        __syncthreads();
        tile_dots<DP>(s, q, kv, ty, tx);
#pragma unroll
        for (int r = 0; r < R; r++) {
            int q_row = ty + TILE_SIDE * r;
            float shrink = softmax_step(a.scale, s[r], is_key, &top[r], &total[r]);
#pragma unroll
            for (int c = 0; c < C; c++) {
                float *to = &p[q_row * (BK + 1) + tx + TILE_SIDE * c];
                *to = a.dropout.rng ? *to * s[r][c] : s[r][c];
            }
#pragma unroll
            for (int e = 0; e < E; e++)
                out[r][e] *= shrink;
        }
        __syncthreads(); /* the keys have been read, all of p is written */
        load_keys<T, DP, BK>(kv, values, j, batch, a);
        __syncthreads();
        tile_product<DP, BK>(out, p, BK + 1, 1, kv, ty, tx);
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        int q_row = i + ty + TILE_SIDE * r;
        bool saw_none = total[r] == 0.0f;
#pragma unroll
        for (int e = 0; e < E; e++)
            out[r][e] = saw_none ? 0.0f : out[r][e] / total[r];
        if (tx == 0 && q_row < a.n_queries)
            a.lse[cross_statistic_at(a, batch, head) + q_row] =
                saw_none ? 0.0f : top[r] + logf(total[r]);
    }
    cross_store((T *)a.out + cross_query_at(a, batch, head), a.n_queries, q_width(a), i, out, a, ty,
                tx);
}

template <typename T, int DP, int BQ, int BK>
static enum status launch(cudaStream_t s, const struct cross_args *a)
{
    constexpr int n_bytes = shared_floats<DP, BQ, BK>() * (int)sizeof(float);
    static_assert(n_bytes <= 64 * 1024, "what every GPU since sm_75 has");
    int64_t n_blocks = ceil_div(a->n_queries, BQ) * a->batch * a->heads;
    if (n_blocks == 0)
        return OK;
    TRY(cuda_allow_shared(tiles_forward<T, DP, BQ, BK>, n_bytes));
    tiles_forward<T, DP, BQ, BK><<<(unsigned)n_blocks, TILE_THREADS, n_bytes, s>>>(*a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status forward_tiles(cudaStream_t s, const struct cross_args *a)
{
    CUDA_DISPATCH_FLOAT(a->dtype, T, {
        if (a->head_dim <= 32)
            return (launch<T, 32, 64, 64>(s, a));
        if (a->head_dim <= 64)
            return (launch<T, 64, 64, 64>(s, a));
        if (a->head_dim <= CROSS_TILES_MAX_HEAD_DIM)
            return (launch<T, 128, 64, 32>(s, a));
    });
    return FAIL(ERR_UNSUPPORTED, "cross_attention: no tiles for head_dim %d", a->head_dim);
}

/* ---- a block per query ----------------------------------------------------------------------- */

enum { THREADS = 128, WARPS = THREADS / WARP, CHUNK = 128 };

/* blockIdx.x = (batch * heads + head) * n_queries + i. Threads own elements of the output. */
template <typename T> static __global__ void plain_forward(struct cross_args a)
{
    extern __shared__ float sums[]; /* [head_dim] */
    __shared__ float p[CHUNK];      /* -inf, then 0, for padding */
    int i = (int)(blockIdx.x % (unsigned)a.n_queries);
    int row = (int)(blockIdx.x / (unsigned)a.n_queries);
    int batch = row / a.heads, head = row % a.heads, warp = threadIdx.x / WARP;
    const T *q = (const T *)a.q + cross_query_at(a, batch, head) + i * q_width(a);
    const T *k = (const T *)a.kv + cross_key_at(a, batch, head / a.group);
    const T *v = (const T *)a.kv + cross_value_at(a, batch, head / a.group);
    float top = -INFINITY, total = 0.0f;
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        sums[e] = 0.0f;
    for (int from = 0; from < a.n_keys; from += CHUNK) {
        int n = min(CHUNK, a.n_keys - from);
        for (int j = warp; j < n; j += WARPS) {
            float s = -INFINITY;
            if (cross_is_key(a, batch, from + j)) /* the same for all lanes */
                s = a.scale * head_dot(q, k + (from + j) * kv_width(a), a.head_dim);
            if (threadIdx.x % WARP == 0)
                p[j] = s;
        }
        __syncthreads();
        float above = top;
        for (int j = 0; j < n; j++)
            above = fmaxf(above, p[j]);
        float base = above == -INFINITY ? 0.0f : above;
        __syncthreads();
        if ((int)threadIdx.x < n)
            p[threadIdx.x] = expf(p[threadIdx.x] - base);
        __syncthreads();
        float shrink = expf(top - base);
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
            for (int j = 0; j < n; j++) {
                if (cross_is_key(a, batch, from + j))
                    sum = fmaf(p[j], to_f32(v[(from + j) * kv_width(a) + e]), sum);
            }
            sums[e] = sum;
        }
        __syncthreads();
    }
    T *out = (T *)a.out + cross_query_at(a, batch, head) + i * q_width(a);
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        out[e] = from_f32<T>(total == 0.0f ? 0.0f : sums[e] / total);
    if (threadIdx.x == 0)
        a.lse[cross_statistic_at(a, batch, head) + i] = total == 0.0f ? 0.0f : top + logf(total);
}

static enum status forward_plain(cudaStream_t s, const struct cross_args *a)
{
    int64_t n_blocks = (int64_t)a->batch * a->heads * a->n_queries;
    size_t n_bytes = (size_t)a->head_dim * sizeof(float);
    if (n_blocks == 0)
        return OK;
    CUDA_DISPATCH_FLOAT(a->dtype, T,
                        (plain_forward<T><<<(unsigned)n_blocks, THREADS, n_bytes, s>>>(*a)));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static struct cross_args args_of(const struct op_call *c)
{
    struct cross_args a = cross_args_of(c, CROSS_Q, CROSS_MASK);
    a.out = c->out[0].data;
    a.lse = (float *)c->out[1].data;
    return a;
}

static struct cross_args grad_args_of(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cross_args a = cross_args_of(c, CROSS_GRAD_Q, CROSS_GRAD_MASK);
    a.dout = c->in[CROSS_GRAD_DOUT].data;
    a.out = c->in[CROSS_GRAD_OUT].data;
    a.lse = (float *)c->in[CROSS_GRAD_LSE].data;
    a.dq = c->out[0].data;
    a.dkv = c->out[1].data;
    a.delta = (float *)x->workspace;
    return a;
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cross_args a = args_of(c);
    return forward_tiles(cuda_stream(x), &a);
}

static enum status plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cross_args a = args_of(c);
    return forward_plain(cuda_stream(x), &a);
}

static enum status grad_tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cross_args a = grad_args_of(x, c);
    return cuda_cross_attention_grad_tiles(cuda_stream(x), &a);
}

static enum status grad_plain(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cross_args a = grad_args_of(x, c);
    return cuda_cross_attention_grad_plain(cuda_stream(x), &a);
}

CUDA_RUN(cross_attention, tiles, tiles)
CUDA_RUN(cross_attention, plain, plain)
CUDA_RUN(cross_attention_grad, tiles, grad_tiles)
CUDA_RUN(cross_attention_grad, plain, grad_plain)
