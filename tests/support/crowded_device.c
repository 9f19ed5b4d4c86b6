/* crowded_device.c: linked only into the programs that CMakeLists.txt names. */
#include "support/crowded_device.h"

#include <stdio.h>

#include "base/compiler.h"

struct crowded crowded;

void crowded_begin(int64_t total)
{
    crowded = (struct crowded){.is_used = total > 0, .total = total};
}

void crowded_leave(int64_t n_bytes)
{
    crowded.others = crowded.total - n_bytes;
}

static const struct device_ops *apart;

static enum status memory_alloc(struct device *d, enum tier t, int64_t n_bytes, void **out)
{
    TRY(apart->memory_alloc(d, t, n_bytes, out));
    if (t == TIER_DEVICE)
        crowded.arena += n_bytes;
    crowded.peak = MAX(crowded.peak, crowded.arena);
    return OK;
}

static void memory_free(struct device *d, enum tier t, void *p, int64_t n_bytes)
{
    if (t == TIER_DEVICE)
        crowded.arena -= n_bytes;
    apart->memory_free(d, t, p, n_bytes);
}

static int64_t context_bytes(struct device *d)
{
    (void)d;
    return CROWDED_CONTEXT;
}

static enum status room(struct device *d, struct device_room *out)
{
    (void)d;
    int64_t own = crowded.arena > 0 ? crowded.arena + CROWDED_CONTEXT : 0;
    *out = (struct device_room){.total_bytes = crowded.total,
                                .free_bytes = MAX(crowded.total - crowded.others - own, (int64_t)0),
                                .own_bytes = own};
    (void)snprintf(out->whose, sizeof(out->whose), "the GPU");
    return OK;
}

enum status __real_device_open_cpu_cached(struct device *d, int n_threads,
                                          const char *cache_folder);
enum status __wrap_device_open_cpu_cached(struct device *d, int n_threads,
                                          const char *cache_folder);

/* The linker puts it in the place of device_open_cpu_cached (--wrap). */
enum status __wrap_device_open_cpu_cached(struct device *d, int n_threads, const char *cache_folder)
{
    static struct device_ops ops, before;
    TRY(__real_device_open_cpu_cached(d, n_threads, cache_folder));
    if (!crowded.is_used)
        return OK;
    apart_device_make(d);
    before = ops = *d->ops;
    apart = &before;
    ops.memory_alloc = memory_alloc;
    ops.memory_free = memory_free;
    ops.room = room;
    ops.context_bytes = context_bytes;
    d->ops = &ops;
    return OK;
}
