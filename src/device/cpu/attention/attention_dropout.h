/* attention_dropout.h: what a tile of queries and keys drops (ops/attention_dropout.h), drawn
 * once for the tile and then looked up row by row. */
#ifndef SNUG_DEVICE_CPU_ATTENTION_ATTENTION_DROPOUT_H
#define SNUG_DEVICE_CPU_ATTENTION_ATTENTION_DROPOUT_H

#include "device/cpu/attention/attention_tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tile_draws {
    uint16_t bits[CPU_TILE * CPU_TILE]; /* [query, key] */
    uint16_t threshold;                 /* bits below it are dropped */
    float factor;                       /* on what is kept */
};

/* Queries i .. i + n and keys k .. k + n_k of row `head`; i and k are multiples of DROPOUT_SQUARE.
 */
struct tile_place {
    int64_t head, i, n, k, n_k;
};

/* Draws for the pairs of a tile that the mask lets through; the others' bits stay as they were. */
void tile_draw(struct tile_draws *t, const struct attention_dropout *d,
               const struct attention_mask *mask, const struct tile_place *at);

/* What a reference multiplies the probability of query i and key j by. */
static inline double pair_factor(const struct attention_dropout *d, int64_t head, int64_t i,
                                 int64_t j)
{
    if (!d->rng)
        return 1.0;
    return dropout_keeps_pair(d, head, i, j) ? 1.0 / (double)d->kept : 0.0;
}

/* Drops from x, row `row` of the tile, at keys first .. last - 1. */
static inline void tile_drop(const struct tile_draws *t, int64_t row, int64_t first, int64_t last,
                             float *SNUG_RESTRICT x)
{
    const uint16_t *bits = t->bits + row * CPU_TILE;
    uint16_t threshold = t->threshold;
    float factor = t->factor;
#pragma omp simd
    for (int64_t j = first; j < last; j++)
        x[j] = bits[j] >= threshold ? x[j] * factor : 0.0f;
}

#ifdef __cplusplus
}
#endif
#endif
