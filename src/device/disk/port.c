/* port.c: requests to the kernel: by io_uring where it is to be had, else one at a time.
 *
 * The buffers are registered with the ring, so that the kernel maps them once; where it lets us
 * lock too little memory for that they are used like any other.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef SNUG_HAS_URING
#include <liburing.h>
#endif

#include "base/machine.h"
#include "device/disk/disk_internal.h"

/* ---- faults for tests ------------------------------------------------------------------------ */

static atomic_llong fail_in; /* requests of the kind; 0: none fails */
static atomic_int fail_error;
static atomic_bool fail_write;

void disk_fail_after(int64_t n, bool write, int error)
{
    atomic_store(&fail_error, error);
    atomic_store(&fail_write, write);
    atomic_store(&fail_in, n);
}

static int injected(bool write)
{
    if (atomic_load(&fail_in) == 0 || atomic_load(&fail_write) != write)
        return 0;
    return atomic_fetch_sub(&fail_in, 1) == 1 ? atomic_load(&fail_error) : 0;
}

/* ---- slowness for tests ---------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    bool on, wrote;
    struct disk_pretence is;
    int64_t n_written;
    double now;
} pretence = {.lock = PTHREAD_MUTEX_INITIALIZER};

void disk_pretend(const struct disk_pretence *p)
{
    (void)pthread_mutex_lock(&pretence.lock);
    pretence.on = p != NULL;
    pretence.is = p ? *p : (struct disk_pretence){0};
    pretence.n_written = 0;
    pretence.wrote = false;
    pretence.now = 0;
    (void)pthread_mutex_unlock(&pretence.lock);
}

static atomic_int n_said, stalled_until;

void disk_stall(int n_times)
{
    atomic_store(&stalled_until, n_times > 0 ? atomic_load(&n_said) + n_times : 0);
}

void port_note_slow(void)
{
    atomic_fetch_add(&n_said, 1);
}

static void stall(void)
{
    while (atomic_load(&n_said) < atomic_load(&stalled_until))
        (void)nanosleep(&(struct timespec){0, 1000000}, NULL);
}

double disk_now(void)
{
    (void)pthread_mutex_lock(&pretence.lock);
    double now = pretence.on ? pretence.now : now_s();
    (void)pthread_mutex_unlock(&pretence.lock);
    return now;
}

static double pretended(const struct piece *x)
{
    bool cached = x->write && pretence.n_written < pretence.is.cache_bytes;
    double rate = cached ? pretence.is.cached : x->write ? pretence.is.written : pretence.is.read;
    double turn = x->write != pretence.wrote ? pretence.is.turn_s : 0;
    pretence.wrote = x->write;
    pretence.n_written += x->write ? x->n_bytes : 0;
    return (double)x->n_bytes / rate + turn;
}

static void slow_down(const struct piece *x)
{
    stall();
    (void)pthread_mutex_lock(&pretence.lock);
    if (pretence.on)
        pretence.now += pretended(x);
    (void)pthread_mutex_unlock(&pretence.lock);
}

/* ---- one at a time --------------------------------------------------------------------------- */

static int run_plainly(const struct piece *x)
{
    for (int64_t done = 0; done < x->n_bytes;) {
        char *data = (char *)x->data + done;
        size_t left = (size_t)(x->n_bytes - done);
        ssize_t n = x->write ? pwrite(x->fd, data, left, x->at + done)
                             : pread(x->fd, data, left, x->at + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            return EIO; /* the file has all its bytes from the beginning */
        done += n;
    }
    return 0;
}

int piece_run(const struct piece *x)
{
    int error = injected(x->write);
    slow_down(x);
    return error ? error : run_plainly(x);
}

static void start_plainly(struct disk_port *p, int slot, const struct piece *x)
{
    int error = run_plainly(x);
    p->results[slot] = error ? -error : x->n_bytes;
}

static void reap_plainly(struct disk_port *p, int *slot, int64_t *result)
{
    int i = 0;
    while (!p->pending[i])
        i++;
    *slot = i;
    *result = p->results[i];
}

/* ---- io_uring -------------------------------------------------------------------------------- */

#ifdef SNUG_HAS_URING
struct port_io {
    struct io_uring ring;
    bool registered;
};

static struct port_io *io_open(char *buffers)
{
    struct iovec all[DISK_DEPTH];
    struct port_io *io = mem_calloc(1, sizeof(*io));
    if (!io || io_uring_queue_init(DISK_DEPTH, &io->ring, 0) != 0) {
        mem_free(io);
        return NULL;
    }
    for (int i = 0; i < DISK_DEPTH; i++)
        all[i] = (struct iovec){buffers + (int64_t)i * DISK_PIECE, DISK_PIECE};
    io->registered = io_uring_register_buffers(&io->ring, all, DISK_DEPTH) == 0;
    return io;
}

static void io_close(struct port_io *io)
{
    if (io)
        io_uring_queue_exit(&io->ring);
    mem_free(io);
}

static void prepare(struct io_uring_sqe *e, const struct piece *x, bool registered)
{
    unsigned n = (unsigned)x->n_bytes;
    uint64_t at = (uint64_t)x->at;
    if (registered && x->write)
        io_uring_prep_write_fixed(e, x->fd, x->data, n, at, x->buffer);
    else if (registered)
        io_uring_prep_read_fixed(e, x->fd, x->data, n, at, x->buffer);
    else if (x->write)
        io_uring_prep_write(e, x->fd, x->data, n, at);
    else
        io_uring_prep_read(e, x->fd, x->data, n, at);
}

static bool io_start(struct port_io *io, int slot, const struct piece *x)
{
    struct io_uring_sqe *e = io_uring_get_sqe(&io->ring);
    if (!e)
        return false;
    prepare(e, x, io->registered && x->buffer >= 0);
    io_uring_sqe_set_data64(e, (unsigned)slot);
    int n = io_uring_submit(&io->ring);
    while (n == -EINTR || n == -EAGAIN || n == -EBUSY)
        n = io_uring_submit(&io->ring);
    return n >= 0;
}

static void io_reap(struct port_io *io, int *slot, int64_t *result)
{
    struct io_uring_cqe *c = NULL;
    int error = io_uring_wait_cqe(&io->ring, &c);
    while (error == -EINTR || error == -EAGAIN)
        error = io_uring_wait_cqe(&io->ring, &c);
    BUG_ON(error != 0);
    *slot = (int)io_uring_cqe_get_data64(c);
    *result = c->res;
    io_uring_cqe_seen(&io->ring, c);
}
#else
static struct port_io *io_open(char *buffers)
{
    (void)buffers;
    return NULL;
}

static void io_close(struct port_io *io)
{
    (void)io;
}

static bool io_start(struct port_io *io, int slot, const struct piece *x)
{
    (void)io;
    (void)slot;
    (void)x;
    return false;
}

static void io_reap(struct port_io *io, int *slot, int64_t *result)
{
    (void)io;
    (void)slot;
    (void)result;
}
#endif

/* ---- both ------------------------------------------------------------------------------------ */

enum status port_open(struct disk_port *p, bool may_use_uring)
{
    const size_t n_bytes = (size_t)DISK_DEPTH * DISK_PIECE;
    void *buffers = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *p = (struct disk_port){0};
    if (buffers == MAP_FAILED)
        return FAIL(ERR_MEMORY, "out of memory for the buffers of the disk tier");
    memset(buffers, 0,
           n_bytes); /* plans count what the process holds: they are there from now on */
    p->buffers = buffers;
    p->io = may_use_uring ? io_open(p->buffers) : NULL;
    return OK;
}

void port_close(struct disk_port *p)
{
    io_close(p->io);
    if (p->buffers)
        (void)munmap(p->buffers, (size_t)DISK_DEPTH * DISK_PIECE);
    *p = (struct disk_port){0};
}

void port_start(struct disk_port *p, int slot, const struct piece *x)
{
    int error = injected(x->write);
    slow_down(x);
    p->pending[slot] = error || !p->io || !io_start(p->io, slot, x);
    if (error)
        p->results[slot] = -error;
    else if (p->pending[slot])
        start_plainly(p, slot, x);
}

void port_reap(struct disk_port *p, int *slot, int64_t *result)
{
    bool done_here = false;
    for (int i = 0; i < DISK_DEPTH; i++)
        done_here |= p->pending[i];
    if (done_here)
        reap_plainly(p, slot, result);
    else
        io_reap(p->io, slot, result);
    p->pending[*slot] = false;
}
