#include "engine/carry.h"

#include "base/alloc.h"
#include "device/disk/disk.h"

/* ---- directly -------------------------------------------------------------------------------- */

static struct place place_of(struct executor *x, const struct storage_entry *e, int64_t offset)
{
    return (struct place){executor_arena(x, e->tier), e->offset + offset};
}

/* Copies by the device are enqueued: they end with a sync. */
static enum status copy(struct device *d, struct place to, struct place from, int64_t n_bytes)
{
    enum tier a = from.memory->tier, b = to.memory->tier;
    if (a == TIER_DISK || b == TIER_DISK)
        return disk_copy(d->disk, to, from, n_bytes);
    if (!device_host_reaches(d, a) || !device_host_reaches(d, b))
        return device_copy(d, b == TIER_DEVICE ? QUEUE_IN : QUEUE_OUT, to, from, n_bytes);
    team_copy(d->env.team, place_address(to), place_address(from), n_bytes);
    return OK;
}

enum status carry_directly(const struct carry *c, enum passage passage, bool back)
{
    for (size_t i = 0; i < c->route->passengers.n; i++) {
        const struct passenger *p = &c->route->passengers.items[i];
        if (p->passage != passage)
            continue;
        struct place old = place_of(c->old, p->from, 0), fresh = place_of(c->fresh, p->to, 0);
        TRY(copy(c->device, back ? old : fresh, back ? fresh : old, p->from->n_bytes));
    }
    return c->device->ops->sync(c->device);
}

/* ---- pages that go --------------------------------------------------------------------------- */

static void release(const struct carry *c, enum tier t, int64_t from, int64_t to)
{
    const struct memory *m = executor_arena(c->old, t);
    if (c->device->ops->memory_release && m->base && to > from)
        c->device->ops->memory_release(c->device, t, (char *)m->base + from, to - from);
}

/* Everything below a passenger has left by then. */
enum status carry_last(const struct carry *c)
{
    enum { AT_LEAST = 16 << 20 };
    int64_t released[TIER_COUNT] = {0};
    for (size_t i = 0; i < c->route->passengers.n; i++) {
        const struct passenger *p = &c->route->passengers.items[i];
        enum tier t = p->from->tier;
        if (p->passage != PASSAGE_LAST)
            continue;
        TRY(copy(c->device, place_of(c->fresh, p->to, 0), place_of(c->old, p->from, 0),
                 p->from->n_bytes));
        int64_t end = p->from->offset + p->from->n_bytes;
        if (end - released[t] >= AT_LEAST) {
            release(c, t, released[t], end);
            released[t] = end;
        }
    }
    return c->device->ops->sync(c->device);
}

/* ---- by the carrier -------------------------------------------------------------------------- */

/* Two windows onto the carrier's bytes: while the threads move the one between a window and the
 * carrier, the device moves the other. They lie where the device copies at full speed, in the
 * staging of the executor; where that is too small, in memory of our own. */
enum { SMALLEST_WINDOW = ROUTE_BUFFER_BYTES / 2, LARGEST_WINDOW = 64 << 20 };

struct windows {
    struct memory memory[2];
    int64_t n_bytes; /* of each */
    void *own;       /* to be freed */
};

static enum status open_windows(struct windows *w, struct executor *x,
                                const struct storage_entry *staging)
{
    int64_t n = staging ? staging->n_bytes / 2 / ROUTE_ALIGN * ROUTE_ALIGN : 0;
    char *base = staging ? executor_storage_pointer(x, staging) : NULL;
    *w = (struct windows){.n_bytes = MIN(n, (int64_t)LARGEST_WINDOW)};
    if (!base || w->n_bytes < SMALLEST_WINDOW) {
        w->n_bytes = SMALLEST_WINDOW;
        base = w->own = mem_alloc(ROUTE_BUFFER_BYTES);
        if (!base)
            return FAIL(ERR_MEMORY, "out of memory for a change of budgets");
    }
    for (int i = 0; i < 2; i++)
        w->memory[i] = memory_of_host(base + i * w->n_bytes, w->n_bytes);
    return OK;
}

/* The passengers whose bytes are in [at, at + n_bytes) of the carrier, from the `first`-th on. */
struct span {
    int64_t at, n_bytes;
    size_t first;
};

/* Between a window and the arenas. */
static enum status copy_span(const struct carry *c, struct span *s, const struct memory *window,
                             struct executor *x, bool in, bool back)
{
    for (size_t i = s->first; i < c->route->passengers.n; i++) {
        const struct passenger *p = &c->route->passengers.items[i];
        const struct storage_entry *e = in && !back ? p->to : p->from;
        int64_t from = MAX(p->at, s->at), to = MIN(p->at + e->n_bytes, s->at + s->n_bytes);
        if (p->passage != PASSAGE_CARRIED)
            continue;
        if (p->at >= s->at + s->n_bytes)
            break;
        s->first = i; /* its rest may be in the next span */
        if (to <= from)
            continue;
        struct place there = place_of(x, e, from - p->at), here = {window, from - s->at};
        TRY(copy(c->device, in ? there : here, in ? here : there, to - from));
    }
    return OK;
}

static void move_on(const struct carry *c, struct span *s, int64_t n_window)
{
    s->at += s->n_bytes;
    s->n_bytes = MIN(c->route->carrier_bytes - s->at, n_window);
}

/* The device fills one window while threads empty the other. */
static enum status fill_carrier(const struct carry *c, const struct windows *w)
{
    struct span s = {.n_bytes = 0}, before = {0};
    int i = 0;
    for (move_on(c, &s, w->n_bytes); s.n_bytes > 0; move_on(c, &s, w->n_bytes), i ^= 1) {
        TRY(copy_span(c, &s, &w->memory[i], c->old, false, false));
        if (before.n_bytes > 0)
            TRY(carrier_write(&c->carrier, before.at, w->memory[i ^ 1].base, before.n_bytes));
        TRY(c->device->ops->sync(c->device));
        before = s;
    }
    return before.n_bytes > 0
               ? carrier_write(&c->carrier, before.at, w->memory[i ^ 1].base, before.n_bytes)
               : OK;
}

/* Threads fill one window while the device empties the other. */
static enum status empty_carrier(const struct carry *c, const struct windows *w, bool back)
{
    struct span s = {.n_bytes = 0};
    struct executor *x = back ? c->old : c->fresh;
    int i = 0;
    for (move_on(c, &s, w->n_bytes); s.n_bytes > 0; move_on(c, &s, w->n_bytes), i ^= 1) {
        TRY(carrier_read(&c->carrier, s.at, w->memory[i].base, s.n_bytes));
        TRY(c->device->ops->sync(c->device));
        TRY(copy_span(c, &s, &w->memory[i], x, true, back));
    }
    return c->device->ops->sync(c->device);
}

/* What the device has under way reads or writes the windows. */
static enum status close_windows(const struct carry *c, struct windows *w, enum status status)
{
    if (status != OK && c->device->ops->sync(c->device) != OK)
        status = ERR_FAILED;
    mem_free(w->own);
    return status;
}

enum status carry_out(const struct carry *c)
{
    struct windows w;
    TRY(open_windows(&w, c->old, c->old_staging));
    return close_windows(c, &w, fill_carrier(c, &w));
}

enum status carry_in(const struct carry *c, bool back)
{
    struct windows w;
    TRY(open_windows(&w, back ? c->old : c->fresh, back ? c->old_staging : c->fresh_staging));
    return close_windows(c, &w, empty_carrier(c, &w, back));
}
