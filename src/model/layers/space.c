/* space.c: layers over the axes between the batch and the channels: convolutions. */
#include <string.h>

#include "model/layers/init.h"
#include "model/layers/layers.h"
#include "model/layers/windows.h"
#include "ops/window_support.h"

struct conv {
    int64_t n_out, groups;
    struct layer_window window;
    bool bias;
    struct weight_init init;
};

static enum status parse_conv(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct conv *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->n_out = keys_int(k, "out", KEYS_REQUIRED_INT, 1, INT32_MAX);
    own->groups = keys_int(k, "groups", 1, 1, INT32_MAX);
    window_parse(k, &own->window);
    layer_sizes(k, "dilation", 1, own->window.dilation, &own->window.n_dilation);
    own->bias = keys_bool(k, "bias", true);
    own->init = init_parse(k, r->init);
    return OK;
}

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

static value_id write_conv(struct writer *w, const struct layer *l, value_id x)
{
    const struct conv *own = l->own;
    struct window_sizes s;
    int64_t channels = writer_channels(w, x);
    if (!window_sizes(w, x, &own->window, &s))
        return VALUE_NONE;
    if (channels % own->groups) {
        w->b->status = FAIL(ERR_CONFIG, "%lld channels are no multiple of %lld groups",
                            (long long)channels, (long long)own->groups);
        return VALUE_NONE;
    }
    int64_t n_places = kernel_places(&s), fan_in = n_places * channels / own->groups;
    value_id in[3] = {x,
                      writer_weight(w, "weight",
                                    weight_shape(own->n_out, &s, channels / own->groups), fan_in,
                                    n_places * own->n_out, &own->init),
                      VALUE_NONE};
    if (own->bias)
        in[2] = writer_bias(w, own->n_out, fan_in, &own->init);
    const struct attr_set attrs[] = {window_attr("stride", s.stride, s.rank),
                                     window_attr("pad_before", s.pad_before, s.rank),
                                     window_attr("pad_after", s.pad_after, s.rank),
                                     window_attr("dilation", s.dilation, s.rank),
                                     {.name = "groups", .i = own->groups}};
    return build(w->b, OP_conv, in, own->bias ? 3 : 2, attrs, ARRAY_LEN(attrs));
}

const struct layer_def layer_def_conv = {
    .name = "conv", .main = "out", .starts_block = true, .parse = parse_conv, .write = write_conv};

/* ---- conv_transpose -------------------------------------------------------------------------- */

/* PyTorch takes the outputs of a unit for its inputs here, and so do first weights. */
static value_id write_conv_transpose(struct writer *w, const struct layer *l, value_id x)
{
    const struct conv *own = l->own;
    struct conv_transpose t = {.groups = own->groups};
    struct window_sizes s;
    int64_t channels = writer_channels(w, x), n_out = own->n_out / own->groups;
    if (!window_sizes(w, x, &own->window, &s))
        return VALUE_NONE;
    if (channels % own->groups || own->n_out % own->groups) {
        w->b->status = FAIL(ERR_CONFIG, "%lld and %lld channels must be multiples of %lld groups",
                            (long long)channels, (long long)own->n_out, (long long)own->groups);
        return VALUE_NONE;
    }
    memcpy(t.stride, s.stride, sizeof(t.stride));
    memcpy(t.pad_before, s.pad_before, sizeof(t.pad_before));
    memcpy(t.pad_after, s.pad_after, sizeof(t.pad_after));
    memcpy(t.dilation, s.dilation, sizeof(t.dilation));
    int64_t fan_in = kernel_places(&s) * n_out;
    value_id weight = writer_weight(w, "weight", weight_shape(channels, &s, n_out), fan_in,
                                    kernel_places(&s) * channels, &own->init);
    value_id y = build_conv_transpose(w->b, x, weight, &t);
    if (!own->bias)
        return y;
    value_id bias = writer_bias(w, own->n_out, fan_in, &own->init);
    return build(w->b, OP_add, IN(y, bias), NO_ATTRS);
}

const struct layer_def layer_def_conv_transpose = {.name = "conv_transpose",
                                                   .main = "out",
                                                   .starts_block = true,
                                                   .parse = parse_conv,
                                                   .write = write_conv_transpose};
