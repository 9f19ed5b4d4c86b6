/* space.c: layers over the axes between the batch and the channels: convolutions. */
#include "model/layers/convolution.h"
#include "model/layers/init.h"
#include "model/layers/layers.h"

static enum status parse_conv(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct conv_layer *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->n_out = keys_int(k, "out", KEYS_REQUIRED_INT, 1, INT32_MAX);
    own->groups = keys_int(k, "groups", 1, 1, INT32_MAX);
    window_parse(k, &own->window);
    layer_sizes(k, "dilation", 1, own->window.dilation, &own->window.n_dilation);
    own->bias = keys_bool(k, "bias", true);
    own->init = init_parse(k, r->init);
    return OK;
}

static value_id write_conv(struct writer *w, const struct layer *l, value_id x)
{
    return writer_conv(w, x, l->own);
}

const struct layer_def layer_def_conv = {
    .name = "conv", .main = "out", .starts_block = true, .parse = parse_conv, .write = write_conv};

static value_id write_conv_transpose(struct writer *w, const struct layer *l, value_id x)
{
    return writer_conv_transpose(w, x, l->own);
}

const struct layer_def layer_def_conv_transpose = {.name = "conv_transpose",
                                                   .main = "out",
                                                   .starts_block = true,
                                                   .parse = parse_conv,
                                                   .write = write_conv_transpose};
