#include "run/executor.h"

#include <string.h>

#include "base/team.h"
#include "device/disk/disk.h"
#include "run/batch.h"
#include "run/capture.h"
#include "run/poison.h"
#include "run/timing.h"

/* A compute instruction ready to go: its tensors with addresses. */
struct prepared {
    struct op_call call;
    struct kernel_ctx ctx;
};

struct loaded {
    const struct program *p;
    struct pool pool;
    struct prepared *prepared;    /* per instruction; calls of compute instructions */
    const struct op_call **calls; /* the same, NULL elsewhere */
    int32_t *n_together;          /* per instruction; see batch.h */
    size_t n_captures;
    struct capture *captures; /* per section */
    struct capture *timed;    /* per section: recordings with marks */
    struct poison poison;
    struct timing *timing; /* NULL: nobody asks */
};

struct executor {
    struct device *device;
    struct memory arenas[TIER_COUNT];
    int64_t high_water[TIER_COUNT];
    int64_t resting[TIER_COUNT]; /* of executor_rest */
    VEC(struct loaded) programs;
    uint64_t here;      /* where the position is kept when nobody watches */
    uint64_t *position; /* of executor_publish */
};

enum status executor_new(struct executor **out, struct device *device,
                         const int64_t n_bytes[TIER_COUNT])
{
    struct executor *x = mem_calloc(1, sizeof(*x));
    *out = NULL;
    if (!x)
        return FAIL(ERR_MEMORY, "out of memory for the executor");
    x->device = device;
    x->position = &x->here;
    for (int t = 0; t < TIER_COUNT; t++) {
        enum status status = executor_add_arena(x, (enum tier)t, n_bytes[t]);
        if (status != OK) {
            executor_free(x);
            return status;
        }
    }
    *out = x;
    return OK;
}

enum status executor_add_arena(struct executor *x, enum tier t, int64_t n_bytes)
{
    void *p = NULL;
    BUG_ON(x->arenas[t].base);
    TRY(x->device->ops->memory_alloc(x->device, t, n_bytes, &p));
    x->arenas[t] = (struct memory){t, p, n_bytes};
    return OK;
}

static void unload(struct executor *x)
{
    for (size_t i = 0; i < x->programs.n; i++) {
        struct loaded *l = &x->programs.items[i];
        for (size_t k = 0; k < l->n_captures; k++) {
            capture_release(&l->captures[k], x->device);
            capture_release(&l->timed[k], x->device);
        }
        pool_release(&l->pool);
    }
    vec_release(&x->programs);
}

void executor_drop_arena(struct executor *x, enum tier t)
{
    struct memory *m = &x->arenas[t];
    unload(x);
    if (m->base)
        x->device->ops->memory_free(x->device, t, m->base, m->n_bytes);
    *m = (struct memory){.tier = t};
}

void executor_free(struct executor *x)
{
    if (!x)
        return;
    for (int t = 0; t < TIER_COUNT; t++)
        executor_drop_arena(x, (enum tier)t);
    mem_free(x);
}

void executor_rest(struct executor *x, const struct storage *kept)
{
    const struct device_ops *ops = x->device->ops;
    for (int t = 0; ops->memory_release && t < TIER_COUNT; t++) {
        const struct memory *m = &x->arenas[t];
        int64_t n_bytes = m->n_bytes - kept->n_bytes[t];
        if (!m->base || n_bytes <= 0)
            continue;
        ops->memory_release(x->device, (enum tier)t, (char *)m->base + kept->n_bytes[t], n_bytes);
        x->resting[t] = t == TIER_DISK ? 0 : n_bytes;
    }
}

int64_t executor_resting(const struct executor *x, enum tier t)
{
    return x->resting[t];
}

const struct memory *executor_arena(const struct executor *x, enum tier t)
{
    return &x->arenas[t];
}

static struct place place_in(const struct executor *x, enum tier t, int64_t offset)
{
    return (struct place){&x->arenas[t], offset};
}

static void *address(const struct executor *x, const struct operand *o)
{
    return o->buffer < 0 ? NULL : place_address(place_in(x, o->tier, o->offset));
}

static enum status prepare(struct executor *x, struct loaded *l, int32_t at)
{
    const struct instr *i = &l->p->instrs.items[at];
    const struct node *n = graph_node(l->p->graph, i->node);
    const struct operand *o = &l->p->operands.items[i->first_operand];
    struct prepared *r = &l->prepared[at];
    struct tensor *in, *out;
    TRY(pool_try(&l->pool, &in, sizeof(*in) * (size_t)MAX(n->n_in, 1)));
    TRY(pool_try(&l->pool, &out, sizeof(*out) * (size_t)n->n_out));
    node_call_slice(l->p->graph, n, i->slice, in, out, &r->call);
    for (int k = 0; k < n->n_in; k++)
        in[k].data = address(x, &o[k]);
    for (int k = 0; k < n->n_out; k++)
        out[k].data = address(x, &o[n->n_in + k]);
    r->ctx.env = x->device->env;
    if (x->device->ops->queue)
        r->ctx.queue = x->device->ops->queue(x->device, i->queue);
    if (i->has_workspace)
        r->ctx.workspace = address(x, &o[n->n_in + n->n_out]);
    return OK;
}

static enum status find_runs(struct executor *x, struct loaded *l)
{
    size_t n = MAX(l->p->instrs.n, (size_t)1);
    TRY(pool_try(&l->pool, &l->calls, sizeof(*l->calls) * n));
    TRY(pool_try(&l->pool, &l->n_together, sizeof(*l->n_together) * n));
    for (size_t at = 0; at < l->p->instrs.n; at++) {
        bool is_call = l->p->instrs.items[at].kind == INSTR_COMPUTE;
        l->calls[at] = is_call ? &l->prepared[at].call : NULL;
    }
    batch_find(l->p, x->device, l->calls, l->n_together);
    return OK;
}

static enum status load(struct executor *x, struct loaded *l, const struct storage *storage)
{
    bool addressable = !x->device->ops->memory_is_apart;
    TRY(poison_init(&l->poison, l->p, storage, x->arenas, addressable, &l->pool));
    size_t n = MAX(l->p->instrs.n, (size_t)1);
    TRY(pool_try(&l->pool, &l->prepared, sizeof(*l->prepared) * n));
    TRY(pool_try(&l->pool, &l->captures, sizeof(*l->captures) * MAX(l->p->sections.n, (size_t)1)));
    TRY(pool_try(&l->pool, &l->timed, sizeof(*l->timed) * MAX(l->p->sections.n, (size_t)1)));
    l->n_captures = l->p->sections.n;
    if (x->device->ops->prepare)
        TRY(x->device->ops->prepare(x->device, l->p->n_events));
    for (int32_t at = 0; (size_t)at < l->p->instrs.n; at++) {
        if (l->p->instrs.items[at].kind == INSTR_COMPUTE)
            TRY(prepare(x, l, at));
    }
    return find_runs(x, l);
}

int64_t executor_load_bytes(const struct program *p)
{
    const struct loaded *l = NULL;
    size_t n_tensors = 0;
    for (size_t at = 0; at < p->instrs.n; at++) {
        const struct instr *i = &p->instrs.items[at];
        n_tensors += i->kind == INSTR_COMPUTE ? (size_t)i->n_operands : 0;
    }
    return (int64_t)(n_tensors * sizeof(struct tensor) +
                     p->sections.n * (sizeof(*l->captures) + sizeof(*l->timed)) +
                     p->instrs.n *
                         (sizeof(*l->prepared) + sizeof(*l->calls) + sizeof(*l->n_together)));
}

enum status executor_load(struct executor *x, const struct program *p,
                          const struct storage *storage, int *handle)
{
    *handle = -1;
    TRY(program_check(p, storage));
    for (int t = 0; t < TIER_COUNT; t++) {
        if (p->n_bytes[t] > x->arenas[t].n_bytes)
            return FAIL(ERR_INTERNAL, "program '%s' needs %lld bytes of %s, the arena has %lld",
                        p->name, (long long)p->n_bytes[t], tier_name((enum tier)t),
                        (long long)x->arenas[t].n_bytes);
        x->high_water[t] = MAX(x->high_water[t], storage->n_bytes[t]);
    }
    struct loaded l = {.p = p};
    pool_init(&l.pool);
    enum status status = load(x, &l, storage);
    if (status == OK)
        status = vec_push(&x->programs, l);
    if (status != OK) {
        pool_release(&l.pool);
        return status;
    }
    *handle = (int)x->programs.n - 1;
    return OK;
}

static void note_use(struct executor *x, const struct program *p, const struct instr *i)
{
    const struct operand *o = &p->operands.items[i->first_operand];
    for (int32_t k = 0; k < i->n_operands; k++) {
        if (o[k].buffer >= 0)
            x->high_water[o[k].tier] = MAX(x->high_water[o[k].tier], o[k].offset + o[k].n_bytes);
    }
}

static enum status run_copy(struct executor *x, const struct program *p, const struct instr *i)
{
    const struct operand *o = &p->operands.items[i->first_operand];
    return device_copy(x->device, i->queue, place_in(x, o[1].tier, o[1].offset),
                       place_in(x, o[0].tier, o[0].offset), o[0].n_bytes);
}

static enum status run_instr(struct executor *x, struct loaded *l, int32_t at)
{
    const struct instr *i = &l->p->instrs.items[at];
    note_use(x, l->p, i);
    switch (i->kind) {
    case INSTR_COMPUTE:
        return i->kernel->run(&l->prepared[at].ctx, &l->prepared[at].call);
    case INSTR_COPY:
        return run_copy(x, l->p, i);
    case INSTR_RECORD:
        return x->device->ops->record(x->device, i->queue, i->event);
    case INSTR_WAIT:
        return x->device->ops->wait(x->device, i->queue, i->event);
    }
    return OK;
}

/* Instructions [at, at + n), which batch_find put together. */
static enum status run_together(struct executor *x, struct loaded *l, int32_t at, int32_t n)
{
    const struct instr *i = &l->p->instrs.items[at];
    if (n == 1)
        return run_instr(x, l, at);
    for (int32_t k = 0; k < n; k++)
        note_use(x, l->p, &i[k]);
    return x->device->ops->batch(i->kernel)(&l->prepared[at].ctx, &l->calls[at], (int)n);
}

struct section_run {
    struct executor *x;
    struct loaded *l;
    const struct section *section;
    int handle;
};

static void publish(const struct executor *x, int handle, int32_t at)
{
    __atomic_store_n(x->position, (uint64_t)handle << 32 | (uint32_t)at, __ATOMIC_RELAXED);
}

static enum status run_section(void *user)
{
    const struct section_run *r = user;
    struct loaded *l = r->l;
    const struct section *s = r->section;
    if (l->timing)
        TRY(timing_begin(l->timing));
    for (int32_t at = s->first, n; at < s->first + s->n; at += n) {
        n = l->n_together[at];
        for (int32_t k = 0; k < n; k++)
            poison_before(&l->poison, at + k);
        if (l->timing)
            timing_before(l->timing, at);
        publish(r->x, r->handle, at);
        enum status status = run_together(r->x, l, at, n);
        if (status == OK && l->timing)
            status = timing_after(l->timing, at, n);
        if (status != OK)
            return status_prefix(status, "%s, instruction %d", l->p->name, at);
        for (int32_t k = 0; k < n; k++)
            poison_after(&l->poison, at + k);
    }
    return OK;
}

/* A section that is timed has a recording of its own, which holds the marks. It has run before, or
 * its first run is an ordinary one. */
static enum status enqueue_section(struct executor *x, int handle, const struct section *s)
{
    struct loaded *l = &x->programs.items[handle];
    struct section_run run = {x, l, s, handle};
    size_t at = (size_t)(s - l->p->sections.items);
    if (!l->timing)
        return capture_run(&l->captures[at], x->device, run_section, &run);
    l->timed[at].ran |= l->captures[at].ran;
    return capture_run(&l->timed[at], x->device, run_section, &run);
}

enum status executor_run(struct executor *x, int handle, const char *section)
{
    struct loaded *l = &x->programs.items[handle];
    const struct section *s = program_section(l->p, section);
    if (!s)
        return FAIL(ERR_INTERNAL, "program '%s' has no section '%s'", l->p->name, section);
    if (l->timing)
        TRY(timing_enter(l->timing, s));
    memset(x->resting, 0, sizeof(x->resting));
    poison_enter(&l->poison);
    publish(x, handle, s->first); /* a replayed section is known by its beginning */
    enum status status = enqueue_section(x, handle, s);
    if (status == OK)
        status = x->device->ops->sync(x->device);
    publish(x, handle, EXECUTOR_BETWEEN);
    poison_leave(&l->poison);
    if (status == OK && l->timing)
        status = timing_leave(l->timing, l->n_together, l->calls);
    return status;
}

void *executor_input(struct executor *x, int handle, const char *name)
{
    const struct port *port = program_input(x->programs.items[handle].p, name);
    return port ? place_address(place_in(x, TIER_HOST, port->offset)) : NULL;
}

const void *executor_output(struct executor *x, int handle, const char *name)
{
    const struct port *port = program_output(x->programs.items[handle].p, name);
    return port ? place_address(place_in(x, TIER_HOST, port->offset)) : NULL;
}

void executor_fill_input(struct executor *x, void *input, const void *from, int64_t n_bytes)
{
    team_copy(x->device->env.team, input, from, n_bytes);
}

void *executor_storage_address(struct executor *x, const struct storage_entry *e)
{
    return place_address(place_in(x, e->tier, e->offset));
}

void *executor_storage_pointer(struct executor *x, const struct storage_entry *e)
{
    return device_host_reaches(x->device, e->tier) ? executor_storage_address(x, e) : NULL;
}

static enum status store(struct executor *x, struct place to, const void *src, int64_t n_bytes)
{
    struct memory host = memory_of_host(src, n_bytes);
    TRY(device_copy(x->device, QUEUE_IN, to, (struct place){&host, 0}, n_bytes));
    return x->device->ops->sync(x->device);
}

static enum status fetch(struct executor *x, struct place from, void *dst, int64_t n_bytes)
{
    struct memory host = memory_of_host(dst, n_bytes);
    TRY(device_copy(x->device, QUEUE_OUT, (struct place){&host, 0}, from, n_bytes));
    return x->device->ops->sync(x->device);
}

enum status executor_write_storage(struct executor *x, const struct storage_entry *e,
                                   const void *src)
{
    return store(x, place_in(x, e->tier, e->offset), src, e->n_bytes);
}

enum status executor_read_storage(struct executor *x, const struct storage_entry *e, void *dst)
{
    return fetch(x, place_in(x, e->tier, e->offset), dst, e->n_bytes);
}

/* ---- storage through a buffer ---------------------------------------------------------------- */

/* The place a storage address means. */
static enum status find_place(const struct executor *x, const void *address, struct place *out)
{
    uintptr_t at = (uintptr_t)address;
    for (int t = 0; t < TIER_COUNT; t++) {
        uintptr_t base = (uintptr_t)x->arenas[t].base;
        if (base && at >= base && at - base < (uintptr_t)x->arenas[t].n_bytes) {
            *out = place_in(x, (enum tier)t, (int64_t)(at - base));
            return OK;
        }
    }
    return FAIL(ERR_INTERNAL, "a tensor that is read or written lies in no arena");
}

static bool is_here(void *user, const struct tensor *t)
{
    const struct executor *x = user;
    struct place p = {0};
    return find_place(x, t->data, &p) == OK && device_host_reaches(x->device, p.memory->tier);
}

static enum status stage_in(void *user, const struct tensor *t, void *buffer)
{
    struct place p;
    TRY(find_place(user, t->data, &p));
    return fetch(user, p, buffer, tensor_bytes(t));
}

static enum status stage_out(void *user, const struct tensor *t, const void *buffer)
{
    struct place p;
    TRY(find_place(user, t->data, &p));
    return store(user, p, buffer, tensor_bytes(t));
}

struct tensor_stage executor_stage(struct executor *x, const struct storage_entry *buffer)
{
    if (!buffer)
        return host_stage;
    return (struct tensor_stage){.buffer = executor_storage_pointer(x, buffer),
                                 .n_bytes = buffer->n_bytes,
                                 .is_here = is_here,
                                 .fetch = stage_in,
                                 .store = stage_out,
                                 .user = x};
}

int64_t executor_high_water(const struct executor *x, enum tier t)
{
    return align_up(x->high_water[t], tier_align(t));
}

int64_t executor_disk_bytes(const struct executor *x)
{
    const struct memory *m = &x->arenas[TIER_DISK];
    return m->base ? disk_file_bytes(x->device->disk, m->base) : 0;
}

void executor_publish(struct executor *x, uint64_t *position)
{
    x->position = position ? position : &x->here;
    publish(x, 0, EXECUTOR_BETWEEN);
}

void executor_time_into(struct executor *x, int handle, struct timing *timing)
{
    x->programs.items[handle].timing = timing;
}
