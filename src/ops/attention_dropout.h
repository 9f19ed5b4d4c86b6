/* attention_dropout.h: which probabilities attention drops: a pure function of (rng, seed, batch
 * entry, head, query, key), the same on every device, so that the gradient and a recomputed node
 * drop what the first run dropped.
 *
 * Pairs of query i and key j are drawn for by squares of 16 x 16. A square takes 32 draws of four
 * words; a draw serves eight pairs with 16 bits each:
 *
 *     square  = ((b H + h) S + i / 16) S + j / 16                S = T / 16, rounded up; of two
 *                                                                sequences T is the longer one's
 *     draw    = philox of 7 rounds (key        = rng[0],
 *                                   counter_hi = rng[1] * 2^20 + seed,
 *                                   counter_lo = 32 square + 4 (i % 8) + j % 8 / 2)
 *     word    = draw.v[2 (i / 8 % 2) + j / 8 % 2]
 *     bits    = the lower half of the word where j is even, the upper half where it is odd
 *     dropped = bits < 2^16 p, rounded
 *
 * Draw n of a square thus has the eight pairs that lane n of a warp holds of a 16 x 16 product of
 * tensor cores, and the bits of half a row lie side by side in memory, where a CPU looks them up.
 *
 * A kept probability is divided by 1 - p.
 */
#ifndef SNUG_OPS_ATTENTION_DROPOUT_H
#define SNUG_OPS_ATTENTION_DROPOUT_H

#include <math.h>
#include <stdint.h>

#include "base/rng.h"
#include "ops/dropout_support.h"
#include "ops/layer_support.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DROPOUT_SQUARE = 16, DROPOUT_DRAWS = 32 };

/* What a call drops. Small, since it travels with the arguments of CUDA kernels. */
struct attention_dropout {
    const int64_t *rng; /* on the device; NULL: nothing is dropped */
    int32_t seed;       /* below DROPOUT_SEEDS */
    int32_t side;       /* squares along the tokens; the square of it counts in 64 bits */
    uint32_t threshold; /* bits below are dropped; in the upper half of the word */
    float kept;         /* 1 - p: what is kept is divided by it */
};

/* Of a call that drops by attribute i_dropout, with the seed behind it; the random state is input
 * i_rng. */
static inline struct attention_dropout attention_dropout_by(const struct op_call *c, int i_rng,
                                                            int i_dropout, int64_t n_tokens)
{
    struct attention_dropout d = {NULL, 0, 0, 0, 1.0f};
    double p = call_float(c, i_dropout), parts = floor(p * 65536.0 + 0.5);
    if (!call_has(c, i_rng) || parts < 1.0)
        return d;
    parts = parts > 65535.0 ? 65535.0 : parts;
    d.rng = (const int64_t *)c->in[i_rng].data;
    d.seed = (int32_t)call_int(c, i_dropout + 1);
    d.side = (int32_t)((n_tokens + DROPOUT_SQUARE - 1) / DROPOUT_SQUARE);
    d.threshold = (uint32_t)parts << 16;
    d.kept = (float)(1.0 - p);
    return d;
}

/* Of a call of attention or its gradient. */
static inline struct attention_dropout attention_dropout_of(const struct op_call *c, int i_rng,
                                                            int64_t n_tokens)
{
    return attention_dropout_by(c, i_rng, ATTENTION_DROPOUT, n_tokens);
}

/* The square of row `head` = b H + h that holds query i and key j. */
static inline HOST_DEVICE uint64_t dropout_square(const struct attention_dropout *d, int64_t head,
                                                  int64_t i, int64_t j)
{
    return (uint64_t)((head * d->side + i / DROPOUT_SQUARE) * d->side + j / DROPOUT_SQUARE);
}

/* What all draws of a call have in common. */
struct dropout_key {
    uint64_t key, counter_hi;
};

/* Reads the random state: only where it lies. */
static inline HOST_DEVICE struct dropout_key dropout_key_of(const struct attention_dropout *d)
{
    struct dropout_key k = {(uint64_t)d->rng[0], dropout_counter(d->rng[1], d->seed)};
    return k;
}

/* Draw n of a square. */
static inline HOST_DEVICE struct philox4 dropout_draw(struct dropout_key k, uint64_t square, int n)
{
    return philox_rounds(k.key, k.counter_hi, square * DROPOUT_DRAWS + (uint64_t)n, 7);
}

/* Is the pair of an even (odd) key kept, given the word of both? */
static inline HOST_DEVICE bool dropout_keeps(const struct attention_dropout *d, uint32_t word,
                                             int odd)
{
    return (odd ? word : word << 16) >= d->threshold;
}

/* Is the pair of query i and key j kept? For those who ask about one pair: others share draws. */
static inline HOST_DEVICE bool dropout_keeps_pair(const struct attention_dropout *d, int64_t head,
                                                  int64_t i, int64_t j)
{
    struct philox4 r = dropout_draw(dropout_key_of(d), dropout_square(d, head, i, j),
                                    (int)(4 * (i % 8) + j % 8 / 2));
    return dropout_keeps(d, r.v[2 * (i / 8 % 2) + j / 8 % 2], (int)(j % 2));
}

#ifdef __cplusplus
}
#endif
#endif
