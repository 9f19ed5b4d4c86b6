#include "device/cpu/attention/attention_dropout.h"

#include <string.h>

enum { HALF = DROPOUT_SQUARE / 2 };

/* The 16 x 16 bits of one square, rows CPU_TILE apart. */
static void draw_square(const struct attention_dropout *d, uint64_t square, uint16_t *to)
{
    const struct dropout_key key = dropout_key_of(d);
    uint32_t words[4][DROPOUT_DRAWS];
    for (int n = 0; n < DROPOUT_DRAWS; n++) {
        struct philox4 r = dropout_draw(key, square, n);
        words[0][n] = r.v[0];
        words[1][n] = r.v[1];
        words[2][n] = r.v[2];
        words[3][n] = r.v[3];
    }
    for (int row = 0; row < DROPOUT_SQUARE; row++) {
        for (int half = 0; half < 2; half++) /* eight keys, the first in the lowest bits */
            memcpy(to + row * CPU_TILE + half * HALF, &words[row / HALF * 2 + half][row % HALF * 4],
                   HALF * sizeof(*to));
    }
}

void tile_draw(struct tile_draws *t, const struct attention_dropout *d,
               const struct attention_mask *mask, const struct tile_place *at)
{
    t->threshold = (uint16_t)(d->threshold >> 16);
    t->factor = 1.0f / d->kept;
    for (int64_t i = 0; i < at->n; i += DROPOUT_SQUARE) {
        for (int64_t k = 0; k < at->n_k; k += DROPOUT_SQUARE) {
            if (mask_meets(mask, at->i + i, DROPOUT_SQUARE, at->k + k, DROPOUT_SQUARE))
                draw_square(d, dropout_square(d, at->head, at->i + i, at->k + k),
                            t->bits + i * CPU_TILE + k);
        }
    }
}
