/* grouped_tiles.h: which tile of which group a block of a grouped product takes, and where the
 * operands of a group begin: arithmetic that kernels and tests share.
 *
 *     c[i, j] = sum over terms t of a(i, t) b(j, t), for each group
 *
 * Either the rows i of a group are those between its offsets (by_rows), and b has a matrix for each
 * group; or the terms are, and c has one.
 */
#ifndef SNUG_DEVICE_CUDA_DECLARED_GROUPED_TILES_H
#define SNUG_DEVICE_CUDA_DECLARED_GROUPED_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

struct grouped_shape {
    int n_groups;
    bool by_rows;
    int64_t m, n, k; /* of a group; m or k is what the offsets say */
};

/* One group's product: its sizes, and the first elements of its operands. */
struct group {
    int64_t m, k;
    int64_t a, b, c;
};

static inline HOST_DEVICE struct group group_of(struct grouped_shape s, const int32_t *offsets,
                                                int e)
{
    const int64_t first = offsets[e], size = offsets[e + 1] - first;
    struct group r;
    r.m = s.by_rows ? size : s.m;
    r.k = s.by_rows ? s.k : size;
    r.a = first * (s.by_rows ? s.k : s.m);
    r.b = s.by_rows ? e * s.n * s.k : first * s.n;
    r.c = s.by_rows ? first * s.n : e * s.m * s.n;
    return r;
}

/* Tiles of rows x columns that group e has. */
static inline HOST_DEVICE int32_t group_tiles(struct grouped_shape s, const int32_t *offsets, int e,
                                              int rows, int columns)
{
    const int64_t m = s.by_rows ? offsets[e + 1] - offsets[e] : s.m;
    return (int32_t)((m + rows - 1) / rows * ((s.n + columns - 1) / columns));
}

/* The group that tile t is in, of those with tiles of their own. starts[e]: how many tiles the
 * groups before e have; t is below starts[n_groups]. */
static inline HOST_DEVICE int group_of_tile(const int32_t *starts, int n_groups, int32_t t)
{
    int low = 0, high = n_groups;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (starts[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Where a tile begins that is number t of its group; tiles go along columns first. */
struct tile_place {
    int64_t row, column;
};

static inline HOST_DEVICE struct tile_place tile_place_of(int64_t n, int32_t t, int rows,
                                                          int columns)
{
    const int64_t across = (n + columns - 1) / columns;
    struct tile_place p;
    p.row = t / across * rows;
    p.column = t % across * columns;
    return p;
}

/* The group that tile t is in, when the group of an earlier tile was e: a few steps at most where
 * a block goes from tile to tile. */
static inline HOST_DEVICE int group_from(const int32_t *starts, int e, int32_t t)
{
    while (starts[e + 1] <= t)
        e++;
    return e;
}

/* Where tile t of its group begins when tiles go down `band` tiles first, then to the next column,
 * and to the next band after the last one: the tiles that are made at the same time share the rows
 * of one operand and few columns of the other, and both stay in the cache. */
static inline HOST_DEVICE struct tile_place tile_place_in_bands(int64_t m, int64_t n, int32_t t,
                                                                int rows, int columns, int band)
{
    const int32_t down = (int32_t)((m + rows - 1) / rows);
    const int32_t across = (int32_t)((n + columns - 1) / columns);
    const int32_t above = t / (band * across) * band, in_band = t - above * across;
    const int32_t height = down - above < band ? down - above : band;
    struct tile_place p;
    p.row = (int64_t)(above + in_band % height) * rows;
    p.column = (int64_t)(in_band / height) * columns;
    return p;
}

/* Which row of a block [terms][64 rows of a] and which chunk of eight of its elements a lane names
 * to load the fragment of rows [16 i, 16 i + 16), terms [16 k, 16 k + 16), transposed. */
static inline HOST_DEVICE int turned_row(int lane, int k)
{
    return 16 * k + lane / 16 * 8 + lane % 8;
}
static inline HOST_DEVICE int turned_chunk(int lane, int i)
{
    return 2 * i + lane / 8 % 2;
}

#ifdef __cplusplus
}
#endif
#endif
