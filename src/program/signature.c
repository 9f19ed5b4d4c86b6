/* signature.c: what the time of an instruction depends on. */
#include <inttypes.h>
#include <string.h>

#include "program/emit.h"
#include "program/kernel_times.h"

static bool same_kernel(const struct program *p, int32_t a, int32_t b)
{
    const struct instr *x = &p->instrs.items[a], *y = &p->instrs.items[b];
    return x->kind == INSTR_COMPUTE && y->kind == INSTR_COMPUTE && x->kernel == y->kernel &&
           x->queue == y->queue && !x->has_workspace && !y->has_workspace;
}

bool instr_is_batched(const struct program *p, const struct device *device, int32_t instr)
{
    const struct instr *i = &p->instrs.items[instr];
    if (i->kind != INSTR_COMPUTE || !device->ops->batch || !device->ops->batch(i->kernel))
        return false;
    return (instr > 0 && same_kernel(p, instr - 1, instr)) ||
           ((size_t)instr + 1 < p->instrs.n && same_kernel(p, instr, instr + 1));
}

/* Two seeds are alike; none at all (0) is another way of working. */
static bool is_seed(const struct attr_def *d)
{
    return d->type == ATTR_INT && strcmp(d->name, "seed") == 0;
}

/* Numbers as bits: exact, and the same in every locale. */
static void add_attrs(struct str *out, const struct node *n)
{
    const struct op_def *d = op_get(n->op);
    for (int i = 0; i < d->n_attrs; i++) {
        const struct attr *a = &n->attrs[i];
        uint64_t bits;
        str_add(out, i ? "," : "{");
        switch (d->attrs[i].type) {
        case ATTR_FLOAT:
            memcpy(&bits, &a->f, sizeof(bits));
            str_addf(out, "%" PRIx64, bits);
            break;
        case ATTR_INTS:
            for (int k = 0; k < a->n_ints; k++)
                str_addf(out, "%s%lld", k ? "." : "", (long long)a->ints[k]);
            break;
        case ATTR_INT:
        case ATTR_BOOL:
        case ATTR_DTYPE:
            str_addf(out, "%lld", (long long)(is_seed(&d->attrs[i]) ? a->i != 0 : a->i));
            break;
        }
    }
    str_add(out, d->n_attrs ? "}" : "");
}

static void add_tensor(struct str *out, const struct tensor *t)
{
    if (!tensor_present(t)) {
        str_add(out, " _");
        return;
    }
    str_addf(out, " %s[", dtype_name(t->dtype));
    for (int i = 0; i < t->shape.rank; i++)
        str_addf(out, "%s%lld", i ? "," : "", (long long)t->shape.dim[i]);
    str_add(out, "]");
}

/* Merged buffers, and those of one storage entry: known before there are addresses. */
static bool share_memory(const struct program *p, int32_t a, int32_t b)
{
    int32_t x = buffer_root(p, a), y = buffer_root(p, b);
    int32_t storage = p->buffers.items[x].storage;
    return x == y || (storage >= 0 && storage == p->buffers.items[y].storage);
}

/* "=3:0": operand 3 is the memory of operand 0; "=3": it has none, nobody wants it. */
static void add_sharing(struct str *out, const struct program *p, const struct instr *i, int n_in)
{
    const struct operand *o = &p->operands.items[i->first_operand];
    for (int32_t k = 0; k < i->n_operands; k++) {
        if (o[k].buffer < 0 && k >= n_in)
            str_addf(out, " =%d", (int)k);
        for (int32_t m = 0; m < k && o[k].buffer >= 0; m++) {
            if (o[m].buffer >= 0 && share_memory(p, o[m].buffer, o[k].buffer)) {
                str_addf(out, " =%d:%d", (int)k, (int)m);
                break;
            }
        }
    }
}

/* ---- as a number ----------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t mix_attrs(uint64_t hash, const struct node *n)
{
    const struct op_def *d = op_get(n->op);
    for (int i = 0; i < d->n_attrs; i++) {
        const struct attr *a = &n->attrs[i];
        uint64_t bits = (uint64_t)(is_seed(&d->attrs[i]) ? a->i != 0 : a->i);
        if (d->attrs[i].type == ATTR_FLOAT)
            memcpy(&bits, &a->f, sizeof(bits));
        else if (d->attrs[i].type == ATTR_INTS)
            bits = (uint64_t)a->n_ints;
        hash = mix(hash, bits);
        for (int k = 0; d->attrs[i].type == ATTR_INTS && k < a->n_ints; k++)
            hash = mix(hash, (uint64_t)a->ints[k]);
    }
    return hash;
}

uint64_t call_hash(const struct graph *g, const struct node *n, struct slice slice)
{
    uint64_t hash = mix_attrs(mix((uint64_t)n->n_in, (uint64_t)n->op), n);
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        struct tensor t = slice_tensor(g, n, slice, k);
        hash = mix(hash, (uint64_t)t.dtype << 8 | (uint64_t)t.shape.rank);
        for (int i = 0; i < t.shape.rank; i++)
            hash = mix(hash, (uint64_t)t.shape.dim[i]);
    }
    return hash;
}

uint64_t instr_hash(const struct program *p, const struct device *device, int32_t instr)
{
    const struct instr *i = &p->instrs.items[instr];
    const struct operand *o = &p->operands.items[i->first_operand];
    const struct node *n = graph_node(p->graph, i->node);
    uint64_t call = i->call ? i->call : call_hash(p->graph, n, i->slice);
    uint64_t hash = mix(call, (uint64_t)(uintptr_t)i->kernel);
    hash = mix(hash, instr_is_batched(p, device, instr));
    for (int32_t k = 0; k < i->n_operands; k++) {
        int32_t m = o[k].buffer < 0 ? k : 0;
        while (m < k && (o[m].buffer < 0 || !share_memory(p, o[m].buffer, o[k].buffer)))
            m++;
        if (m < k || (o[k].buffer < 0 && k >= n->n_in))
            hash = mix(mix(hash, (uint64_t)k), (uint64_t)m);
    }
    return hash;
}

/* ---- as text --------------------------------------------------------------------------------- */

void instr_signature(const struct program *p, const struct device *device, int32_t instr,
                     struct str *out)
{
    const struct instr *i = &p->instrs.items[instr];
    const struct node *n = graph_node(p->graph, i->node);
    str_addf(out, "%s/%s%s", op_get(n->op)->name, i->kernel->name,
             instr_is_batched(p, device, instr) ? "+" : "");
    add_attrs(out, n);
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        struct tensor t = slice_tensor(p->graph, n, i->slice, k);
        str_add(out, k == n->n_in ? " >" : "");
        add_tensor(out, &t);
    }
    add_sharing(out, p, i, n->n_in);
}
