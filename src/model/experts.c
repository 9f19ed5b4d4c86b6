/* experts.c: see experts.h. */
#include "model/experts.h"

#include <math.h>

#include "model/adapted_experts.h"
#include "model/losses.h"

struct routing routing_none(void)
{
    return (struct routing){VALUE_NONE, VALUE_NONE, VALUE_NONE, VALUE_NONE, VALUE_NONE};
}

static enum dtype wide_dtype(const struct parts *p)
{
    return dtype_accumulator(p->r->dtype);
}

static int64_t n_tokens(const struct parts *p)
{
    return p->r->batch * p->r->seq_len;
}

/* ---- parameters ----------------------------------------------------------------------------- */

/* One projection of all experts, made of the tensors `parts_of` (NULL-terminated) of each. */
struct projection {
    const char *name, *layer; /* with ".weight", and without */
    const char *const *parts_of;
    const char *stacked; /* the tensor of all experts, in checkpoints that have one */
    int64_t n_out, n_in;
    bool is_bias;
};

static const char *stacked_name(struct parts *p, const struct experts *e, const char *name)
{
    return e->names->may_be_stacked && name ? parts_hf_name(p, name) : NULL;
}

/* parts x E pieces of equal size, expert by expert. */
static struct hf_piece *expert_pieces(struct parts *p, const struct experts *e,
                                      const struct projection *x, int n_parts)
{
    struct pool *pool = &p->b->g->pool;
    struct hf_piece *pieces = pool_alloc(pool, sizeof(*pieces) * (size_t)n_parts * (size_t)e->n);
    for (int64_t i = 0; pieces && i < n_parts * e->n; i++) {
        const char *name =
            pool_printf(pool, "%s.%lld.%s.%s", e->names->experts, (long long)(i / n_parts),
                        x->parts_of[i % n_parts], x->is_bias ? "bias" : "weight");
        pieces[i] = (struct hf_piece){parts_hf_name(p, name ? name : ""), x->n_out / n_parts};
    }
    if (p->b->status == OK)
        p->b->status = pool_status(pool);
    return pieces;
}

static value_id expert_param(struct parts *p, const struct experts *e, const struct projection *x)
{
    int n_parts = 0;
    while (x->parts_of[n_parts])
        n_parts++;
    struct hf_piece *pieces = expert_pieces(p, e, x, n_parts);
    if (p->b->status != OK)
        return VALUE_NONE;
    return parts_add_param(
        p, (struct model_param){.name = parts_name(p, x->name),
                                .shape = x->is_bias ? shape_of(2, e->n, x->n_out)
                                                    : shape_of(3, e->n, x->n_out, x->n_in),
                                .init = x->is_bias ? INIT_ZERO : INIT_NORMAL,
                                .std = x->is_bias ? 0.0 : e->std,
                                .n_experts = e->n,
                                .n_met = e->per_token,
                                .pieces = pieces,
                                .n_pieces = n_parts * (int)e->n,
                                .stacked_name = stacked_name(p, e, x->stacked)});
}

/* Rows in the order of their experts through one projection of each. */
static value_id project(struct parts *p, const struct experts *e, value_id rows, value_id offsets,
                        const struct projection *x, const char *bias_name)
{
    struct projection b = *x;
    b.name = bias_name;
    b.is_bias = true;
    b.stacked = NULL;
    value_id w = expert_param(p, e, x);
    int base = p->out->n_params - 1;
    value_id bias = e->bias ? expert_param(p, e, &b) : VALUE_NONE;
    const value_id in[] = {rows, w, offsets, bias};
    value_id y = build(p->b, OP_grouped_linear, in, e->bias ? 4 : 3, NO_ATTRS);
    const struct expert_rows r = {rows, offsets, y};
    const struct expert_adapters a = {.name = x->layer,
                                      .experts = e->names->experts,
                                      .parts_of = x->parts_of,
                                      .base = base,
                                      .n_experts = e->n,
                                      .n_met = e->per_token,
                                      .n_in = x->n_in,
                                      .n_out = x->n_out};
    return p->m->adapter ? adapted_experts(p, &r, &a) : y;
}

/* ---- routing -------------------------------------------------------------------------------- */

/* f32 logits of a linear layer of the checkpoint, [N, n]. */
static value_id logits(struct parts *p, value_id x, const char *name, const char *hf_name,
                       int64_t n, const struct experts *e)
{
    struct pool *pool = &p->b->g->pool;
    const char *names[4] = {
        pool_printf(pool, "%s.weight", name), pool_printf(pool, "%s.weight", hf_name),
        pool_printf(pool, "%s.bias", name), pool_printf(pool, "%s.bias", hf_name)};
    if (p->b->status == OK)
        p->b->status = pool_status(pool);
    if (p->b->status != OK)
        return VALUE_NONE;
    value_id w = parts_param(p, names[0], parts_hf_name(p, names[1]), shape_of(2, n, p->m->hidden),
                             INIT_NORMAL, e->std);
    value_id bias =
        e->bias ? parts_param(p, names[2], parts_hf_name(p, names[3]), shape_of(1, n), INIT_ZERO, 0)
                : VALUE_NONE;
    const value_id in[] = {x, w, bias};
    return build_name(p->b, build(p->b, OP_router, in, e->bias ? 3 : 2, NO_ATTRS),
                      parts_name(p, name));
}

static value_id plus(struct parts *p, value_id sum, value_id term)
{
    return sum == VALUE_NONE ? term : build(p->b, OP_add, IN(sum, term), NO_ATTRS);
}

static value_id label_count(struct parts *p)
{
    return build(p->b, OP_count_labels, IN(p->targets),
                 ATTRS({.name = "dtype", .i = wide_dtype(p)}));
}

/* Adds what this layer contributes to the losses. */
static void note_routing(struct parts *p, const struct experts *e, struct routing *r, value_id z,
                         value_id probabilities, value_id offsets)
{
    struct builder *b = p->b;
    double n = (double)n_tokens(p), layers = (double)e->n_layers_with;
    if (p->targets == VALUE_NONE)
        return;
    value_id loads =
        build(b, OP_group_sizes, IN(offsets), ATTRS({.name = "dtype", .i = wide_dtype(p)}));
    double slots = (double)e->per_token * n;
    r->evenness =
        plus(p, r->evenness,
             build(b, OP_balance_loss, IN(loads, loads, label_count(p)),
                   ATTRS({.name = "factor", .f = (double)e->n / (slots * slots * layers)})));
    if (e->balance > 0) {
        value_id sums = build(b, OP_sum_rows, IN(probabilities), NO_ATTRS);
        double factor = (double)e->n / ((double)e->per_token * n * n * layers);
        if (e->balance_by_layer) {
            r->balance = plus(p, r->balance,
                              build(b, OP_balance_loss, IN(sums, loads, label_count(p)),
                                    ATTRS({.name = "factor", .f = factor})));
        } else {
            r->probabilities = plus(p, r->probabilities, sums);
            r->loads = plus(p, r->loads, loads);
        }
    }
    if (e->z_loss > 0)
        r->z_loss = plus(p, r->z_loss,
                         build(b, OP_square_lse, IN(z, label_count(p)),
                               ATTRS({.name = "factor", .f = 1.0 / (n * layers)})));
}

void experts_losses(struct parts *p, const struct experts *e, const struct routing *r)
{
    struct builder *b = p->b;
    struct model_graph *out = p->out;
    if (p->targets == VALUE_NONE || b->status != OK)
        return;
    int count = losses_count(out);
    value_id balance = r->balance;
    if (r->probabilities != VALUE_NONE) {
        double rows = (double)n_tokens(p) * (double)e->n_layers_with;
        balance = build(b, OP_balance_loss, IN(r->probabilities, r->loads, label_count(p)),
                        ATTRS({.name = "factor", .f = (double)e->n / (rows * rows)}));
    }
    if (balance != VALUE_NONE)
        losses_add(b, out, "balance_loss", e->balance, balance, count);
    if (r->z_loss != VALUE_NONE)
        losses_add(b, out, "router_z_loss", e->z_loss, r->z_loss, count);
    if (r->evenness != VALUE_NONE)
        losses_add(b, out, "expert_load", 0.0, r->evenness, count);
}

/* ---- layer ---------------------------------------------------------------------------------- */

/* Rows [M, C] through their experts. */
static value_id build_rows(struct parts *p, const struct experts *e, value_id rows,
                           value_id offsets)
{
    struct builder *b = p->b;
    const struct expert_names *n = e->names;
    const char *const gated[] = {n->gate, n->up, NULL}, *const plain[] = {n->up, NULL};
    const char *const down[] = {n->down, NULL};
    bool is_gated = n->gate != NULL;
    struct projection in = {.name = is_gated ? "experts.gate_up.weight" : "experts.up.weight",
                            .layer = is_gated ? "experts.gate_up" : "experts.up",
                            .parts_of = is_gated ? gated : plain,
                            .stacked = "mlp.experts.gate_up_proj",
                            .n_out = is_gated ? 2 * e->width : e->width,
                            .n_in = p->m->hidden};
    struct projection out = {.name = "experts.down.weight",
                             .layer = "experts.down",
                             .parts_of = down,
                             .stacked = "mlp.experts.down_proj",
                             .n_out = p->m->hidden,
                             .n_in = e->width};
    value_id y =
        project(p, e, rows, offsets, &in, is_gated ? "experts.gate_up.bias" : "experts.up.bias");
    build_name(b, y, parts_name(p, is_gated ? "experts.gate_up" : "experts.up"));
    y = is_gated ? build(b, OP_silu_gate, IN(y), NO_ATTRS)
                 : build(b, OP_gelu, IN(y), ATTRS({.name = "approximate", .i = false}));
    y = parts_dropout(p, build_name(b, y, parts_name(p, "experts.active")), e->dropout);
    y = project(p, e, y, offsets, &out, "experts.down.bias");
    return build_name(b, y, parts_name(p, "experts.down"));
}

/* The expert every token goes to, times the sigmoid of its own gate: a mixture of one, whose rows
 * are in the order of tokens. */
static value_id build_shared(struct parts *p, const struct experts *e, value_id x)
{
    struct builder *b = p->b;
    value_id y =
        parts_linear(p, x,
                     &(struct linear_spec){.name = "shared.gate_up",
                                           .n_in = p->m->hidden,
                                           PIECES({"mlp.shared_expert.gate_proj", e->shared_width},
                                                  {"mlp.shared_expert.up_proj", e->shared_width}),
                                           .std = e->std});
    y = build_name(b, build(b, OP_silu_gate, IN(y), NO_ATTRS), parts_name(p, "shared.active"));
    y = parts_linear(p, y,
                     &(struct linear_spec){.name = "shared.down",
                                           .n_in = e->shared_width,
                                           PIECES({"mlp.shared_expert.down_proj", p->m->hidden}),
                                           .std = e->std});
    value_id gate = logits(p, x, "shared.gate", "mlp.shared_expert_gate", 1, e);
    value_id weights = build(b, OP_sigmoid, IN(gate), NO_ATTRS);
    value_id same = build(b, OP_iota, NULL, 0, ATTRS({.name = "length", .i = n_tokens(p)}));
    return build(b, OP_combine, IN(y, same, same, weights), ATTRS({.name = "slots", .i = 1}));
}

value_id experts_build(struct parts *p, const struct experts *e, value_id x, struct routing *r)
{
    struct builder *b = p->b;
    struct shape all = shape_of(3, p->r->batch, p->r->seq_len, p->m->hidden);
    x = build_reshape(b, x, shape_of(2, n_tokens(p), p->m->hidden));
    value_id z = logits(p, x, "router", e->names->router, e->n, e);
    if (b->status == OK && !e->bias) /* the last parameter is its weight */
        p->out->params[p->out->n_params - 1].stacked_name = stacked_name(p, e, "mlp.gate.weight");
    value_id probabilities = build(b, OP_softmax, IN(z), NO_ATTRS);
    value_id weights =
        build(b, OP_route, IN(probabilities),
              ATTRS({.name = "k", .i = e->per_token}, {.name = "normalize", .i = e->normalize},
                    {.name = "epsilon", .f = e->epsilon}));
    value_id ids = build_output(b, 1), order = build_output(b, 2), place = build_output(b, 3);
    value_id offsets = build_output(b, 4);
    build_name(b, weights, parts_name(p, "router.weights"));
    if (e->capacity > 0) {
        double even = (double)(n_tokens(p) * e->per_token) / (double)e->n;
        weights = build(b, OP_capacity, IN(weights, ids, place, offsets),
                        ATTRS({.name = "rows", .i = (int64_t)ceil(e->capacity * even)}));
    }
    note_routing(p, e, r, z, probabilities, offsets);
    value_id y = build(b, OP_dispatch, IN(x, order, place), NO_ATTRS);
    y = build_rows(p, e, build_name(b, y, parts_name(p, "experts.rows")), offsets);
    y = build(b, OP_combine, IN(y, order, place, weights),
              ATTRS({.name = "slots", .i = e->per_token}));
    if (e->shared_width)
        y = build(b, OP_add, IN(y, build_shared(p, e, x)), NO_ATTRS);
    return build_reshape(b, build_name(b, y, parts_name(p, "experts")), all);
}
