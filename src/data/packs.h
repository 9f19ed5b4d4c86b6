/* packs.h: which samples share a row: each goes where the least room is left that it fits into, the
 * longest first (best fit decreasing). The same samples make the same packs. */
#ifndef SNUG_DATA_PACKS_H
#define SNUG_DATA_PACKS_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct packs {
    int64_t n;
    int64_t *begin;   /* [n + 1]: pack k has members begin[k] .. begin[k + 1] - 1 */
    int64_t *members; /* samples, rising within a pack; packs are in the order of their first */
};

/* Of n samples of the lengths given, each from 1 to `room`. */
enum status packs_make(struct packs *out, const int32_t *lengths, int64_t n,
                       int64_t room) MUST_CHECK;
void packs_release(struct packs *p); /* of a zeroed one too */

#ifdef __cplusplus
}
#endif
#endif
