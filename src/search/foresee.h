/* foresee.h: a thread that tries what a search is likely to try next (foresee.c). NULL is fine
 * wherever one is expected: there is none. */
#ifndef SNUG_SEARCH_FORESEE_H
#define SNUG_SEARCH_FORESEE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct candidate;
struct change;
struct foresight;
struct search;
struct trial;
struct workload;

enum status foresight_new(struct foresight **out, const struct workload *w) MUST_CHECK;
void foresight_free(struct foresight *f);

/* What a search is about to try, one after the other: candidates, each expanded and corrected; or
 * changes of a trial. */
struct to_try {
    const struct candidate *candidates;
    const struct trial *from;
    const struct change *changes;
    size_t n;
};
/* The search is at the i-th of them; those behind it may be tried ahead of it. */
void foresight_at(struct search *s, const struct to_try *list, size_t i);
/* The rest of the list is not wanted. */
void foresight_end(struct foresight *f);
/* Nor is what the search has: when this comes back nothing of it is in use, and programs that were
 * made ahead of it take no memory. */
void foresight_rest(struct foresight *f);
/* For the thread: has the search come to what it is at, or is it not wanted? */
bool foresight_is_late(const struct foresight *f);

#ifdef __cplusplus
}
#endif
#endif
