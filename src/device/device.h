/* device.h: where programs run: memory tiers, queues, kernels.
 *
 * A device is a table of functions; src/device/cpu and src/device/cuda fill one each. Everything
 * above speaks of tiers, queues and events and never of a particular device.
 */
#ifndef SNUG_DEVICE_DEVICE_H
#define SNUG_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "device/gpu.h"
#include "device/kernel.h"
#include "device/room.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A memory. On a GPU `device` is its own memory and `host` is pinned; on the CPU both are ordinary
 * memory, kept apart so that programs with copies run and are tested without a GPU. */
enum tier { TIER_DEVICE, TIER_HOST, TIER_DISK, TIER_COUNT };
const char *tier_name(enum tier t);

/* An allocation of a tier. What `base` means is the device's to know: an address that the host may
 * follow only in the host's tier, or where memory is not apart. */
struct memory {
    enum tier tier;
    void *base;
    int64_t n_bytes;
};

/* Memory from an offset on. Copies go from place to place, so that they can be held against the
 * size of what they touch, and so that a tier without addresses can be one end. */
struct place {
    const struct memory *memory;
    int64_t offset;
};

/* Queues run concurrently; each is in order. */
enum queue { QUEUE_COMPUTE, QUEUE_IN, QUEUE_OUT, QUEUE_DISK, QUEUE_COMM, QUEUE_COUNT };
const char *queue_name(enum queue q);

enum {
    ARENA_ALIGN = 256,       /* of every buffer in memory */
    DISK_ARENA_ALIGN = 4096, /* of every one on disk, where blocks are what is read and written */
};

static inline int64_t tier_align(enum tier t)
{
    return t == TIER_DISK ? DISK_ARENA_ALIGN : ARENA_ALIGN;
}

static inline int64_t align_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* How copies from one tier to another go. */
struct link_rate {
    double alone;     /* bytes per second */
    double both;      /* bytes per second while as much goes the other way; of a disk: in turns */
    double latency_s; /* of a copy, on top of its bytes */
};

/* From what a copy takes in a row of its like, of two sizes: what is left of the smaller one
 * without its bytes is the latency. Times that make no sense together go by the larger one alone.
 */
struct link_rate link_rate_of(int64_t large, double large_s, int64_t small, double small_s);

/* What the machine can do, measured: the time model's constants. Numbers only. */
struct device_rates {
    double matmul_flops;      /* per second, large f32 product */
    double half_matmul_flops; /* per second, large product of 16-bit floats */
    double memory_bytes;      /* per second, streaming read + write */
    double launch_s;          /* fixed cost of one instruction */
    double wait_s; /* of compute's wait for another queue, also where that is done already, and of
                    * the record for which that queue waits in turn */
    struct link_rate links[TIER_COUNT][TIER_COUNT]; /* [from][to]; zero: there is none */
};

/* By how much kernels take longer for a byte that crosses the link beside them. It takes a byte of
 * the memory's bandwidth, or 1.3 from a kernel that needs all of that; over whole steps it is about
 * two (31 plans of two models on an H200), as copies are also late now and then. */
static inline double device_crossing_s(const struct device_rates *r)
{
    return r->memory_bytes > 0 ? 2.0 / r->memory_bytes : 0.0;
}

/* The rate of products of 16-bit floats (`half`) or of f32. */
static inline double device_matmul_rate(const struct device_rates *r, bool half)
{
    return half && r->half_matmul_flops > 0 ? r->half_matmul_flops : r->matmul_flops;
}

/* How a device goes about its work; all false is how it is opened. */
struct device_tuning {
    bool unrecorded; /* sections run by instructions, also where they could be recorded */
    bool search;     /* matrix products by the fastest algorithm that timings find */
    bool tf32;       /* products of f32 with factors rounded to 10 bits of fraction */
};

struct device;
struct disk;
struct disk_traffic; /* disk/disk.h */

/* The same call over several pieces of memory, so that a timing finds its operands where a program
 * finds them: not in a cache. */
struct timed_calls {
    const struct kernel *kernel;
    kernel_batch *batch;               /* the calls run together through this; NULL: singly */
    const struct kernel_ctx *contexts; /* [n]; the device fills in the queue */
    const struct op_call *calls;       /* [n] */
    int n;
};

/* What a timing found. */
struct call_time {
    double seconds; /* of one call */
    bool disturbed; /* other processes used the device: undisturbed it takes less */
};

/* What timing the calls of plans may take; 0: no limit. Calls beyond it go by the rates. */
struct timing_limits {
    double call_s;   /* a call that takes longer than this by the rates is not run */
    double total_s;  /* for all calls, until the next process goes on with the rest */
    int64_t n_bytes; /* of memory */
};

struct device_ops {
    const char *name;
    bool memory_is_apart; /* the host cannot read or write the device tier */
    const struct kernel *(*kernels)(enum op_id op);
    /* How several calls of a kernel run together (run/batch.h); NULL, or NULL for this kernel: one
     * after the other. */
    kernel_batch *(*batch)(const struct kernel *k);
    /* The one allocation of a tier; freed by memory_free. Zero-filled, ARENA_ALIGN-aligned. */
    enum status (*memory_alloc)(struct device *d, enum tier t, int64_t n_bytes, void **out);
    void (*memory_free)(struct device *d, enum tier t, void *p, int64_t n_bytes);
    /* Pages of an allocation go back to the system, what is in them is lost, and they come again,
     * zero, with their next use. NULL: its pages stay as long as the allocation does. */
    void (*memory_release)(struct device *d, enum tier t, void *p, int64_t n_bytes);
    /* Enqueues a copy; called through device_copy. */
    enum status (*copy)(struct device *d, enum queue q, struct place to, struct place from,
                        int64_t n_bytes);
    /* Makes events 0 .. n_events - 1 (more are kept), so that record and wait allocate nothing.
     * NULL: there is nothing to make. */
    enum status (*prepare)(struct device *d, int n_events);
    /* What kernels on this queue get as kernel_ctx.queue. NULL: they run where they are called. */
    void *(*queue)(struct device *d, enum queue q);
    enum status (*record)(struct device *d, enum queue q, int event);
    enum status (*wait)(struct device *d, enum queue q, int event);
    /* Waits for everything enqueued so far. */
    enum status (*sync)(struct device *d);
    /* Between capture_begin and capture_end, what is enqueued is written down instead of run;
     * replay enqueues all of it at once. Nothing else may be pending when a capture begins.
     * capture_end with NULL throws it away. All NULL: the device cannot (run/capture.h). */
    enum status (*capture_begin)(struct device *d);
    enum status (*capture_end)(struct device *d, void **recording);
    enum status (*replay)(struct device *d, void *recording);
    void (*capture_free)(struct device *d, void *recording);
    /* What a kernel costs, on devices that can say (both NULL: the rates have to do). `fill` gives
     * a tensor of the device tier benchmark inputs: random floats, whole numbers by the rule
     * else. `time_calls` times one such call among others, as a recording runs them. Nothing may be
     * pending; both are for planning, they wait and they allocate. */
    enum status (*fill)(struct device *d, const struct tensor *t, struct index_rule rule);
    enum status (*time_calls)(struct device *d, const struct timed_calls *t, struct call_time *out);
    /* Seconds of a call, on devices that estimate them; NULL: the rates have to do. */
    double (*call_seconds)(const struct device *d, const struct op_call *c);
    /* Moments on queues: `mark` notes one behind what was enqueued, in recordings too, and after a
     * sync `mark_seconds` says how much later one was than another. prepare_marks makes marks 0 ..
     * n_marks - 1. All NULL: kernels run where they are called, and the clock knows. */
    enum status (*prepare_marks)(struct device *d, int n_marks);
    enum status (*mark)(struct device *d, enum queue q, int mark);
    enum status (*mark_seconds)(struct device *d, int from, int to, double *seconds);
    /* Takes up `search` and `tf32`, or says why it cannot. NULL: it has neither. */
    enum status (*tune)(struct device *d, const struct device_tuning *t);
    /* Bytes the process holds outside the arenas once every library is warm: the context. */
    int64_t (*context_bytes)(struct device *d);
    /* Bytes on top of these for the recordings of programs of so many instructions. NULL: none. */
    int64_t (*recording_bytes)(struct device *d, int64_t n_instrs);
    /* How much memory there is and who holds it; without memory of its own, the host's. */
    enum status (*room)(struct device *d, struct device_room *out);
    /* Bytes of the device this process holds, as the system sees it: now, or on the CPU the most
     * it ever held. */
    int64_t (*used_bytes)(struct device *d);
    void (*close)(struct device *d);
};

enum { STAGING_BYTES = 256 << 20 }; /* as fast as more of it, and nothing beside a model */

struct device {
    const struct device_ops *ops;
    struct kernel_env env;
    struct device_rates rates;
    struct timing_limits limits;
    int64_t cache_bytes; /* of its last cache; 0: not known */
    bool lacks_bf16;     /* no arithmetic in it; storing it is fine */
    /* At most so much of a tensor is in host memory on its way to and from what the host cannot
     * reach; 0: STAGING_BYTES. */
    int64_t staging_bytes;
    int64_t beside_bytes; /* a run holds at least so much of the host (beside.h); 0: not known */
    bool is_absent;       /* it is planned for, nothing runs on it (card/card.h) */
    struct device_tuning tuning;
    char description[128];
    char address[32];   /* of a GPU, on its bus: as the driver's tools know it; "": it has none */
    char identity[160]; /* what measurements depend on beside the build: model, driver, libraries */
    struct disk *disk;  /* owned; NULL: it has no disk tier */
    void *state;
};

/* n_threads 0: all processors this process may use. */
enum status device_open_cpu(struct device *d, int n_threads) MUST_CHECK;
/* The same with a folder that keeps the measured rates (figures.h); NULL: none. */
enum status device_open_cpu_cached(struct device *d, int n_threads,
                                   const char *cache_folder) MUST_CHECK;
/* The GPU of that index (CUDA's order). ERR_UNSUPPORTED, with the reason, when there is none, when
 * its driver is too old, or when this build has no code for it or no CUDA at all. */
enum status device_open_cuda(struct device *d, int index) MUST_CHECK;
/* The same with a folder that keeps what is measured or searched for once per GPU, driver and build
 * (rates, the context's size); NULL: none. */
enum status device_open_cuda_cached(struct device *d, int index,
                                    const char *cache_folder) MUST_CHECK;
/* How many GPUs device_open_cuda can be asked for; 0 without CUDA. */
int device_count_cuda(void);
/* Before anything is planned for it. ERR_UNSUPPORTED, with the reason, where it cannot. */
enum status device_tune(struct device *d, const struct device_tuning *t) MUST_CHECK;
/* Gives it a disk tier, in files of that folder, and measures how fast that is for a moment. */
enum status device_use_disk(struct device *d, const char *folder) MUST_CHECK;
/* Measures what the disk keeps up with so many bytes on it, for seconds, unless that is known; the
 * cache folder (NULL: none) keeps it. Nothing where there is no disk, or little to keep there. */
enum status device_measure_disk(struct device *d, int64_t n_bytes,
                                const char *cache_folder) MUST_CHECK;
/* What a run has seen of its disk, where it moved more than a measurement does, for plans to come:
 * its copies were those that plans are about. */
void device_keep_disk(const struct device *d, const struct disk_traffic *t,
                      const char *cache_folder);
void device_close(struct device *d);

/* Whether the host may follow the addresses of a tier; where not, bytes go in and out by copies. */
static inline bool device_host_reaches(const struct device *d, enum tier t)
{
    return t == TIER_HOST || (t == TIER_DEVICE && !d->ops->memory_is_apart);
}

/* Enqueues a copy. ERR_INTERNAL when it would leave the memory at either end. */
enum status device_copy(struct device *d, enum queue q, struct place to, struct place from,
                        int64_t n_bytes) MUST_CHECK;
/* The address of a place whose memory has addresses. */
static inline void *place_address(struct place p)
{
    return (char *)p.memory->base + p.offset;
}
/* Ordinary memory as one end of a copy; it is only read when it is the source. */
struct memory memory_of_host(const void *p, int64_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
