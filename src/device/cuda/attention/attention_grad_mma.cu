/* attention_grad_mma.cu: the gradient of attention on tensor cores, bf16 and f16, sm_80 and
 * up, without atomics.
 *
 * One kernel in two roles. A block of four warps owns 64 rows of one side and walks tiles of 64
 * rows of the other side, the next tile on its way while one is computed with:
 *
 *     role     own rows     other rows    scores (own x other)     sums
 *     queries  q, dout      k, v          q k^T,   dout v^T        dq += ds k
 *     keys     k, v         q, dout       k q^T,   v dout^T        dk += ds q, dv += p dout
 *
 * p = exp(scale s - lse) and ds = scale p (dp - delta) never leave registers: rounded to 16 bits
 * they are the left operands of the sums. In the keys' role lse and delta belong to columns and lie
 * in shared memory, and the block walks every head of its group. With DROPOUT, what was dropped
 * counts neither in dp nor in the p of dv. With CAPPED, scores go under their cap, and ds has the
 * cap's slope as a factor. With PACKED, samples share rows, and where a query's own begins is one
 * more statistic of it.
 *
 * A causal block of keys walks as many tiles as there are queries after it, times the group. With
 * few key/value heads that is long beside the whole kernel (half of it for 8 rows of 2048 tokens, 4
 * heads read by 8 each, on 132 multiprocessors), so long blocks must not begin last.
 */
#include "device/cuda/attention/attention.cuh"
#include "device/cuda/support/mma.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP };
enum { ROWS = 64 };         /* of a tile, on both sides */
enum { SCORES = ROWS / 8 }; /* products across a tile */

static const float LOG2_E = 1.44269504088896340736f;

/* Of a query: lse and delta, and with PACKED the first key of its sample. */
template <bool PACKED> static HOST_DEVICE constexpr int statistics_floats()
{
    return (PACKED ? 3 : 2) * ROWS;
}

/* Shared memory: own pair, two stages of the other pair, two stages of statistics. */
template <int D> static HOST_DEVICE constexpr int tile_bytes()
{
    return ROWS * D * 2;
}
template <int D, bool PACKED> static HOST_DEVICE constexpr int shared_bytes()
{
    return 6 * tile_bytes<D>() + 2 * statistics_floats<PACKED>() * (int)sizeof(float);
}

/* Blocks per multiprocessor that the registers are divided among: short heads leave room for a
 * third to compute while the others wait. */
template <int D> static HOST_DEVICE constexpr int blocks()
{
    return D == 64 ? 3 : 2;
}

/* The head and first row of one tile of the other side. */
struct other {
    int head, row;
};

/* Copies of the other side's tile under way into a stage; `statistics` is written at once. */
template <typename T, int D, bool KEYS, bool PACKED>
static __device__ __forceinline__ void fetch(const struct attention_args &a, int batch,
                                             struct other o, uint32_t stage, float *statistics)
{
    const T *qkv = (const T *)a.qkv;
    int kv = o.head / a.group;
    if (KEYS) {
        tile_copy<T, D, ROWS, THREADS>(stage, qkv + query_at(a, batch, o.head), a.width, o.row,
                                       a.n_tokens);
        tile_copy<T, D, ROWS, THREADS>(stage + tile_bytes<D>(),
                                       (const T *)a.dout + out_at(a, batch, o.head), out_width(a),
                                       o.row, a.n_tokens);
        int i = o.row + (int)threadIdx.x % ROWS;
        bool inside = i < a.n_tokens;
        const float *from = (int)threadIdx.x < ROWS ? a.lse : a.delta;
        float x = inside ? from[statistic_at(a, batch, o.head) + i] : 0.0f;
        statistics[threadIdx.x] = (int)threadIdx.x < ROWS ? x * LOG2_E : x;
        if (PACKED && (int)threadIdx.x < ROWS)
            ((int *)statistics)[2 * ROWS + threadIdx.x] = sample_of(a, batch, i);
    } else {
        tile_copy<T, D, ROWS, THREADS>(stage, qkv + key_at(a, batch, kv), a.width, o.row,
                                       a.n_tokens);
        tile_copy<T, D, ROWS, THREADS>(stage + tile_bytes<D>(), qkv + value_at(a, batch, kv),
                                       a.width, o.row, a.n_tokens);
    }
}

/* The block's own rows under way into two tiles. */
template <typename T, int D, bool KEYS>
static __device__ __forceinline__ void fetch_own(const struct attention_args &a, int batch,
                                                 int head, int first, uint32_t own_1,
                                                 uint32_t own_2)
{
    const T *qkv = (const T *)a.qkv;
    if (KEYS) {
        tile_copy<T, D, ROWS, THREADS>(own_1, qkv + key_at(a, batch, head), a.width, first,
                                       a.n_tokens);
        tile_copy<T, D, ROWS, THREADS>(own_2, qkv + value_at(a, batch, head), a.width, first,
                                       a.n_tokens);
    } else {
        tile_copy<T, D, ROWS, THREADS>(own_1, qkv + query_at(a, batch, head), a.width, first,
                                       a.n_tokens);
        tile_copy<T, D, ROWS, THREADS>(own_2, (const T *)a.dout + out_at(a, batch, head),
                                       out_width(a), first, a.n_tokens);
    }
}

/* lse (in base 2) and delta of the lane's two rows, queries from `own` on; zeros past the last. */
static __device__ __forceinline__ void own_statistics(const struct attention_args &a, int batch,
                                                      int head, int own, float (&lse)[2],
                                                      float (&delta)[2])
{
    for (int h = 0; h < 2; h++) {
        int i = own + (int)threadIdx.x % WARP / 4 + 8 * h;
        if (i < a.n_tokens) {
            lse[h] = a.lse[statistic_at(a, batch, head) + i] * LOG2_E;
            delta[h] = a.delta[statistic_at(a, batch, head) + i];
        }
    }
}

/* c = own (the warp's sixteen rows) times the transpose of other. */
template <typename T, int D>
static __device__ __forceinline__ void multiply(float (&c)[SCORES][4], uint32_t own, uint32_t other,
                                                int row)
{
#pragma unroll
    for (int e = 0; e < D / 16; e++) {
        uint32_t x[4];
        fragment_a<D>(x, own, row, e);
#pragma unroll
        for (int n = 0; n < ROWS / 16; n++) {
            uint32_t b[4];
            fragment_b_rows<D>(b, other, 16 * n, e);
            mma<T>(c[2 * n], x, b[0], b[1]);
            mma<T>(c[2 * n + 1], x, b[2], b[3]);
        }
    }
}

/* sum += m times other; m is sixteen own rows by ROWS others, in pairs of 16-bit floats. */
template <typename T, int D>
static __device__ __forceinline__ void accumulate(float (&sum)[D / 8][4],
                                                  const uint32_t (&m)[ROWS / 16][4], uint32_t other)
{
#pragma unroll
    for (int n = 0; n < ROWS / 16; n++) {
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            uint32_t b[4];
            fragment_b_columns<D>(b, other, 16 * n, d);
            mma<T>(sum[2 * d], m[n], b[0], b[1]);
            mma<T>(sum[2 * d + 1], m[n], b[2], b[3]);
        }
    }
}

/* Does every pair count? In the keys' role `statistics` are of the queries, in the queries' role
 * `sample` is of the lane's two rows. */
template <bool KEYS, bool PACKED>
static __device__ __forceinline__ bool all_count(const struct attention_args &a, int own, int other,
                                                 const int (&sample)[2], const float *statistics)
{
    bool all = KEYS ? all_visible(a, other, ROWS, own, 16) : all_visible(a, own, 16, other, ROWS);
    if constexpr (PACKED && KEYS) /* of the last query */
        return all && ((const int *)statistics)[3 * ROWS - 1] <= own;
    else if constexpr (PACKED)
        return __all_sync(0xffffffffu, all && sample[0] <= other && sample[1] <= other);
    return all;
}

/* s and dp become p and ds. `own_lse`, `own_delta` and `own_sample` are of rows g and g + 8
 * (queries' role), `statistics` of the columns (keys' role: ROWS of lse, ROWS of delta, ROWS of
 * samples). lse is in base 2. Bit 4 n + x of `kept` is of s[n][x]. */
template <bool KEYS, bool DROPOUT, bool CAPPED, bool PACKED>
static __device__ __forceinline__ void
pair_grads(const struct attention_args &a, float (&s)[SCORES][4], float (&dp)[SCORES][4], int own,
           int other, const float (&own_lse)[2], const float (&own_delta)[2],
           const int (&own_sample)[2], const float *statistics, uint32_t kept)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const float scale = CAPPED ? LOG2_E : a.scale * LOG2_E;
    bool all = all_count<KEYS, PACKED>(a, own, other, own_sample, statistics);
#pragma unroll
    for (int n = 0; n < SCORES; n++) {
#pragma unroll
        for (int x = 0; x < 4; x++) {
            int row = own + g + x / 2 * 8, column = 8 * n + 2 * t + x % 2;
            float lse = KEYS ? statistics[column] : own_lse[x / 2];
            float delta = KEYS ? statistics[ROWS + column] : own_delta[x / 2];
            bool visible = all || (KEYS ? pair_visible(a, other + column, row)
                                        : pair_visible(a, row, other + column));
            if constexpr (PACKED) {
                int sample =
                    KEYS ? ((const int *)statistics)[2 * ROWS + column] : own_sample[x / 2];
                visible = visible && (KEYS ? row : other + column) >= sample;
            }
            float slope = a.scale;
            if constexpr (CAPPED) {
                const float score = map_softcap<true>(s[n][x] * a.scale, a.cap);
                slope *= map_softcap_slope<true>(score, a.cap);
                s[n][x] = score;
            }
            float p = visible ? exp2f(fmaf(s[n][x], scale, -lse)) : 0.0f;
            s[n][x] = p;
            if constexpr (DROPOUT) {
                float multiplier = kept >> (4 * n + x) & 1u ? 1.0f / a.dropout.kept : 0.0f;
                s[n][x] *= multiplier;
                dp[n][x] *= multiplier;
            }
            dp[n][x] = visible ? slope * p * (dp[n][x] - delta) : 0.0f;
        }
    }
}

/* Rounded to 16 bits, as left operands. */
template <typename T>
static __device__ __forceinline__ void pack_rows(uint32_t (&m)[ROWS / 16][4],
                                                 const float (&c)[SCORES][4])
{
#pragma unroll
    for (int n = 0; n < ROWS / 16; n++) {
#pragma unroll
        for (int x = 0; x < 4; x++)
            m[n][x] = pack_pair<T>(c[2 * n + x / 2][x % 2 * 2], c[2 * n + x / 2][x % 2 * 2 + 1]);
    }
}

template <typename T, int D>
static __device__ __forceinline__ void store_rows(const struct attention_args &a, T *head, int own,
                                                  const float (&sum)[D / 8][4])
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = own + g + 8 * h;
        if (row >= a.n_tokens)
            continue;
#pragma unroll
        for (int d = 0; d < D / 8; d++)
            *(uint32_t *)(head + row * a.width + 8 * d + 2 * t) =
                pack_pair<T>(sum[d][2 * h], sum[d][2 * h + 1]);
    }
}

template <typename T, int D, bool KEYS, bool DROPOUT, bool CAPPED, bool PACKED>
static __global__ void __launch_bounds__(THREADS, blocks<D>()) mma_grad(struct attention_args a)
{
    extern __shared__ float4 shared[];
    uint32_t own_1 = (uint32_t)__cvta_generic_to_shared(shared), own_2 = own_1 + tile_bytes<D>();
    uint32_t stages = own_2 + tile_bytes<D>();
    float *statistics = (float *)((char *)shared + 6 * tile_bytes<D>());
    int n_tiles = (a.n_tokens + ROWS - 1) / ROWS, n_heads = KEYS ? a.kv_heads : a.heads;
    int tile = (int)blockIdx.x % n_tiles, which = (int)blockIdx.x / n_tiles;
    if (KEYS && a.causal) { /* the first keys of every head before the next: the longest first */
        tile = (int)blockIdx.x / (a.batch * n_heads);
        which = (int)blockIdx.x % (a.batch * n_heads);
    } else if (a.causal) {
        tile = n_tiles - 1 - tile; /* the longest of each head first: the head stays in the cache */
    }
    int batch = which / n_heads, head = which % n_heads, first, last;
    int own_first = tile * ROWS, row = (int)threadIdx.x / WARP * 16, own = own_first + row;
    float sum_1[D / 8][4] = {}, sum_2[KEYS ? D / 8 : 1][4] = {}, lse[2] = {}, delta[2] = {};
    if (KEYS)
        queries_of(a, batch, own_first, ROWS, &first, &last);
    else
        keys_of(a, batch, own_first, ROWS, &first, &last);
    struct dropout_key key = {};
    if constexpr (DROPOUT) {
        first -= first % DROPOUT_SQUARE;
        key = dropout_key_of(&a.dropout);
    }
    fetch_own<T, D, KEYS>(a, batch, head, own_first, own_1, own_2);
    if (!KEYS)
        own_statistics(a, batch, head, own, lse, delta);
    int sample[2] = {};
    if constexpr (PACKED && !KEYS) {
        int g = (int)threadIdx.x % WARP / 4;
        sample[0] = sample_of(a, batch, own + g);
        sample[1] = sample_of(a, batch, own + 8 + g);
    }
    int per_head = (last - first + ROWS - 1) / ROWS,
        n_others = KEYS ? per_head * a.group : per_head;
    struct other o = {KEYS ? head * a.group : head, first};
    constexpr int n_statistics = statistics_floats<PACKED>();
    fetch<T, D, KEYS, PACKED>(a, batch, o, stages, statistics);
    copies_commit();
    for (int n = 0; n < n_others; n++) {
        uint32_t here = stages + n % 2 * 2 * tile_bytes<D>();
        if (n + 1 < n_others) {
            struct other next = {o.head + ((n + 1) % per_head == 0 ? 1 : 0),
                                 first + (n + 1) % per_head * ROWS};
            fetch<T, D, KEYS, PACKED>(a, batch, next, stages + (n + 1) % 2 * 2 * tile_bytes<D>(),
                                      statistics + (n + 1) % 2 * n_statistics);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        int other_row = first + n % per_head * ROWS;
        float s[SCORES][4] = {}, dp[SCORES][4] = {};
        uint32_t m[ROWS / 16][4], kept = 0;
        if constexpr (DROPOUT)
            kept = kept_pairs<KEYS>(a.dropout, key,
                                    dropout_square(&a.dropout, (int64_t)batch * a.heads + o.head,
                                                   KEYS ? other_row : own, KEYS ? own : other_row));
        multiply<T, D>(s, own_1, here, row);
        multiply<T, D>(dp, own_2, here + tile_bytes<D>(), row);
        pair_grads<KEYS, DROPOUT, CAPPED, PACKED>(a, s, dp, own, other_row, lse, delta, sample,
                                                  statistics + n % 2 * n_statistics, kept);
        if constexpr (KEYS) {
            pack_rows<T>(m, s);
            accumulate<T, D>(sum_2, m, here + tile_bytes<D>());
        }
        pack_rows<T>(m, dp);
        accumulate<T, D>(sum_1, m, here);
        if (KEYS && (n + 1) % per_head == 0)
            o.head++;
        __syncthreads(); /* before the stage is filled again */
    }
    T *to = (T *)a.dqkv;
    if constexpr (KEYS) {
        store_rows<T, D>(a, to + key_at(a, batch, head), own, sum_1);
        store_rows<T, D>(a, to + value_at(a, batch, head), own, sum_2);
    } else {
        store_rows<T, D>(a, to + query_at(a, batch, head), own, sum_1);
    }
}

template <typename T, int D, bool DROPOUT, bool CAPPED, bool PACKED>
static enum status launch(cudaStream_t s, const struct attention_args *a)
{
    int64_t n_tiles = ceil_div(a->n_tokens, ROWS) * a->batch;
    if (n_tiles == 0)
        return OK;
    TRY(cuda_attention_delta(s, a));
    constexpr int n_bytes = shared_bytes<D, PACKED>();
    TRY(cuda_allow_shared(mma_grad<T, D, true, DROPOUT, CAPPED, PACKED>, n_bytes));
    TRY(cuda_allow_shared(mma_grad<T, D, false, DROPOUT, CAPPED, PACKED>, n_bytes));
    mma_grad<T, D, true, DROPOUT, CAPPED, PACKED>
        <<<(unsigned)(n_tiles * a->kv_heads), THREADS, n_bytes, s>>>(*a);
    CUDA_TRY(cudaGetLastError());
    mma_grad<T, D, false, DROPOUT, CAPPED, PACKED>
        <<<(unsigned)(n_tiles * a->heads), THREADS, n_bytes, s>>>(*a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

template <bool DROPOUT, bool CAPPED, bool PACKED>
static enum status launch_for(cudaStream_t s, const struct attention_args *a)
{
    bool bf16 = a->dtype == DTYPE_BF16;
    if (a->head_dim == 64)
        return bf16 ? launch<__nv_bfloat16, 64, DROPOUT, CAPPED, PACKED>(s, a)
                    : launch<__half, 64, DROPOUT, CAPPED, PACKED>(s, a);
    return bf16 ? launch<__nv_bfloat16, 128, DROPOUT, CAPPED, PACKED>(s, a)
                : launch<__half, 128, DROPOUT, CAPPED, PACKED>(s, a);
}

enum status cuda_attention_grad_mma(cudaStream_t s, const struct attention_args *a)
{
    if (a->positions)
        return launch_for<false, false, true>(s, a);
    if (a->cap > 0.0f)
        return launch_for<false, true, false>(s, a);
    return a->dropout.rng ? launch_for<true, false, false>(s, a)
                          : launch_for<false, false, false>(s, a);
}
