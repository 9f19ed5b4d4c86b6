#include "engine/changeover.h"

#include "engine/carrier.h"
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
    const int64_t *arenas = e->work.n_bytes;
    bool apart = e->device->ops->memory_is_apart;
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
    return settings_from_config(&next->settings, asked, e->device);
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

enum status engine_replan(const struct engine *e, const struct replan *r, struct engine *next)
{
    struct surroundings around;
    struct config asked;
    surroundings_without(&around, e);
    enum status status = begin(e, r, &around, &asked, next);
    if (status == OK)
        status = r->known ? engine_plan_beside(next, request_of(e, r), r->known)
                          : engine_plan(next, request_of(e, r));
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

static void leave(struct engine *e)
{
    executor_free(e->executor);
    e->executor = NULL;
}

static enum status enter(struct engine *e, const struct carrier *c)
{
    TRY(engine_allocate(e));
    TRY(engine_load_programs(e));
    TRY(engine_bind_params(e));
    return carrier_unload(c, e->executor, &e->work.storage);
}

enum status engine_change_over(struct engine *e, struct engine *next, const char *folder)
{
    struct carrier c;
    TRY(carrier_load(&c, folder, e->executor, &e->work.storage));
    leave(e);
    swap_plans(e, next);
    enum status status = enter(e, &c);
    if (status != OK) {
        struct str reason = {0};
        str_add(&reason, status_message());
        leave(e);
        swap_plans(e, next);
        enum status back = enter(e, &c);
        if (back != OK)
            leave(e);
        status = FAIL(back == OK ? status : back, "%s", str_text(&reason));
        str_release(&reason);
    }
    carrier_close(&c);
    return status;
}
