#include "optim/optimizer.h"

#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"

/* The scalars every update reads. */
struct knobs {
    value_id lr, step, scale;
};

static const char *joined(struct builder *b, const char *prefix, const char *name)
{
    const char *s = pool_printf(&b->g->pool, "%s.%s", prefix, name);
    if (!s && b->status == OK)
        b->status = pool_status(&b->g->pool);
    return s ? s : "";
}

/* ---- sums over micro-steps --------------------------------------------------------------------
 */

/* A root cleared in the begin section and added to in every micro-step; what it holds at the end.
 */
static value_id carry(struct builder *b, const char *name, enum role role, value_id term)
{
    if (b->status != OK)
        return VALUE_NONE;
    struct shape shape = *build_shape(b, term);
    enum dtype dtype = graph_value(b->g, term)->dtype;
    value_id root = build_value(b, name, role, dtype, shape);
    b->pass = PASS_BEGIN;
    value_id cleared = build(b, OP_fill, IN(root), NO_ATTRS);
    b->pass = PASS_BACKWARD;
    return build(b, OP_accumulate, IN(cleared, term), NO_ATTRS);
}

static void block_of(struct builder *b, value_id v)
{
    if (b->status != OK)
        return;
    node_id producer = graph_value(b->g, v)->producer;
    b->block = producer == NODE_NONE ? BLOCK_NONE : graph_node(b->g, producer)->block;
}

/* Begin nodes come first in the order, so that what they clear exists before anything adds to it.
 */
static enum status begin_first(struct graph *g)
{
    node_id *order;
    size_t n = 0;
    TRY(mem_try_array(&order, MAX(g->nodes.n, (size_t)1), sizeof(*order)));
    for (int wanted = 1; wanted >= 0; wanted--) {
        for (node_id k = 0; (size_t)k < g->nodes.n; k++) {
            if ((graph_node(g, k)->pass == PASS_BEGIN) == wanted)
                order[n++] = k;
        }
    }
    enum status status = graph_reorder(g, order, n);
    mem_free(order);
    return status;
}

/* ---- norm and clipping
 * --------------------------------------------------------------------------- */

static value_id scale_and_norm(struct builder *b, const struct optimizer_options *o,
                               const struct optimizer_param *params, size_t n_params,
                               value_id count, value_id *norm)
{
    value_id *in;
    size_t n = 2;
    if (b->status == OK)
        b->status = mem_try_array(&in, n_params + 2, sizeof(*in));
    if (b->status != OK)
        return VALUE_NONE;
    struct attr_set attrs[] = {{"max_norm", .f = o->max_grad_norm},
                               {"nominal", .f = o->nominal_count}};
    in[0] = count;
    in[1] = VALUE_NONE; /* no loss scale */
    for (size_t i = 0; i < n_params; i++) {
        if (params[i].grad == VALUE_NONE)
            continue;
        block_of(b, params[i].grad);
        in[n++] = build(b, OP_sum_squares, IN(params[i].grad), NO_ATTRS);
    }
    b->block = BLOCK_NONE;
    value_id clipped = build(b, OP_clip_scale, in, (int)n, attrs, ARRAY_LEN(attrs));
    *norm = build_output(b, 1);
    mem_free(in);
    if (o->max_grad_norm > 0)
        return clipped;
    /* Without clipping the scale depends on the count alone: updates need not wait for the norm. */
    return build(b, OP_clip_scale, IN(count), &attrs[1], 1);
}

/* ---- updates
 * ---------------------------------------------------------------------------------------- */

static value_id state_like(struct builder *b, const char *prefix, const struct optimizer_param *p,
                           enum role role, enum dtype dtype)
{
    struct shape shape = *build_shape(b, p->value);
    return build_value(b, joined(b, prefix, p->name), role, dtype, shape);
}

static void update_adamw(struct builder *b, const struct optimizer_options *o,
                         const struct optimizer_param *p, const struct knobs *k)
{
    struct attr_set attrs[] = {{"beta1", .f = o->beta1},
                               {"beta2", .f = o->beta2},
                               {"epsilon", .f = o->epsilon},
                               {"weight_decay", .f = p->decay ? o->weight_decay : 0.0}};
    value_id m = state_like(b, "m", p, ROLE_STATE, o->precision.states);
    value_id v = state_like(b, "v", p, ROLE_STATE, o->precision.states);
    if (!o->precision.masters) {
        (void)build(b, OP_adamw, IN(p->value, p->grad, m, v, k->lr, k->step, k->scale), attrs,
                    ARRAY_LEN(attrs));
        return;
    }
    value_id master = state_like(b, "master", p, ROLE_MASTER, DTYPE_F32);
    (void)build(b, OP_adamw_master, IN(p->value, p->grad, m, v, k->lr, k->step, k->scale, master),
                attrs, ARRAY_LEN(attrs));
}

static void update_sgd(struct builder *b, const struct optimizer_options *o,
                       const struct optimizer_param *p, const struct knobs *k)
{
    double decay = p->decay ? o->weight_decay : 0.0;
    if (o->momentum == 0.0) {
        (void)build(b, OP_sgd, IN(p->value, p->grad, k->lr, k->step, k->scale),
                    ATTRS({"weight_decay", .f = decay}));
        return;
    }
    value_id buffer = state_like(b, "momentum", p, ROLE_STATE, o->precision.states);
    (void)build(b, OP_sgd_momentum, IN(p->value, p->grad, buffer, k->lr, k->step, k->scale),
                ATTRS({"weight_decay", .f = decay}, {"momentum", .f = o->momentum},
                      {"nesterov", .i = o->nesterov}));
}

/* The ways an update can be written; one row per optimizer_kind. */
static void (*const update_rules[])(struct builder *, const struct optimizer_options *,
                                    const struct optimizer_param *, const struct knobs *) = {
    [OPTIMIZER_ADAMW] = update_adamw,
    [OPTIMIZER_SGD] = update_sgd,
};

/* ---- the stage
 * ---------------------------------------------------------------------------------------- */

static enum status build_sums(struct builder *b, struct optimizer_param *params, size_t n_params,
                              value_id *loss_sum, value_id *count)
{
    for (size_t i = 0; i < n_params; i++) {
        if (params[i].grad == VALUE_NONE)
            continue;
        block_of(b, params[i].grad);
        params[i].grad = carry(b, joined(b, "grad", params[i].name), ROLE_GRADIENT, params[i].grad);
    }
    b->block = BLOCK_NONE;
    *loss_sum = carry(b, "loss_sum", ROLE_METRIC, *loss_sum);
    *count = carry(b, "token_count", ROLE_METRIC, *count);
    return builder_status(b);
}

static enum status build_updates(struct builder *b, const struct optimizer_options *o,
                                 const struct optimizer_param *params, size_t n_params,
                                 value_id count, value_id *norm)
{
    b->pass = PASS_UPDATE;
    struct knobs k = {
        .lr = build_value(b, "lr", ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)1)),
        .step = build_value(b, "step", ROLE_INPUT, DTYPE_I32, shape_of(1, (int64_t)1)),
    };
    k.scale = scale_and_norm(b, o, params, n_params, count, norm);
    for (size_t i = 0; i < n_params; i++) {
        if (params[i].grad == VALUE_NONE)
            continue;
        block_of(b, params[i].grad);
        update_rules[o->kind](b, o, &params[i], &k);
    }
    return builder_status(b);
}

enum status optimizer_apply(struct graph *g, const struct optimizer_options *o,
                            struct optimizer_param *params, size_t n_params, value_id loss_sum,
                            value_id count)
{
    struct builder b;
    value_id norm = VALUE_NONE;
    builder_init(&b, g);
    if (o->n_micro > 1)
        TRY(build_sums(&b, params, n_params, &loss_sum, &count));
    TRY(build_updates(&b, o, params, n_params, count, &norm));
    TRY(graph_add_output(g, "loss", loss_sum));
    TRY(graph_add_output(g, "count", count));
    TRY(graph_add_output(g, "grad_norm", norm));
    TRY(begin_first(g));
    TRY(fuse_accumulation(g));
    return graph_eliminate_dead(g);
}
