/* room.h: a memory as the driver or the system sees it, and what to say when there is too little.
 *
 * A GPU's driver is asked through device_ops.room, the machine through room_of_host(). What is done
 * with the answer is plain arithmetic and text, so that it is tested without a GPU.
 */
#ifndef SNUG_DEVICE_ROOM_H
#define SNUG_DEVICE_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A process that holds memory of the device; never this one. */
struct device_holder {
    int64_t pid;
    int64_t n_bytes;
    char name[32]; /* "": cannot be read from here */
};

enum { MAX_HOLDERS = 32 };

struct device_room {
    char whose[256]; /* "the GPU", "the machine", "cgroup /jobs/17", "ulimit -v" */
    bool is_host;    /* the system's memory: its holders are not asked for */
    int64_t total_bytes, free_bytes;
    int64_t own_bytes;   /* held by this process now */
    bool sees_processes; /* the driver tells processes apart (often not inside containers) */
    int n_holders;
    struct device_holder holders[MAX_HOLDERS]; /* largest first, once room_sort was called */
};

void room_sort(struct device_room *r);

/* The memory of the machine, or of the control group this process is in where that is less. */
void room_of_host(struct device_room *out);

/* Bytes this process can hold in all: what is free and what it has already. */
int64_t room_available(const struct device_room *r);
/* Bytes that are neither free nor this process's. */
int64_t room_others(const struct device_room *r);

/* Appends who holds the rest: "process 4711 (python) holds 120.00 GiB, process 12 holds 1.00 GiB",
 * or "used by others: 120.00 GiB (processes not visible from here)"; nothing when nobody does. */
void room_add_holders(const struct device_room *r, struct str *out);

/* Appends "only 12.30 GiB (13207024435 bytes) of the GPU's 140.00 GiB are free: process 4711
 * (python) holds 127.00 GiB". */
void room_add_text(const struct device_room *r, struct str *out);

/* A setting of so many bytes, rounded down, "12595MiB", or "436KiB" of few, into out; returns out.
 */
int64_t room_rounded(int64_t n_bytes);
const char *room_setting(int64_t n_bytes, char out[BYTES_TEXT]);

/* ERR_FIT: the system has not given, or not pinned, n_bytes of the host's memory for `what`, for
 * this reason (as it says it). */
enum status room_refuse_host(const char *what, int64_t n_bytes, const char *reason) MUST_CHECK;
enum status room_refuse_pinned(const char *what, int64_t n_bytes, const char *reason) MUST_CHECK;

/* ERR_FIT with all of the above: an allocation of n_bytes for `what` has failed. */
enum status room_refuse(const struct device_room *r, const char *what, int64_t n_bytes) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
