/* linear.c: layers that are products with a matrix. */
#include "model/layers/init.h"
#include "model/layers/layers.h"

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
