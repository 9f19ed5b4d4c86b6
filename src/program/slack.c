/* slack.c: memory of the host that is free most of the time.
 *
 * The host is at its fullest when the forward pass ends; before, what it saves is not all there
 * yet, and in the backward pass ever less of it is left. plan.halfway_bytes are what is left at the
 * fullest moment. At all others more may be on its way between disk and device, for nothing:
 *
 *     waits   of compute for what is written from the host to disk stand as late,
 *     reads   from disk to the host as early
 *
 * as the host holds no more than at that moment. Waits first: compute that waits for a write keeps
 * everything waiting, a read that comes late only what reads it.
 */
#include "base/skyline.h"
#include "program/emit.h"

struct slack {
    const struct emitter *e;
    const int32_t *recorded;
    struct skyline held; /* bytes of the host that are taken, by instruction */
    int64_t most;        /* at the fullest moment */
};

/* With the reads where they stand so far. */
static void find_held(struct slack *x, const int32_t *read_at)
{
    const struct program *p = x->e->p;
    const struct movable *r = x->e->reads.items;
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (b->tier == TIER_HOST)
            skyline_raise(&x->held, b->first, b->last + 1, b->n_bytes);
    }
    for (size_t i = 0; i < x->e->reads.n; i++)
        skyline_raise(&x->held, read_at[i], r[i].first, r[i].n_bytes);
    x->most = skyline_most(&x->held);
}

/* A copy begins with a record on compute, behind which its memory has to be free: a wait does not
 * stand between the two. */
static int32_t may_wait_at(const struct program *p, int32_t k)
{
    while (p->instrs.items[k].queue != QUEUE_COMPUTE)
        k--;
    return k;
}

/* From the last to the first: the queue is in order, so what one waits for those before it have. */
static void wait_later(struct slack *x, int32_t *waits_at)
{
    const struct program *p = x->e->p;
    const struct movable *w = x->e->waits.items;
    int32_t latest = (int32_t)p->instrs.n - 1;
    for (size_t i = x->e->waits.n; i-- > 0;) {
        const struct section *s = section_at(p, w[i].first);
        int32_t next = w[i].first + 1;
        latest = MIN(latest, s->first + s->n - 1);
        int32_t full = skyline_first_above(&x->held, next, latest, x->most - w[i].n_bytes);
        waits_at[i] = may_wait_at(p, full >= 0 ? full : latest);
        skyline_raise(&x->held, next, waits_at[i], w[i].n_bytes);
        latest = waits_at[i];
    }
}

/* In the order of their readers, which they keep. */
static void read_earlier(struct slack *x, int32_t *read_at)
{
    const struct movable *r = x->e->reads.items;
    int32_t before = 0;
    for (size_t i = 0; i < x->e->reads.n; i++) {
        int32_t earliest = MAX(before, section_at(x->e->p, r[i].first)->first);
        if (r[i].after >= 0)
            earliest = MAX(earliest, x->recorded[r[i].after] + 1);
        int32_t full = skyline_last_above(&x->held, earliest, read_at[i], x->most - r[i].n_bytes);
        int32_t start = MIN(full >= 0 ? full + 1 : earliest, read_at[i]);
        skyline_raise(&x->held, start, read_at[i], r[i].n_bytes);
        read_at[i] = before = start;
    }
}

enum status slack_use(const struct emitter *e, const int32_t *recorded, int32_t *read_at,
                      int32_t *waits_at)
{
    struct slack x = {.e = e, .recorded = recorded};
    if (e->reads.n == 0 && e->waits.n == 0)
        return OK;
    TRY(skyline_init(&x.held, (int32_t)e->p->instrs.n));
    find_held(&x, read_at);
    wait_later(&x, waits_at);
    read_earlier(&x, read_at);
    skyline_release(&x.held);
    return OK;
}
