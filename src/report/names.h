/* names.h: texts by number, each kept once: a plan of ten thousand buffers has few different words.
 */
#ifndef SNUG_REPORT_NAMES_H
#define SNUG_REPORT_NAMES_H

#include <stdint.h>

#include "base/pool.h"
#include "base/vec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All zero: none yet. */
struct names {
    struct pool pool;
    VEC(const char *) texts; /* by number */
    int32_t *slots; /* by hash: number + 1, 0 where free; twice as many as texts at least */
    size_t n_slots;
};

/* The number of that text, which is copied when it is new. */
enum status names_number(struct names *n, const char *text, int32_t *number) MUST_CHECK;
void names_release(struct names *n);

#ifdef __cplusplus
}
#endif
#endif
