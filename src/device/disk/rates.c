/* rates.c: how fast the disk is, by copies as programs make them. A disk of any speed is asked for
 * little: what a small copy takes says how many of the large ones there is time for. */
#include <sys/mman.h>

#include "base/machine.h"
#include "device/disk/disk_internal.h"

enum { LARGE = 8 << 20, SMALL = 256 << 10, MOST_ROUNDS = 4 };
#define MOST_S 0.2 /* for one direction, once the first copy is made */

struct trial {
    struct disk *disk;
    struct memory file, memory;
    bool write;
};

static enum status time_copy(const struct trial *t, int64_t offset, int64_t n_bytes,
                             double *seconds)
{
    struct place on_disk = {&t->file, 0}, here = {&t->memory, offset};
    double start = now_s();
    TRY(disk_copy(t->disk, t->write ? on_disk : here, t->write ? here : on_disk, n_bytes));
    *seconds = now_s() - start;
    return OK;
}

/* The best of a few rounds. */
static enum status time_copies(const struct trial *t, int64_t offset, int64_t n_bytes, double *best)
{
    double spent = 0;
    *best = 1e30;
    for (int i = 0; i < MOST_ROUNDS && spent < MOST_S; i++) {
        double seconds;
        TRY(time_copy(t, offset, n_bytes, &seconds));
        *best = MIN(*best, seconds);
        spent += seconds;
    }
    return OK;
}

static enum status find_rate(const struct trial *t, int64_t offset, struct link_rate *out)
{
    double small_s, large_s;
    TRY(time_copies(t, offset, SMALL, &small_s));
    if (small_s * (LARGE / SMALL) > 4 * MOST_S) { /* so slow that more of it says nothing new */
        *out = (struct link_rate){.alone = SMALL / small_s};
        return OK;
    }
    TRY(time_copies(t, offset, LARGE, &large_s));
    *out = link_rate_of(LARGE, large_s, SMALL, small_s);
    return OK;
}

enum status disk_measure(struct disk *d, bool unaligned, struct disk_rates *out)
{
    const int64_t n_bytes = LARGE + DISK_BLOCK;
    struct trial t = {.disk = d,
                      .file = {TIER_DISK, NULL, LARGE},
                      .memory = {TIER_HOST, NULL, n_bytes},
                      .write = true};
    struct link_rate written = {0}, read = {0};
    int64_t offset = unaligned ? ARENA_ALIGN : 0;
    struct device_room room;
    *out = (struct disk_rates){0};
    disk_room(d, &room);
    if (room.free_bytes < 2 * (int64_t)LARGE)
        return OK; /* that is for the plan to say */
    void *memory =
        mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(ERR_MEMORY, "out of memory for measuring the disk");
    t.memory.base = memory;
    enum status status;
    TRY_GOTO(disk_alloc(d, LARGE, &t.file.base), out);
    TRY_GOTO(find_rate(&t, offset, &written), out);
    t.write = false;
    TRY_GOTO(find_rate(&t, offset, &read), out);
    *out = (struct disk_rates){read.alone, written.alone, read.latency_s, written.latency_s};
out:
    if (t.file.base)
        disk_free(d, t.file.base);
    (void)munmap(memory, (size_t)n_bytes);
    return status;
}
