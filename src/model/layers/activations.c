/* activations.c: layers that are functions of one element at a time, and softmax. */
#include "model/layers/layers.h"

#define PLAIN(kind)                                                                   \
    static value_id write_##kind(struct writer *w, const struct layer *l, value_id x) \
    {                                                                                 \
        (void)l;                                                                      \
        return build(w->b, OP_##kind, IN(x), NO_ATTRS);                               \
    }                                                                                 \
    const struct layer_def layer_def_##kind = {.name = #kind, .write = write_##kind};

PLAIN(relu)
PLAIN(silu)
PLAIN(sigmoid)
PLAIN(tanh)
PLAIN(softmax)
PLAIN(softplus)
PLAIN(nan_to_zero)

/* ---- with a number --------------------------------------------------------------------------- */

struct shaped {
    double number;
};

/* The layer's one key is the op's one attribute. */
#define SHAPED(kind, key, preset)                                                                  \
    static enum status parse_##kind(const struct layer_reader *r, struct keys *k, struct layer *l) \
    {                                                                                              \
        struct shaped *own;                                                                        \
        TRY(layer_own(r, l, &own, sizeof(*own)));                                                  \
        own->number = keys_float(k, key, preset, 0, 1e6);                                          \
        return OK;                                                                                 \
    }                                                                                              \
    static value_id write_##kind(struct writer *w, const struct layer *l, value_id x)              \
    {                                                                                              \
        const struct shaped *own = l->own;                                                         \
        return build(w->b, OP_##kind, IN(x), ATTRS({.name = key, .f = own->number}));              \
    }                                                                                              \
    const struct layer_def layer_def_##kind = {                                                    \
        .name = #kind, .main = key, .parse = parse_##kind, .write = write_##kind};

SHAPED(leaky_relu, "slope", 0.01)
SHAPED(elu, "alpha", 1.0)

/* ---- gelu ------------------------------------------------------------------------------------ */

struct gelu {
    bool tanh; /* approximated by one */
};

static enum status parse_gelu(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct gelu *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->tanh = keys_bool(k, "approximate", false);
    return OK;
}

static value_id write_gelu(struct writer *w, const struct layer *l, value_id x)
{
    const struct gelu *own = l->own;
    return build(w->b, OP_gelu, IN(x), ATTRS({.name = "approximate", .i = own->tanh}));
}

const struct layer_def layer_def_gelu = {
    .name = "gelu", .main = "approximate", .parse = parse_gelu, .write = write_gelu};
