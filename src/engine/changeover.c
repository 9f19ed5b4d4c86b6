#include "engine/changeover.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/carry.h"
#include "engine/weights.h"

/* ---- other programs -------------------------------------------------------------------------- */

static void give_back(struct device_room *r, int64_t n_bytes)
{
    if (r->free_bytes == INT64_MAX)
        return;
    r->free_bytes += n_bytes;
    r->own_bytes = MAX(r->own_bytes - n_bytes, (int64_t)0);
}

void surroundings_without(struct surroundings *s, const struct engine *e)
{
    int64_t arenas[TIER_COUNT];
    bool apart = e->device->ops->memory_is_apart;
    for (int t = 0; t < TIER_COUNT; t++)
        arenas[t] = e->work.n_bytes[t] - executor_resting(e->executor, (enum tier)t);
    int64_t on_host = arenas[TIER_HOST] + (apart ? 0 : arenas[TIER_DEVICE]);
    surroundings_read(s, e->device);
    s->resident_bytes = MAX(s->resident_bytes - on_host, (int64_t)0);
    s->peak_bytes = s->resident_bytes; /* the most of before was another budget's */
    give_back(&s->host, on_host);
    give_back(&s->room, apart ? arenas[TIER_DEVICE] : on_host);
    give_back(&s->disk, arenas[TIER_DISK]);
}

static int64_t setting_of(int64_t limit)
{
    return limit == LIMIT_OPEN ? CONFIG_AUTO : limit;
}

/* The config as it would be with these limits: advice is changes of it. */
static struct config config_with(const struct config *c, const struct limits *limits)
{
    struct config with = *c;
    with.device_memory = setting_of(limits->n_bytes[TIER_DEVICE]);
    with.host_memory = setting_of(limits->n_bytes[TIER_HOST]);
    with.disk_memory = setting_of(limits->n_bytes[TIER_DISK]);
    return with;
}

/* What planning is given: a config with those limits, which lives no longer than planning does. */
static enum status begin(const struct engine *e, const struct replan *r,
                         const struct surroundings *around, struct config *asked,
                         struct engine *next)
{
    *asked = config_with(r->config ? r->config : e->config, &r->limits);
    *next = (struct engine){.config = asked,
                            .task = e->task,
                            .model = e->model,
                            .device = e->device,
                            .times = e->times,
                            .around = around};
    TRY(settings_from_config(&next->settings, asked, e->device));
    if (r->rank > 0)
        next->settings.bounds.rank = r->rank;
    return OK;
}

static enum status end(const struct engine *e, enum status status, struct engine *next)
{
    next->around = next->work.around = NULL; /* from here on it is as the system says */
    next->config = e->config;
    if (status != OK)
        engine_discard(next);
    return status;
}

static const struct engine_request *request_of(const struct engine *e, const struct replan *r)
{
    return r->request ? r->request : &e->request;
}

enum status engine_replan_beside(const struct engine *e, const struct replan *r,
                                 const struct surroundings *around, struct engine *next)
{
    struct config asked;
    enum status status = begin(e, r, around, &asked, next);
    if (status == OK)
        status = r->is_timed ? engine_plan(next, request_of(e, r))
                             : engine_plan_beside(next, request_of(e, r), r->known);
    return end(e, status, next);
}

/* What a rank stands for changes with what is timed: then ranks of one budget would be no list. */
static enum status plan(const struct engine *e, const struct replan *r, struct engine *next)
{
    if (!r->known && r->rank == 0)
        return engine_plan(next, request_of(e, r));
    TRY(engine_plan_beside(next, request_of(e, r), r->known));
    if (!r->known)
        return engine_require_rank(next);
    next->report.chosen = MAX(next->settings.bounds.rank, 1) - 1;
    return OK;
}

enum status engine_replan(const struct engine *e, const struct replan *r, struct engine *next)
{
    struct surroundings around;
    struct config asked;
    surroundings_without(&around, e);
    executor_rest(e->executor, &e->work.storage); /* kernels are timed in memory beside it */
    enum status status = begin(e, r, &around, &asked, next);
    if (status == OK)
        status = plan(e, r, next);
    if (status == OK)
        status = engine_require_fit(next);
    if (status == OK)
        status = engine_require_room(next);
    return end(e, status, next);
}

void engine_discard(struct engine *next)
{
    workload_release(&next->work);
    *next = (struct engine){0};
}

/* ---- from the ones to the others ------------------------------------------------------------- */

/* All that engine_plan made. */
static void swap_plans(struct engine *a, struct engine *b)
{
#define SWAP(field)                                 \
    do {                                            \
        struct engine before = {.field = a->field}; \
        a->field = b->field;                        \
        b->field = before.field;                    \
    } while (0)
    SWAP(settings);
    SWAP(request);
    SWAP(work);
    SWAP(report);
    SWAP(forecast);
    SWAP(params);
    SWAP(n_params);
#undef SWAP
}

/* From e to next, and what has happened of it. */
struct change {
    struct engine *e, *next;
    struct route route;
    struct carry carry;
    bool has_left; /* arenas of the old programs are gone, and the programs with them */
};

/* New arenas beside the old ones, the carrier, and in these what has to leave before old arenas go.
 * Nothing of the old ones is changed. */
static enum status set_out(struct change *x, const char *folder, bool alone)
{
    struct engine *e = x->e, *next = x->next;
    struct carry *c = &x->carry;
    int64_t beside[TIER_COUNT];
    TRY(route_find(&x->route, e, next, alone));
    for (int t = 0; t < TIER_COUNT; t++)
        beside[t] = x->route.beside[t] ? next->work.n_bytes[t] : 0;
    *c = (struct carry){.device = e->device,
                        .route = &x->route,
                        .old = e->executor,
                        .old_staging = storage_find(&e->work.storage, STAGING_NAME),
                        .fresh_staging = storage_find(&next->work.storage, STAGING_NAME)};
    mem_trim(); /* what planning left behind does not stay beside the arenas */
    TRY(executor_new(&c->fresh, e->device, beside));
    TRY(carrier_open(&c->carrier, folder, x->route.memory_bytes, x->route.carrier_bytes,
                     e->device->env.team));
    executor_rest(c->old, &e->work.storage);
    TRY(carry_out(c));
    return carry_directly(c, PASSAGE_BEFORE, false);
}

static void stay(struct change *x)
{
    executor_free(x->carry.fresh);
    carrier_close(&x->carry.carrier);
    route_release(&x->route);
}

/* Arenas of an engine that are not there. */
static enum status add_arenas(const struct engine *e, struct executor *x)
{
    for (int t = 0; t < TIER_COUNT; t++) {
        if (!executor_arena(x, (enum tier)t)->base)
            TRY(executor_add_arena(x, (enum tier)t, e->work.n_bytes[t]));
    }
    return OK;
}

/* What cannot be beside others goes; true: there was some. */
static bool drop_arenas(const struct route *r, struct executor *x)
{
    bool dropped = false;
    for (int t = 0; t < TIER_COUNT; t++) {
        if (r->beside[t] || !executor_arena(x, (enum tier)t)->base)
            continue;
        executor_drop_arena(x, (enum tier)t);
        dropped = true;
    }
    return dropped;
}

static enum status cross(struct change *x)
{
    struct engine *e = x->e;
    x->has_left = drop_arenas(&x->route, x->carry.old);
    swap_plans(e, x->next);
    e->executor = x->carry.fresh;
    TRY(add_arenas(e, e->executor));
    TRY(engine_load_programs(e));
    TRY(engine_bind_params(e));
    TRY(carry_in(&x->carry, false));
    return carry_directly(&x->carry, PASSAGE_AFTER, false);
}

/* The arenas of before, and in them what they held. */
static enum status come_back(struct change *x)
{
    struct engine *e = x->e;
    swap_plans(e, x->next);
    e->executor = x->carry.old;
    if (!x->has_left)
        return engine_bind_params(e);
    (void)drop_arenas(&x->route, x->carry.fresh);
    TRY(add_arenas(e, e->executor));
    TRY(engine_load_programs(e));
    TRY(engine_bind_params(e));
    TRY(carry_in(&x->carry, true));
    return carry_directly(&x->carry, PASSAGE_BEFORE, true);
}

/* With the reason for which it came back. Where it cannot, the engine has no executor left. */
static enum status give_up(struct change *x, enum status status)
{
    struct str reason = {0};
    str_add(&reason, status_message());
    enum status back = come_back(x);
    if (back != OK) {
        executor_free(x->carry.old);
        x->e->executor = NULL;
    }
    stay(x);
    status = FAIL(back == OK ? status : back, "%s", str_text(&reason));
    str_release(&reason);
    return status;
}

/* Nothing can fail here but the device itself. */
static enum status arrive(struct change *x)
{
    enum status status = carry_last(&x->carry);
    executor_free(x->carry.old);
    x->carry.fresh = NULL; /* the engine's */
    if (status != OK) {
        executor_free(x->e->executor);
        x->e->executor = NULL;
    } else {
        executor_rest(x->e->executor, &x->e->work.storage); /* no step has used it yet */
    }
    stay(x);
    return status;
}

enum status engine_change_over(struct engine *e, struct engine *next, struct changeover *c)
{
    struct change x = {.e = e, .next = next};
    enum status status = set_out(&x, c->folder, false);
    if (status == ERR_FIT || status == ERR_MEMORY) {
        stay(&x); /* others were faster: without two arenas of anything at once */
        x = (struct change){.e = e, .next = next};
        status = set_out(&x, c->folder, true);
    }
    if (status != OK) {
        stay(&x);
        return status;
    }
    c->moved_bytes = x.route.moved_bytes;
    c->memory_bytes = x.carry.carrier.memory_bytes;
    c->file_bytes = x.route.carrier_bytes - c->memory_bytes;
    memcpy(c->held, x.route.held, sizeof(c->held));
    status = cross(&x);
    return status == OK ? arrive(&x) : give_up(&x, status);
}
