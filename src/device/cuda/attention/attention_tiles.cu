/* attention_tiles.cu: attention in tiles with an online softmax, f32 multiply-adds. One block
 * per BQ queries of a head; scores exist only as a BQ x BK tile (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax"; Dao et al., "FlashAttention").
 */
#include "device/cuda/attention/attention_tiles.cuh"

/* Shared memory, in floats: queries, then keys and values by turns, then probabilities. */
template <int DP, int BQ, int BK> static constexpr int shared_floats()
{
    return BQ * tile_row<DP>::n + BK * tile_row<DP>::n + BQ * (BK + 1);
}

/* Turns scores into probabilities relative to the new maximum; returns what the sums so far shrink
 * by. A row that has seen no key yet has top -inf: then nothing is subtracted. */
template <bool CAPPED, int C>
static __device__ __forceinline__ float softmax_step(const struct attention_args &a, float (&s)[C],
                                                     int i, int j, int first, float *top,
                                                     float *total)
{
    float above = *top, sum = 0.0f;
#pragma unroll
    for (int c = 0; c < C; c++) {
        s[c] *= a.scale;
        if constexpr (CAPPED)
            s[c] = map_softcap<false>(s[c], a.cap);
        s[c] = pair_visible_from(a, i, j + TILE_SIDE * c, first) ? s[c] : -INFINITY;
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

template <typename T, int DP, int BQ, int BK, bool DROPOUT, bool CAPPED>
static __global__ void __launch_bounds__(TILE_THREADS) tiles_forward(struct attention_args a)
{
    constexpr int R = BQ / TILE_SIDE, C = BK / TILE_SIDE, E = DP / TILE_SIDE;
    extern __shared__ float4 shared[];
    float *q = (float *)shared, *kv = q + BQ * tile_row<DP>::n, *p = kv + BK * tile_row<DP>::n;
    int n_tiles = (a.n_tokens + BQ - 1) / BQ, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int tile = n_tiles - 1 - (int)blockIdx.x % n_tiles, row = (int)blockIdx.x / n_tiles;
    int batch = row / a.heads, head = row % a.heads, i = tile * BQ, first, last;
    const T *qkv = (const T *)a.qkv;
    float top[R], total[R], out[R][E] = {};
    int first_of[R]; /* the first key of each of the thread's queries */
#pragma unroll
    for (int r = 0; r < R; r++) {
        first_of[r] = first_key(a, batch, i + ty + TILE_SIDE * r);
        top[r] = -INFINITY;
        total[r] = 0.0f;
    }
    tile_load<T, DP, BQ>(q, qkv + query_at(a, batch, head), a.width, i, a);
    keys_of(a, batch, i, BQ, &first, &last);
    if (DROPOUT)
        first -= first % DROPOUT_SQUARE;
    for (int j = first; j < last; j += BK) {
        float s[R][C] = {};
        tile_load<T, DP, BK>(kv, qkv + key_at(a, batch, head / a.group), a.width, j, a);
        if (DROPOUT) /* into p: who writes a probability finds what to multiply it by */
            tile_multipliers<BQ, BK, TILE_THREADS>(p, a.dropout, row, i, j);
        __syncthreads();
        tile_dots<DP>(s, q, kv, ty, tx);
#pragma unroll
        for (int r = 0; r < R; r++) {
            int q_row = ty + TILE_SIDE * r;
            float shrink =
                softmax_step<CAPPED>(a, s[r], i + q_row, j + tx, first_of[r], &top[r], &total[r]);
#pragma unroll
            for (int c = 0; c < C; c++) {
                float *to = &p[q_row * (BK + 1) + tx + TILE_SIDE * c];
                *to = DROPOUT ? *to * s[r][c] : s[r][c];
            }
#pragma unroll
            for (int e = 0; e < E; e++)
                out[r][e] *= shrink;
        }
        __syncthreads(); /* the keys have been read, all of p is written */
        tile_load<T, DP, BK>(kv, qkv + value_at(a, batch, head / a.group), a.width, j, a);
        __syncthreads();
        tile_product<DP, BK>(out, p, BK + 1, 1, kv, ty, tx);
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        int q_row = i + ty + TILE_SIDE * r;
#pragma unroll
        for (int e = 0; e < E; e++)
            out[r][e] /= total[r];
        if (tx == 0 && q_row < a.n_tokens)
            a.lse[statistic_at(a, batch, head) + q_row] = top[r] + logf(total[r]);
    }
    tile_store((T *)a.out + out_at(a, batch, head), out_width(a), i, out, a, ty, tx);
}

template <typename T, int DP, int BQ, int BK, bool DROPOUT, bool CAPPED>
static enum status launch(cudaStream_t s, const struct attention_args *a)
{
    constexpr int n_bytes = shared_floats<DP, BQ, BK>() * (int)sizeof(float);
    static_assert(n_bytes <= 64 * 1024, "what every GPU since sm_75 has");
    int64_t n_blocks = ceil_div(a->n_tokens, BQ) * a->batch * a->heads;
    if (n_blocks == 0)
        return OK;
    TRY(cuda_allow_shared(tiles_forward<T, DP, BQ, BK, DROPOUT, CAPPED>, n_bytes));
    tiles_forward<T, DP, BQ, BK, DROPOUT, CAPPED>
        <<<(unsigned)n_blocks, TILE_THREADS, n_bytes, s>>>(*a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <bool DROPOUT, bool CAPPED>
static enum status launch_for(cudaStream_t s, const struct attention_args *a)
{
    CUDA_DISPATCH_FLOAT(a->dtype, T, {
        if (a->head_dim <= 32)
            return (launch<T, 32, 64, 64, DROPOUT, CAPPED>(s, a));
        if (a->head_dim <= 64)
            return (launch<T, 64, 64, 64, DROPOUT, CAPPED>(s, a));
        if (a->head_dim <= 128)
            return (launch<T, 128, 64, 32, DROPOUT, CAPPED>(s, a));
        if (a->head_dim <= TILES_MAX_HEAD_DIM)
            return (launch<T, 256, 32, 16, DROPOUT, CAPPED>(s, a));
    });
    return FAIL(ERR_UNSUPPORTED, "attention: no tiles for head_dim %d", a->head_dim);
}

enum status cuda_attention_tiles(cudaStream_t s, const struct attention_args *a)
{
    if (a->cap > 0.0f)
        return a->dropout.rng ? launch_for<true, true>(s, a) : launch_for<false, true>(s, a);
    return a->dropout.rng ? launch_for<true, false>(s, a) : launch_for<false, false>(s, a);
}
