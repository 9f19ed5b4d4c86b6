/* alloc.h: the one door to the heap.
 *
 * Everything that is not planned arena memory comes through here, so that failures can be
 * injected (tests rerun a body with allocation 1, 2, 3, ... failing) and counted.
 * A failed allocation returns NULL; callers turn it into ERR_MEMORY with mem_try().
 */
#ifndef SNUG_BASE_ALLOC_H
#define SNUG_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

void *mem_alloc(size_t n_bytes) MUST_CHECK;
void *mem_calloc(size_t n, size_t size) MUST_CHECK; /* zeroed; overflow-checked */
void *mem_realloc(void *p, size_t n_bytes) MUST_CHECK;
char *mem_strdup(const char *s) MUST_CHECK;
void mem_free(void *p);

/* Gives the system back what was freed, after work that came and went (reading text, saving): the C
 * library would keep it, outside of what a process was said to hold. */
void mem_trim(void);

/* While work goes on that frees and takes large blocks over and over (planning), what is freed
 * stays with the process: pages that come and go are a quarter of such work. Begins and ends nest;
 * the last end gives everything back. */
void mem_hold_begin(void);
void mem_hold_end(void);

/* *out = zeroed array of n elements of `size` bytes, or ERR_MEMORY. */
enum status mem_try_array(void *out, size_t n, size_t size) MUST_CHECK;

/* Number of allocations not yet freed in this process (leak checks in tests). */
int64_t mem_live(void);

/* Makes the n-th allocation from now on fail (n >= 1), and every later one while `sticky`;
 * n = 0 switches injection off. */
void mem_fail_after(int64_t n, int sticky);

#ifdef __cplusplus
}
#endif
#endif
