#include "graph/builder.h"

#include <string.h>

void builder_init(struct builder *b, struct graph *g)
{
    *b = (struct builder){
        .g = g, .pass = PASS_FORWARD, .block = BLOCK_NONE, .status = OK, .last = NODE_NONE};
}

enum status builder_status(const struct builder *b)
{
    return b->status;
}

/* Defaults overwritten by what was given; an unknown or missing name is an error. */
static enum status fill_attrs(const struct op_def *d, struct attr *out, const struct attr_set *set,
                              int n_set)
{
    for (int k = 0; k < n_set; k++) {
        int known = 0;
        for (int i = 0; i < d->n_attrs; i++)
            known |= strcmp(d->attrs[i].name, set[k].name) == 0;
        if (!known)
            return FAIL(ERR_SHAPE, "%s: has no attribute '%s'", d->name, set[k].name);
    }
    for (int i = 0; i < d->n_attrs; i++) {
        int given = !d->attrs[i].required;
        out[i] = d->attrs[i].value;
        for (int k = 0; k < n_set; k++) {
            if (strcmp(d->attrs[i].name, set[k].name) != 0)
                continue;
            out[i] = (struct attr){.i = set[k].i, .f = set[k].f, .n_ints = set[k].n_ints};
            memcpy(out[i].ints, set[k].ints, sizeof(out[i].ints));
            given = 1;
        }
        if (!given)
            return FAIL(ERR_SHAPE, "%s: attribute '%s' must be given", d->name, d->attrs[i].name);
    }
    return OK;
}

value_id build_with(struct builder *b, enum op_id op, const value_id *in, int n_in,
                    const struct attr *attrs)
{
    if (b->status == OK)
        b->status = graph_add_node(b->g, op, in, n_in, attrs, b->pass, b->block, &b->last);
    return build_output(b, 0);
}

enum { MAX_ATTRS = 24 };

value_id build(struct builder *b, enum op_id op, const value_id *in, int n_in,
               const struct attr_set *attrs, int n_attrs)
{
    struct attr full[MAX_ATTRS] = {{0}};
    BUG_ON(op_get(op)->n_attrs > MAX_ATTRS);
    if (b->status == OK)
        b->status = fill_attrs(op_get(op), full, attrs, n_attrs);
    return build_with(b, op, in, n_in, full);
}

value_id build_output(const struct builder *b, int i)
{
    return b->status == OK && b->last != NODE_NONE ? graph_node(b->g, b->last)->out[i] : VALUE_NONE;
}

value_id build_value(struct builder *b, const char *name, enum role role, enum dtype dtype,
                     struct shape shape)
{
    value_id v = VALUE_NONE;
    if (b->status == OK)
        b->status = graph_add_value(b->g, name, role, dtype, shape, NULL, &v);
    return v;
}

value_id build_constant(struct builder *b, const char *name, enum dtype dtype, struct shape shape,
                        const void *data)
{
    value_id v = VALUE_NONE;
    if (b->status == OK)
        b->status = graph_add_value(b->g, name, ROLE_CONSTANT, dtype, shape, data, &v);
    return v;
}

value_id build_name(struct builder *b, value_id v, const char *name)
{
    if (b->status == OK) {
        graph_value(b->g, v)->name = pool_strdup(&b->g->pool, name);
        b->status = pool_status(&b->g->pool);
    }
    return v;
}

value_id build_reshape(struct builder *b, value_id v, struct shape shape)
{
    if (b->status == OK && shape_equal(build_shape(b, v), &shape))
        return v;
    struct attr_set dims = {.name = "dims", .n_ints = shape.rank};
    memcpy(dims.ints, shape.dim, sizeof(shape.dim));
    return build(b, OP_reshape, &v, 1, &dims, 1);
}

const struct shape *build_shape(const struct builder *b, value_id v)
{
    static const struct shape none = {0};
    return b->status == OK ? &graph_value(b->g, v)->shape : &none;
}

const struct attr *node_attr(const struct node *n, const char *name)
{
    const struct op_def *d = op_get(n->op);
    for (int i = 0; i < d->n_attrs; i++) {
        if (strcmp(d->attrs[i].name, name) == 0)
            return &n->attrs[i];
    }
    status_bug(__FILE__, __LINE__, name);
}
