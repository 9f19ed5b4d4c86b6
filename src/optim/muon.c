/* muon.c: Muon's update as nodes of the graph, so that its products and their memory are planned as
 * all others are.
 *
 *     direction = momentum of the gradient, divided by its length
 *     n_steps times: A = X X^T;  X = a X + (b A + c A A) X      (Newton-Schulz)
 *     parameter = parameter (1 - lr weight_decay) - lr factor X
 *
 * X X^T is made of the shorter side. What one matrix holds that are several to others (q, k and v)
 * is made orthogonal one by one. As torch.optim.Muon (Jordan; Moonshot's factor); products run in
 * the weights' dtype.
 */
#include <math.h>

#include "optim/updates.h"

/* The iteration's polynomial, by Jordan: steep at 0, and no limit but singular values near 1. */
static const double NS_A = 3.4445, NS_B = -4.7750, NS_C = 2.0315;

bool muon_takes(const struct builder *b, const struct optimizer_param *p)
{
    return p->hidden && build_shape(b, p->value)->rank == 2;
}

/* What the orthogonal matrix is multiplied by beside the learning rate. */
static double length_factor(const struct muon_options *o, int64_t n_rows, int64_t n_columns)
{
    double rows = (double)n_rows, columns = (double)n_columns;
    return o->match_rms_adamw ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1.0, rows / columns));
}

/* One iteration; y = factor X'. */
static value_id iterate(struct builder *b, value_id x, bool wide, double factor)
{
    value_id gram = wide ? build(b, OP_linear, IN(x, x), NO_ATTRS)
                         : build(b, OP_linear_grad_weight, IN(x, x), NO_ATTRS);
    value_id square = build(b, OP_linear, IN(gram, gram), NO_ATTRS); /* it is symmetric */
    value_id sum =
        build(b, OP_weighted_sum, IN(gram, square), ATTRS({"a", .f = NS_B}, {"b", .f = NS_C}));
    value_id more = wide ? build(b, OP_linear_grad_input, IN(sum, x), NO_ATTRS)
                         : build(b, OP_linear, IN(x, sum), NO_ATTRS);
    return build(b, OP_weighted_sum, IN(x, more),
                 ATTRS({"a", .f = NS_A * factor}, {"b", .f = factor}));
}

/* The orthogonal matrix nearest to x, as long as it should be. */
static value_id orthogonal(struct builder *b, const struct muon_options *o, value_id x)
{
    if (b->status != OK)
        return VALUE_NONE;
    struct shape s = *build_shape(b, x);
    double factor = length_factor(o, s.dim[0], s.dim[1]);
    value_id squares = build(b, OP_sum_squares, IN(x), NO_ATTRS);
    value_id inverse = build(b, OP_inverse_norm, IN(squares), NO_ATTRS);
    x = build(b, OP_scale, IN(x, inverse), NO_ATTRS);
    for (int64_t i = 0; i < o->n_steps; i++)
        x = iterate(b, x, s.dim[0] <= s.dim[1], i + 1 == o->n_steps ? factor : 1.0);
    return x;
}

/* Each of the matrices that the parameter is made of. */
static value_id orthogonal_pieces(struct builder *b, const struct muon_options *o,
                                  const struct optimizer_param *p, value_id x)
{
    value_id pieces[MUON_PIECES];
    int64_t at = 0;
    if (p->n_pieces <= 1 || p->n_pieces > MUON_PIECES)
        return orthogonal(b, o, x);
    for (int i = 0; i < p->n_pieces; i++) {
        int64_t n_rows = p->pieces[i].rows;
        value_id piece =
            build(b, OP_slice, IN(x),
                  ATTRS({"axis", .i = 0}, {"start", .i = at}, {"length", .i = n_rows}));
        pieces[i] = orthogonal(b, o, piece);
        at += n_rows;
    }
    return build(b, OP_concat, pieces, p->n_pieces, ATTRS({"axis", .i = 0}));
}

struct updated muon_build(struct builder *b, const struct optimizer_options *o,
                          const struct optimizer_param *p, const struct knobs *k, size_t i_param)
{
    struct param_role role = precision_role(&o->precision, graph_value(b->g, p->value), p->frozen);
    bool coded = role.states == FORMAT_BLOCK8, has_master = role.master != FORMAT_NONE;
    value_id in[2 + FORMAT_PARTS] = {p->grad};
    if (!coded && role.states != FORMAT_F32) {
        b->status =
            FAIL(ERR_UNSUPPORTED, "muon has no update for states in %s", format_name(role.states));
        return (struct updated){VALUE_NONE, VALUE_NONE};
    }
    int n = update_add_parts(b, "momentum", p, ROLE_STATE, role.states, in, 1);
    in[n++] = k->scale;
    (void)build(b, coded ? OP_muon_momentum_8bit : OP_muon_momentum, in, n,
                ATTRS({"momentum", .f = o->muon.momentum}, {"nesterov", .i = o->muon.nesterov},
                      {"dtype", .i = o->precision.weights}));
    value_id direction = build_output(b, coded ? 2 : 1);
    direction = orthogonal_pieces(b, &o->muon, p, direction);
    value_id step[6] = {p->value, direction, k->lr, k->step, k->scale};
    n = has_master ? update_add_parts(b, "master", p, ROLE_MASTER, role.master, step, 5) : 5;
    value_id param = build(b, has_master ? OP_muon_update_master : OP_muon_update, step, n,
                           ATTRS({"weight_decay", .f = p->decay ? o->weight_decay : 0.0},
                                 {"seed", .i = update_seed(o, i_param)}));
    bool is_f32 = role.master == FORMAT_F32;
    return (struct updated){param, is_f32 ? build_output(b, 1) : VALUE_NONE};
}
