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
#include "program/emit.h"

struct slack {
    const struct emitter *e;
    const int32_t *recorded;
    int64_t *held; /* per instruction: bytes of the host that are taken */
    int64_t most;  /* at the fullest moment */
};

static void hold(struct slack *x, int32_t from, int32_t end, int64_t n_bytes)
{
    for (int32_t k = from; k < end; k++)
        x->held[k] += n_bytes;
}

/* With the reads where they stand so far. */
static void find_held(struct slack *x, const int32_t *read_at)
{
    const struct program *p = x->e->p;
    const struct movable *r = x->e->reads.items;
    int64_t now = 0;
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (b->tier != TIER_HOST || b->last < b->first)
            continue;
        x->held[b->first] += b->n_bytes;
        x->held[b->last + 1] -= b->n_bytes;
    }
    for (size_t k = 0; k <= p->instrs.n; k++) {
        now += x->held[k];
        x->held[k] = now;
    }
    for (size_t i = 0; i < x->e->reads.n; i++)
        hold(x, read_at[i], r[i].first, r[i].n_bytes);
    for (size_t k = 0; k < p->instrs.n; k++)
        x->most = MAX(x->most, x->held[k]);
}

/* A copy begins with a record on compute, behind which its memory has to be free: a wait does not
 * stand between the two. */
static bool may_wait_at(const struct program *p, int32_t k)
{
    return p->instrs.items[k].queue == QUEUE_COMPUTE;
}

/* From the last to the first: the queue is in order, so what one waits for those before it have. */
static void wait_later(struct slack *x, int32_t *waits_at)
{
    const struct program *p = x->e->p;
    const struct movable *w = x->e->waits.items;
    int32_t latest = (int32_t)p->instrs.n - 1;
    for (size_t i = x->e->waits.n; i-- > 0;) {
        const struct section *s = section_at(p, w[i].first);
        latest = MIN(latest, s->first + s->n - 1);
        waits_at[i] = w[i].first;
        for (int32_t k = w[i].first + 1; k <= latest; k++) {
            if (may_wait_at(p, k))
                waits_at[i] = k;
            if (x->held[k] + w[i].n_bytes > x->most)
                break;
        }
        hold(x, w[i].first + 1, waits_at[i], w[i].n_bytes);
        latest = waits_at[i];
    }
}

/* In the order of their readers, which they keep. */
static void read_earlier(struct slack *x, int32_t *read_at)
{
    const struct movable *r = x->e->reads.items;
    int32_t before = 0;
    for (size_t i = 0; i < x->e->reads.n; i++) {
        int32_t start = read_at[i];
        int32_t earliest = MAX(before, section_at(x->e->p, r[i].first)->first);
        if (r[i].after >= 0)
            earliest = MAX(earliest, x->recorded[r[i].after] + 1);
        while (start > earliest && x->held[start - 1] + r[i].n_bytes <= x->most)
            start--;
        hold(x, start, read_at[i], r[i].n_bytes);
        read_at[i] = before = start;
    }
}

enum status slack_use(const struct emitter *e, const int32_t *recorded, int32_t *read_at,
                      int32_t *waits_at)
{
    struct slack x = {.e = e, .recorded = recorded};
    if (e->reads.n == 0 && e->waits.n == 0)
        return OK;
    TRY(mem_try_array(&x.held, e->p->instrs.n + 1, sizeof(*x.held)));
    find_held(&x, read_at);
    wait_later(&x, waits_at);
    read_earlier(&x, read_at);
    mem_free(x.held);
    return OK;
}
