/* vec.h: growable arrays, as `struct { T *items; size_t n, capacity; }`.
 *
 *     VEC(int) ids = {0};
 *     TRY(vec_push(&ids, 7));
 *     vec_release(&ids);
 */
#ifndef SNUG_BASE_VEC_H
#define SNUG_BASE_VEC_H

#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define VEC(type)           \
    struct {                \
        type *items;        \
        size_t n, capacity; \
    }

/* Appends `value`; evaluates to a status. The value is an lvalue or a simple expression. */
#define vec_push(v, value)                                                            \
    (vec_reserve_(&(v)->items, &(v)->capacity, (v)->n + 1, sizeof(*(v)->items)) == OK \
         ? ((v)->items[(v)->n++] = (value), OK)                                       \
         : ERR_MEMORY)

/* Makes room for n more elements without adding them. */
#define vec_reserve(v, extra) \
    vec_reserve_(&(v)->items, &(v)->capacity, (v)->n + (size_t)(extra), sizeof(*(v)->items))

#define vec_release(v) (mem_free((v)->items), (v)->items = NULL, (v)->n = 0, (v)->capacity = 0)

static inline MUST_CHECK enum status vec_reserve_(void *items, size_t *capacity, size_t need,
                                                  size_t size)
{
    if (need <= *capacity)
        return OK;
    size_t wanted = *capacity ? *capacity * 2 : 16;
    if (wanted < need)
        wanted = need;
    void *old;
    memcpy(&old, items, sizeof(old));
    void *grown = wanted > (size_t)-1 / 2 / size ? NULL : mem_realloc(old, wanted * size);
    if (!grown)
        return FAIL(ERR_MEMORY, "could not grow an array to %zu x %zu bytes", wanted, size);
    memcpy(items, &grown, sizeof(grown));
    *capacity = wanted;
    return OK;
}

#ifdef __cplusplus
}
#endif
#endif
