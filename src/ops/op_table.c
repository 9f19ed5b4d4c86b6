/* op_table.c: the ops by id, from ops.def. */
#include "graph/op.h"

#include <string.h>

#define OP(name, family, cpu, cuda) extern const struct op_def op_def_##name;
#include "graph/ops.def"
#undef OP

const struct op_def *const op_table[OP_COUNT] = {
#define OP(name, family, cpu, cuda) [OP_##name] = &op_def_##name,
#include "graph/ops.def"
#undef OP
};

bool op_find(const char *name, enum op_id *op)
{
    for (int i = 0; i < OP_COUNT; i++) {
        if (strcmp(op_table[i]->name, name) == 0) {
            *op = (enum op_id)i;
            return true;
        }
    }
    return false;
}

double call_flops(const struct op_call *c)
{
    const struct op_def *d = op_get(c->op);
    if (d->flops)
        return d->flops(c);
    double n = 0;
    for (int i = 0; i < c->n_out; i++)
        n += (double)shape_elems(&c->out[i].shape);
    return n;
}

double call_bytes(const struct op_call *c)
{
    double n = 0;
    for (int i = 0; i < c->n_in; i++)
        n += (double)tensor_bytes(&c->in[i]);
    for (int i = 0; i < c->n_out; i++)
        n += (double)tensor_bytes(&c->out[i]);
    return n;
}

struct index_rule call_index_rule(const struct op_call *c, int i)
{
    const struct op_def *d = op_get(c->op);
    if (mask_has(d->offset_inputs, i))
        return (struct index_rule){INDEX_OFFSETS, c->in[0].shape.dim[0]};
    if (mask_has(d->permutation_inputs, i))
        return (struct index_rule){INDEX_PERMUTATION, 0};
    if (mask_has(d->position_inputs, i)) /* one sample to a row: the most there can be to do */
        return (struct index_rule){INDEX_POSITIONS, shape_last(&c->in[i].shape)};
    return (struct index_rule){INDEX_ANY, d->index_limit ? d->index_limit(c) : 1};
}
