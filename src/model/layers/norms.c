/* norms.c: layers that bring their input to mean 0 and deviation 1, by one rule or another. */
#include "model/layers/layers.h"

/* ---- batch_norm ------------------------------------------------------------------------------ */

static enum status parse_batch_norm(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct batch_norm_layer *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->epsilon = keys_float(k, "epsilon", BATCH_NORM_EPSILON, 0, 1);
    own->momentum = keys_float(k, "momentum", BATCH_NORM_MOMENTUM, 0, 1);
    return OK;
}

static value_id write_batch_norm(struct writer *w, const struct layer *l, value_id x)
{
    return writer_batch_norm(w, x, l->own);
}

const struct layer_def layer_def_batch_norm = {
    .name = "batch_norm", .parse = parse_batch_norm, .write = write_batch_norm};

/* ---- layer_norm ------------------------------------------------------------------------------ */

struct norm {
    double epsilon;
    int64_t groups; /* of group_norm */
};

static enum status parse_norm(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct norm *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->epsilon = keys_float(k, "epsilon", 1e-5, 0, 1);
    return OK;
}

static value_id write_layer_norm(struct writer *w, const struct layer *l, value_id x)
{
    const struct norm *own = l->own;
    return writer_layer_norm(w, x, own->epsilon);
}

const struct layer_def layer_def_layer_norm = {
    .name = "layer_norm", .parse = parse_norm, .write = write_layer_norm};

/* ---- group_norm, instance_norm --------------------------------------------------------------- */

static enum status parse_group_norm(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    TRY(parse_norm(r, k, l));
    ((struct norm *)l->own)->groups = keys_int(k, "groups", KEYS_REQUIRED_INT, 1, INT32_MAX);
    return OK;
}

static value_id write_group_norm(struct writer *w, const struct layer *l, value_id x)
{
    const struct norm *own = l->own;
    return writer_group_norm(w, x, own->groups, own->epsilon);
}

const struct layer_def layer_def_group_norm = {
    .name = "group_norm", .main = "groups", .parse = parse_group_norm, .write = write_group_norm};

/* Every channel is a group; without weights, as PyTorch's. */
static value_id write_instance_norm(struct writer *w, const struct layer *l, value_id x)
{
    const struct norm *own = l->own;
    return build(w->b, OP_group_norm, IN(x),
                 ATTRS({.name = "groups", .i = writer_channels(w, x)},
                       {.name = "epsilon", .f = own->epsilon}));
}

const struct layer_def layer_def_instance_norm = {
    .name = "instance_norm", .parse = parse_norm, .write = write_instance_norm};
