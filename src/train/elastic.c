#include "train/elastic.h"

#include "base/log.h"
#include "base/machine.h"
#include "train/elastic_budgets.h"

void elastic_wish_release(struct elastic_wish *w)
{
    str_release(&w->wanted);
    str_release(&w->why);
}

void elastic_init(struct elastic *x, const struct session *s)
{
    const struct config *cfg = s->config;
    *x = (struct elastic){.asked = s->engine.settings.limits};
    if (cfg->dynamic_batch)
        log_info("dynamic_batch: where the micro-batch changes, gradients are added up in another "
                 "order: losses differ from those of one micro-batch in their last digits");
    pressure_init(&x->pressure, &health_profiles[cfg->elastic_profile], cfg->elastic_cooldown);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void set_limit(int64_t *limit, int64_t wanted)
{
    if (wanted != BUDGET_SAME)
        *limit = wanted == BUDGET_OPEN ? LIMIT_OPEN : wanted;
}

enum status elastic_request(const struct session *s, const struct budget_request *r,
                            struct elastic_wish *w)
{
    *w = (struct elastic_wish){.limits = s->engine.settings.limits};
    set_limit(&w->limits.n_bytes[TIER_DEVICE], r->device_bytes);
    set_limit(&w->limits.n_bytes[TIER_HOST], r->host_bytes);
    set_limit(&w->limits.n_bytes[TIER_DISK], r->disk_bytes);
    str_add(&w->wanted, str_text(&r->text));
    return str_status(&w->wanted);
}

/* ---- what others have left ------------------------------------------------------------------- */

/* Of the device's memory; where that is the machine's, of all that the process holds of it. */
static bool read_memory(struct session *s, struct device_room *room, struct health_input *in)
{
    const struct budget *b = &s->engine.forecast.budget;
    struct device *d = s->engine.device;
    if (!d->ops->room || d->ops->room(d, room) != OK || room->free_bytes == INT64_MAX)
        return false;
    *in = (struct health_input){
        .need = b->needs[TIER_DEVICE] + (b->is_shared ? b->needs[TIER_HOST] : 0),
        .own = room->own_bytes,
        .free = room->free_bytes,
        .budget = INT64_MAX,
        .room = room_available(&b->room),
    };
    return true;
}

static int64_t lesser(int64_t limit, int64_t asked)
{
    return asked == LIMIT_OPEN ? limit : MIN(limit, asked);
}

/* The limits with which the process takes so many bytes of that memory, of those that were asked
 * for. Where it is the machine's, what leaves the arena for the host's part of it saves nothing:
 * that part may not grow by more than an eighth. */
static struct limits limits_for(const struct elastic *x, const struct session *s, int64_t n_bytes)
{
    const struct budget *b = &s->engine.forecast.budget;
    struct limits l = x->asked;
    if (b->is_shared) {
        l.n_bytes[TIER_HOST] = lesser(elastic_host_limit(s), l.n_bytes[TIER_HOST]);
        n_bytes -= l.n_bytes[TIER_HOST];
    }
    l.n_bytes[TIER_DEVICE] = lesser(MAX(n_bytes, (int64_t)1), l.n_bytes[TIER_DEVICE]);
    return l;
}

static void add_setting(struct str *out, int64_t limit)
{
    char text[BYTES_TEXT];
    str_addf(out, "device_memory=%s", limit == LIMIT_OPEN ? "auto" : room_setting(limit, text));
}

static enum status describe_wish(const struct device_room *room, const char *word,
                                 struct elastic_wish *w)
{
    add_setting(&w->wanted, w->limits.n_bytes[TIER_DEVICE]);
    str_addf(&w->why, "%s: ", word);
    room_add_text(room, &w->why);
    TRY(str_status(&w->wanted));
    return str_status(&w->why);
}

static enum status look_pressure(struct elastic *x, const struct session *s, int64_t step,
                                 const struct device_room *room, struct elastic_wish *w)
{
    w->from = pressure_look(&x->pressure, &w->reading, step);
    if (w->from == PRESSURE_NONE)
        return OK;
    w->hurries = w->from == PRESSURE_LESS;
    w->limits = w->from == PRESSURE_ALL
                    ? x->asked
                    : limits_for(x, s, pressure_target(&x->pressure, &w->reading));
    return describe_wish(
        room, w->from == PRESSURE_LESS ? health_name(x->pressure.health) : "memory is back", w);
}

/* A share of the smaller of the budget and of what there is. */
static enum status look_batch(struct elastic *x, const struct session *s, int64_t step,
                              const struct device_room *room, struct elastic_wish *w, bool *wants)
{
    const struct config *cfg = s->config;
    const struct budget *b = &s->engine.forecast.budget;
    w->limits = limits_for(x, s, w->reading.free + w->reading.own);
    int64_t *left = &w->limits.n_bytes[TIER_DEVICE];
    double use = (double)b->needs[TIER_DEVICE] / (double)*left;
    enum dynamic_wish wish = dynamic_look(&x->batch, cfg, step, use);
    *wants = wish != DYNAMIC_NONE;
    if (!*wants)
        return OK;
    *left = MAX((int64_t)(cfg->dynamic_batch_target * (double)*left), (int64_t)1);
    w->grows = wish == DYNAMIC_GROW;
    return describe_wish(room, w->grows ? "dynamic_batch, to grow" : "dynamic_batch, to shrink", w);
}

/* A reading takes no more than a thousandth of the time. */
static bool may_read(const struct elastic *x)
{
    return now_s() - x->read_at >= 1000 * x->read_s;
}

enum status elastic_look(struct elastic *x, struct session *s, int64_t step, struct elastic_wish *w,
                         bool *wants)
{
    const struct config *cfg = s->config;
    struct device_room room;
    bool for_batch = dynamic_reads(cfg, step), for_pressure = cfg->elastic && may_read(x);
    *w = (struct elastic_wish){0};
    *wants = false;
    if (!for_batch && !for_pressure)
        return OK;
    double began = thread_s();
    bool is_read = read_memory(s, &room, &w->reading);
    x->read_s = thread_s() - began;
    x->read_at = now_s();
    if (!is_read)
        return OK;
    room_sort(&room);
    if (for_pressure)
        TRY(look_pressure(x, s, step, &room, w));
    *wants = w->from != PRESSURE_NONE;
    return for_batch && !*wants ? look_batch(x, s, step, &room, w, wants) : OK;
}

/* ---- changing -------------------------------------------------------------------------------- */

/* Where the time went, and what was carried. */
static void describe_way(const struct budget_record *r, struct str *out)
{
    const struct changeover *o = &r->over;
    char planning[BYTES_TEXT], carrying[BYTES_TEXT], bytes[BYTES_TEXT];
    str_addf(out, " (planning %s, carrying %s: %s", format_duration(planning, r->planning_s),
             format_duration(carrying, r->carrying_s), format_bytes(bytes, o->moved_bytes));
    if (o->memory_bytes > 0)
        str_addf(out, ", %s of it by way of host memory", format_bytes(bytes, o->memory_bytes));
    if (o->file_bytes > 0)
        str_addf(out, ", %s of it by way of a file", format_bytes(bytes, o->file_bytes));
    str_add(out, ")");
}

static void describe(const struct session *s, const struct budget_record *r, struct str *out)
{
    const struct forecast *f = &s->engine.forecast;
    char arena[BYTES_TEXT], host[BYTES_TEXT], step[BYTES_TEXT], time[BYTES_TEXT];
    if (s->config->dynamic_batch)
        str_addf(out, "micro-batch %lld, %lld a step; ", (long long)r->batch,
                 (long long)r->n_micro);
    str_addf(out, "arena %s, %s on the host, %s per step planned%s; changed over in %s",
             format_bytes(arena, f->arena_bytes), format_bytes(host, f->host_bytes),
             format_duration(step, f->step_s), r->was_planned ? " beforehand" : "",
             format_duration(time, r->seconds));
    describe_way(r, out);
}

/* Other sizes of the micro-batch count too. Idle: none is any better than what there is. */
static enum status choose_batch(struct session *s, const struct elastic_wish *w, struct pool *pool,
                                struct session_change *c, struct dynamic_choice *chosen)
{
    if (!s->config->dynamic_batch)
        return OK;
    if (s->ahead)
        ahead_stop(s->ahead);
    TRY(dynamic_choose(s, &c->limits, pool, chosen));
    c->batch = chosen->batch;
    if (chosen->batch > 0)
        c->known = &chosen->decisions;
    c->is_idle = w->grows && (chosen->batch <= s->stages[0].batch ||
                              chosen->step_s >= s->engine.forecast.step_s);
    return OK;
}

static void note(struct elastic *x, const struct elastic_wish *w, bool granted, int64_t step)
{
    if (w->from != PRESSURE_NONE)
        pressure_note(&x->pressure, w->from, &w->reading, granted, step);
    else if (granted && !w->why.n) /* it was asked for */
        x->asked = w->limits;
}

static enum status carry_out(struct session *s, const struct elastic_wish *w,
                             struct session_change *c)
{
    struct dynamic_choice chosen = {0};
    struct pool pool;
    pool_init(&pool);
    enum status status = choose_batch(s, w, &pool, c, &chosen);
    if (status == OK && !c->is_idle)
        status = session_change(s, c);
    if (s->config->dynamic_batch)
        c->was_planned = c->was_planned && chosen.was_planned;
    pool_release(&pool);
    return status;
}

enum status elastic_change(struct elastic *x, struct session *s, const struct elastic_wish *w,
                           int64_t step, struct str *answer, struct budget_record *r)
{
    struct session_change c = {.limits = w->limits,
                               .hurries = w->hurries,
                               .if_faster = w->from == PRESSURE_MORE,
                               .over.folder = s->config->output_dir};
    double began = now_s();
    enum status status = carry_out(s, w, &c);
    *r = (struct budget_record){.step = step,
                                .wanted = str_text(&w->wanted),
                                .why = w->why.n ? str_text(&w->why) : NULL,
                                .changed = status == OK && !c.is_idle,
                                .was_planned = c.was_planned,
                                .forecast = &s->engine.forecast,
                                .batch = s->config->per_device_train_batch_size,
                                .n_micro = s->config->gradient_accumulation_steps,
                                .seconds = now_s() - began,
                                .over = c.over,
                                .carrying_s = c.carrying_s};
    r->planning_s = r->seconds - r->carrying_s; /* micro-batches that were looked at with it */
    if (c.is_lost)
        return status;
    note(x, w, r->changed, step);
    if (c.is_idle)
        return OK;
    if (status == OK)
        describe(s, r, answer);
    else
        str_add(answer, status_message());
    TRY(str_status(answer));
    r->text = str_text(answer);
    return OK;
}
