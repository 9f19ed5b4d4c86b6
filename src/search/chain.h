/* chain.h: which option each link of a chain takes, so that the sum of costs is least.
 *
 * Links are passed in order, and each leaves bytes behind until the way back:
 *
 *     forward  ─▶ 0 ─▶ 1 ─▶ 2 ─▶ ...      on the device at link i: what links 0 .. i-1 keep,
 *     backward ◀─ 0 ◀─ 1 ◀─ 2 ◀─ ...      and what i itself needs while it works
 *
 * One table answers for every number of bytes (Bellman over the bytes that are left), so that a
 * search over everything else pays for it once.
 */
#ifndef SNUG_SEARCH_CHAIN_H
#define SNUG_SEARCH_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"

#ifdef __cplusplus
extern "C" {
#endif

struct link_option {
    int64_t n_kept; /* bytes left behind */
    int64_t n_need; /* bytes while it works, on the way there or back, the kept ones included */
    double cost;
};

struct chain {
    int n_links, n_options;            /* at most so many each */
    const struct link_option *options; /* [n_links][n_options] */
    const int *n_each;                 /* options of each link */
    int64_t n_bytes;                   /* as many as will be asked about */
    int64_t slot_bytes;                /* what the table counts in */
    int64_t *n_kept;                   /* [n_links][n_options] slots left behind */
    unsigned char *choices;            /* [n_links][n_slots]; CHAIN_NONE: nothing fits */
};

enum { CHAIN_SLOTS = 2048, CHAIN_NONE = 255 };

/* Fills in the table, in the pool, from the fields before it. */
enum status chain_solve(struct chain *c, struct pool *pool) MUST_CHECK;

/* The options of least cost that need no more than n_bytes at any time, into chosen[n_links];
 * false: there are none. Bytes are rounded against the chooser, by less than a slot for a link. */
bool chain_choose(const struct chain *c, int64_t n_bytes, int *chosen);

#ifdef __cplusplus
}
#endif
#endif
