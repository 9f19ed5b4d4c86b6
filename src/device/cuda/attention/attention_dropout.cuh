/* attention_dropout.cuh: which pairs attention drops (ops/attention_dropout.h), where kernels
 * want to know it: as the lanes of a warp hold products of tensor cores, as a matrix in shared
 * memory, and pair by pair.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_ATTENTION_DROPOUT_CUH
#define SNUG_DEVICE_CUDA_ATTENTION_ATTENTION_DROPOUT_CUH

#include "device/cuda/support/support.cuh"
#include "ops/attention_dropout.h"

/* The lower or the upper halves of two words, x's below y's. */
static __device__ __forceinline__ uint32_t halves(uint32_t x, uint32_t y, bool upper)
{
    return __byte_perm(x, y, upper ? 0x7632 : 0x5410);
}

/* The lane's bits of a 16 x 16 product c[2][4] of queries by keys: draw `lane` as it is (lane =
 * 4 g + t): c[n][x] of query g + 8 (x / 2) and key 8 n + 2 t + x % 2 is half x % 2 of word
 * 2 (x / 2) + n. */
static __device__ __forceinline__ void draw_queries(uint32_t (&w)[4], struct dropout_key key,
                                                    uint64_t square)
{
    struct philox4 r = dropout_draw(key, square, (int)threadIdx.x % WARP);
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = r.v[i];
}

/* Of a product of keys by queries: c[n][x] of key g + 8 (x / 2) and query 8 n + 2 t + x % 2 is to
 * be half x / 2 of word 2 n + x % 2. The lane's queries 2 t and 2 t + 1 lie in two draws, each of
 * which serves both keys of a pair, that is, two lanes: either lane makes one of them and hands
 * over the halves of the other's key. */
static __device__ __forceinline__ void draw_keys(uint32_t (&w)[4], struct dropout_key key,
                                                 uint64_t square)
{
    int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    bool odd = g % 2; /* the lane's keys are; and the query of the draw it makes is */
    struct philox4 r = dropout_draw(key, square, 4 * (2 * t + odd) + g / 2);
    uint32_t near = __shfl_xor_sync(0xffffffffu, halves(r.v[0], r.v[1], !odd), 4);
    uint32_t far = __shfl_xor_sync(0xffffffffu, halves(r.v[2], r.v[3], !odd), 4);
    uint32_t own_near = halves(r.v[0], r.v[1], odd), own_far = halves(r.v[2], r.v[3], odd);
    w[0] = odd ? near : own_near;
    w[1] = odd ? own_near : near;
    w[2] = odd ? far : own_far;
    w[3] = odd ? own_far : far;
}

/* Which of a lane's pairs of a 16 x 64 product c[8][4] are kept: bit 4 n + x says it of c[n][x].
 * Rows are queries and columns keys, with KEYS the reverse. `square` is the first of four. Every
 * lane of the warp takes part. */
template <bool KEYS>
static __device__ __forceinline__ uint32_t kept_pairs(const struct attention_dropout &d,
                                                      struct dropout_key key, uint64_t square)
{
    uint32_t kept = 0;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        uint32_t w[4];
        if (KEYS)
            draw_keys(w, key, square + (uint64_t)(n * d.side));
        else
            draw_queries(w, key, square + (uint64_t)n);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int x = i % 4;
            bool keeps = KEYS ? dropout_keeps(&d, w[2 * (i / 4) + x % 2], x / 2)
                              : dropout_keeps(&d, w[2 * (x / 2) + i / 4], x % 2);
            kept |= (uint32_t)keeps << (8 * n + i);
        }
    }
    return kept;
}

/* What BQ queries from i on and BK keys from j on are multiplied by, rows BK + 1 apart; i and j are
 * multiples of DROPOUT_SQUARE. All THREADS threads take part. */
template <int BQ, int BK, int THREADS>
static __device__ void tile_multipliers(float *to, const struct attention_dropout &d, int64_t head,
                                        int i, int j)
{
    constexpr int across = BK / DROPOUT_SQUARE, n_draws = BQ / DROPOUT_SQUARE * across * 32;
    static_assert(BQ % DROPOUT_SQUARE == 0 && BK % DROPOUT_SQUARE == 0 && DROPOUT_DRAWS == 32, "");
    struct dropout_key key = dropout_key_of(&d);
    float factor = 1.0f / d.kept;
    for (int at = threadIdx.x; at < n_draws; at += THREADS) {
        int n = at % 32, row = at / 32 / across * DROPOUT_SQUARE;
        int column = at / 32 % across * DROPOUT_SQUARE;
        struct philox4 r = dropout_draw(key, dropout_square(&d, head, i + row, j + column), n);
        float *first = to + (row + n / 4) * (BK + 1) + column + n % 4 * 2;
#pragma unroll
        for (int x = 0; x < 8; x++)
            first[x / 4 * 8 * (BK + 1) + x / 2 % 2 * 8 + x % 2] =
                dropout_keeps(&d, r.v[x / 2], x % 2) ? factor : 0.0f;
    }
}

/* What the probability of one pair is multiplied by. */
static __device__ __forceinline__ float pair_multiplier(const struct attention_dropout &d,
                                                        int64_t head, int i, int j)
{
    if (!d.rng)
        return 1.0f;
    return dropout_keeps_pair(&d, head, i, j) ? 1.0f / d.kept : 0.0f;
}

#endif
