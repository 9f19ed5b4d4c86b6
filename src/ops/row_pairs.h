/* row_pairs.h: pairs (i, j) of rows with i <= j, numbered: what product_squares and its kernels
 * agree on. */
#ifndef SNUG_OPS_ROW_PAIRS_H
#define SNUG_OPS_ROW_PAIRS_H

#include <stdint.h>

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

struct row_pair {
    int64_t i, j;
};

static inline HOST_DEVICE int64_t row_pair_count(int64_t n_rows)
{
    return n_rows * (n_rows + 1) / 2;
}

/* Pairs (0, 0), (0, 1), (1, 1), (0, 2), ...: j is the last that has no more than k pairs before
 * its own. */
static inline HOST_DEVICE struct row_pair row_pair_of(int64_t k)
{
    int64_t j = 0;
    while (row_pair_count(j + 1) <= k)
        j++;
    struct row_pair p = {k - row_pair_count(j), j};
    return p;
}

#ifdef __cplusplus
}
#endif
#endif
