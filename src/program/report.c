/* report.c: what a program costs and what its memory is for. */
#include <stdlib.h>
#include <string.h>

#include "program/emit.h"

const char *memory_class_name(enum memory_class c)
{
    static const char *const names[MEMORY_CLASS_COUNT] = {
        "weights",     "frozen",    "masters", "gradients", "optimizer",
        "activations", "recompute", "logits",  "workspace", "staging",
    };
    return names[c];
}

const struct section *program_section(const struct program *p, const char *name)
{
    for (size_t i = 0; i < p->sections.n; i++) {
        if (strcmp(p->sections.items[i].name, name) == 0)
            return &p->sections.items[i];
    }
    return NULL;
}

static const struct port *find_port(const struct port *ports, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(ports[i].name, name) == 0)
            return &ports[i];
    }
    return NULL;
}

const struct port *program_input(const struct program *p, const char *name)
{
    return find_port(p->inputs.items, p->inputs.n, name);
}

const struct port *program_output(const struct program *p, const char *name)
{
    return find_port(p->outputs.items, p->outputs.n, name);
}

void program_memory_at(const struct program *p, const struct storage *storage, enum tier tier,
                       int32_t instr, int64_t by_class[MEMORY_CLASS_COUNT])
{
    memset(by_class, 0, sizeof(*by_class) * MEMORY_CLASS_COUNT);
    for (size_t i = 0; i < storage->entries.n; i++) {
        const struct storage_entry *e = &storage->entries.items[i];
        if (e->tier == tier)
            by_class[e->kind] += align_up(e->n_bytes, tier_align(e->tier));
    }
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        bool alive = b->first <= instr && instr <= b->last;
        if (b->tier == tier && b->storage < 0 && b->merged_into < 0 && alive)
            by_class[b->kind] += align_up(b->n_bytes, tier_align(b->tier));
    }
}

/* Deaths before births at the same instant, so that sums are those of instants. */
struct change {
    int32_t at;
    int64_t n_bytes;
};

static int by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

int32_t program_peak(const struct program *p, enum tier tier)
{
    struct change *changes = mem_calloc(2 * p->buffers.n + 1, sizeof(*changes));
    size_t n = 0;
    if (!changes)
        return 0; /* a report: the first instant is as good as any */
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (b->tier != tier || b->storage >= 0 || b->merged_into >= 0)
            continue;
        int64_t n_bytes = align_up(b->n_bytes, tier_align(b->tier));
        changes[n++] = (struct change){b->first, n_bytes};
        changes[n++] = (struct change){b->last + 1, -n_bytes};
    }
    qsort(changes, n, sizeof(*changes), by_time);
    int64_t live = 0, most = 0;
    int32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        live += changes[i].n_bytes;
        if (live > most) {
            most = live;
            at = changes[i].at;
        }
    }
    mem_free(changes);
    return at;
}

/* The time model: an instruction takes as long as its arithmetic or its memory traffic, whichever
 * is longer, plus a fixed start. */
static double copy_time(const struct operand *o, const struct device_rates *r)
{
    const struct link_rate *link = &r->links[o[0].tier][o[1].tier];
    return (double)o[0].n_bytes / link->alone + MAX(link->latency_s, r->launch_s);
}

static double compute_time(const struct op_call *call, const struct device *d, double *flops,
                           double *bytes)
{
    const struct device_rates *r = &d->rates;
    *flops = call_flops(call);
    *bytes = call_bytes(call);
    if (d->ops->call_seconds)
        return d->ops->call_seconds(d, call);
    bool half = call->n_in > 0 && dtype_size(call->in[0].dtype) == 2;
    return MAX(*flops / device_matmul_rate(r, half), *bytes / r->memory_bytes) + r->launch_s;
}

void program_cost(const struct program *p, int32_t first, int32_t n, const struct device *device,
                  struct program_cost *out)
{
    *out = (struct program_cost){0};
    for (int32_t k = first; k < first + n; k++) {
        const struct instr *i = &p->instrs.items[k];
        if (i->kind == INSTR_COPY) {
            const struct operand *o = &p->operands.items[i->first_operand];
            out->copy_bytes += (double)o->n_bytes;
            out->time_s += copy_time(o, &device->rates);
        }
        if (i->kind != INSTR_COMPUTE)
            continue;
        const struct node *node = graph_node(p->graph, i->node);
        struct tensor in_small[16], out_tensors[MAX_OUTPUTS];
        struct tensor *in =
            node->n_in <= 16 ? in_small : mem_calloc((size_t)node->n_in, sizeof(struct tensor));
        if (!in)
            continue; /* an estimate: leave this one out */
        struct op_call call;
        double flops, bytes;
        node_call_slice(p->graph, node, i->slice, in, out_tensors, &call);
        out->time_s += compute_time(&call, device, &flops, &bytes);
        out->flops += flops;
        out->bytes += bytes;
        out->recompute_flops += i->recompute ? flops : 0;
        if (in != in_small)
            mem_free(in);
    }
}
