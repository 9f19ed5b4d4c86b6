/* recurrent.c: LSTM and GRU: see modules.h.
 *
 * The product with what goes in is taken for all steps at once; the one with the state, and the
 * cell, step by step. Steps are nodes of the graph: what of them is kept is up to the plan.
 */
#include "model/layers/modules.h"
#include "ops/cell_support.h"

/* Zeros in the dtype of weights. */
static value_id zeros(struct writer *w, struct shape shape)
{
    static const char name[] = "zero";
    const float zero = 0.0f;
    struct attr_set dims = {.name = "dims", .n_ints = shape.rank};
    value_id number = graph_find_value(w->b->g, name);
    if (number == VALUE_NONE)
        number = writer_table(w, name, (struct shape){0}, &zero);
    for (int i = 0; i < shape.rank; i++)
        dims.ints[i] = shape.dim[i];
    return build(w->b, OP_broadcast, IN(number), &dims, 1);
}

/* A layer in one direction: weights "weight_ih_l0", "weight_ih_l0_reverse". */
struct walk {
    const struct recurrent_layer *l;
    int64_t i_layer;
    bool back;
};

static value_id weight(struct writer *w, const struct walk *k, const char *kind, int64_t n_in)
{
    int64_t rows = (k->l->is_gru ? GRU_GATES : LSTM_GATES) * k->l->hidden;
    const char *name = pool_printf(&w->b->g->pool, "%s_l%lld%s", kind, (long long)k->i_layer,
                                   k->back ? "_reverse" : "");
    struct shape shape = n_in ? shape_of(2, rows, n_in) : shape_of(1, rows);
    const struct weight_init preset = {.rule = WEIGHT_PRESET};
    if (!name && w->b->status == OK)
        w->b->status = pool_status(&w->b->g->pool);
    return writer_weight(w, name ? name : "", shape, k->l->hidden, k->l->hidden, &preset);
}

/* What step t makes of the state: [B, hidden]. */
static value_id step(struct writer *w, const struct walk *k, value_id gates_in,
                     value_id gates_state, value_id state[2])
{
    if (k->l->is_gru) {
        state[0] = build(w->b, OP_gru_cell, IN(gates_in, gates_state, state[0]), NO_ATTRS);
        return state[0];
    }
    value_id gates = writer_op2(w, OP_add, gates_in, gates_state);
    state[0] = build(w->b, OP_lstm_cell, IN(gates, state[1]), NO_ATTRS);
    state[1] = build_output(w->b, 1);
    return state[0];
}

static value_id one_way(struct writer *w, const struct walk *k, value_id x)
{
    if (w->b->status != OK)
        return VALUE_NONE;
    const struct shape *s = build_shape(w->b, x);
    int64_t batch = s->dim[0], n_steps = s->dim[1];
    value_id *ends = NULL, state[2];
    value_id w_in = weight(w, k, "weight_ih", s->dim[2]);
    value_id w_state = weight(w, k, "weight_hh", k->l->hidden);
    value_id b_in = weight(w, k, "bias_ih", 0), b_state = weight(w, k, "bias_hh", 0);
    value_id gates = build(w->b, OP_linear, IN(x, w_in, b_in), NO_ATTRS);
    state[0] = state[1] = zeros(w, shape_of(2, batch, k->l->hidden));
    if (w->b->status == OK)
        w->b->status = pool_try(&w->b->g->pool, &ends, (size_t)n_steps * sizeof(*ends));
    for (int64_t i = 0; i < n_steps && w->b->status == OK; i++) {
        int64_t t = k->back ? n_steps - 1 - i : i;
        value_id from_state = build(w->b, OP_linear, IN(state[0], w_state, b_state), NO_ATTRS);
        ends[t] = writer_as_step(w, step(w, k, writer_step(w, gates, t), from_state, state));
    }
    return w->b->status == OK ? writer_concat(w, ends, (int)n_steps, 1) : VALUE_NONE;
}

value_id module_recurrent(struct writer *w, const char *name, value_id x,
                          const struct recurrent_layer *l)
{
    const char *before = writer_enter(w, name);
    for (int64_t i = 0; i < l->n_layers; i++) {
        struct walk there = {l, i, false}, back = {l, i, true};
        if (i > 0)
            x = writer_dropout(w, x, l->dropout, false);
        value_id ways[2] = {one_way(w, &there, x), VALUE_NONE};
        if (l->both_ways)
            ways[1] = one_way(w, &back, x);
        x = l->both_ways ? writer_concat(w, ways, 2, 2) : ways[0];
    }
    w->prefix = before;
    return x;
}
