/* disk.h: the disk tier: memory in files of one folder.
 *
 * An allocation is a file of exactly its bytes, given blocks before it is used and without a name
 * from then on: when the process ends, however it ends, nothing of it is left. Its `base` is a
 * range of addresses that nobody may follow; what lies there is read and written by copies, whose
 * other end is in the host's memory.
 *
 * Copies are made at once (disk_copy), or one after the other by a thread of the disk's own
 * (disk_enqueue), which is what the disk queue of a program is on devices whose other queues run
 * where they are called:
 *
 *     disk_enqueue(d, to, from, n)   disk_record(d, event)   ...   disk_wait(d, event)
 *
 * Bytes go by io_uring where the kernel lets us have one, past the page cache (O_DIRECT) where the
 * file system can. Blocks are what both move: the ends of a range that begins or ends inside one go
 * through buffers of ours, as does memory that is not aligned for it.
 */
#ifndef SNUG_DEVICE_DISK_DISK_H
#define SNUG_DEVICE_DISK_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;
struct device_room;
struct place;
struct disk;

/* Makes the folder where there is none, and removes what crashed processes left there. */
enum status disk_open(struct disk **out, const char *folder) MUST_CHECK;
void disk_close(struct disk *d); /* NULL: nothing */

/* As it was given. */
const char *disk_folder(const struct disk *d);
/* "io_uring" or "threads", and whether the page cache is left out of it. */
const char *disk_method(const struct disk *d);
bool disk_is_direct(const struct disk *d);
/* Is the folder in memory (tmpfs)? */
bool disk_is_memory(const struct disk *d);
/* What its file system has free for us. */
void disk_room(const struct disk *d, struct device_room *out);

/* Zero-filled. ERR_FIT where the file system has too little. */
enum status disk_alloc(struct disk *d, int64_t n_bytes, void **base) MUST_CHECK;
void disk_free(struct disk *d, void *base);
/* Bytes of the file behind it, as the file system says; -1: there is none. */
int64_t disk_file_bytes(struct disk *d, const void *base);

/* Exactly one end lies in an allocation of this disk, the other where the host can follow it. */
enum status disk_copy(struct disk *d, struct place to, struct place from,
                      int64_t n_bytes) MUST_CHECK;

/* How fast bytes come and go, measured on a file of a few MiB in a fraction of a second; unaligned:
 * from memory that is not aligned for it. Both zero where there is no room for the file. */
struct disk_rates {
    double read, written;     /* bytes per second */
    double read_s, written_s; /* of a small copy, on top of its bytes */
};
enum status disk_measure(struct disk *d, bool unaligned, struct disk_rates *out) MUST_CHECK;

/* ---- the queue ------------------------------------------------------------------------------- */

/* Events 0 .. n_events - 1 can be recorded. */
enum status disk_prepare(struct disk *d, int n_events) MUST_CHECK;
enum status disk_enqueue(struct disk *d, struct place to, struct place from,
                         int64_t n_bytes) MUST_CHECK;
/* The event stands for everything enqueued so far. */
void disk_record(struct disk *d, int event);
/* Waits for it; at once for one that was never recorded. Says so when it takes long. Fails where a
 * copy before it did. */
enum status disk_wait(struct disk *d, int event) MUST_CHECK;
enum status disk_sync(struct disk *d) MUST_CHECK;

/* A copy as a function of one argument, for devices whose queues call such. The same copy is the
 * same object; it lives as long as the disk. What goes wrong is disk_sync's to say. */
struct disk_task;
enum status disk_task(struct disk *d, struct place to, struct place from, int64_t n_bytes,
                      struct disk_task **out) MUST_CHECK;
void disk_task_run(void *task);

/* ---- for tests ------------------------------------------------------------------------------- */

/* Makes the n-th read or write from now on, of any disk, fail with that errno; 0 switches it off.
 */
void disk_fail_after(int64_t n, bool write, int error);
/* Disks that are opened from now on do without io_uring. */
void disk_use_threads(bool on);

#ifdef __cplusplus
}
#endif
#endif
