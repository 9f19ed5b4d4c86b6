/* disk_internal.h: inside disk/: what its files are to each other.
 *
 *   folder.c    the folder: leftovers of others, free space, what kind of file system it is
 *   file.c      allocations as files
 *   transfer.c  ranges of bytes cut into pieces of blocks, through buffers where they have to
 *   port.c      pieces read and written: by io_uring, or one at a time
 *   rates.c     how fast it is for a moment
 *   endurance.c how fast it is when it is kept at it
 *   kept.c      rates between processes
 *   queue.c     the thread that makes copies in their order
 */
#ifndef SNUG_DEVICE_DISK_DISK_INTERNAL_H
#define SNUG_DEVICE_DISK_DISK_INTERNAL_H

#include <pthread.h>

#include "base/str.h"
#include "base/vec.h"
#include "device/device.h"
#include "device/disk/disk.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DISK_BLOCK = 4096,       /* what files are read and written in */
    DISK_PIECE = 512 * 1024, /* of a copy: what one request moves at most */
    DISK_DEPTH = 16,         /* requests under way at a time */
};

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Bytes of a file from or into memory, by one request. */
struct piece {
    int fd;
    bool write;
    void *data;
    int64_t at, n_bytes;
    int buffer; /* data lies in this one of the port's; -1: elsewhere */
};

/* Requests under way, by slot; a port is one thread's at a time. */
struct port_io;
struct disk_port {
    char *buffers;               /* DISK_DEPTH of DISK_PIECE bytes */
    struct port_io *io;          /* NULL: requests are made one at a time */
    int64_t results[DISK_DEPTH]; /* without io: bytes moved, or -errno */
    bool pending[DISK_DEPTH];
};

enum status port_open(struct disk_port *p, bool may_use_uring) MUST_CHECK;
void port_close(struct disk_port *p);
/* Begins the request of a slot; then port_reap, once for each. */
void port_start(struct disk_port *p, int slot, const struct piece *x);
/* Waits for some request: its slot, and bytes moved or -errno. */
void port_reap(struct disk_port *p, int *slot, int64_t *result);
/* The whole piece here and now; 0 or an errno. */
int piece_run(const struct piece *x);

static inline void *port_buffer(const struct disk_port *p, int slot)
{
    return p->buffers + (int64_t)slot * DISK_PIECE;
}

/* ---- files ----------------------------------------------------------------------------------- */

struct disk_file {
    void *base;
    int64_t n_bytes;
    int fd;
    bool direct; /* O_DIRECT */
    char *name;  /* the path it had; for messages */
};

struct file_range {
    const struct disk_file *file;
    int64_t at, n_bytes;
    void *data;
    bool write;
};

/* Moves the range, all of it. */
enum status transfer(struct disk_port *p, const struct file_range *r) MUST_CHECK;

struct queue_state;

struct disk {
    char *folder;
    bool is_memory, direct;
    VEC(struct disk_file *) files;
    struct disk_port port;
    pthread_mutex_t port_lock; /* of the port */
    struct queue_state *queue; /* NULL: its thread was not needed so far */
    VEC(struct disk_task *) tasks;
    struct disk_traffic traffic; /* under port_lock */
    enum status failed;          /* of copies that nobody waited for one by one; under port_lock */
    char message[400];
};

/* The file range and direction that a copy means. */
enum status disk_find_range(const struct disk *d, struct place to, struct place from,
                            int64_t n_bytes, struct file_range *out) MUST_CHECK;

/* folder.c */
enum status folder_prepare(const char *folder) MUST_CHECK;
bool folder_is_memory(const char *folder);
/* A new file in the folder, locked by this process; its path is still there. */
enum status folder_new_file(const char *folder, int *fd, bool *direct, char **path) MUST_CHECK;

/* port.c: the clock, or the one of a disk that is pretended */
double disk_now(void);
/* Somebody was told that a disk is slow: for disk_stall. */
void port_note_slow(void);

/* rates.c: a file with memory beside it, for copies that are timed */
struct disk_trial {
    struct disk *disk;
    struct memory file, memory;
};
/* n_bytes is a multiple of the memory's, both of DISK_BLOCK. */
enum status disk_trial_open(struct disk_trial *t, struct disk *d, int64_t n_file,
                            int64_t n_memory) MUST_CHECK;
void disk_trial_close(struct disk_trial *t);
/* A copy between places of the two; memory is not aligned as blocks are. */
enum status disk_trial_copy(const struct disk_trial *t, bool write, int64_t at, int64_t n_bytes,
                            double *seconds) MUST_CHECK;

/* queue.c */
void queue_close(struct disk *d);

#ifdef __cplusplus
}
#endif
#endif
