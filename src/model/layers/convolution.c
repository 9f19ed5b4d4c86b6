#include "model/layers/convolution.h"

#include <string.h>

#include "ops/window_support.h"

/* [n, K.., channels] for a window of the given axes. */
static struct shape weight_shape(int64_t n, const struct window_sizes *s, int64_t channels)
{
    struct shape shape = {.rank = s->rank + 2, .dim = {n}};
    memcpy(shape.dim + 1, s->kernel, (size_t)s->rank * sizeof(*s->kernel));
    shape.dim[s->rank + 1] = channels;
    return shape;
}

static int64_t kernel_places(const struct window_sizes *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= s->kernel[i];
    return n;
}

/* ---- conv ------------------------------------------------------------------------------------ */

value_id writer_conv(struct writer *w, value_id x, const struct conv_layer *l)
{
    struct window_sizes s;
    int64_t channels = writer_channels(w, x);
    if (!window_sizes(w, x, &l->window, &s))
        return VALUE_NONE;
    if (channels % l->groups) {
        w->b->status = FAIL(ERR_CONFIG, "%lld channels are no multiple of %lld groups",
                            (long long)channels, (long long)l->groups);
        return VALUE_NONE;
    }
    int64_t n_places = kernel_places(&s), fan_in = n_places * channels / l->groups;
    value_id in[3] = {x,
                      writer_weight(w, "weight", weight_shape(l->n_out, &s, channels / l->groups),
                                    fan_in, n_places * l->n_out, &l->init),
                      VALUE_NONE};
    if (l->bias)
        in[2] = writer_bias(w, l->n_out, fan_in, &l->init);
    const struct attr_set attrs[] = {window_attr("stride", s.stride, s.rank),
                                     window_attr("pad_before", s.pad_before, s.rank),
                                     window_attr("pad_after", s.pad_after, s.rank),
                                     window_attr("dilation", s.dilation, s.rank),
                                     {.name = "groups", .i = l->groups}};
    return build(w->b, OP_conv, in, l->bias ? 3 : 2, attrs, ARRAY_LEN(attrs));
}

/* ---- conv_transpose -------------------------------------------------------------------------- */

/* PyTorch takes the outputs of a unit for its inputs here, and so do first weights. */
value_id writer_conv_transpose(struct writer *w, value_id x, const struct conv_layer *l)
{
    struct conv_transpose t = {.groups = l->groups};
    struct window_sizes s;
    int64_t channels = writer_channels(w, x), n_out = l->n_out / l->groups;
    if (!window_sizes(w, x, &l->window, &s))
        return VALUE_NONE;
    if (channels % l->groups || l->n_out % l->groups) {
        w->b->status = FAIL(ERR_CONFIG, "%lld and %lld channels must be multiples of %lld groups",
                            (long long)channels, (long long)l->n_out, (long long)l->groups);
        return VALUE_NONE;
    }
    memcpy(t.stride, s.stride, sizeof(t.stride));
    memcpy(t.pad_before, s.pad_before, sizeof(t.pad_before));
    memcpy(t.pad_after, s.pad_after, sizeof(t.pad_after));
    memcpy(t.dilation, s.dilation, sizeof(t.dilation));
    int64_t fan_in = kernel_places(&s) * n_out;
    value_id weight = writer_weight(w, "weight", weight_shape(channels, &s, n_out), fan_in,
                                    kernel_places(&s) * channels, &l->init);
    value_id y = build_conv_transpose(w->b, x, weight, &t);
    if (!l->bias)
        return y;
    value_id bias = writer_bias(w, l->n_out, fan_in, &l->init);
    return build(w->b, OP_add, IN(y, bias), NO_ATTRS);
}
