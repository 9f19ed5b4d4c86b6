/* blocks.h: a set of a model's blocks (layers), as decisions name them: "true", "false", "0-3,7";
 * or "auto": which ones is left open; or parts of all of them: "attention, mlp". */
#ifndef SNUG_MODEL_BLOCKS_H
#define SNUG_MODEL_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct block_range {
    int64_t first, last; /* both in it */
};

/* All zero: no block. */
struct block_set {
    const char *text; /* as it was written; NULL: it was not */
    bool all;
    bool is_open; /* whoever plans may take more; none of them is in it so far */
    const struct block_range *ranges; /* borrowed */
    size_t n_ranges;
    unsigned modules; /* bits of enum module_kind: of every block these parts, and no whole block */
};

const char *module_name(enum module_kind m); /* "attention" */

/* *valid = whether the text is a set of blocks; then *out is it, with its memory in the pool. */
enum status block_set_parse(struct block_set *out, const char *text, struct pool *pool,
                            bool *valid) MUST_CHECK;

bool block_set_has(const struct block_set *s, int64_t block);
/* One more than the highest block that is named; 0 when none is, and for all of them. */
int64_t block_set_end(const struct block_set *s);

#ifdef __cplusplus
}
#endif
#endif
