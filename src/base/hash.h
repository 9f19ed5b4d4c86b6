/* hash.h: short names for bytes and texts (FNV-1a, 64 bit): keys of caches, streams of random
 * numbers. Not for anything that somebody could want to forge. Values are kept in files and decide
 * which numbers a name draws: they never change. */
#ifndef SNUG_BASE_HASH_H
#define SNUG_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline uint64_t hash_bytes(const void *data, size_t n_bytes)
{
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n_bytes; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static inline uint64_t hash_text(const char *text)
{
    return hash_bytes(text, strlen(text));
}

#ifdef __cplusplus
}
#endif
#endif
