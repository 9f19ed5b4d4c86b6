/* weights.c: layers that have weights: linear, layer_norm. */
#include "model/layers/init.h"
#include "model/layers/layers.h"

/* ---- linear ---------------------------------------------------------------------------------- */

static enum status parse_linear(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct linear_layer *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->n_out = keys_int(k, "out", KEYS_REQUIRED_INT, 1, INT32_MAX);
    own->bias = keys_bool(k, "bias", true);
    own->init = init_parse(k, r->init);
    return OK;
}

static value_id write_linear(struct writer *w, const struct layer *l, value_id x)
{
    return writer_linear(w, x, l->own);
}

const struct layer_def layer_def_linear = {
    .name = "linear",
    .main = "out",
    .starts_block = true,
    .parse = parse_linear,
    .write = write_linear,
};

/* ---- layer_norm ------------------------------------------------------------------------------ */

struct layer_norm {
    double epsilon;
};

static enum status parse_layer_norm(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct layer_norm *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->epsilon = keys_float(k, "epsilon", 1e-5, 0, 1);
    return OK;
}

static value_id write_layer_norm(struct writer *w, const struct layer *l, value_id x)
{
    const struct layer_norm *own = l->own;
    struct shape shape = shape_of(1, writer_channels(w, x));
    value_id weight =
        writer_param(w, "weight", (struct model_param){.shape = shape, .init = INIT_ONE});
    value_id bias = writer_param(w, "bias", (struct model_param){.shape = shape});
    return build(w->b, OP_layer_norm, IN(x, weight, bias),
                 ATTRS({.name = "epsilon", .f = own->epsilon}));
}

const struct layer_def layer_def_layer_norm = {
    .name = "layer_norm",
    .main = NULL,
    .parse = parse_layer_norm,
    .write = write_layer_norm,
};
