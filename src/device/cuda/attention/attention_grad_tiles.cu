/* attention_grad_tiles.cu: the gradient of attention in tiles, f32 multiply-adds, without
 * atomics: one kernel owns queries and walks the keys, another owns keys and walks the queries of
 * every head that reads them. Both compute the probabilities again from lse.
 *
 *     p = exp(scale q k - lse), ds = scale p (dout v - delta)
 *     dq = ds k, dk = ds^T q, dv = p^T dout
 *
 * Under a cap on scores ds has the cap's slope as a factor too (attention.cuh).
 *
 * With DROPOUT, what was dropped counts neither in dout v nor in the p of dv; what a pair is to be
 * multiplied by lies where its ds will.
 */
#include "device/cuda/attention/attention_tiles.cuh"

/* Shared memory, in floats: two tiles of BQ rows, two of BK rows, matrices of BQ x BK. */
template <int DP, int BQ, int BK, int MATRICES> static constexpr int shared_floats()
{
    return 2 * (BQ + BK) * tile_row<DP>::n + MATRICES * BQ * (BK + 1);
}

/* s and dp become p and ds for query i and keys j, j + 16, ... */
template <bool CAPPED, int C>
static __device__ __forceinline__ void pair_grads(const struct attention_args &a, float (&s)[C],
                                                  float (&dp)[C], int i, int j, int first,
                                                  float lse, float delta)
{
#pragma unroll
    for (int c = 0; c < C; c++) {
        bool visible = pair_visible_from(a, i, j + TILE_SIDE * c, first);
        float score = s[c] * a.scale, scale = a.scale;
        if constexpr (CAPPED) {
            score = map_softcap<false>(score, a.cap);
            scale *= map_softcap_slope<false>(score, a.cap);
        }
        s[c] = visible ? expf(score - lse) : 0.0f;
        dp[c] = visible ? scale * s[c] * (dp[c] - delta) : 0.0f;
    }
}

/* The p and ds of queries i.. and keys j.. into matrices of row length BK + 1; p may be NULL. */
template <int DP, int BQ, int BK, bool DROPOUT, bool CAPPED>
static __device__ __forceinline__ void
tile_grads(const struct attention_args &a, const float *q, const float *dout, const float *k,
           const float *v, int i, int j, int batch, int head, float *p, float *ds)
{
    int64_t statistic = statistic_at(a, batch, head);
    constexpr int R = BQ / TILE_SIDE, C = BK / TILE_SIDE;
    int tx = threadIdx.x % TILE_SIDE, ty = threadIdx.x / TILE_SIDE;
    float s[R][C] = {}, dp[R][C] = {};
    tile_dots<DP>(s, q, k, ty, tx);
    tile_dots<DP>(dp, dout, v, ty, tx);
#pragma unroll
    for (int r = 0; r < R; r++) {
        int row = ty + TILE_SIDE * r;
        bool inside = i + row < a.n_tokens;
        float lse = inside ? a.lse[statistic + i + row] : 0.0f;
        float delta = inside ? a.delta[statistic + i + row] : 0.0f;
        float multiplier[C];
#pragma unroll
        for (int c = 0; c < C; c++) {
            multiplier[c] = DROPOUT ? ds[row * (BK + 1) + tx + TILE_SIDE * c] : 1.0f;
            dp[r][c] *= multiplier[c];
        }
        pair_grads<CAPPED>(a, s[r], dp[r], i + row, j + tx, first_key(a, batch, i + row), lse,
                           delta);
#pragma unroll
        for (int c = 0; c < C; c++) {
            int at = row * (BK + 1) + tx + TILE_SIDE * c;
            if (p)
                p[at] = s[r][c] * multiplier[c];
            ds[at] = dp[r][c];
        }
    }
}

/* One block per BQ queries of a head. */
template <typename T, int DP, int BQ, int BK, bool DROPOUT, bool CAPPED>
static __global__ void __launch_bounds__(TILE_THREADS) tiles_query_grad(struct attention_args a)
{
    constexpr int R = BQ / TILE_SIDE, E = DP / TILE_SIDE;
    extern __shared__ float4 shared[];
    float *q = (float *)shared, *dout = q + BQ * tile_row<DP>::n;
    float *k = dout + BQ * tile_row<DP>::n, *v = k + BK * tile_row<DP>::n;
    float *ds = v + BK * tile_row<DP>::n;
    int n_tiles = (a.n_tokens + BQ - 1) / BQ, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int tile = n_tiles - 1 - (int)blockIdx.x % n_tiles, row = (int)blockIdx.x / n_tiles;
    int batch = row / a.heads, head = row % a.heads, i = tile * BQ, first, last;
    const T *qkv = (const T *)a.qkv;
    float dq[R][E] = {};
    tile_load<T, DP, BQ>(q, qkv + query_at(a, batch, head), a.width, i, a);
    tile_load<T, DP, BQ>(dout, (const T *)a.dout + out_at(a, batch, head), out_width(a), i, a);
    keys_of(a, batch, i, BQ, &first, &last);
    if (DROPOUT)
        first -= first % DROPOUT_SQUARE;
    for (int j = first; j < last; j += BK) {
        tile_load<T, DP, BK>(k, qkv + key_at(a, batch, head / a.group), a.width, j, a);
        tile_load<T, DP, BK>(v, qkv + value_at(a, batch, head / a.group), a.width, j, a);
        if (DROPOUT)
            tile_multipliers<BQ, BK, TILE_THREADS>(ds, a.dropout, row, i, j);
        __syncthreads();
        tile_grads<DP, BQ, BK, DROPOUT, CAPPED>(a, q, dout, k, v, i, j, batch, head, nullptr, ds);
        __syncthreads();
        tile_product<DP, BK>(dq, ds, BK + 1, 1, k, ty, tx);
        __syncthreads();
    }
    tile_store((T *)a.dqkv + query_at(a, batch, head), a.width, i, dq, a, ty, tx);
}

/* One block per BK keys of a key/value head; the heads that read it in order. */
template <typename T, int DP, int BQ, int BK, bool DROPOUT, bool CAPPED>
static __global__ void __launch_bounds__(TILE_THREADS) tiles_key_grad(struct attention_args a)
{
    constexpr int R = BK / TILE_SIDE, E = DP / TILE_SIDE;
    extern __shared__ float4 shared[];
    float *q = (float *)shared, *dout = q + BQ * tile_row<DP>::n;
    float *k = dout + BQ * tile_row<DP>::n, *v = k + BK * tile_row<DP>::n;
    float *p = v + BK * tile_row<DP>::n, *ds = p + BQ * (BK + 1);
    int n_tiles = (a.n_tokens + BK - 1) / BK, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int tile = (int)blockIdx.x % n_tiles, row = (int)blockIdx.x / n_tiles;
    int batch = row / a.kv_heads, kv = row % a.kv_heads, j = tile * BK, first, last;
    const T *qkv = (const T *)a.qkv;
    float dk[R][E] = {}, dv[R][E] = {};
    tile_load<T, DP, BK>(k, qkv + key_at(a, batch, kv), a.width, j, a);
    tile_load<T, DP, BK>(v, qkv + value_at(a, batch, kv), a.width, j, a);
    queries_of(a, batch, j, BK, &first, &last);
    for (int head = kv * a.group; head < (kv + 1) * a.group; head++) {
        const T *dout_head = (const T *)a.dout + out_at(a, batch, head);
        for (int i = first; i < last; i += BQ) {
            tile_load<T, DP, BQ>(q, qkv + query_at(a, batch, head), a.width, i, a);
            tile_load<T, DP, BQ>(dout, dout_head, out_width(a), i, a);
            if (DROPOUT)
                tile_multipliers<BQ, BK, TILE_THREADS>(ds, a.dropout,
                                                       (int64_t)batch * a.heads + head, i, j);
            __syncthreads();
            tile_grads<DP, BQ, BK, DROPOUT, CAPPED>(a, q, dout, k, v, i, j, batch, head, p, ds);
            __syncthreads();
            tile_product<DP, BQ>(dk, ds, 1, BK + 1, q, ty, tx);
            tile_product<DP, BQ>(dv, p, 1, BK + 1, dout, ty, tx);
            __syncthreads();
        }
    }
    tile_store((T *)a.dqkv + key_at(a, batch, kv), a.width, j, dk, a, ty, tx);
    tile_store((T *)a.dqkv + value_at(a, batch, kv), a.width, j, dv, a, ty, tx);
}

/* The kernel that owns queries has OWN queries and OTHER keys per tile, the other the reverse. */
template <typename T, int DP, int OWN, int OTHER, bool DROPOUT, bool CAPPED>
static enum status launch(cudaStream_t s, const struct attention_args *a)
{
    constexpr int q_bytes = shared_floats<DP, OWN, OTHER, 1>() * (int)sizeof(float);
    constexpr int k_bytes = shared_floats<DP, OTHER, OWN, 2>() * (int)sizeof(float);
    constexpr int most = (DP > TILES_GRAD_ANY_HEAD_DIM ? 96 : 64) * 1024;
    static_assert(q_bytes <= most && k_bytes <= most, "64 KiB: every GPU since sm_75 has them");
    int64_t n_tiles = ceil_div(a->n_tokens, OWN) * a->batch;
    if (n_tiles == 0)
        return OK;
    TRY(cuda_attention_delta(s, a));
    TRY(cuda_allow_shared(tiles_query_grad<T, DP, OWN, OTHER, DROPOUT, CAPPED>, q_bytes));
    TRY(cuda_allow_shared(tiles_key_grad<T, DP, OTHER, OWN, DROPOUT, CAPPED>, k_bytes));
    tiles_query_grad<T, DP, OWN, OTHER, DROPOUT, CAPPED>
        <<<(unsigned)(n_tiles * a->heads), TILE_THREADS, q_bytes, s>>>(*a);
    CUDA_TRY(cudaGetLastError());
    tiles_key_grad<T, DP, OTHER, OWN, DROPOUT, CAPPED>
        <<<(unsigned)(n_tiles * a->kv_heads), TILE_THREADS, k_bytes, s>>>(*a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <bool DROPOUT, bool CAPPED>
static enum status launch_for(cudaStream_t s, const struct attention_args *a)
{
    CUDA_DISPATCH_FLOAT(a->dtype, T, {
        if (a->head_dim <= 32)
            return (launch<T, 32, 32, 32, DROPOUT, CAPPED>(s, a));
        if (a->head_dim <= 64)
            return (launch<T, 64, 32, 32, DROPOUT, CAPPED>(s, a));
        if (a->head_dim <= TILES_GRAD_ANY_HEAD_DIM)
            return (launch<T, 128, 32, 16, DROPOUT, CAPPED>(s, a));
        if constexpr (CAPPED) { /* nobody else takes them */
            if (a->head_dim <= TILES_MAX_HEAD_DIM)
                return (launch<T, 256, 16, 16, DROPOUT, CAPPED>(s, a));
        }
    });
    return FAIL(ERR_UNSUPPORTED, "attention_grad: no tiles for head_dim %d", a->head_dim);
}

enum status cuda_attention_grad_tiles(cudaStream_t s, const struct attention_args *a)
{
    if (a->cap > 0.0f)
        return a->dropout.rng ? launch_for<true, true>(s, a) : launch_for<false, true>(s, a);
    return a->dropout.rng ? launch_for<true, false>(s, a) : launch_for<false, false>(s, a);
}
