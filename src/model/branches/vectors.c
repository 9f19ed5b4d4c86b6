/* vectors.c: three vectors of nine numbers (a place, a velocity and an acceleration each), as
 * numbers with features of them and as a sequence of three. */
#include <math.h>

#include "model/branches/branches.h"

enum { ROWS = 3, NUMBERS = 9, AXES = 3, RAW = ROWS * NUMBERS, FEATURES = 24, TOKEN = 32 };

/* ---- features: fixed functions --------------------------------------------------------------- */

/* sum over the axes of x y: [B, n, 3] -> [B, n]. */
static value_id dot(struct writer *w, value_id x, value_id y, int64_t n)
{
    value_id z = build_reshape(w->b, writer_op2(w, OP_mul, x, y),
                               shape_of(3, w->r->batch, n, (int64_t)AXES));
    return build(w->b, OP_sum, IN(z), ATTRS({.name = "axes", .n_ints = 1, .ints = {2}}));
}

static value_id norm(struct writer *w, value_id x, int64_t n)
{
    return writer_op(w, OP_sqrt, dot(w, x, x, n));
}

/* How each row differs from the one before: [B, 2, 9]. */
static value_id differences(struct writer *w, value_id x)
{
    return writer_op2(w, OP_sub, writer_slice(w, x, 1, 1, ROWS - 1),
                      writer_slice(w, x, 1, 0, ROWS - 1));
}

/* Of every row the lengths of its three vectors and their products with each other, and how far
 * each vector moves from row to row: 9 + 9 + 6 numbers. */
static value_id features(struct writer *w, value_id x)
{
    value_id parts[5];
    for (int64_t i = 0; i < AXES; i++) {
        value_id a = writer_slice(w, x, 2, i * AXES, AXES);
        value_id b = writer_slice(w, x, 2, (i + 1) % AXES * AXES, AXES);
        parts[i] = dot(w, a, b, ROWS);
    }
    parts[3] = norm(w, x, RAW / AXES);
    parts[4] = norm(w, differences(w, x), (RAW - NUMBERS) / AXES);
    return writer_concat(w, parts, 5, 1);
}

/* ---- as numbers ------------------------------------------------------------------------------ */

/* What the numbers would have to say of how much each counts; nothing is trained by it. */
static void write_importance(struct writer *w, const struct three_branch *m, value_id x)
{
    x = writer_op(w, OP_relu, module_linear(w, "importance.0", x, branch_width(m, 64)));
    (void)writer_op(w, OP_sigmoid,
                    module_linear(w, "importance.2", x, RAW + RAW - NUMBERS + FEATURES));
}

value_id branch_vectors(struct writer *w, const struct three_branch *m, value_id vectors)
{
    const char *before = writer_enter(w, "vectors");
    int64_t batch = w->r->batch;
    const value_id parts[] = {
        build_reshape(w->b, vectors, shape_of(2, batch, (int64_t)RAW)),
        build_reshape(w->b, differences(w, vectors), shape_of(2, batch, (int64_t)(RAW - NUMBERS))),
        features(w, vectors)};
    value_id x = module_linear(w, "0", writer_concat(w, parts, 3, 1), branch_width(m, 128));
    x = writer_op(w, OP_gelu, module_layer_norm(w, "1", x));
    x = module_linear(w, "4", writer_dropout(w, x, 0.05 * m->dropout, false), branch_width(m, 192));
    x = writer_op(w, OP_gelu, module_layer_norm(w, "5", x));
    write_importance(w, m, x);
    w->prefix = before;
    return x;
}

/* ---- as a sequence --------------------------------------------------------------------------- */

/* Vaswani et al., "Attention Is All You Need", 2017, section 3.5: sines and cosines of the place.
 */
static value_id add_places(struct writer *w, value_id x, int64_t d)
{
    float *table;
    if (w->b->status == OK)
        w->b->status = pool_try(&w->b->g->pool, &table, (size_t)(ROWS * d) * sizeof(*table));
    if (w->b->status != OK)
        return VALUE_NONE;
    for (int64_t i = 0; i < ROWS * d; i++) {
        double angle = (double)(i / d) * pow(10000.0, -(double)(i % d / 2 * 2) / (double)d);
        table[i] = (float)(i % 2 ? cos(angle) : sin(angle));
    }
    return writer_op2(w, OP_add, x,
                      writer_table(w, "tempo.places", shape_of(2, (int64_t)ROWS, d), table));
}

/* Zeros behind the nine numbers of a row: [B, 3, 9] -> [B, 3, 32]. */
static value_id pad(struct writer *w, value_id x)
{
    value_id nothing = writer_scaled(w, x, 0.0);
    const value_id parts[] = {x, nothing, nothing,
                              writer_slice(w, nothing, 2, 0, TOKEN - 3 * NUMBERS)};
    return writer_concat(w, parts, 4, 2);
}

value_id branch_tempo(struct writer *w, const struct three_branch *m, value_id vectors)
{
    int64_t d = branch_width(m, 192);
    const struct encoder_layer layer = {
        .heads = 4, .hidden = 4 * d, .dropout = 0.1 * m->dropout, .norms_first = true};
    const char *before = writer_enter(w, "tempo");
    value_id x = add_places(w, module_linear(w, "proj", pad(w, vectors), d), d);
    x = module_encoder(w, "layers.0", x, &layer);
    x = module_encoder(w, "layers.1", x, &layer);
    x = build_reshape(w->b, x, shape_of(2, w->r->batch, ROWS * d));
    x = writer_op(w, OP_gelu, module_layer_norm(w, "out.1", module_linear(w, "out.0", x, d)));
    x = module_linear(w, "out.4", writer_dropout(w, x, 0.1 * m->dropout, false), d);
    w->prefix = before;
    return x;
}
