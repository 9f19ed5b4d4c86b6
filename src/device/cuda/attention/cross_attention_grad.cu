/* cross_attention_grad.cu: the gradient of attention between two sequences, without atomics: one
 * kernel owns queries and walks the keys, another owns keys and walks the queries of every head
 * that reads them. Both compute the probabilities again from lse.
 *
 *     p = exp(scale q k - lse), ds = scale p (dout v - delta)
 *     dq = ds k, dk = ds^T q, dv = p^T dout
 *
 * Padding has neither p nor ds. What was dropped counts neither in dout v nor in the p of dv.
 */
#include "device/cuda/attention/cross_attention.cuh"

enum { THREADS = 128, WARPS = THREADS / WARP, CHUNK = 128 };

/* One warp per (batch, head, query). */
template <typename T> static __global__ void delta_kernel(struct cross_args a, int64_t n_rows)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= n_rows)
        return;
    int i = (int)(row % a.n_queries), head = (int)(row / a.n_queries % a.heads);
    int batch = (int)(row / a.n_queries / a.heads);
    int64_t at = cross_query_at(a, batch, head) + i * q_width(a);
    float sum = head_dot((const T *)a.dout + at, (const T *)a.out + at, a.head_dim);
    if (threadIdx.x % WARP == 0)
        a.delta[row] = sum;
}

static enum status fill_delta(cudaStream_t s, const struct cross_args *a)
{
    int64_t n_rows = (int64_t)a->batch * a->heads * a->n_queries;
    if (n_rows == 0)
        return OK;
    CUDA_DISPATCH_FLOAT(a->dtype, T,
                        (delta_kernel<T><<<grid_for(n_rows, WARPS), THREADS, 0, s>>>(*a, n_rows)));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Shared memory, in floats: two tiles of BQ rows, two of BK rows, matrices of BQ x BK. */
template <int DP, int BQ, int BK, int MATRICES> static constexpr int shared_floats()
{
    return 2 * (BQ + BK) * tile_row<DP>::n + MATRICES * BQ * (BK + 1);
}

/* The p and ds of queries i.. and keys j.. into matrices of row length BK + 1; p may be NULL. With
 * dropout, what a pair is to be multiplied by lies where its ds will. */
template <int DP, int BQ, int BK>
static __device__ __forceinline__ void
tile_grads(const struct cross_args &a, const float *q, const float *dout, const float *k,
           const float *v, int i, int j, int batch, int head, float *p, float *ds)
{
    constexpr int R = BQ / TILE_SIDE, C = BK / TILE_SIDE;
    int64_t statistic = cross_statistic_at(a, batch, head);
    int tx = threadIdx.x % TILE_SIDE, ty = threadIdx.x / TILE_SIDE;
    float s[R][C] = {}, dp[R][C] = {};
    tile_dots<DP>(s, q, k, ty, tx);
    tile_dots<DP>(dp, dout, v, ty, tx);
#pragma unroll
    for (int r = 0; r < R; r++) {
        int row = ty + TILE_SIDE * r;
        bool inside = i + row < a.n_queries;
        float lse = inside ? a.lse[statistic + i + row] : 0.0f;
        float delta = inside ? a.delta[statistic + i + row] : 0.0f;
#pragma unroll
        for (int c = 0; c < C; c++) {
            int at = row * (BK + 1) + tx + TILE_SIDE * c;
            bool counts = inside && cross_is_key(a, batch, j + tx + TILE_SIDE * c);
            float multiplier = a.dropout.rng ? ds[at] : 1.0f;
            float whole = counts ? expf(a.scale * s[r][c] - lse) : 0.0f;
            if (p)
                p[at] = whole * multiplier;
            ds[at] = counts ? a.scale * whole * (multiplier * dp[r][c] - delta) : 0.0f;
        }
    }
}

/* One block per BQ queries of a head. */
template <typename T, int DP, int BQ, int BK>
static __global__ void __launch_bounds__(TILE_THREADS) tiles_query_grad(struct cross_args a)
{
    constexpr int R = BQ / TILE_SIDE, E = DP / TILE_SIDE;
    extern __shared__ float4 shared[];
    float *q = (float *)shared, *dout = q + BQ * tile_row<DP>::n;
    float *k = dout + BQ * tile_row<DP>::n, *v = k + BK * tile_row<DP>::n;
    float *ds = v + BK * tile_row<DP>::n;
    int n_tiles = (a.n_queries + BQ - 1) / BQ, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int i = (int)(blockIdx.x % (unsigned)n_tiles) * BQ, row = (int)(blockIdx.x / (unsigned)n_tiles);
    int batch = row / a.heads, head = row % a.heads;
    const T *keys = (const T *)a.kv + cross_key_at(a, batch, head / a.group);
    const T *values = (const T *)a.kv + cross_value_at(a, batch, head / a.group);
    float dq[R][E] = {};
    load_queries<T, DP, BQ>(q, (const T *)a.q + cross_query_at(a, batch, head), i, a);
    load_queries<T, DP, BQ>(dout, (const T *)a.dout + cross_query_at(a, batch, head), i, a);
    for (int j = 0; j < a.n_keys; j += BK) {
        if (!__syncthreads_or((int)threadIdx.x < BK &&
                              cross_is_key(a, batch, j + (int)threadIdx.x)))
            continue;
        load_keys<T, DP, BK>(k, keys, j, batch, a);
        load_keys<T, DP, BK>(v, values, j, batch, a);
        if (a.dropout.rng)
            tile_multipliers<BQ, BK, TILE_THREADS>(ds, a.dropout, row, i, j);
        __syncthreads();
        tile_grads<DP, BQ, BK>(a, q, dout, k, v, i, j, batch, head, nullptr, ds);
        __syncthreads();
        tile_product<DP, BK>(dq, ds, BK + 1, 1, k, ty, tx);
        __syncthreads();
    }
    cross_store((T *)a.dq + cross_query_at(a, batch, head), a.n_queries, q_width(a), i, dq, a, ty,
                tx);
}

/* One block per BK keys of a key/value head; the heads that read it in order. */
template <typename T, int DP, int BQ, int BK>
static __global__ void __launch_bounds__(TILE_THREADS) tiles_key_grad(struct cross_args a)
{
    constexpr int R = BK / TILE_SIDE, E = DP / TILE_SIDE;
    extern __shared__ float4 shared[];
    float *q = (float *)shared, *dout = q + BQ * tile_row<DP>::n;
    float *k = dout + BQ * tile_row<DP>::n, *v = k + BK * tile_row<DP>::n;
    float *p = v + BK * tile_row<DP>::n, *ds = p + BQ * (BK + 1);
    int n_tiles = (a.n_keys + BK - 1) / BK, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int j = (int)(blockIdx.x % (unsigned)n_tiles) * BK, row = (int)(blockIdx.x / (unsigned)n_tiles);
    int batch = row / a.kv_heads, kv = row % a.kv_heads;
    bool has_key =
        __syncthreads_or((int)threadIdx.x < BK && cross_is_key(a, batch, j + (int)threadIdx.x));
    float dk[R][E] = {}, dv[R][E] = {};
    load_keys<T, DP, BK>(k, (const T *)a.kv + cross_key_at(a, batch, kv), j, batch, a);
    load_keys<T, DP, BK>(v, (const T *)a.kv + cross_value_at(a, batch, kv), j, batch, a);
    for (int head = kv * a.group; has_key && head < (kv + 1) * a.group; head++) {
        int64_t from = cross_query_at(a, batch, head);
        for (int i = 0; i < a.n_queries; i += BQ) {
            load_queries<T, DP, BQ>(q, (const T *)a.q + from, i, a);
            load_queries<T, DP, BQ>(dout, (const T *)a.dout + from, i, a);
            if (a.dropout.rng)
                tile_multipliers<BQ, BK, TILE_THREADS>(ds, a.dropout,
                                                       (int64_t)batch * a.heads + head, i, j);
            __syncthreads();
            tile_grads<DP, BQ, BK>(a, q, dout, k, v, i, j, batch, head, p, ds);
            __syncthreads();
            tile_product<DP, BQ>(dk, ds, 1, BK + 1, q, ty, tx);
            tile_product<DP, BQ>(dv, p, 1, BK + 1, dout, ty, tx);
            __syncthreads();
        }
    }
    cross_store((T *)a.dkv + cross_key_at(a, batch, kv), a.n_keys, kv_width(a), j, dk, a, ty, tx);
    cross_store((T *)a.dkv + cross_value_at(a, batch, kv), a.n_keys, kv_width(a), j, dv, a, ty, tx);
}

/* The kernel that owns queries has OWN queries and OTHER keys per tile, the other the reverse. */
template <typename T, int DP, int OWN, int OTHER>
static enum status launch(cudaStream_t s, const struct cross_args *a)
{
    constexpr int q_bytes = shared_floats<DP, OWN, OTHER, 1>() * (int)sizeof(float);
    constexpr int k_bytes = shared_floats<DP, OTHER, OWN, 2>() * (int)sizeof(float);
    static_assert(q_bytes <= 64 * 1024 && k_bytes <= 64 * 1024, "what every GPU since sm_75 has");
    int64_t n_queries = ceil_div(a->n_queries, OWN) * a->batch * a->heads;
    int64_t n_keys = ceil_div(a->n_keys, OWN) * a->batch * a->kv_heads;
    TRY(fill_delta(s, a));
    TRY(cuda_allow_shared(tiles_query_grad<T, DP, OWN, OTHER>, q_bytes));
    TRY(cuda_allow_shared(tiles_key_grad<T, DP, OTHER, OWN>, k_bytes));
    if (n_queries > 0)
        tiles_query_grad<T, DP, OWN, OTHER><<<(unsigned)n_queries, TILE_THREADS, q_bytes, s>>>(*a);
    CUDA_TRY(cudaGetLastError());
    if (n_keys > 0)
        tiles_key_grad<T, DP, OTHER, OWN><<<(unsigned)n_keys, TILE_THREADS, k_bytes, s>>>(*a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

enum status cuda_cross_attention_grad_tiles(cudaStream_t s, const struct cross_args *a)
{
    CUDA_DISPATCH_FLOAT(a->dtype, T, {
        if (a->head_dim <= 32)
            return (launch<T, 32, 32, 32>(s, a));
        if (a->head_dim <= 64)
            return (launch<T, 64, 32, 32>(s, a));
        if (a->head_dim <= CROSS_TILES_MAX_HEAD_DIM)
            return (launch<T, 128, 32, 16>(s, a));
    });
    return FAIL(ERR_UNSUPPORTED, "cross_attention_grad: no tiles for head_dim %d", a->head_dim);
}

/* ---- a block per query, or per key ----------------------------------------------------------- */

/* The probability of a pair that counts, times its multiplier, and the gradient of its score, in
 * every lane of a warp. */
template <typename T>
static __device__ void pair(const struct cross_args &a, const T *q, const T *k, const T *v,
                            const T *dout, float lse, float delta, float multiplier, float *p,
                            float *ds)
{
    float whole = expf(a.scale * head_dot(q, k, a.head_dim) - lse);
    *p = multiplier * whole;
    *ds = a.scale * whole * (multiplier * head_dot(dout, v, a.head_dim) - delta);
}

/* blockIdx.x = (batch * heads + head) * n_queries + i. */
template <typename T> static __global__ void plain_query_grad(struct cross_args a)
{
    extern __shared__ float sums[]; /* [head_dim] */
    __shared__ float ds[CHUNK];
    int i = (int)(blockIdx.x % (unsigned)a.n_queries);
    int row = (int)(blockIdx.x / (unsigned)a.n_queries);
    int batch = row / a.heads, head = row % a.heads, warp = threadIdx.x / WARP;
    int64_t query = cross_query_at(a, batch, head) + i * q_width(a);
    const T *k = (const T *)a.kv + cross_key_at(a, batch, head / a.group);
    const T *v = (const T *)a.kv + cross_value_at(a, batch, head / a.group);
    float lse = a.lse[cross_statistic_at(a, batch, head) + i];
    float delta = a.delta[cross_statistic_at(a, batch, head) + i];
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        sums[e] = 0.0f;
    for (int from = 0; from < a.n_keys; from += CHUNK) {
        int n = min(CHUNK, a.n_keys - from);
        for (int j = warp; j < n; j += WARPS) {
            int64_t at = (from + j) * kv_width(a);
            float p, d = 0.0f;
            if (cross_is_key(a, batch, from + j)) /* the same for all lanes */
                pair(a, (const T *)a.q + query, k + at, v + at, (const T *)a.dout + query, lse,
                     delta, pair_multiplier(a.dropout, row, i, from + j), &p, &d);
            if (threadIdx.x % WARP == 0)
                ds[j] = d;
        }
        __syncthreads();
        for (int e = threadIdx.x; e < a.head_dim; e += THREADS) {
            float sum = sums[e];
            for (int j = 0; j < n; j++) {
                if (cross_is_key(a, batch, from + j))
                    sum = fmaf(ds[j], to_f32(k[(from + j) * kv_width(a) + e]), sum);
            }
            sums[e] = sum;
        }
        __syncthreads();
    }
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS)
        ((T *)a.dq)[query + e] = from_f32<T>(sums[e]);
}

/* blockIdx.x = (batch * kv_heads + kv) * n_keys + j. */
template <typename T> static __global__ void plain_key_grad(struct cross_args a)
{
    extern __shared__ float sums[]; /* [2, head_dim]: of the key, of the value */
    __shared__ float ps[CHUNK], ds[CHUNK];
    int j = (int)(blockIdx.x % (unsigned)a.n_keys), row = (int)(blockIdx.x / (unsigned)a.n_keys);
    int batch = row / a.kv_heads, kv = row % a.kv_heads, warp = threadIdx.x / WARP;
    int64_t key = cross_key_at(a, batch, kv) + j * kv_width(a);
    int64_t value = cross_value_at(a, batch, kv) + j * kv_width(a);
    int n_queries = cross_is_key(a, batch, j) ? a.n_queries : 0; /* nobody sees padding */
    for (int e = threadIdx.x; e < 2 * a.head_dim; e += THREADS)
        sums[e] = 0.0f;
    __syncthreads(); /* a key that no query sees is done with them at once */
    for (int head = kv * a.group; head < (kv + 1) * a.group; head++) {
        const T *q = (const T *)a.q + cross_query_at(a, batch, head);
        const T *dout = (const T *)a.dout + cross_query_at(a, batch, head);
        int64_t statistic = cross_statistic_at(a, batch, head);
        for (int from = 0; from < n_queries; from += CHUNK) {
            int n = min(CHUNK, n_queries - from);
            for (int i = warp; i < n; i += WARPS) {
                int64_t at = (from + i) * q_width(a), of_query = statistic + from + i;
                float p, d,
                    multiplier =
                        pair_multiplier(a.dropout, (int64_t)batch * a.heads + head, from + i, j);
                pair(a, q + at, (const T *)a.kv + key, (const T *)a.kv + value, dout + at,
                     a.lse[of_query], a.delta[of_query], multiplier, &p, &d);
                if (threadIdx.x % WARP == 0) {
                    ps[i] = p;
                    ds[i] = d;
                }
            }
            __syncthreads();
            for (int e = threadIdx.x; e < a.head_dim; e += THREADS) {
                float of_key = sums[e], of_value = sums[a.head_dim + e];
                for (int i = 0; i < n; i++) {
                    int64_t at = (from + i) * q_width(a) + e;
                    of_key = fmaf(ds[i], to_f32(q[at]), of_key);
                    of_value = fmaf(ps[i], to_f32(dout[at]), of_value);
                }
                sums[e] = of_key;
                sums[a.head_dim + e] = of_value;
            }
            __syncthreads();
        }
    }
    for (int e = threadIdx.x; e < a.head_dim; e += THREADS) {
        ((T *)a.dkv)[key + e] = from_f32<T>(sums[e]);
        ((T *)a.dkv)[value + e] = from_f32<T>(sums[a.head_dim + e]);
    }
}

enum status cuda_cross_attention_grad_plain(cudaStream_t s, const struct cross_args *a)
{
    int64_t n_queries = (int64_t)a->batch * a->heads * a->n_queries;
    int64_t n_keys = (int64_t)a->batch * a->kv_heads * a->n_keys;
    size_t n_bytes = (size_t)a->head_dim * sizeof(float);
    TRY(fill_delta(s, a));
    if (n_queries > 0)
        CUDA_DISPATCH_FLOAT(
            a->dtype, T, (plain_query_grad<T><<<(unsigned)n_queries, THREADS, n_bytes, s>>>(*a)));
    CUDA_TRY(cudaGetLastError());
    if (n_keys > 0)
        CUDA_DISPATCH_FLOAT(a->dtype, T,
                            (plain_key_grad<T><<<(unsigned)n_keys, THREADS, 2 * n_bytes, s>>>(*a)));
    CUDA_TRY(cudaGetLastError());
    return OK;
}
