#include "device/device.h"

#include "device/disk/disk.h"

#include <stddef.h>

#include "base/compiler.h"
#include "base/log.h"

const char *tier_name(enum tier t)
{
    static const char *const names[TIER_COUNT] = {"device", "host", "disk"};
    return names[t];
}

const char *queue_name(enum queue q)
{
    static const char *const names[QUEUE_COUNT] = {"compute", "in", "out", "disk", "comm"};
    return names[q];
}

enum status device_tune(struct device *d, const struct device_tuning *t)
{
    if (!d->ops->tune && t->tf32)
        return FAIL(ERR_UNSUPPORTED,
                    "tf32 is a format of NVIDIA GPUs; the %s multiplies f32 in full precision",
                    d->ops->name);
    if (!d->ops->tune && t->search)
        return FAIL(ERR_UNSUPPORTED, "the %s has no algorithms to search among", d->ops->name);
    if (d->ops->tune)
        TRY(d->ops->tune(d, t));
    d->tuning = *t;
    return OK;
}

static bool holds(struct place p, int64_t n_bytes)
{
    return p.offset >= 0 && n_bytes >= 0 && n_bytes <= p.memory->n_bytes - p.offset;
}

enum status device_copy(struct device *d, enum queue q, struct place to, struct place from,
                        int64_t n_bytes)
{
    if (!holds(to, n_bytes) || !holds(from, n_bytes))
        return FAIL(ERR_INTERNAL,
                    "a copy of %lld bytes from %s+%lld (of %lld) to %s+%lld (of %lld) leaves its "
                    "memory",
                    (long long)n_bytes, tier_name(from.memory->tier), (long long)from.offset,
                    (long long)from.memory->n_bytes, tier_name(to.memory->tier),
                    (long long)to.offset, (long long)to.memory->n_bytes);
    return d->ops->copy(d, q, to, from, n_bytes);
}

struct memory memory_of_host(const void *p, int64_t n_bytes)
{
    return (struct memory){TIER_HOST, (void *)(uintptr_t)p, n_bytes};
}

struct link_rate link_rate_of(int64_t large, double large_s, int64_t small, double small_s)
{
    const double least = 0.8; /* of the time of a large copy that is for its bytes */
    double whole = large_s / (double)large;
    double per_byte = (large_s - small_s) / (double)(large - small);
    bool makes_sense = per_byte <= whole && per_byte >= least * whole;
    if (!makes_sense)
        per_byte = whole;
    return (struct link_rate){.alone = 1.0 / per_byte,
                              .both = 1.0 / per_byte,
                              .latency_s = makes_sense ? small_s - (double)small * per_byte : 0};
}

/* Less than this a disk takes at once. */
#define WORTH_MEASURING ((int64_t)256 << 20)

static void set_disk_rates(struct device *d, const struct disk_rates *r)
{
    const struct link_rate in = {r->read, r->read_in_turns, r->read_s};
    const struct link_rate out = {r->written, r->written_in_turns, r->written_s};
    d->rates.links[TIER_DISK][TIER_HOST] = in;
    d->rates.links[TIER_HOST][TIER_DISK] = out;
    if (device_host_reaches(d, TIER_DEVICE)) {
        d->rates.links[TIER_DISK][TIER_DEVICE] = in;
        d->rates.links[TIER_DEVICE][TIER_DISK] = out;
    }
}

/* Bytes go straight between a file and memory that the host can follow; else by way of the host. */
enum status device_use_disk(struct device *d, const char *folder)
{
    struct disk_rates r;
    TRY(disk_open(&d->disk, folder));
    TRY(disk_measure(d->disk, &r));
    set_disk_rates(d, &r);
    return OK;
}

enum status device_measure_disk(struct device *d, int64_t n_bytes, const char *cache_folder)
{
    const struct link_rate *in = &d->rates.links[TIER_DISK][TIER_HOST],
                           *out = &d->rates.links[TIER_HOST][TIER_DISK];
    struct disk_rates r = {in->alone, out->alone,    in->both,
                           out->both, in->latency_s, out->latency_s};
    if (!d->disk || disk_is_memory(d->disk) || n_bytes < WORTH_MEASURING)
        return OK;
    n_bytes = MIN(n_bytes, DISK_MEASURED_MOST);
    if (!disk_rates_load(d->disk, cache_folder, n_bytes, &r)) {
        log_info("measuring what the disk of '%s' keeps up: a few seconds, once",
                 disk_folder(d->disk));
        TRY(disk_measure_long(d->disk, n_bytes, &r));
        disk_rates_store(d->disk, cache_folder, n_bytes, &r);
    }
    set_disk_rates(d, &r);
    return OK;
}

/* What a disk keeps up may differ by half from minute to minute: the seconds of a byte are those
 * of before and of now, half and half. One that differs more is another disk, or was disturbed. */
static double meet_halfway(double before, double now)
{
    enum { ANOTHER = 2 };
    bool is_another = now > ANOTHER * before || before > ANOTHER * now;
    return is_another ? now : 2 / (1 / before + 1 / now);
}

void device_keep_disk(const struct device *d, const struct disk_traffic *t,
                      const char *cache_folder)
{
    const struct link_rate *in = &d->rates.links[TIER_DISK][TIER_HOST],
                           *out = &d->rates.links[TIER_HOST][TIER_DISK];
    if (!d->disk || disk_is_memory(d->disk) || MIN(t->n_read, t->n_written) < DISK_MEASURED_MOST)
        return;
    double read = meet_halfway(in->both, (double)t->n_read / t->read_s),
           written = meet_halfway(out->both, (double)t->n_written / t->written_s);
    const struct disk_rates r = {.read = MAX(in->alone, read),
                                 .written = MAX(out->alone, written),
                                 .read_in_turns = read,
                                 .written_in_turns = written,
                                 .read_s = in->latency_s,
                                 .written_s = out->latency_s};
    disk_rates_store(d->disk, cache_folder, DISK_MEASURED_MOST, &r);
}

void device_close(struct device *d)
{
    if (d->ops)
        d->ops->close(d);
    disk_close(d->disk);
    *d = (struct device){0};
}

#ifndef SNUG_HAVE_CUDA
enum status device_open_cuda_cached(struct device *d, int index, const char *cache_folder)
{
    (void)index;
    (void)cache_folder;
    *d = (struct device){0};
    return gpu_refuse(GPU_NOT_BUILT, &(struct gpu_facts){0});
}

void gpu_look(struct gpu_facts *f, int index)
{
    *f = (struct gpu_facts){.index = index};
}

void gpu_look_closer(struct gpu_facts *f)
{
    (void)f;
}

int device_count_cuda(void)
{
    return 0;
}
#endif

enum status device_open_cpu(struct device *d, int n_threads)
{
    return device_open_cpu_cached(d, n_threads, NULL);
}

enum status device_open_cuda(struct device *d, int index)
{
    return device_open_cuda_cached(d, index, NULL);
}
