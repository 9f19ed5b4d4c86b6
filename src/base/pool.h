/* pool.h: objects that die together.
 *
 * A pool hands out zeroed memory and frees all of it at once: graphs, plans and parsed configs
 * live in pools. (The word *arena* is kept for the planned memory of a tier.)
 *
 * Running out is sticky, as in SQLite's mallocFailed: allocation returns NULL once and for ever
 * after, and the owner asks pool_status() at the end of a building phase. Callers that
 * dereference at once use pool_try().
 */
#ifndef SNUG_BASE_POOL_H
#define SNUG_BASE_POOL_H

#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pool_chunk;

struct pool {
    struct pool_chunk *chunks;
    size_t used, capacity; /* of the newest chunk */
    size_t n_bytes;        /* handed out in all */
    int failed;
};

void pool_init(struct pool *p);
void pool_release(struct pool *p);

void *pool_alloc(struct pool *p, size_t n_bytes) MUST_CHECK; /* zeroed, 16-byte aligned */
char *pool_strdup(struct pool *p, const char *s) MUST_CHECK;
char *pool_strndup(struct pool *p, const char *s, size_t n) MUST_CHECK;
char *pool_printf(struct pool *p, const char *fmt, ...) PRINTF_LIKE(2, 3) MUST_CHECK;

/* *out = n_bytes of zeroed memory, or ERR_MEMORY. */
enum status pool_try(struct pool *p, void *out, size_t n_bytes) MUST_CHECK;
enum status pool_status(const struct pool *p) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
