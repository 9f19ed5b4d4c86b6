#include "optim/optimizer.h"

#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "base/rng.h"
#include "optim/loss_scale.h"

/* The scalars every update reads. */
struct knobs {
    value_id lr, step, scale;
};

/* What the host reads after a step, beside the sums. */
struct results {
    value_id count, norm, loss_scale; /* VALUE_NONE: the loss is not scaled */
};

static const char *joined(struct builder *b, const char *prefix, const char *name)
{
    const char *s = pool_printf(&b->g->pool, "%s.%s", prefix, name);
    if (!s && b->status == OK)
        b->status = pool_status(&b->g->pool);
    return s ? s : "";
}

/* ---- sums over micro-steps ------------------------------------------------------------------- */

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

static int block_of_value(const struct builder *b, value_id v)
{
    node_id producer = v == VALUE_NONE ? NODE_NONE : graph_value(b->g, v)->producer;
    return producer == NODE_NONE ? BLOCK_NONE : graph_node(b->g, producer)->block;
}

static void block_of(struct builder *b, value_id v)
{
    if (b->status == OK)
        b->block = block_of_value(b, v);
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

/* ---- norm and clipping ----------------------------------------------------------------------- */

/* The sum of squares of gradient i and, if it is the first of its block, of the others of the
 * block: one sum a block, so that few launches do and, when updates run early, no gradient waits
 * for more than its own block. What belongs to no block lies far apart in the backward pass: one
 * sum each. VALUE_NONE: there is nothing to sum, or an earlier one of the block had it. */
static value_id sum_of_block(struct builder *b, const struct optimizer_param *params,
                             size_t n_params, size_t i, value_id *members)
{
    int block = block_of_value(b, params[i].grad), n = 0;
    if (params[i].grad == VALUE_NONE)
        return VALUE_NONE;
    for (size_t k = 0; block != BLOCK_NONE && k < i; k++) {
        if (params[k].grad != VALUE_NONE && block_of_value(b, params[k].grad) == block)
            return VALUE_NONE;
    }
    for (size_t k = i; k < n_params; k++) {
        bool joins = k == i || (block != BLOCK_NONE && params[k].grad != VALUE_NONE &&
                                block_of_value(b, params[k].grad) == block);
        if (joins)
            members[n++] = params[k].grad;
    }
    b->block = block;
    return build(b, OP_sum_squares, members, n, NO_ATTRS);
}

/* What gradients are multiplied by in the updates; the norm goes to *norm. */
static value_id scale_and_norm(struct builder *b, const struct optimizer_options *o,
                               const struct optimizer_param *params, size_t n_params,
                               value_id count, value_id *norm)
{
    value_id *in, *members;
    size_t n = 2;
    bool scaled = o->scaling.initial > 0;
    if (b->status == OK)
        b->status = mem_try_array(&in, 2 * n_params + 2, sizeof(*in));
    if (b->status != OK)
        return VALUE_NONE;
    members = in + n_params + 2;
    struct attr_set attrs[] = {{"max_norm", .f = o->max_grad_norm},
                               {"nominal", .f = o->nominal_count}};
    in[0] = count;
    in[1] = scaled ? loss_scale_value(b) : VALUE_NONE;
    for (size_t i = 0; i < n_params && b->status == OK; i++) {
        value_id squares = sum_of_block(b, params, n_params, i, members);
        if (squares != VALUE_NONE)
            in[n++] = squares;
    }
    b->block = BLOCK_NONE;
    value_id clipped = build(b, OP_clip_scale, in, (int)n, attrs, ARRAY_LEN(attrs));
    *norm = build_output(b, 1);
    mem_free(in);
    if (o->max_grad_norm > 0 || scaled)
        return clipped;
    /* Without clipping or loss scaling the factor depends on the count alone: updates need not wait
     * for the norm. */
    return build(b, OP_clip_scale, IN(count), &attrs[1], 1);
}

/* ---- updates --------------------------------------------------------------------------------- */

static value_id state_like(struct builder *b, const char *prefix, const struct optimizer_param *p,
                           enum role role, enum dtype dtype)
{
    struct shape shape = *build_shape(b, p->value);
    return build_value(b, joined(b, prefix, p->name), role, dtype, shape);
}

/* Every parameter draws its own numbers. */
static int64_t rounding_seed(const struct optimizer_options *o, size_t i_param)
{
    if (o->seed == 0)
        return 0;
    struct philox4 r = philox((uint64_t)o->seed, UINT64_C(0x726f756e64), (uint64_t)i_param);
    return (int64_t)((uint64_t)(r.v[0] >> 1) << 32 | r.v[1] | 1u);
}

static void update_adamw(struct builder *b, const struct optimizer_options *o,
                         const struct optimizer_param *p, const struct knobs *k, int64_t seed)
{
    struct attr_set attrs[] = {{"beta1", .f = o->beta1},
                               {"beta2", .f = o->beta2},
                               {"epsilon", .f = o->epsilon},
                               {"weight_decay", .f = p->decay ? o->weight_decay : 0.0},
                               {"seed", .i = seed}};
    value_id m = state_like(b, "m", p, ROLE_STATE, o->precision.states);
    value_id v = state_like(b, "v", p, ROLE_STATE, o->precision.states);
    if (b->status != OK)
        return;
    if (!precision_has_master(&o->precision, graph_value(b->g, p->value)->dtype)) {
        (void)build(b, OP_adamw, IN(p->value, p->grad, m, v, k->lr, k->step, k->scale), attrs,
                    ARRAY_LEN(attrs));
        return;
    }
    value_id master = state_like(b, "master", p, ROLE_MASTER, DTYPE_F32);
    (void)build(b, OP_adamw_master, IN(p->value, p->grad, m, v, k->lr, k->step, k->scale, master),
                attrs, ARRAY_LEN(attrs));
}

static void update_sgd(struct builder *b, const struct optimizer_options *o,
                       const struct optimizer_param *p, const struct knobs *k, int64_t seed)
{
    double decay = p->decay ? o->weight_decay : 0.0;
    if (o->momentum == 0.0) {
        (void)build(b, OP_sgd, IN(p->value, p->grad, k->lr, k->step, k->scale),
                    ATTRS({"weight_decay", .f = decay}, {"seed", .i = seed}));
        return;
    }
    value_id buffer = state_like(b, "momentum", p, ROLE_STATE, o->precision.states);
    (void)build(b, OP_sgd_momentum, IN(p->value, p->grad, buffer, k->lr, k->step, k->scale),
                ATTRS({"weight_decay", .f = decay}, {"momentum", .f = o->momentum},
                      {"nesterov", .i = o->nesterov}, {"seed", .i = seed}));
}

/* The ways an update can be written; one row per optimizer_kind. */
static void (*const update_rules[])(struct builder *, const struct optimizer_options *,
                                    const struct optimizer_param *, const struct knobs *,
                                    int64_t seed) = {
    [OPTIMIZER_ADAMW] = update_adamw,
    [OPTIMIZER_SGD] = update_sgd,
};

/* ---- the stage ------------------------------------------------------------------------------- */

/* Gradients are summed where there are several micro-steps. */
static enum status build_gradient_sums(struct builder *b, struct optimizer_param *params,
                                       size_t n_params)
{
    for (size_t i = 0; i < n_params; i++) {
        if (params[i].grad == VALUE_NONE)
            continue;
        block_of(b, params[i].grad);
        params[i].grad = carry(b, joined(b, "grad", params[i].name), ROLE_GRADIENT, params[i].grad);
    }
    b->block = BLOCK_NONE;
    return builder_status(b);
}

static enum status build_sums(struct builder *b, const struct optimizer_sums *sums, bool several,
                              struct results *r)
{
    for (int i = 0; i < sums->n_items; i++) {
        const struct graph_output *s = &sums->items[i];
        value_id total =
            several ? carry(b, joined(b, "sum", s->name), ROLE_METRIC, s->value) : s->value;
        TRY(builder_status(b));
        TRY(graph_add_output(b->g, s->name, total));
        if (i == sums->count)
            r->count = total;
    }
    return OK;
}

static enum status build_updates(struct builder *b, const struct optimizer_options *o,
                                 const struct optimizer_param *params, size_t n_params,
                                 struct results *r)
{
    b->pass = PASS_UPDATE;
    bool scaled = o->scaling.initial > 0;
    struct knobs k = {.lr = build_value(b, "lr", ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)1))};
    if (!scaled)
        k.step = build_value(b, "step", ROLE_INPUT, DTYPE_I32, shape_of(1, (int64_t)1));
    k.scale = scale_and_norm(b, o, params, n_params, r->count, &r->norm);
    if (scaled)
        k.step = loss_scale_update(b, &o->scaling, k.scale, r->norm, &r->loss_scale);
    for (size_t i = 0; i < n_params; i++) {
        if (params[i].grad == VALUE_NONE)
            continue;
        block_of(b, params[i].grad);
        update_rules[o->kind](b, o, &params[i], &k, rounding_seed(o, i));
    }
    return builder_status(b);
}

static enum status add_outputs(struct graph *g, const struct results *r)
{
    TRY(graph_add_output(g, "grad_norm", r->norm));
    return r->loss_scale == VALUE_NONE ? OK : graph_add_output(g, "loss_scale", r->loss_scale);
}

enum status optimizer_apply(struct graph *g, const struct optimizer_options *o,
                            struct optimizer_param *params, size_t n_params,
                            const struct optimizer_sums *sums)
{
    struct builder b;
    bool several = o->n_micro > 1;
    struct results r = {VALUE_NONE, VALUE_NONE, VALUE_NONE};
    builder_init(&b, g);
    if (several)
        TRY(build_gradient_sums(&b, params, n_params));
    TRY(build_sums(&b, sums, several, &r));
    TRY(build_updates(&b, o, params, n_params, &r));
    TRY(add_outputs(g, &r));
    TRY(begin_first(g));
    TRY(fuse_accumulation(g));
    return graph_eliminate_dead(g);
}
