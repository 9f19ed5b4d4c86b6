/* attention_mma.cu: attention in tiles on tensor cores, bf16 and f16, sm_80 and up.
 *
 * One block of four warps per 128 queries of a head; each warp owns 32 of them and keeps their
 * output sums in registers. Keys and values arrive in tiles of 64, the next tile while one is
 * computed with. Scores never leave registers: rounded to 16 bits they are the left operand of the
 * product with the values. Maxima are kept in base 2: exp(scale s - m) = 2^(scale_2 s - m_2).
 * With CAPPED, scores are scaled and go under their cap first.
 * With DROPOUT, dropped probabilities become 0 once they are summed; the sums of the others are
 * divided by the share kept at the end.
 * With PACKED, samples share rows: keys before a query's own sample do not count.
 */
#include "device/cuda/attention/attention.cuh"
#include "device/cuda/support/mma.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP };
enum { ROWS = 2 }; /* sixteens of queries per warp */
enum { BQ = 16 * ROWS * WARPS, BK = 64 };
enum { SCORES = BK / 8 }; /* products across a tile of keys */

static const float LOG2_E = 1.44269504088896340736f;
static const float LN_2 = 0.69314718055994530942f;

/* Shared memory: queries, then two stages of keys and values. */
template <int D> static HOST_DEVICE constexpr int tile_bytes(int n_rows)
{
    return n_rows * D * 2;
}
template <int D> static HOST_DEVICE constexpr int shared_bytes()
{
    return tile_bytes<D>(BQ) + 4 * tile_bytes<D>(BK);
}

/* Where a warp is: its first query, the tile's first key. */
struct place {
    int i, j;
};

/* With PACKED: the first keys of the samples of the lane's queries, and of the first and the last
 * query of the warp that there are. */
struct samples {
    int of[ROWS][2];
    int lowest, highest;
};

static __device__ __forceinline__ struct samples samples_of(const struct attention_args &a,
                                                            int batch, int i)
{
    int g = (int)threadIdx.x % WARP / 4;
    struct samples s;
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        s.of[m][0] = sample_of(a, batch, i + 16 * m + g);
        s.of[m][1] = sample_of(a, batch, i + 16 * m + 8 + g);
    }
    s.lowest = sample_of(a, batch, i);
    s.highest = sample_of(a, batch, min(i + 16 * ROWS, a.n_tokens) - 1);
    return s;
}

template <typename T, int D>
static __device__ __forceinline__ void score_tile(float (&s)[ROWS][SCORES][4], uint32_t q,
                                                  uint32_t k, int row)
{
#pragma unroll
    for (int e = 0; e < D / 16; e++) {
        uint32_t a[ROWS][4];
#pragma unroll
        for (int m = 0; m < ROWS; m++)
            fragment_a<D>(a[m], q, row + 16 * m, e);
#pragma unroll
        for (int n = 0; n < BK / 16; n++) {
            uint32_t b[4];
            fragment_b_rows<D>(b, k, 16 * n, e);
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                mma<T>(s[m][2 * n], a[m], b[0], b[1]);
                mma<T>(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

static __device__ __forceinline__ void cap_tile(const struct attention_args &a,
                                                float (&s)[ROWS][SCORES][4])
{
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
#pragma unroll
        for (int n = 0; n < SCORES; n++) {
#pragma unroll
            for (int x = 0; x < 4; x++)
                s[m][n][x] = map_softcap<true>(s[m][n][x] * a.scale, a.cap);
        }
    }
}

template <bool PACKED>
static __device__ __forceinline__ void mask_tile(const struct attention_args &a,
                                                 float (&s)[ROWS][SCORES][4], struct place at,
                                                 const struct samples &samples)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
#pragma unroll
        for (int n = 0; n < SCORES; n++) {
#pragma unroll
            for (int x = 0; x < 4; x++) {
                int j = at.j + 8 * n + 2 * t + x % 2;
                if (!pair_visible(a, at.i + 16 * m + g + x / 2 * 8, j) ||
                    (PACKED && j < samples.of[m][x / 2]))
                    s[m][n][x] = -INFINITY;
            }
        }
    }
}

/* Scores of one sixteen become probabilities relative to the new maxima; the sums so far shrink. */
template <int D>
static __device__ __forceinline__ void softmax_rows(float (&s)[SCORES][4], float (&top)[2],
                                                    float (&total)[2], float (&out)[D / 8][4],
                                                    float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float above = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int n = 0; n < SCORES; n++)
            above = fmaxf(above, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        above = fmaxf(top[h], quad_max(above) * scale);
        float base = above == -INFINITY ? 0.0f : above;
        float shrink = exp2f(top[h] - base);
        top[h] = above;
#pragma unroll
        for (int n = 0; n < SCORES; n++) {
            s[n][2 * h] = exp2f(fmaf(s[n][2 * h], scale, -base));
            s[n][2 * h + 1] = exp2f(fmaf(s[n][2 * h + 1], scale, -base));
            sum += s[n][2 * h] + s[n][2 * h + 1];
        }
        total[h] = total[h] * shrink + sum;
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
            out[d][2 * h] *= shrink;
            out[d][2 * h + 1] *= shrink;
        }
    }
}

/* `square` has the tile's first pair. */
static __device__ __forceinline__ void drop_tile(const struct attention_args &a,
                                                 float (&p)[ROWS][SCORES][4],
                                                 struct dropout_key key, uint64_t square)
{
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        uint32_t kept = kept_pairs<false>(a.dropout, key, square + (uint64_t)(m * a.dropout.side));
#pragma unroll
        for (int n = 0; n < SCORES; n++) {
#pragma unroll
            for (int x = 0; x < 4; x++)
                p[m][n][x] = kept >> (4 * n + x) & 1u ? p[m][n][x] : 0.0f;
        }
    }
}

/* out += p v */
template <typename T, int D>
static __device__ __forceinline__ void value_tile(float (&out)[ROWS][D / 8][4],
                                                  const float (&p)[ROWS][SCORES][4], uint32_t v)
{
#pragma unroll
    for (int n = 0; n < BK / 16; n++) {
        uint32_t a[ROWS][4];
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
#pragma unroll
            for (int x = 0; x < 4; x++)
                a[m][x] = pack_pair<T>(p[m][2 * n + x / 2][x % 2 * 2],
                                       p[m][2 * n + x / 2][x % 2 * 2 + 1]);
        }
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            uint32_t b[4];
            fragment_b_columns<D>(b, v, 16 * n, d);
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                mma<T>(out[m][2 * d], a[m], b[0], b[1]);
                mma<T>(out[m][2 * d + 1], a[m], b[2], b[3]);
            }
        }
    }
}

template <typename T, int D, bool DROPOUT>
static __device__ __forceinline__ void
store_rows(const struct attention_args &a, int batch, int head, int i,
           const float (&out)[ROWS][D / 8][4], const float (&top)[ROWS][2],
           const float (&total)[ROWS][2])
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    T *to = (T *)a.out + out_at(a, batch, head);
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = quad_sum(total[m][h]);
            int row = i + 16 * m + 8 * h + g;
            if (row >= a.n_tokens)
                continue; /* the same for all four lanes, after their exchange */
            if (t == 0)
                a.lse[statistic_at(a, batch, head) + row] = (top[m][h] + log2f(sum)) * LN_2;
            if constexpr (DROPOUT)
                sum *= a.dropout.kept;
#pragma unroll
            for (int d = 0; d < D / 8; d++)
                *(uint32_t *)(to + row * out_width(a) + 8 * d + 2 * t) =
                    pack_pair<T>(out[m][d][2 * h] / sum, out[m][d][2 * h + 1] / sum);
        }
    }
}

/* False when no pair of the warp's queries and the tile's keys counts. */
static __device__ __forceinline__ bool any_visible(const struct attention_args &a, struct place at)
{
    bool after = a.causal && at.j > at.i + 16 * ROWS - 1;
    bool before = a.window > 0 && at.j + BK - 1 < window_first(a, at.i);
    return !after && !before;
}

template <typename T, int D, bool DROPOUT, bool CAPPED, bool PACKED>
static __global__ void __launch_bounds__(THREADS, 2) mma_forward(struct attention_args a)
{
    extern __shared__ float4 shared[];
    uint32_t q = (uint32_t)__cvta_generic_to_shared(shared);
    uint32_t stages = q + tile_bytes<D>(BQ);
    int n_tiles = (a.n_tokens + BQ - 1) / BQ;
    int tile = n_tiles - 1 - (int)blockIdx.x % n_tiles, row = (int)blockIdx.x / n_tiles;
    int batch = row / a.heads, head = row % a.heads, first, last;
    int own = (int)threadIdx.x / WARP * 16 * ROWS; /* the warp's first query in the tile */
    const T *qkv = (const T *)a.qkv;
    const T *k = qkv + key_at(a, batch, head / a.group),
            *v = qkv + value_at(a, batch, head / a.group);
    float out[ROWS][D / 8][4] = {}, total[ROWS][2] = {}, top[ROWS][2];
#pragma unroll
    for (int m = 0; m < ROWS; m++)
        top[m][0] = top[m][1] = -INFINITY;
    keys_of(a, batch, tile * BQ, BQ, &first, &last);
    struct samples samples = {};
    if constexpr (PACKED)
        samples = samples_of(a, batch, tile * BQ + own);
    struct dropout_key key = {};
    if constexpr (DROPOUT) {
        first -= first % DROPOUT_SQUARE;
        key = dropout_key_of(&a.dropout);
    }
    tile_copy<T, D, BQ, THREADS>(q, qkv + query_at(a, batch, head), a.width, tile * BQ, a.n_tokens);
    tile_copy<T, D, BK, THREADS>(stages, k, a.width, first, a.n_tokens);
    tile_copy<T, D, BK, THREADS>(stages + tile_bytes<D>(BK), v, a.width, first, a.n_tokens);
    copies_commit();
    for (int j = first, stage = 0; j < last; j += BK, stage ^= 1) {
        uint32_t keys = stages + stage * 2 * tile_bytes<D>(BK);
        uint32_t next = stages + (stage ^ 1) * 2 * tile_bytes<D>(BK);
        if (j + BK < last) {
            tile_copy<T, D, BK, THREADS>(next, k, a.width, j + BK, a.n_tokens);
            tile_copy<T, D, BK, THREADS>(next + tile_bytes<D>(BK), v, a.width, j + BK, a.n_tokens);
        }
        copies_commit(); /* empty at the end, so that one group is always the newest */
        copies_wait<1>();
        __syncthreads();
        struct place at = {tile * BQ + own, j};
        if (any_visible(a, at) && (!PACKED || j + BK > samples.lowest)) {
            float s[ROWS][SCORES][4] = {};
            score_tile<T, D>(s, q, keys, own);
            if constexpr (CAPPED)
                cap_tile(a, s);
            if (!all_visible(a, at.i, 16 * ROWS, j, BK) || (PACKED && j < samples.highest))
                mask_tile<PACKED>(a, s, at, samples);
#pragma unroll
            for (int m = 0; m < ROWS; m++)
                softmax_rows<D>(s[m], top[m], total[m], out[m], CAPPED ? LOG2_E : a.scale * LOG2_E);
            if constexpr (DROPOUT)
                drop_tile(a, s, key, dropout_square(&a.dropout, row, at.i, j));
            value_tile<T, D>(out, s, keys + tile_bytes<D>(BK));
        }
        __syncthreads(); /* before the stage is filled again */
    }
    store_rows<T, D, DROPOUT>(a, batch, head, tile * BQ + own, out, top, total);
}

template <typename T, int D, bool DROPOUT, bool CAPPED, bool PACKED>
static enum status launch(cudaStream_t s, const struct attention_args *a)
{
    int64_t n_blocks = ceil_div(a->n_tokens, BQ) * a->batch * a->heads;
    if (n_blocks == 0)
        return OK;
    TRY(cuda_allow_shared(mma_forward<T, D, DROPOUT, CAPPED, PACKED>, shared_bytes<D>()));
    mma_forward<T, D, DROPOUT, CAPPED, PACKED>
        <<<(unsigned)n_blocks, THREADS, shared_bytes<D>(), s>>>(*a);
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

enum status cuda_attention_mma(cudaStream_t s, const struct attention_args *a)
{
    if (a->positions)
        return launch_for<false, false, true>(s, a);
    if (a->cap > 0.0f)
        return launch_for<false, true, false>(s, a);
    return a->dropout.rng ? launch_for<true, false, false>(s, a)
                          : launch_for<false, false, false>(s, a);
}
