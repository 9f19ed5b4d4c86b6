#include "base/alloc.h"

#include <limits.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem_share.h"

static atomic_llong n_live;
static atomic_llong fail_countdown; /* 0 = off */
static atomic_int fail_sticky;

/* True when the allocation about to happen is the one a test asked to fail. */
static int injected_failure(void)
{
    long long left = atomic_load(&fail_countdown);
    if (left == 0)
        return 0;
    if (left > 1) {
        atomic_fetch_sub(&fail_countdown, 1);
        return 0;
    }
    if (!atomic_load(&fail_sticky))
        atomic_store(&fail_countdown, 0);
    return 1;
}

/* ---- shares of threads ----------------------------------------------------------------------- */

static _Thread_local struct mem_share *share;

void mem_share_enter(struct mem_share *s)
{
    share = s;
}

void mem_share_end(struct mem_share *s)
{
    __atomic_store_n(&s->ended, 1, __ATOMIC_RELAXED);
}

int mem_share_is_ended(const struct mem_share *s)
{
    return __atomic_load_n(&s->ended, __ATOMIC_RELAXED);
}

/* Sizes are those that the C library gives, which are a little more than what was asked for. */
static void add_to_share(const void *p, int sign)
{
    if (!share || !p)
        return;
    share->held += sign * (int64_t)malloc_usable_size((void *)p);
    share->peak = share->held > share->peak ? share->held : share->peak;
}

static int beyond_share(size_t n_bytes)
{
    return share && (mem_share_is_ended(share) || share->held + (int64_t)n_bytes > share->most);
}

/* ---- the heap -------------------------------------------------------------------------------- */

static int refused(size_t n_bytes)
{
    return injected_failure() || beyond_share(n_bytes);
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add(&n_live, 1);
    add_to_share(p, 1);
    return p;
}

void *mem_alloc(size_t n_bytes)
{
    return refused(n_bytes) ? NULL : counted(malloc(n_bytes ? n_bytes : 1));
}

void *mem_calloc(size_t n, size_t size)
{
    if (size != 0 && n > SIZE_MAX / size)
        return NULL;
    return refused(n * size) ? NULL : counted(calloc(n ? n : 1, size ? size : 1));
}

void *mem_realloc(void *p, size_t n_bytes)
{
    if (!p)
        return mem_alloc(n_bytes);
    if (refused(n_bytes))
        return NULL;
    add_to_share(p, -1);
    void *moved = realloc(p, n_bytes ? n_bytes : 1);
    add_to_share(moved ? moved : p, 1);
    return moved;
}

char *mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = mem_alloc(n);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

void mem_free(void *p)
{
    if (p)
        atomic_fetch_sub(&n_live, 1);
    add_to_share(p, -1);
    free(p);
}

void mem_trim(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

static atomic_int n_holding;

/* The C library maps large blocks one by one, and gives the end of its heap back as it is freed. */
static void set_hold(int on)
{
#ifdef __GLIBC__
    enum { MAPPED_BLOCKS = 65536, TRIM_BYTES = 128 * 1024 }; /* what it does by itself */
    (void)mallopt(M_MMAP_MAX, on ? 0 : MAPPED_BLOCKS);
    (void)mallopt(M_TRIM_THRESHOLD, on ? INT_MAX : TRIM_BYTES);
#else
    (void)on;
#endif
}

void mem_hold_begin(void)
{
    if (atomic_fetch_add(&n_holding, 1) == 0)
        set_hold(1);
}

void mem_hold_end(void)
{
    if (atomic_fetch_sub(&n_holding, 1) > 1)
        return;
    set_hold(0);
    mem_trim();
}

enum status mem_try_array(void *out, size_t n, size_t size)
{
    void *p = mem_calloc(n, size);
    memcpy(out, &p, sizeof(p));
    if (!p)
        return FAIL(ERR_MEMORY, "could not allocate %zu x %zu bytes", n, size);
    return OK;
}

int64_t mem_live(void)
{
    return atomic_load(&n_live);
}

void mem_fail_after(int64_t n, int sticky)
{
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_countdown, n);
}
