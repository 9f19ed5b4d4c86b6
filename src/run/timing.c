#include "run/timing.h"

#include "base/machine.h"

static bool has_marks(const struct timing *t)
{
    return t->device->ops->mark != NULL;
}

/* Marks 0 .. QUEUE_COUNT - 1 are the beginnings of the queues. */
static int mark_of(const struct section *s, int32_t at)
{
    return QUEUE_COUNT + (int)(at - s->first);
}

enum status timing_init(struct timing *t, const struct program *p, struct device *device)
{
    int32_t most = 0;
    *t = (struct timing){.p = p, .device = device};
    pool_init(&t->pool);
    for (size_t i = 0; i < p->sections.n; i++)
        most = MAX(most, p->sections.items[i].n);
    if (has_marks(t))
        TRY(device->ops->prepare_marks(device, QUEUE_COUNT + (int)most));
    t->origin_s = now_s();
    return OK;
}

void timing_clear(struct timing *t)
{
    t->runs.n = 0;
    pool_release(&t->pool);
    pool_init(&t->pool);
}

void timing_release(struct timing *t)
{
    vec_release(&t->runs);
    pool_release(&t->pool);
    *t = (struct timing){0};
}

double timing_now(const struct timing *t)
{
    return now_s() - t->origin_s;
}

static struct timed_run *current(struct timing *t)
{
    return &t->runs.items[t->runs.n - 1];
}

enum status timing_enter(struct timing *t, const struct section *s)
{
    struct timed_run r = {.section = s};
    size_t n_bytes = sizeof(double) * (size_t)MAX(s->n, 1);
    TRY(pool_try(&t->pool, &r.begin, n_bytes));
    TRY(pool_try(&t->pool, &r.end, n_bytes));
    r.start_s = timing_now(t);
    return vec_push(&t->runs, r);
}

/* ---- by the clock --------------------------------------------------------------------------- */

void timing_before(struct timing *t, int32_t at)
{
    struct timed_run *r = current(t);
    if (!has_marks(t))
        r->begin[at - r->section->first] = timing_now(t) - r->start_s;
}

/* ---- by marks ------------------------------------------------------------------------------- */

static bool uses(const struct program *p, const struct section *s, enum queue q)
{
    for (int32_t at = s->first; at < s->first + s->n; at++) {
        if (p->instrs.items[at].queue == q)
            return true;
    }
    return false;
}

enum status timing_begin(struct timing *t)
{
    const struct section *s = current(t)->section;
    for (int q = 0; has_marks(t) && q < QUEUE_COUNT; q++) {
        if (uses(t->p, s, (enum queue)q))
            TRY(t->device->ops->mark(t->device, (enum queue)q, q));
    }
    return OK;
}

enum status timing_after(struct timing *t, int32_t at, int32_t n)
{
    struct timed_run *r = current(t);
    int32_t last = at + n - 1;
    if (!has_marks(t)) {
        r->end[last - r->section->first] = timing_now(t) - r->start_s;
        return OK;
    }
    const struct instr *i = &t->p->instrs.items[last];
    if (i->kind == INSTR_RECORD)
        return OK;
    return t->device->ops->mark(t->device, i->queue, mark_of(r->section, last));
}

/* The first queue in use tells the beginning of the section. */
static enum status read_beginnings(struct timing *t, double now[QUEUE_COUNT], int *origin)
{
    const struct section *s = current(t)->section;
    *origin = -1;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        now[q] = 0;
        if (!uses(t->p, s, (enum queue)q))
            continue;
        *origin = *origin < 0 ? q : *origin;
        TRY(t->device->ops->mark_seconds(t->device, *origin, q, &now[q]));
        now[q] = MAX(now[q], 0.0);
    }
    return OK;
}

/* Instructions that ran together are given begin and end of all of them. */
static enum status read_marks(struct timing *t, const int32_t *n_together)
{
    const struct timed_run *r = current(t);
    const struct section *s = r->section;
    double now[QUEUE_COUNT];
    int origin;
    TRY(read_beginnings(t, now, &origin));
    for (int32_t at = s->first, n; at < s->first + s->n; at += n) {
        const struct instr *i = &t->p->instrs.items[at];
        double *here = &now[i->queue], end = *here;
        n = n_together[at];
        if (i->kind != INSTR_RECORD)
            TRY(t->device->ops->mark_seconds(t->device, origin, mark_of(s, at + n - 1), &end));
        r->begin[at - s->first] = *here;
        *here = MAX(*here, end);
        r->end[at + n - 1 - s->first] = *here;
    }
    return OK;
}

/* ---- both ----------------------------------------------------------------------------------- */

/* The time of a batch goes to its instructions by the bytes of their operands. */
static void share(const struct timed_run *r, int32_t at, int32_t n,
                  const struct op_call *const *calls)
{
    int32_t first = at - r->section->first;
    double begin = r->begin[first], whole = r->end[first + n - 1] - begin, total = 0, done = 0;
    for (int32_t k = 0; k < n; k++)
        total += call_bytes(calls[at + k]);
    for (int32_t k = 0; k < n; k++) {
        r->begin[first + k] = begin + whole * done;
        done += total > 0 ? call_bytes(calls[at + k]) / total : 1.0 / n;
        r->end[first + k] = begin + whole * done;
    }
}

enum status timing_leave(struct timing *t, const int32_t *n_together,
                         const struct op_call *const *calls)
{
    struct timed_run *r = current(t);
    const struct section *s = r->section;
    r->seconds = timing_now(t) - r->start_s;
    if (has_marks(t))
        TRY(read_marks(t, n_together));
    for (int32_t at = s->first; at < s->first + s->n; at += n_together[at]) {
        if (n_together[at] > 1)
            share(r, at, n_together[at], calls);
    }
    return OK;
}
