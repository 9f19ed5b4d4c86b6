#include "model/layers/modules.h"

#include <string.h>

/* ---- with weights ---------------------------------------------------------------------------- */

value_id module_linear(struct writer *w, const char *name, value_id x, int64_t n_out)
{
    const struct linear_layer l = {.n_out = n_out, .bias = true, .init = w->init};
    const char *before = writer_enter(w, name);
    x = writer_linear(w, x, &l);
    w->prefix = before;
    return x;
}

struct conv_layer conv_of(int64_t n_out, int64_t kernel, int64_t stride, int64_t padding)
{
    return (struct conv_layer){.n_out = n_out,
                               .groups = 1,
                               .bias = true,
                               .window = {.kernel = {kernel},
                                          .n_kernel = 1,
                                          .stride = {stride},
                                          .n_stride = 1,
                                          .padding = {padding},
                                          .n_padding = 1}};
}

value_id module_conv(struct writer *w, const char *name, value_id x, struct conv_layer l)
{
    const char *before = writer_enter(w, name);
    l.init = w->init;
    x = writer_conv(w, x, &l);
    w->prefix = before;
    return x;
}

value_id module_conv_transpose(struct writer *w, const char *name, value_id x, struct conv_layer l)
{
    const char *before = writer_enter(w, name);
    l.init = w->init;
    x = writer_conv_transpose(w, x, &l);
    w->prefix = before;
    return x;
}

value_id module_batch_norm(struct writer *w, const char *name, value_id x)
{
    const struct batch_norm_layer l = {BATCH_NORM_EPSILON, BATCH_NORM_MOMENTUM};
    const char *before = writer_enter(w, name);
    x = writer_batch_norm(w, x, &l);
    w->prefix = before;
    return x;
}

value_id module_group_norm(struct writer *w, const char *name, value_id x, int64_t groups)
{
    const char *before = writer_enter(w, name);
    x = writer_group_norm(w, x, groups, NORM_EPSILON);
    w->prefix = before;
    return x;
}

value_id module_layer_norm(struct writer *w, const char *name, value_id x)
{
    const char *before = writer_enter(w, name);
    x = writer_layer_norm(w, x, NORM_EPSILON);
    w->prefix = before;
    return x;
}

/* ---- without weights ------------------------------------------------------------------------- */

value_id writer_op(struct writer *w, enum op_id op, value_id x)
{
    return build(w->b, op, IN(x), NO_ATTRS);
}

value_id writer_op2(struct writer *w, enum op_id op, value_id a, value_id b)
{
    return build(w->b, op, IN(a, b), NO_ATTRS);
}

value_id writer_scaled(struct writer *w, value_id x, double factor)
{
    return build(w->b, OP_scale, IN(x), ATTRS({.name = "factor", .f = factor}));
}

value_id writer_leaky_relu(struct writer *w, value_id x, double slope)
{
    return build(w->b, OP_leaky_relu, IN(x), ATTRS({.name = "slope", .f = slope}));
}

value_id writer_max_pool(struct writer *w, value_id x, int64_t kernel, int64_t stride,
                         int64_t padding)
{
    const struct conv_layer l = conv_of(1, kernel, stride, padding);
    struct window_sizes s;
    if (!window_sizes(w, x, &l.window, &s))
        return VALUE_NONE;
    return build(w->b, OP_max_pool, IN(x),
                 ATTRS(window_attr("kernel", s.kernel, s.rank),
                       window_attr("stride", s.stride, s.rank),
                       window_attr("pad_before", s.pad_before, s.rank),
                       window_attr("pad_after", s.pad_after, s.rank)));
}

value_id writer_resize(struct writer *w, value_id x, const int64_t *sizes)
{
    if (w->b->status != OK)
        return VALUE_NONE;
    const struct shape *shape = build_shape(w->b, x);
    int rank = shape->rank - 2;
    if (memcmp(shape->dim + 1, sizes, (size_t)rank * sizeof(*sizes)) == 0)
        return x;
    return build(w->b, OP_resize, IN(x),
                 ATTRS(window_attr("out", sizes, rank), {.name = "linear", .i = true}));
}

value_id writer_global_mean(struct writer *w, value_id x)
{
    struct attr_set axes = {.name = "axes"};
    int rank = w->b->status == OK ? build_shape(w->b, x)->rank : 0;
    for (int i = 1; i < rank - 1; i++)
        axes.ints[axes.n_ints++] = i;
    return build(w->b, OP_mean, IN(x), &axes, 1);
}

value_id writer_slice(struct writer *w, value_id x, int64_t axis, int64_t start, int64_t length)
{
    return build(w->b, OP_slice, IN(x),
                 ATTRS({.name = "axis", .i = axis}, {.name = "start", .i = start},
                       {.name = "length", .i = length}));
}

value_id writer_concat(struct writer *w, const value_id *parts, int n, int64_t axis)
{
    return build(w->b, OP_concat, parts, n, ATTRS({.name = "axis", .i = axis}));
}

/* Every time step is a sample of one place to film. */
value_id writer_weighted_sum(struct writer *w, value_id x, value_id weights)
{
    if (w->b->status != OK)
        return VALUE_NONE;
    const struct shape *shape = build_shape(w->b, x);
    int64_t batch = shape->dim[0], n_steps = shape->dim[1], channels = shape->dim[2];
    value_id rows = build_reshape(w->b, x, shape_of(3, batch * n_steps, channels, INT64_C(1)));
    value_id each = build_reshape(w->b, weights, shape_of(2, batch * n_steps, INT64_C(1)));
    rows = writer_op2(w, OP_film, rows, each);
    rows = build_reshape(w->b, rows, shape_of(3, batch, n_steps, channels));
    return build(w->b, OP_sum, IN(rows), ATTRS({.name = "axes", .n_ints = 1, .ints = {1}}));
}

/* ---- of a network as a whole ----------------------------------------------------------------- */

enum status model_try(struct model *m, void (*write)(struct writer *w, const void *config))
{
    const struct model_request request = {
        .purpose = MODEL_TRAIN, .batch = 2, .seq_len = 1, .dtype = DTYPE_F32};
    struct graph *g = NULL;
    struct builder b;
    struct model_graph io;
    struct writer w;
    enum status status;
    TRY_GOTO(graph_new(&g, "trial"), out);
    builder_init(&b, g);
    writer_begin(&w, &b, &request, &io);
    write(&w, m->config);
    writer_end(&w);
    TRY_GOTO(builder_status(&b), out);
    status = writer_facts(&w, m);
out:
    graph_free(g);
    return status;
}

enum status model_write(const struct model *m, struct builder *b, const struct model_request *r,
                        struct model_graph *out,
                        void (*write)(struct writer *w, const void *config))
{
    struct writer w;
    writer_begin(&w, b, r, out);
    write(&w, m->config);
    writer_end(&w);
    return builder_status(b);
}
