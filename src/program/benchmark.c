/* benchmark.c: the benchmark inputs of a call are copied over scratch memory until they exceed the
 * device's cache, and the copies run in turn: every call reads from memory, as in a program. */
#include "program/benchmark.h"

#include "program/kernel_times.h"

enum {
    COPIES_MOST = 64,
    CACHES = 3, /* scratch is so many times the device's cache */
    SCRATCH_LEAST = 16 << 20,
};

/* ---- memory ---------------------------------------------------------------------------------- */

void scratch_take(struct scratch *s, struct device *d, int64_t largest, int64_t most)
{
    void *data = NULL;
    *s = (struct scratch){.device = d};
    int64_t n_bytes = MIN(MAX(largest, (int64_t)CACHES * d->cache_bytes), most);
    while (n_bytes >= ARENA_ALIGN && d->ops->memory_alloc(d, TIER_DEVICE, n_bytes, &data) != OK)
        n_bytes = n_bytes < SCRATCH_LEAST ? 0 : n_bytes / 2 / ARENA_ALIGN * ARENA_ALIGN;
    s->data = data;
    s->n_bytes = data ? n_bytes : 0;
}

void scratch_give_back(struct scratch *s)
{
    if (s->data)
        s->device->ops->memory_free(s->device, TIER_DEVICE, s->data, s->n_bytes);
    *s = (struct scratch){0};
}

/* Where the operands of an instruction go: offsets in a piece of n_bytes. */
struct arrangement {
    int64_t *offsets; /* per operand; -1: absent */
    int64_t n_bytes;
};

static enum status arrange(const struct program *p, const struct instr *i, struct pool *pool,
                           struct arrangement *a)
{
    const struct operand *o = &p->operands.items[i->first_operand];
    *a = (struct arrangement){0};
    TRY(pool_try(pool, &a->offsets, sizeof(*a->offsets) * (size_t)MAX(i->n_operands, 1)));
    for (int32_t k = 0; k < i->n_operands; k++) {
        a->offsets[k] = -1;
        for (int32_t m = 0; m < k && o[k].buffer >= 0; m++) {
            if (o[m].buffer >= 0 && o[m].tier == o[k].tier && o[m].offset == o[k].offset)
                a->offsets[k] = a->offsets[m];
        }
        if (o[k].buffer < 0 || a->offsets[k] >= 0)
            continue;
        int64_t n_bytes = o[k].n_bytes;
        for (int32_t m = k + 1; m < i->n_operands; m++) {
            if (o[m].buffer >= 0 && o[m].tier == o[k].tier && o[m].offset == o[k].offset)
                n_bytes = MAX(n_bytes, o[m].n_bytes);
        }
        a->offsets[k] = a->n_bytes;
        a->n_bytes += align_up(n_bytes, ARENA_ALIGN);
    }
    a->n_bytes = MAX(a->n_bytes, (int64_t)ARENA_ALIGN);
    return OK;
}

struct benchmark {
    const struct program *p;
    const struct instr *instr;
    const struct scratch *scratch;
    struct pool pool;
    struct op_call *calls;
    struct kernel_ctx *contexts;
    struct arrangement where;
};

static void *place(const struct benchmark *r, int copy, int32_t operand)
{
    int64_t offset = r->where.offsets[operand];
    return offset < 0 ? NULL : r->scratch->data + copy * r->where.n_bytes + offset;
}

static enum status make_copy(struct benchmark *r, struct device *d, int copy)
{
    const struct node *n = graph_node(r->p->graph, r->instr->node);
    struct op_call *call = &r->calls[copy];
    struct tensor *in, *out;
    TRY(pool_try(&r->pool, &in, sizeof(*in) * (size_t)MAX(n->n_in, 1)));
    TRY(pool_try(&r->pool, &out, sizeof(*out) * (size_t)MAX(n->n_out, 1)));
    node_call_slice(r->p->graph, n, r->instr->slice, in, out, call);
    for (int k = 0; k < n->n_in; k++) {
        in[k].data = place(r, copy, k);
        if (in[k].data)
            TRY(d->ops->fill(d, &in[k], call_index_rule(call, k)));
    }
    for (int k = 0; k < n->n_out; k++)
        out[k].data = place(r, copy, n->n_in + k);
    r->contexts[copy].env = d->env;
    if (r->instr->has_workspace)
        r->contexts[copy].workspace = place(r, copy, n->n_in + n->n_out);
    return OK;
}

static enum status time_copies(struct benchmark *r, int32_t instr, struct call_time *out)
{
    struct device *d = r->scratch->device;
    bool batched = instr_is_batched(r->p, d, instr);
    TRY(arrange(r->p, r->instr, &r->pool, &r->where));
    if (r->where.n_bytes > r->scratch->n_bytes)
        return FAIL(ERR_FIT, "too little memory to time '%s'", r->instr->kernel->name);
    int64_t wanted = batched ? COPIES_MOST : CACHES * d->cache_bytes / r->where.n_bytes + 1;
    int n = (int)MIN(MIN(wanted, r->scratch->n_bytes / r->where.n_bytes), (int64_t)COPIES_MOST);
    TRY(pool_try(&r->pool, &r->calls, sizeof(*r->calls) * (size_t)n));
    TRY(pool_try(&r->pool, &r->contexts, sizeof(*r->contexts) * (size_t)n));
    for (int copy = 0; copy < n; copy++)
        TRY(make_copy(r, d, copy));
    const struct timed_calls timed = {
        .kernel = r->instr->kernel,
        .batch = batched ? d->ops->batch(r->instr->kernel) : NULL,
        .contexts = r->contexts,
        .calls = r->calls,
        .n = n,
    };
    TRY(d->ops->time_calls(d, &timed, out));
    if (!(out->seconds > 0 && out->seconds < 1e4))
        return FAIL(ERR_FAILED, "the device says '%s' takes %g s", r->instr->kernel->name,
                    out->seconds);
    return OK;
}

enum status benchmark_call(const struct scratch *s, const struct program *p, int32_t instr,
                           struct call_time *out)
{
    struct benchmark r = {.p = p, .instr = &p->instrs.items[instr], .scratch = s};
    pool_init(&r.pool);
    *out = (struct call_time){0};
    enum status status = time_copies(&r, instr, out);
    pool_release(&r.pool);
    return status;
}

enum status benchmark_bytes(const struct program *p, int32_t instr, int64_t *n_bytes)
{
    struct pool pool;
    struct arrangement a;
    pool_init(&pool);
    enum status status = arrange(p, &p->instrs.items[instr], &pool, &a);
    *n_bytes = a.n_bytes;
    pool_release(&pool);
    return status;
}
