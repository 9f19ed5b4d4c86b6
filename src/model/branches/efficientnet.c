/* efficientnet.c: the features of EfficientNet-B0, of which the siamese branch may make its tokens.
 * Parameters are named as timm names them. "EfficientNet: Rethinking Model Scaling for
 * Convolutional Neural Networks", Tan and Le 2019, table 1. */
#include "model/branches/branches.h"

struct stage {
    int64_t expand, kernel, stride, width, repeats;
};

static const struct stage stages[] = {
    {1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2},  {6, 3, 2, 80, 3},
    {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1},
};

/* A convolution without bias, and its norm. */
static value_id conv_norm(struct writer *w, const char *const names[2], value_id x,
                          struct conv_layer conv)
{
    conv.bias = false;
    return module_batch_norm(w, names[1], module_conv(w, names[0], x, conv));
}

/* x times a factor for every channel, made from the means of all channels. */
static value_id squeeze(struct writer *w, value_id x, int64_t hidden)
{
    if (w->b->status != OK)
        return VALUE_NONE;
    int64_t channels = writer_channels(w, x), batch = build_shape(w->b, x)->dim[0];
    const char *before = writer_enter(w, "se");
    value_id y = build_reshape(w->b, writer_global_mean(w, x),
                               shape_of(4, batch, INT64_C(1), INT64_C(1), channels));
    y = writer_op(w, OP_silu, module_conv(w, "conv_reduce", y, conv_of(hidden, 1, 1, 0)));
    y = writer_op(w, OP_sigmoid, module_conv(w, "conv_expand", y, conv_of(channels, 1, 1, 0)));
    w->prefix = before;
    return writer_op2(w, OP_film, x, build_reshape(w->b, y, shape_of(2, batch, channels)));
}

/* One block of a stage: expand, filter each channel by itself, weigh the channels, project. */
static value_id block(struct writer *w, const struct stage *s, int64_t width, int64_t stride,
                      value_id x)
{
    static const char *const wide[] = {"conv_pw", "bn1"};
    static const char *const filters[2][2] = {{"conv_dw", "bn1"}, {"conv_dw", "bn2"}};
    static const char *const ends[2][2] = {{"conv_pw", "bn2"}, {"conv_pwl", "bn3"}};
    bool expands = s->expand > 1;
    int64_t n_in = writer_channels(w, x), inner = s->expand * n_in;
    value_id y = x;
    if (expands)
        y = writer_op(w, OP_silu, conv_norm(w, wide, y, conv_of(inner, 1, 1, 0)));
    struct conv_layer filter = conv_of(inner, s->kernel, stride, s->kernel / 2);
    filter.groups = inner;
    y = writer_op(w, OP_silu, conv_norm(w, filters[expands], y, filter));
    y = squeeze(w, y, n_in / 4);
    y = conv_norm(w, ends[expands], y, conv_of(width, 1, 1, 0));
    return stride == 1 && n_in == width ? writer_op2(w, OP_add, x, y) : y;
}

value_id branch_efficientnet(struct writer *w, const struct three_branch *m, value_id x)
{
    static const char *const stem[] = {"conv_stem", "bn1"};
    x = writer_op(w, OP_silu, conv_norm(w, stem, x, conv_of(branch_width(m, 32), 3, 2, 1)));
    for (size_t i = 0; i < ARRAY_LEN(stages); i++) {
        for (int64_t k = 0; k < stages[i].repeats; k++) {
            const char *name = pool_printf(&w->b->g->pool, "blocks.%zu.%lld", i, (long long)k);
            const char *before = writer_enter(w, name ? name : "");
            x = block(w, &stages[i], branch_width(m, stages[i].width), k ? 1 : stages[i].stride, x);
            w->prefix = before;
        }
    }
    return x;
}
