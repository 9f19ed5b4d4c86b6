#include "base/pool.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { CHUNK_BYTES = 64 * 1024, POOL_ALIGN = 16 };

struct pool_chunk {
    struct pool_chunk *next;
    uint64_t pad; /* keeps the payload 16-byte aligned */
};

void pool_init(struct pool *p)
{
    *p = (struct pool){0};
}

void pool_release(struct pool *p)
{
    struct pool_chunk *c = p->chunks;
    while (c) {
        struct pool_chunk *next = c->next;
        mem_free(c);
        c = next;
    }
    pool_init(p);
}

static int grow(struct pool *p, size_t n_bytes)
{
    size_t capacity = MAX(n_bytes, (size_t)CHUNK_BYTES);
    struct pool_chunk *c = mem_calloc(1, sizeof(*c) + capacity);
    if (!c) {
        p->failed = 1;
        return 0;
    }
    c->next = p->chunks;
    p->chunks = c;
    p->used = 0;
    p->capacity = capacity;
    return 1;
}

void *pool_alloc(struct pool *p, size_t n_bytes)
{
    if (p->failed || n_bytes > SIZE_MAX / 2) {
        p->failed = 1;
        return NULL;
    }
    n_bytes = (n_bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    if (!p->chunks || p->capacity - p->used < n_bytes) {
        if (!grow(p, n_bytes))
            return NULL;
    }
    char *at = (char *)(p->chunks + 1) + p->used;
    p->used += n_bytes;
    p->n_bytes += n_bytes;
    return at;
}

char *pool_strndup(struct pool *p, const char *s, size_t n)
{
    char *copy = pool_alloc(p, n + 1);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

char *pool_strdup(struct pool *p, const char *s)
{
    return pool_strndup(p, s, strlen(s));
}

char *pool_printf(struct pool *p, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *s = n < 0 ? NULL : pool_alloc(p, (size_t)n + 1);
    if (s)
        (void)vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

enum status pool_try(struct pool *p, void *out, size_t n_bytes)
{
    void *at = pool_alloc(p, n_bytes);
    memcpy(out, &at, sizeof(at));
    if (!at)
        return FAIL(ERR_MEMORY, "could not allocate %zu bytes", n_bytes);
    return OK;
}

enum status pool_status(const struct pool *p)
{
    if (p->failed)
        return FAIL(ERR_MEMORY, "out of memory after %zu bytes", p->n_bytes);
    return OK;
}
