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

/* How fast bytes come and go, from memory that is not aligned for it, as little of it is. All zero
 * where there is no room for a file. */
struct disk_rates {
    double read, written;                   /* bytes per second */
    double read_in_turns, written_in_turns; /* the same where copies of both kinds alternate */
    double read_s, written_s;               /* of a small copy, on top of its bytes */
};
/* For a moment: a file of a few MiB in a fraction of a second. */
enum status disk_measure(struct disk *d, struct disk_rates *out) MUST_CHECK;
/* Files that it is measured with are no larger. */
#define DISK_MEASURED_MOST ((int64_t)2 << 30)
/* What it keeps up when it holds so many bytes: for seconds, past its caches. *rates are those of
 * disk_measure; the latencies stay. */
enum status disk_measure_long(struct disk *d, int64_t n_bytes, struct disk_rates *rates) MUST_CHECK;

/* Rates that were measured before, with at least as many bytes, kept in the folder; false: there
 * are none. */
bool disk_rates_load(const struct disk *d, const char *folder, int64_t n_bytes,
                     struct disk_rates *out);
/* A folder that cannot be written costs the next process its seconds, no more. */
void disk_rates_store(const struct disk *d, const char *folder, int64_t n_bytes,
                      const struct disk_rates *rates);

/* What copies of the queue and of tasks came to so far. */
struct disk_traffic {
    int64_t n_read, n_written;
    double read_s, written_s; /* while they were made */
};
void disk_traffic(struct disk *d, struct disk_traffic *out);

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

/* Seconds of waiting after which a disk is said to be slow, and again after as many; 0: as usual.
 */
void disk_set_patience(double seconds);

/* A disk that is as slow as this. Its seconds pass on a clock of their own, which stands still but
 * for requests: nobody waits for them, and they do not depend on the machine. */
struct disk_pretence {
    double read, written; /* bytes per second */
    int64_t cache_bytes;  /* so many are written ... */
    double cached;        /* ... at this rate first */
    double turn_s;        /* from reading to writing and back */
};
void disk_pretend(const struct disk_pretence *p); /* NULL: disks are what they are */
/* Requests are made only when waiting has been said to take long so many times more; 0: at once. */
void disk_stall(int n_times);

#ifdef __cplusplus
}
#endif
#endif
