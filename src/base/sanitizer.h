/* sanitizer.h: innermost loops under sanitizers.
 *
 * A check of every access makes the loops that live in vector registers a hundred times slower, and
 * tests under sanitizers spend their time in nothing else. Such a loop is UNSANITIZED, and says
 * beforehand which ranges it will touch: they are checked once, each as a whole. In other builds
 * both mean nothing. What it calls is ALWAYS_INLINE, and UNSANITIZED as well where it has variables
 * in memory: gcc would mark them as out of scope in the end, and nothing in the caller takes such a
 * mark from the stack again.
 */
#ifndef SNUG_BASE_SANITIZER_H
#define SNUG_BASE_SANITIZER_H

#include <stddef.h>

#include "base/compiler.h"

#if SNUG_ASAN
#include <sanitizer/asan_interface.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if SNUG_ASAN
#define UNSANITIZED __attribute__((no_sanitize("address", "undefined")))
#else
#define UNSANITIZED
#endif

/* AddressSanitizer reports the first of these bytes that may not be touched. */
static inline void sanitizer_expect(const void *p, size_t n_bytes)
{
#if SNUG_ASAN
    const volatile char *bad = (const volatile char *)__asan_region_is_poisoned((void *)p, n_bytes);
    if (bad)
        (void)*bad;
#else
    (void)p, (void)n_bytes;
#endif
}

#ifdef __cplusplus
}
#endif
#endif
