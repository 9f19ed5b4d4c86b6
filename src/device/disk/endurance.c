/* endurance.c: how fast the disk is when it is kept at it.
 *
 * For a moment a disk is faster than it is: caches of its own take what is written, and give back
 * what was. A step moves gigabytes, and the next one goes on where it ended. So copies follow one
 * another here, around a file, until the rates of the last few stretches agree or time is up; what
 * counts is those stretches. A first time around does not: blocks that were never written are
 * slower to write than the same blocks the next time.
 *
 * Programs have one queue for the disk, where reads and writes stand in turns: that is the third
 * thing that is measured, as most disks are slower at each of the two when they have both to do.
 */
#include "device/disk/disk_internal.h"

enum {
    MOST_COPY =
        64 << 20, /* bytes: with fewer the queue of a disk that answers late is hardly full; */
    LEAST_COPY = 1 << 20, /* on a slow disk they would take too long */
    N_STRETCHES = 8,      /* that have to agree */
};
#define MOST_MEMORY ((int64_t)256 << 20) /* more than processors have of cache */
#define AGREE       1.05
#define COPY_S      0.025
#define STRETCH_S   0.1
#define WRITE_S     1.2
#define READ_S      0.8
#define TURNS_S     4.0 /* what programs do, for as long as they run */

enum { READ, WRITE, N_KINDS };

struct stretch {
    int64_t n_bytes[N_KINDS];
    double seconds[N_KINDS];
};

struct course {
    struct disk_trial trial;
    int64_t copy_bytes;
    int64_t at[N_KINDS]; /* where each goes on */
    int64_t n_written;   /* of the file, from its beginning */
    bool kinds[N_KINDS]; /* what it consists of now */
    struct stretch last[N_STRETCHES];
    int n_stretches;
};

static enum status run_copy(struct course *c, int kind, struct stretch *s)
{
    double seconds;
    int64_t end = kind == READ ? c->n_written : c->trial.file.n_bytes;
    if (c->at[kind] + c->copy_bytes > end)
        c->at[kind] = 0;
    TRY(disk_trial_copy(&c->trial, kind == WRITE, c->at[kind], c->copy_bytes, &seconds));
    c->at[kind] += c->copy_bytes;
    if (kind == WRITE)
        c->n_written = MAX(c->n_written, c->at[kind]);
    s->n_bytes[kind] += c->copy_bytes;
    s->seconds[kind] += seconds;
    return OK;
}

static enum status run_stretch(struct course *c, struct stretch *s)
{
    *s = (struct stretch){0};
    while (s->seconds[READ] + s->seconds[WRITE] < STRETCH_S) {
        for (int kind = N_KINDS; kind-- > 0;) { /* each behind one of the other kind */
            if (c->kinds[kind])
                TRY(run_copy(c, kind, s));
        }
    }
    return OK;
}

static double rate(const struct stretch *s, int kind)
{
    return (double)s->n_bytes[kind] / MAX(s->seconds[kind], 1e-9);
}

static bool do_agree(const struct course *c)
{
    for (int kind = 0; kind < N_KINDS; kind++) {
        double least = rate(&c->last[0], kind), most = least;
        for (int i = 1; i < N_STRETCHES; i++) {
            least = MIN(least, rate(&c->last[i], kind));
            most = MAX(most, rate(&c->last[i], kind));
        }
        if (c->kinds[kind] && most > AGREE * least)
            return false;
    }
    return c->n_stretches >= N_STRETCHES;
}

/* Copies of these kinds until they agree, for so many seconds at most; rates[kind] of the last. */
static enum status run(struct course *c, bool read, bool written, double most_s,
                       double rates[N_KINDS])
{
    double spent = 0;
    struct stretch sum = {0};
    c->kinds[READ] = read;
    c->kinds[WRITE] = written;
    c->n_stretches = 0;
    while (spent < most_s && !do_agree(c)) {
        struct stretch *s = &c->last[c->n_stretches % N_STRETCHES];
        TRY(run_stretch(c, s));
        spent += s->seconds[READ] + s->seconds[WRITE];
        c->n_stretches++;
    }
    for (int i = 0; i < MIN(c->n_stretches, (int)N_STRETCHES); i++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            sum.n_bytes[kind] += c->last[i].n_bytes[kind];
            sum.seconds[kind] += c->last[i].seconds[kind];
        }
    }
    for (int kind = 0; kind < N_KINDS; kind++)
        rates[kind] = rate(&sum, kind);
    return OK;
}

/* Once around the file, or as far as time allows. */
static enum status fill(struct course *c)
{
    struct stretch s = {0};
    while (c->n_written < c->trial.file.n_bytes && s.seconds[WRITE] < WRITE_S)
        TRY(run_copy(c, WRITE, &s));
    if (s.seconds[WRITE] >= WRITE_S) /* slow: the part that is there has to do */
        c->trial.file.n_bytes = c->n_written;
    return OK;
}

static enum status measure(struct course *c, struct disk_rates *out)
{
    double alone[N_KINDS], in_turns[N_KINDS];
    TRY(fill(c));
    TRY(run(c, false, true, WRITE_S, alone));
    out->written = alone[WRITE];
    TRY(run(c, true, false, READ_S, alone));
    out->read = alone[READ];
    c->at[READ] = c->n_written / 2 / c->copy_bytes * c->copy_bytes; /* not what was just written */
    c->at[WRITE] = 0;
    TRY(run(c, true, true, TURNS_S, in_turns));
    out->read_in_turns = MIN(in_turns[READ], out->read);
    out->written_in_turns = MIN(in_turns[WRITE], out->written);
    return OK;
}

/* As large as those of programs, which are of a block's weights or states, where a stretch has time
 * for several and the file has room. */
static int64_t copy_bytes(const struct disk_rates *moment, int64_t n_file)
{
    double in_time = MIN(moment->written * COPY_S, (double)MOST_COPY);
    int64_t n_bytes = MIN((int64_t)in_time, n_file / 8) / LEAST_COPY * LEAST_COPY;
    return MAX(n_bytes, (int64_t)LEAST_COPY);
}

enum status disk_measure_long(struct disk *d, int64_t n_bytes, struct disk_rates *rates)
{
    struct course c = {0};
    struct device_room room;
    disk_room(d, &room);
    int64_t n_file = MIN(MIN(n_bytes, DISK_MEASURED_MOST), room.free_bytes / 4);
    if (n_file < 16 * (int64_t)LEAST_COPY || rates->written <= 0)
        return OK;
    c.copy_bytes = copy_bytes(rates, n_file);
    int64_t n_memory = MIN(n_file / 8, MOST_MEMORY) / c.copy_bytes * c.copy_bytes;
    TRY(disk_trial_open(&c.trial, d, n_file / c.copy_bytes * c.copy_bytes, n_memory));
    enum status status = measure(&c, rates);
    disk_trial_close(&c.trial);
    return status;
}
