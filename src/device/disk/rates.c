/* rates.c: how fast the disk is for a moment, by copies as programs make them. A disk of any speed
 * is asked for little: what a small copy takes says how many of the large ones there is time for.
 */
#include <sys/mman.h>

#include "device/disk/disk_internal.h"

enum { LARGE = 8 << 20, SMALL = 256 << 10, MOST_ROUNDS = 4 };
#define MOST_S 0.2 /* for one direction, once the first copy is made */

enum status disk_trial_open(struct disk_trial *t, struct disk *d, int64_t n_file, int64_t n_memory)
{
    *t = (struct disk_trial){.disk = d,
                             .file = {TIER_DISK, NULL, n_file},
                             .memory = {TIER_HOST, NULL, n_memory + DISK_BLOCK}};
    /* All there from the beginning: a page that a read is the first to touch costs more than it. */
    void *memory = mmap(NULL, (size_t)t->memory.n_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(ERR_MEMORY, "out of memory for measuring the disk");
    t->memory.base = memory;
    enum status status = disk_alloc(d, n_file, &t->file.base);
    if (status != OK)
        disk_trial_close(t);
    return status;
}

void disk_trial_close(struct disk_trial *t)
{
    if (t->file.base)
        disk_free(t->disk, t->file.base);
    (void)munmap(t->memory.base, (size_t)t->memory.n_bytes);
}

enum status disk_trial_copy(const struct disk_trial *t, bool write, int64_t at, int64_t n_bytes,
                            double *seconds)
{
    int64_t beside = at % (t->memory.n_bytes - DISK_BLOCK);
    struct place on_disk = {&t->file, at}, here = {&t->memory, beside + ARENA_ALIGN};
    double start = disk_now();
    TRY(disk_copy(t->disk, write ? on_disk : here, write ? here : on_disk, n_bytes));
    *seconds = disk_now() - start;
    return OK;
}

/* The best of a few rounds. */
static enum status time_copies(const struct disk_trial *t, bool write, int64_t n_bytes,
                               double *best)
{
    double spent = 0;
    *best = 1e30;
    for (int i = 0; i < MOST_ROUNDS && spent < MOST_S; i++) {
        double seconds;
        TRY(disk_trial_copy(t, write, 0, n_bytes, &seconds));
        *best = MIN(*best, seconds);
        spent += seconds;
    }
    return OK;
}

static enum status find_rate(const struct disk_trial *t, bool write, struct link_rate *out)
{
    double small_s, large_s;
    TRY(time_copies(t, write, SMALL, &small_s));
    if (small_s * (LARGE / SMALL) > 4 * MOST_S) { /* so slow that more of it says nothing new */
        *out = (struct link_rate){.alone = SMALL / small_s};
        return OK;
    }
    TRY(time_copies(t, write, LARGE, &large_s));
    *out = link_rate_of(LARGE, large_s, SMALL, small_s);
    return OK;
}

enum status disk_measure(struct disk *d, struct disk_rates *out)
{
    struct disk_trial t;
    struct link_rate written = {0}, read = {0};
    struct device_room room;
    enum status status;
    *out = (struct disk_rates){0};
    disk_room(d, &room);
    if (room.free_bytes < 2 * (int64_t)LARGE)
        return OK; /* that is for the plan to say */
    TRY(disk_trial_open(&t, d, LARGE, LARGE));
    TRY_GOTO(find_rate(&t, true, &written), out);
    TRY_GOTO(find_rate(&t, false, &read), out);
    *out = (struct disk_rates){.read = read.alone,
                               .written = written.alone,
                               .read_in_turns = read.alone,
                               .written_in_turns = written.alone,
                               .read_s = read.latency_s,
                               .written_s = written.latency_s};
out:
    disk_trial_close(&t);
    return status;
}
