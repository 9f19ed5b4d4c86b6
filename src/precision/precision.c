#include "precision/precision.h"

#include <string.h>

struct precision precision_f32(void)
{
    return (struct precision){DTYPE_F32, DTYPE_F32, DTYPE_F32, false};
}

struct precision precision_bf16(void)
{
    return (struct precision){DTYPE_BF16, DTYPE_F32, DTYPE_F32, true};
}

/* Ops that make parameter gradients say so by a `dtype` attribute and having no gradient of their
 * own (a cast has the attribute too, but is differentiable). */
static struct attr *gradient_dtype(struct node *n)
{
    const struct op_def *d = op_get(n->op);
    for (int i = 0; d->no_grad && n->pass == PASS_BACKWARD && i < d->n_attrs; i++) {
        if (d->attrs[i].type == ATTR_DTYPE && strcmp(d->attrs[i].name, "dtype") == 0)
            return &n->attrs[i];
    }
    return NULL;
}

enum status precision_apply(struct graph *g, const struct precision *p)
{
    for (size_t v = 0; v < g->values.n; v++) {
        struct value *x = graph_value(g, (value_id)v);
        if (x->producer == NODE_NONE && x->role == ROLE_PARAMETER && x->dtype == DTYPE_F32)
            x->dtype = p->weights;
    }
    for (size_t k = 0; k < g->nodes.n; k++) {
        struct attr *a = gradient_dtype(graph_node(g, (node_id)k));
        if (a)
            a->i = p->gradients;
    }
    return graph_reinfer(g);
}
