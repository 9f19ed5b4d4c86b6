/* device.c: the CPU as a device.
 *
 * Queues run in program order on the calling thread (kernels share their loops with a team), all
 * but the disk's, which has a thread of its own (disk/queue.c): only its events need any work, the
 * simulator has proved that they order every use. Arenas are
 * anonymous mappings of exactly the planned size: a page becomes resident when it is first touched.
 */
#include <cblas.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/host_memory.h"
#include "base/machine.h"
#include "base/str.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/gemm_amx.h"
#include "device/cpu/runtime/rates.h"
#include "device/cpu/runtime/time.h"
#include "device/device.h"
#include "device/disk/disk.h"
#include "device/figures.h"

static enum status memory_alloc(struct device *d, enum tier t, int64_t n_bytes, void **out)
{
    *out = NULL;
    if (n_bytes == 0)
        return OK;
    if (t == TIER_DISK)
        return d->disk ? disk_alloc(d->disk, n_bytes, out)
                       : FAIL(ERR_INTERNAL, "%lld bytes of a disk tier that is not there",
                              (long long)n_bytes);
    void *p =
        mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return room_refuse_host(t == TIER_DEVICE ? "the device arena" : "the host arena", n_bytes,
                                strerror(errno));
    (void)madvise(p, (size_t)n_bytes, MADV_HUGEPAGE); /* fewer page faults; best effort */
    *out = p;
    return OK;
}

static void memory_free(struct device *d, enum tier t, void *p, int64_t n_bytes)
{
    if (p && t == TIER_DISK)
        disk_free(d->disk, p);
    else if (p)
        (void)munmap(p, (size_t)n_bytes);
}

/* Whole pages inside of it: its ends may be somebody else's too. */
static void memory_release(struct device *d, enum tier t, void *p, int64_t n_bytes)
{
    int64_t page = sysconf(_SC_PAGESIZE), at = align_up((int64_t)(uintptr_t)p, page);
    int64_t end = ((int64_t)(uintptr_t)p + n_bytes) / page * page;
    (void)d;
    if (t != TIER_DISK && end > at)
        (void)madvise((char *)p + (at - (int64_t)(uintptr_t)p), (size_t)(end - at), MADV_DONTNEED);
}

static enum status copy(struct device *d, enum queue q, struct place to, struct place from,
                        int64_t n_bytes)
{
    (void)q;
    if (to.memory->tier == TIER_DISK || from.memory->tier == TIER_DISK)
        return disk_enqueue(d->disk, to, from, n_bytes);
    memcpy(place_address(to), place_address(from), (size_t)n_bytes);
    return OK;
}

static enum status prepare(struct device *d, int n_events)
{
    return d->disk ? disk_prepare(d->disk, n_events) : OK;
}

static enum status record(struct device *d, enum queue q, int event)
{
    if (q == QUEUE_DISK)
        disk_record(d->disk, event);
    return OK;
}

/* Whatever the event stands for on other queues has happened: they run where they are called. */
static enum status wait(struct device *d, enum queue q, int event)
{
    return d->disk && q != QUEUE_DISK ? disk_wait(d->disk, event) : OK;
}

static enum status sync_disk(struct device *d)
{
    return d->disk ? disk_sync(d->disk) : OK;
}

static int64_t used_bytes(struct device *d)
{
    (void)d;
    return process_peak();
}

static enum status room(struct device *d, struct device_room *out)
{
    (void)d;
    room_of_host(out);
    return OK;
}

static int64_t context_bytes(struct device *d)
{
    (void)d;
    return process_resident();
}

static void close_device(struct device *d)
{
    team_free(d->env.team);
}

static const struct device_ops cpu_ops = {
    .name = "cpu",
    .kernels = cpu_kernels,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .memory_release = memory_release,
    .copy = copy,
    .prepare = prepare,
    .record = record,
    .wait = wait,
    .sync = sync_disk,
    .fill = cpu_fill,
    .time_calls = cpu_time_calls,
    .context_bytes = context_bytes,
    .room = room,
    .used_bytes = used_bytes,
    .close = close_device,
};

/* What the kernels of this build are made of. */
static const char *instructions(void)
{
#if defined(__AVX512F__)
    return CPU_GEMM_AMX && cpu_gemm_amx_usable() ? "AVX-512, AMX for bf16" : "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#elif defined(__aarch64__)
    return "NEON";
#else
    return openblas_get_corename(); /* products go to the BLAS */
#endif
}

enum status device_open_cpu_cached(struct device *d, int n_threads, const char *cache_folder)
{
    *d = (struct device){.ops = &cpu_ops};
    d->env.n_threads = n_threads > 0 ? n_threads : usable_processors();
    (void)snprintf(d->description, sizeof(d->description), "cpu, %d thread%s, %s", d->env.n_threads,
                   d->env.n_threads == 1 ? "" : "s", instructions());
    char model[96];
    processor_name(model, sizeof(model));
    (void)snprintf(d->identity, sizeof(d->identity), "%.60s, %.80s", d->description, model);
    d->limits = (struct timing_limits){.call_s = 0.2, .total_s = 3.0, .n_bytes = 256 << 20};
    d->cache_bytes = MAX(sysconf(_SC_LEVEL2_CACHE_SIZE), 0) * d->env.n_threads;
    TRY(team_new(&d->env.team, d->env.n_threads));
    enum status status =
        device_figures(d, cache_folder, &(struct figures_source){cpu_measure, NULL});
    if (status != OK)
        device_close(d);
    return status;
}
