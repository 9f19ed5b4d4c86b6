/* tracks.c: some tracks, of which some may be missing: each row by itself, then a weighted sum over
 * those that are there. */
#include "model/branches/branches.h"

enum { SERIES = 3 };

/* Beside the two series of a row their differences, products and squares: 18 numbers. */
static value_id describe(struct writer *w, value_id rows)
{
    value_id a = writer_slice(w, rows, 2, 0, SERIES), b = writer_slice(w, rows, 2, SERIES, SERIES);
    const value_id parts[] = {rows, writer_op2(w, OP_sub, a, b), writer_op2(w, OP_mul, a, b),
                              writer_op2(w, OP_mul, a, a), writer_op2(w, OP_mul, b, b)};
    return writer_concat(w, parts, 5, 2);
}

/* Softmax over the tracks that are there: others are far below all of these. */
static value_id weights_of(struct writer *w, const struct three_branch *m, value_id x,
                           value_id mask)
{
    static const float one = 1.0f;
    const double far = 1e4; /* f16 holds it */
    value_id unit = writer_table(w, "tracks.one", (struct shape){0}, &one);
    value_id below = writer_scaled(w, writer_op2(w, OP_sub, mask, unit), far);
    x = writer_op(w, OP_relu, module_linear(w, "score.0", x, branch_width(m, 32)));
    x = build_reshape(w->b, module_linear(w, "score.2", x, 1),
                      shape_of(2, w->r->batch, (int64_t)BRANCH_TRACKS));
    return writer_op(w, OP_softmax, writer_op2(w, OP_add, x, below));
}

static value_id head(struct writer *w, const struct three_branch *m, const char *name, value_id x,
                     int64_t n_out)
{
    const char *before = writer_enter(w, name);
    x = writer_op(w, OP_relu, module_linear(w, "0", x, branch_width(m, 128)));
    x = writer_dropout(w, x, 0.1 * m->dropout, false);
    x = writer_op(w, OP_relu, module_linear(w, "3", x, branch_width(m, 64)));
    x = module_linear(w, "5", x, n_out);
    w->prefix = before;
    return x;
}

value_id branch_tracks(struct writer *w, const struct three_branch *m, value_id tracks,
                       value_id mask)
{
    const char *before = writer_enter(w, "tracks");
    value_id x = module_linear(w, "rows.0", describe(w, tracks), branch_width(m, 128));
    x = writer_dropout(w, writer_op(w, OP_relu, x), 0.1 * m->dropout, false);
    x = writer_op(w, OP_relu, module_linear(w, "rows.3", x, branch_width(m, 64)));
    x = module_linear(w, "rows.5", x, branch_width(m, 64));
    x = writer_weighted_sum(w, x, weights_of(w, m, x, mask));
    x = writer_op(w, OP_relu, module_linear(w, "embed.0", x, branch_width(m, 256)));
    x = module_linear(w, "embed.2", x, branch_width(m, 256));
    value_id tau = writer_op(w, OP_softplus, head(w, m, "tau", x, 1));
    value_id kind = head(w, m, "kind", x, 2);
    w->prefix = before;
    w->b->block = BLOCK_NONE;
    branch_loss(w, objective_term("smooth_l1", "tau", 0.25), tau, "tau");
    branch_loss(w, objective_term("cross_entropy", "kind", 0.25), kind, "kind");
    return x;
}
