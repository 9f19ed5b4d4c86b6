#include "program/queues.h"

#include <math.h>

#include "program/kernel_times.h"

/* Instructions of the section, by their place in it. */
enum { NO_INSTR = -1 };

/* Of kernels beside copies, whatever the rates say. */
static const double least_speed = 0.5;

struct lane {
    int32_t at;   /* the instruction that is next, or runs; NO_INSTR: it is done */
    bool runs;    /* `at` has begun */
    double left;  /* of its time alone */
    double speed; /* of time alone, in a second */
    double ends;  /* seconds from now on */
};

struct run {
    const struct program *p;
    const struct device *device;
    const struct instr *instrs;
    int32_t n;
    const double *alone;
    double *enqueued; /* when the host has come to each */
    int32_t *next;    /* on the same lane */
    int32_t *record;  /* of waits: the instruction whose end they wait for; NO_INSTR: none */
    bool *is_done;    /* of records */
    double *starts;
    double now;
    struct lane lanes[QUEUE_COUNT];
};

/* ---- before it begins ------------------------------------------------------------------------ */

/* Where kernels run when they are called, all queues are one, but the disk's. */
static int lane_of(const struct run *r, int32_t k)
{
    bool apart = r->device->ops->queue || r->instrs[k].queue == QUEUE_DISK;
    return apart ? (int)r->instrs[k].queue : 0;
}

static void link_lanes(struct run *r)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        r->lanes[q] = (struct lane){.at = NO_INSTR};
    for (int32_t k = r->n - 1; k >= 0; k--) {
        struct lane *lane = &r->lanes[lane_of(r, k)];
        r->next[k] = lane->at;
        lane->at = k;
    }
}

/* A recording is enqueued at once; otherwise an instruction cannot run before the host came to it.
 */
static void note_host(struct run *r, int32_t first)
{
    const struct device_ops *ops = r->device->ops;
    bool by_host = ops->queue && (!ops->capture_begin || r->device->tuning.unrecorded);
    double host = 0;
    for (int32_t k = 0; k < r->n; k++) {
        if (by_host && r->alone[k] > 0 && !instr_is_batched(r->p, r->device, first + k))
            host += r->device->rates.launch_s;
        r->enqueued[k] = host;
    }
}

static void note_records(struct run *r, int32_t *of_event)
{
    for (int e = 0; e < r->p->n_events; e++)
        of_event[e] = NO_INSTR;
    for (int32_t k = 0; k < r->n; k++) {
        const struct instr *i = &r->instrs[k];
        r->record[k] = i->kind == INSTR_WAIT ? of_event[i->event] : NO_INSTR;
        if (i->kind == INSTR_RECORD)
            of_event[i->event] = k;
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static bool is_blocked(const struct run *r, int32_t k)
{
    return r->record[k] != NO_INSTR && !r->is_done[r->record[k]];
}

/* Passes what takes no time, and begins what does; true: others may have waited for it. */
static bool advance(struct run *r, struct lane *lane)
{
    bool recorded = false;
    while (lane->at != NO_INSTR && !lane->runs && !is_blocked(r, lane->at) &&
           r->enqueued[lane->at] <= r->now) {
        int32_t k = lane->at;
        r->starts[k] = r->now;
        r->is_done[k] = r->instrs[k].kind == INSTR_RECORD;
        recorded = recorded || r->is_done[k];
        lane->runs = r->alone[k] > 0;
        lane->left = r->alone[k];
        if (!lane->runs)
            lane->at = r->next[k];
    }
    return recorded;
}

static bool copies(const struct run *r, const struct lane *lane)
{
    return lane->runs && r->instrs[lane->at].kind == INSTR_COPY;
}

static const struct link_rate *link_of(const struct run *r, const struct lane *lane)
{
    const struct operand *o = &r->p->operands.items[r->instrs[lane->at].first_operand];
    return &r->device->rates.links[o[0].tier][o[1].tier];
}

/* How fast a copy goes while another goes the other way. */
static double duplex_speed(const struct run *r, const struct lane *lane)
{
    const struct link_rate *link = link_of(r, lane);
    return link->both > 0 && link->both < link->alone ? link->both / link->alone : 1.0;
}

/* Of the time of kernels, what a copy beside them takes. */
static double crossing_share(const struct run *r, const struct lane *lane)
{
    if (!copies(r, lane))
        return 0.0;
    return lane->speed * link_of(r, lane)->alone * device_crossing_s(&r->device->rates);
}

static void set_speeds(struct run *r)
{
    struct lane *in = &r->lanes[QUEUE_IN], *out = &r->lanes[QUEUE_OUT];
    for (int q = 0; q < QUEUE_COUNT; q++)
        r->lanes[q].speed = 1.0;
    if (copies(r, in) && copies(r, out)) {
        in->speed = duplex_speed(r, in);
        out->speed = duplex_speed(r, out);
    }
    double left = 1.0 - crossing_share(r, in) - crossing_share(r, out);
    r->lanes[QUEUE_COMPUTE].speed = MAX(left, least_speed);
}

/* Until the next instruction ends or is enqueued; HUGE_VAL: everything is done. */
static double time_to_event(struct run *r)
{
    double least = HUGE_VAL;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        struct lane *lane = &r->lanes[q];
        if (lane->at == NO_INSTR || (!lane->runs && is_blocked(r, lane->at)))
            continue;
        lane->ends = lane->runs ? lane->left / lane->speed : r->enqueued[lane->at] - r->now;
        least = MIN(least, lane->ends);
    }
    return least;
}

static void pass(struct run *r, double seconds)
{
    r->now += seconds;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        struct lane *lane = &r->lanes[q];
        if (!lane->runs)
            continue;
        lane->left -= seconds * lane->speed;
        if (lane->ends <= seconds) {
            lane->at = r->next[lane->at];
            lane->runs = false;
        }
    }
}

static void run_all(struct run *r)
{
    for (double seconds = 0; seconds < HUGE_VAL;) {
        for (bool recorded = true; recorded;) {
            recorded = false;
            for (int q = 0; q < QUEUE_COUNT; q++)
                recorded = advance(r, &r->lanes[q]) || recorded;
        }
        set_speeds(r);
        seconds = time_to_event(r);
        if (seconds < HUGE_VAL)
            pass(r, seconds);
    }
}

enum status queues_run(const struct program *p, const struct device *device,
                       const struct section *s, const double *alone, double *starts,
                       double *seconds)
{
    size_t n = (size_t)MAX(s->n, 1);
    int32_t *of_event = NULL;
    struct pool pool;
    struct run r = {.p = p,
                    .device = device,
                    .instrs = &p->instrs.items[s->first],
                    .n = s->n,
                    .alone = alone,
                    .starts = starts};
    enum status status;
    pool_init(&pool);
    TRY_GOTO(pool_try(&pool, &r.enqueued, n * sizeof(*r.enqueued)), out);
    TRY_GOTO(pool_try(&pool, &r.next, n * sizeof(*r.next)), out);
    TRY_GOTO(pool_try(&pool, &r.record, n * sizeof(*r.record)), out);
    TRY_GOTO(pool_try(&pool, &r.is_done, n * sizeof(*r.is_done)), out);
    TRY_GOTO(pool_try(&pool, &of_event, (size_t)(p->n_events + 1) * sizeof(*of_event)), out);
    link_lanes(&r);
    note_host(&r, s->first);
    note_records(&r, of_event);
    run_all(&r);
    *seconds = r.now;
out:
    pool_release(&pool);
    return status;
}
