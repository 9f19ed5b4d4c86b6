/* graph_attention.c: attention along the edges of a graph: see modules.h. */
#include <math.h>

#include "model/layers/modules.h"

struct graph_edges writer_grid(struct writer *w, int64_t height, int64_t width)
{
    struct graph_edges e;
    e.from = build(w->b, OP_grid_edges, NULL, 0,
                   ATTRS({.name = "height", .i = height}, {.name = "width", .i = width}));
    e.to = build_output(w->b, 1);
    return e;
}

/* sum_c a[h, c] x[b, n, h, c]: a score for every head of every node, [B, N, heads]. */
static value_id scores(struct writer *w, const char *name, value_id x, const struct graph_layer *l)
{
    if (w->b->status != OK)
        return VALUE_NONE;
    const struct shape *s = build_shape(w->b, x);
    struct shape parts = shape_of(4, s->dim[0], s->dim[1], l->heads, l->width);
    value_id a =
        writer_param(w, name,
                     (struct model_param){.shape = shape_of(3, INT64_C(1), l->heads, l->width),
                                          .init = INIT_UNIFORM,
                                          .bound = sqrt(6.0 / (double)(l->heads + l->width))});
    a = build_reshape(w->b, a, shape_of(1, l->heads * l->width));
    x = build_reshape(w->b, writer_op2(w, OP_mul, x, a), parts);
    return build(w->b, OP_sum, IN(x), ATTRS({.name = "axes", .n_ints = 1, .ints = {3}}));
}

value_id module_graph_attention(struct writer *w, const char *name, value_id x,
                                struct graph_edges edges, const struct graph_layer *l)
{
    if (w->b->status != OK)
        return VALUE_NONE;
    int64_t n_nodes = build_shape(w->b, x)->dim[1], channels = l->heads * l->width;
    const struct linear_layer product = {.n_out = channels, .init = w->init};
    const struct attr_set rows = {.name = "rows", .i = n_nodes};
    const char *before = writer_enter(w, name), *inside = writer_enter(w, "lin");
    x = writer_linear(w, x, &product);
    w->prefix = inside;
    value_id from = writer_op2(w, OP_gather, scores(w, "att_src", x, l), edges.from);
    value_id to = writer_op2(w, OP_gather, scores(w, "att_dst", x, l), edges.to);
    value_id e = writer_leaky_relu(w, writer_op2(w, OP_add, from, to), 0.2);
    e = build(w->b, OP_edge_softmax, IN(e, edges.to), &rows, 1);
    e = writer_dropout(w, e, l->dropout, false);
    x = build(w->b, OP_edge_sum, IN(e, x, edges.from, edges.to), &rows, 1);
    value_id bias = writer_param(w, "bias", (struct model_param){.shape = shape_of(1, channels)});
    w->prefix = before;
    return writer_op2(w, OP_add, x, bias);
}
