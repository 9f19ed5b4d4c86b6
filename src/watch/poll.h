/* poll.h: what a run and everybody else hold of the machine's memory and of the GPU, asked for now.
 *
 * The machine: MemAvailable, control groups and limits (base/host_memory.h), pressure stall
 * information, and the resident memory of processes. The GPU: NVML, loaded when the run is on one;
 * a GPU without NVML is known by what the run itself says of it.
 */
#ifndef SNUG_WATCH_POLL_H
#define SNUG_WATCH_POLL_H

#include "device/room.h"
#include "watch/live.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { POLL_PROCESSES = 24, MEMORY_DEVICE = 0, MEMORY_HOST = 1, MEMORY_VIEWS = 2 };

/* A memory as it is now. */
struct poll_memory {
    bool known;
    char whose[64];
    int64_t total_bytes, free_bytes;
    int64_t own_bytes;    /* the run's */
    int64_t others_bytes; /* neither free nor the run's */
    int n_processes;      /* others, the largest first; not all are seen from everywhere */
    struct device_holder processes[POLL_PROCESSES];
};

struct poll {
    double time;                             /* now_s() */
    struct poll_memory memory[MEMORY_VIEWS]; /* device (of a GPU), host */
    double pressure_some, pressure_full;     /* percent of the last ten seconds in which some, or
                                                all, waited for memory; -1: not known */
};

struct cuda_nvml;

struct poller {
    const char *root;       /* before /proc: "" outside of tests */
    struct cuda_nvml *nvml; /* NULL: none */
    bool looked_for_nvml;
};

void poll_now(struct poller *p, const struct live *l, struct poll *out);
void poller_release(struct poller *p);

#ifdef __cplusplus
}
#endif
#endif
