#include "optim/optimizer.h"

#include "autodiff/autodiff.h"
#include "optim/loss_scale.h"
#include "optim/products.h"
#include "optim/updates.h"

/* What the host reads after a step, beside the sums. */
struct results {
    value_id count, norm, loss_scale; /* VALUE_NONE: the loss is not scaled */
};

/* ---- gradients ------------------------------------------------------------------------------- */

enum status optimizer_gradients(struct graph *g, const struct autodiff_root *roots, size_t n_roots,
                                struct optimizer_param *params, size_t n_params)
{
    return optimizer_predictions(g, roots, n_roots, params, n_params, 0);
}

enum status optimizer_predictions(struct graph *g, const struct autodiff_root *roots,
                                  size_t n_roots, struct optimizer_param *params, size_t n_params,
                                  int n_blocks)
{
    value_id *wanted, *grads;
    size_t n = 0;
    TRY(mem_try_array(&wanted, 2 * n_params + 1, sizeof(*wanted)));
    grads = wanted + n_params;
    for (size_t i = 0; i < n_params; i++) {
        if (!params[i].frozen)
            wanted[n++] = params[i].value;
    }
    enum status status = autodiff_shortened(g, roots, n_roots, wanted, n, n_blocks, grads);
    n = 0;
    for (size_t i = 0; i < n_params && status == OK; i++)
        params[i].grad = params[i].frozen ? VALUE_NONE : grads[n++];
    mem_free(wanted);
    return status;
}

/* ---- sums over micro-steps ------------------------------------------------------------------- */

/* What was predicted of a parameter's gradient, in the shape and dtype of it. */
static value_id predicted_state(struct builder *b, const struct optimizer_param *p)
{
    if (b->status != OK)
        return VALUE_NONE;
    struct shape shape = *build_shape(b, p->grad);
    return build_value(b, joined_name(b, PREDICTED_NAME, p->name), ROLE_STATE,
                       graph_value(b->g, p->grad)->dtype, shape);
}

/* A root cleared in the begin section and added to in every micro-step; what it holds at the end.
 * It begins with what `before` holds, which is then cleared in turn; VALUE_NONE: with nothing. */
static value_id carry(struct builder *b, const char *name, enum role role, value_id term,
                      value_id before)
{
    if (b->status != OK)
        return VALUE_NONE;
    struct shape shape = *build_shape(b, term);
    enum dtype dtype = graph_value(b->g, term)->dtype;
    value_id root = build_value(b, name, role, dtype, shape);
    b->pass = PASS_BEGIN;
    value_id cleared = build(b, OP_fill, IN(root), NO_ATTRS);
    if (before != VALUE_NONE) {
        cleared = build(b, OP_accumulate, IN(cleared, before), NO_ATTRS);
        (void)build(b, OP_fill, IN(before), NO_ATTRS);
    }
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

/* The node that makes the term which node k adds to a sum of micro-steps, or to one that outlives
 * them; NODE_NONE: k is another kind of node. */
static node_id term_of(const struct graph *g, node_id k)
{
    const struct node *n = graph_node(g, k);
    if (n->op != OP_accumulate)
        return NODE_NONE;
    node_id sum = graph_value(g, n->in[0])->producer;
    bool carried = sum == NODE_NONE ? graph_value(g, n->in[0])->role == ROLE_STATE
                                    : graph_node(g, sum)->pass == PASS_BEGIN;
    return carried ? graph_value(g, n->in[1])->producer : NODE_NONE;
}

/* adds[k]: the first node that adds a term which node k makes; next[a]: the one after a. */
static void find_additions(const struct graph *g, node_id *adds, node_id *next)
{
    for (size_t k = 0; k < g->nodes.n; k++)
        adds[k] = NODE_NONE;
    for (node_id k = (node_id)g->nodes.n; k-- > 0;) {
        node_id term = term_of(g, k);
        if (term == NODE_NONE)
            continue;
        next[k] = adds[term];
        adds[term] = k;
    }
}

/* Begin nodes come first in the order, so that what they clear exists before anything adds to it; a
 * term is added where it is made, so that what waits for the sum waits no longer than that. */
static enum status order_sums(struct graph *g)
{
    node_id *order;
    size_t n_nodes = g->nodes.n, n = 0;
    TRY(mem_try_array(&order, 3 * n_nodes + 1, sizeof(*order)));
    node_id *adds = order + n_nodes, *next = adds + n_nodes;
    find_additions(g, adds, next);
    for (int begins = 1; begins >= 0; begins--) {
        for (node_id k = 0; (size_t)k < n_nodes; k++) {
            if ((graph_node(g, k)->pass == PASS_BEGIN) != begins || term_of(g, k) != NODE_NONE)
                continue;
            order[n++] = k;
            for (node_id a = adds[k]; a != NODE_NONE; a = next[a])
                order[n++] = a;
        }
    }
    enum status status = graph_reorder(g, order, n);
    mem_free(order);
    return status;
}

/* ---- norm and clipping ----------------------------------------------------------------------- */

enum { FEW_ROWS = 64 };

/* Of a product of a few rows the factors have the squares, whether it is made in slices or at once.
 */
static value_id sum_of_factors(struct builder *b, value_id grad)
{
    const struct node *n = gradient_product(b, grad, FEW_ROWS);
    value_id dy = n->in[0], x = n->in[1];
    b->block = block_of_value(b, grad);
    return build(b, OP_product_squares, IN(dy, x), NO_ATTRS);
}

/* Of another gradient that is made from much less than it is, the squares are summed in two halves:
 * then a plan can have it made in slices, for this sum and for the update, and never as a whole.
 * The graph is the same for every plan, and so the norm. */
static value_id sum_of_chunks(struct builder *b, value_id grad)
{
    b->block = block_of_value(b, grad);
    value_id squares = build(b, OP_chunk_squares, IN(grad), NO_ATTRS);
    return build(b, OP_sum, IN(squares), NO_ATTRS);
}

/* Is its gradient summed together with those of its block? */
static bool joins_block(const struct builder *b, const struct optimizer_param *p, int block)
{
    return p->grad != VALUE_NONE && block != BLOCK_NONE && block_of_value(b, p->grad) == block &&
           !gradient_expands(b, p->grad);
}

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
    if (gradient_expands(b, params[i].grad))
        return gradient_product(b, params[i].grad, FEW_ROWS) ? sum_of_factors(b, params[i].grad)
                                                             : sum_of_chunks(b, params[i].grad);
    for (size_t k = 0; k < i; k++) {
        if (joins_block(b, &params[k], block))
            return VALUE_NONE;
    }
    for (size_t k = i; k < n_params; k++) {
        if (k == i || joins_block(b, &params[k], block))
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

/* ---- the stage ------------------------------------------------------------------------------- */

/* Gradients are summed where there are several micro-steps. */
static enum status build_gradient_sums(struct builder *b, struct optimizer_param *params,
                                       size_t n_params)
{
    for (size_t i = 0; i < n_params; i++) {
        if (params[i].grad == VALUE_NONE)
            continue;
        block_of(b, params[i].grad);
        value_id before = params[i].predicted ? predicted_state(b, &params[i]) : VALUE_NONE;
        params[i].grad =
            carry(b, joined_name(b, "grad", params[i].name), ROLE_GRADIENT, params[i].grad, before);
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
            several ? carry(b, joined_name(b, "sum", s->name), ROLE_METRIC, s->value, VALUE_NONE)
                    : s->value;
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
    b->pass = PASS_NORM;
    bool scaled = o->scaling.initial > 0;
    struct knobs k = {.lr = build_value(b, "lr", ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)1))};
    if (!scaled)
        k.step = build_value(b, "step", ROLE_INPUT, DTYPE_I32, shape_of(1, (int64_t)1));
    k.scale = scale_and_norm(b, o, params, n_params, r->count, &r->norm);
    b->pass = PASS_UPDATE;
    if (scaled)
        k.step = loss_scale_update(b, &o->scaling, k.scale, r->norm, &r->loss_scale);
    for (size_t i = 0; i < n_params; i++) {
        if (params[i].grad == VALUE_NONE)
            continue;
        block_of(b, params[i].grad);
        update_build(b, o, &params[i], &k, i);
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
    TRY(order_sums(g));
    TRY(fuse_accumulation(g));
    return graph_eliminate_dead(g);
}

/* ---- predicted gradients --------------------------------------------------------------------- */

enum status optimizer_predict(struct graph *g, struct optimizer_param *params, size_t n_params,
                              const struct optimizer_sums *sums)
{
    struct builder b;
    builder_init(&b, g);
    b.pass = PASS_BACKWARD;
    for (size_t i = 0; i < n_params; i++) {
        if (params[i].grad == VALUE_NONE)
            continue;
        block_of(&b, params[i].grad);
        value_id state = predicted_state(&b, &params[i]);
        (void)build(&b, OP_accumulate, IN(state, params[i].grad), NO_ATTRS);
    }
    TRY(builder_status(&b));
    for (int i = 0; i < sums->n_items; i++)
        TRY(graph_add_output(g, sums->items[i].name, sums->items[i].value));
    TRY(order_sums(g));
    TRY(fuse_accumulation(g));
    return graph_eliminate_dead(g);
}

/* *total += term, of which there may be none yet. */
static void add_to(struct builder *b, value_id *total, value_id term)
{
    *total = *total == VALUE_NONE ? term : build(b, OP_add, IN(*total, term), NO_ATTRS);
}

/* |g + h|^2 - |g|^2 - |h|^2 is twice the product. */
static void measure_param(struct builder *b, const struct optimizer_param *p, value_id predicted,
                          value_id totals[3])
{
    value_id squares = build(b, OP_sum_squares, IN(p->grad), NO_ATTRS);
    add_to(b, &totals[0], squares);
    if (predicted == VALUE_NONE)
        return;
    value_id own = build(b, OP_sum_squares, IN(predicted), NO_ATTRS);
    value_id both = build(b, OP_add, IN(p->grad, predicted), NO_ATTRS);
    both = build(b, OP_sum_squares, IN(both), NO_ATTRS);
    both = build(b, OP_sub, IN(both, squares), NO_ATTRS);
    add_to(b, &totals[1], own);
    add_to(b, &totals[2], build(b, OP_sub, IN(both, own), NO_ATTRS));
}

static void measure_params(struct builder *b, struct optimizer_param *params, size_t n_params,
                           value_id totals[3])
{
    for (size_t i = 0; i < n_params; i++) {
        struct optimizer_param *p = &params[i];
        if (p->grad == VALUE_NONE)
            continue;
        block_of(b, p->grad);
        value_id predicted = p->predicted ? predicted_state(b, p) : VALUE_NONE;
        p->grad = carry(b, joined_name(b, "grad", p->name), ROLE_GRADIENT, p->grad, VALUE_NONE);
        b->block = BLOCK_NONE;
        b->pass = PASS_NORM;
        measure_param(b, p, predicted, totals);
        b->pass = PASS_UPDATE;
        if (predicted != VALUE_NONE)
            (void)build(b, OP_fill, IN(predicted), NO_ATTRS);
    }
}

enum status optimizer_measure(struct graph *g, struct optimizer_param *params, size_t n_params)
{
    static const char *const names[] = {MEASURED_SQUARES, MEASURED_PREDICTED, MEASURED_PRODUCT};
    struct builder b;
    value_id totals[ARRAY_LEN(names)] = {VALUE_NONE, VALUE_NONE, VALUE_NONE};
    builder_init(&b, g);
    measure_params(&b, params, n_params, totals);
    TRY(builder_status(&b));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (totals[i] == VALUE_NONE)
            return FAIL(ERR_UNSUPPORTED, "no gradient of this network is predicted");
        TRY(graph_add_output(g, names[i], totals[i]));
    }
    TRY(order_sums(g));
    TRY(fuse_accumulation(g));
    return graph_eliminate_dead(g);
}
