#include "engine/route.h"

#include <stdatomic.h>

static _Atomic int64_t most_memory = -1; /* of route_keep_memory_to */

void route_keep_memory_to(int64_t n_bytes)
{
    most_memory = n_bytes;
}

/* Sums of gradients and of metrics begin anew with every step; where a step has one micro-batch
 * there are none. */
static bool is_kept(const struct storage_entry *e)
{
    bool passes =
        e->kind == MEMORY_STAGING || e->kind == MEMORY_GRADIENTS || e->kind == MEMORY_WORKSPACE;
    return !passes && e->n_bytes > 0;
}

/* ---- what there is room for ------------------------------------------------------------------ */

/* Both engines, and what is around them now. */
struct crossing {
    const struct engine *e, *next;
    struct surroundings around;
    bool is_apart;
};

static int64_t before(const struct crossing *c, enum tier t)
{
    return c->e->work.n_bytes[t];
}

static int64_t after(const struct crossing *c, enum tier t)
{
    return c->next->work.n_bytes[t];
}

/* Of a budget that changes both hold: the one until the change is made, the other from then on. */
static int64_t limit_of(const struct crossing *c, enum tier t)
{
    int64_t a = c->e->settings.limits.n_bytes[t], b = c->next->settings.limits.n_bytes[t];
    return a == LIMIT_OPEN || b == LIMIT_OPEN ? INT64_MAX : MAX(a, b);
}

/* A sixteenth stays: others take memory too, and a change is over in a moment. */
static int64_t free_of(const struct device_room *r)
{
    return r->free_bytes - r->free_bytes / 16;
}

static int64_t beside_arenas(const struct crossing *c)
{
    return MAX(c->e->forecast.beside_bytes, c->next->forecast.beside_bytes);
}

static int64_t context_of(const struct crossing *c)
{
    return MAX(c->e->forecast.context_bytes, c->next->forecast.context_bytes);
}

/* What both arenas of a tier come to, the one for as long as the other. */
static int64_t both(const struct crossing *c, const struct route *r, enum tier t)
{
    int64_t a = before(c, t), b = after(c, t);
    return r->beside[t] && c->is_apart ? a + b : MAX(a, b);
}

static bool device_has_room(const struct crossing *c)
{
    int64_t a = before(c, TIER_DEVICE), b = after(c, TIER_DEVICE);
    return a + b + context_of(c) <= limit_of(c, TIER_DEVICE) && b <= free_of(&c->around.room);
}

static bool host_has_room(const struct crossing *c)
{
    int64_t a = before(c, TIER_HOST), b = after(c, TIER_HOST);
    return a + b + beside_arenas(c) <= limit_of(c, TIER_HOST) && b <= free_of(&c->around.host);
}

/* Host memory that the budgets and the system have left beside the arenas. */
static int64_t room_for_carrier(const struct crossing *c, const struct route *r)
{
    int64_t host = both(c, r, TIER_HOST), grows = host - before(c, TIER_HOST);
    int64_t limit = limit_of(c, TIER_HOST), within = INT64_MAX, left;
    if (!c->is_apart) /* all of it is the host's */
        grows += both(c, r, TIER_DEVICE) - before(c, TIER_DEVICE);
    if (limit != INT64_MAX)
        within = limit - host - beside_arenas(c) - ROUTE_BUFFER_BYTES;
    left = MIN(within, free_of(&c->around.host) - grows);
    return most_memory >= 0 ? MIN(left, most_memory) : left;
}

/* ---- which way ------------------------------------------------------------------------------- */

/* One copy from end to end: a disk's are to and from what the host can follow. */
static bool is_direct(const struct device *d, enum tier from, enum tier to)
{
    bool disk = from == TIER_DISK || to == TIER_DISK;
    return !disk || device_host_reaches(d, from) || device_host_reaches(d, to);
}

static enum passage passage_of(const struct route *r, const struct device *d, enum tier from,
                               enum tier to)
{
    if (!is_direct(d, from, to) || (!r->beside[from] && !r->beside[to]))
        return PASSAGE_CARRIED;
    if (!r->beside[from])
        return PASSAGE_BEFORE;
    return r->beside[to] ? PASSAGE_LAST : PASSAGE_AFTER;
}

static enum status add(struct route *r, const struct engine *e, const struct engine *next,
                       const struct storage_entry *from)
{
    const struct storage_entry *to = storage_find(&next->work.storage, from->name);
    if (!to || to->n_bytes != from->n_bytes)
        return FAIL(ERR_INTERNAL, "'%s' is not what it was under the other budgets", from->name);
    struct passenger p = {from, to, passage_of(r, e->device, from->tier, to->tier), 0};
    r->moved_bytes += from->n_bytes;
    if (p.passage == PASSAGE_CARRIED) {
        p.at = r->carrier_bytes;
        r->carrier_bytes += align_up(from->n_bytes, ROUTE_ALIGN);
    }
    return vec_push(&r->passengers, p);
}

/* Where pages come and go singly, what is beside the old arenas at most is what of the new ones is
 * filled before pages of the old ones go. */
static void note_held(struct route *r, const struct crossing *c)
{
    int64_t filled = 0;
    for (size_t i = 0; i < r->passengers.n; i++) {
        const struct passenger *p = &r->passengers.items[i];
        filled += p->passage == PASSAGE_BEFORE ? p->from->n_bytes : 0;
    }
    for (int t = 0; t < TIER_COUNT; t++)
        r->held[t] = both(c, r, (enum tier)t);
    r->held[TIER_DEVICE] += c->is_apart ? context_of(c) : 0;
    r->held[TIER_HOST] += beside_arenas(c) + r->memory_bytes + (c->is_apart ? 0 : filled) +
                          (r->carrier_bytes > 0 ? ROUTE_BUFFER_BYTES : 0);
}

enum status route_find(struct route *r, const struct engine *e, const struct engine *next,
                       bool alone)
{
    struct crossing c = {.e = e, .next = next, .is_apart = e->device->ops->memory_is_apart};
    *r = (struct route){0};
    surroundings_read(&c.around, e->device);
    if (!alone) {
        r->beside[TIER_DEVICE] = !c.is_apart || device_has_room(&c);
        r->beside[TIER_HOST] = !c.is_apart || host_has_room(&c);
    }
    for (size_t i = 0; i < e->work.storage.entries.n; i++) {
        const struct storage_entry *entry = &e->work.storage.entries.items[i];
        if (is_kept(entry))
            TRY(add(r, e, next, entry));
    }
    r->memory_bytes = MIN(MAX(room_for_carrier(&c, r), (int64_t)0), r->carrier_bytes);
    r->memory_bytes = r->memory_bytes / ROUTE_ALIGN * ROUTE_ALIGN;
    note_held(r, &c);
    return OK;
}

void route_release(struct route *r)
{
    vec_release(&r->passengers);
    *r = (struct route){0};
}
