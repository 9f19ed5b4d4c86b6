#include "precision/precision.h"

#include <string.h>

struct precision precision_f32(void)
{
    return (struct precision){
        .weights = DTYPE_F32, .gradients = DTYPE_F32, .states = DTYPE_F32, .masters = false};
}

struct precision precision_bf16(void)
{
    return (struct precision){
        .weights = DTYPE_BF16, .gradients = DTYPE_F32, .states = DTYPE_F32, .masters = true};
}

struct precision precision_f16(void)
{
    return (struct precision){.weights = DTYPE_F16,
                              .gradients = DTYPE_F32,
                              .states = DTYPE_F32,
                              .masters = true,
                              .loss_scaling = true};
}

bool precision_needs_chance(const struct precision *p)
{
    return p->states == DTYPE_BF16 || (p->weights == DTYPE_BF16 && !p->masters);
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
