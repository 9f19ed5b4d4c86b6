/* shapes.c: layers that have no weights and change what there is or how it lies. */
#include <string.h>

#include "model/layers/layers.h"

/* ---- dropout --------------------------------------------------------------------------------- */

struct dropout {
    double rate;
};

static enum status parse_dropout(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct dropout *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->rate = keys_float(k, "rate", 0.5, 0, 0.999);
    return OK;
}

static value_id write_dropout(struct writer *w, const struct layer *l, value_id x)
{
    const struct dropout *own = l->own;
    return writer_dropout(w, x, own->rate, false);
}

const struct layer_def layer_def_dropout = {
    .name = "dropout", .main = "rate", .parse = parse_dropout, .write = write_dropout};

/* Whole channels of a sample: what PyTorch calls dropout of images. */
static value_id write_dropout2d(struct writer *w, const struct layer *l, value_id x)
{
    const struct dropout *own = l->own;
    return writer_dropout(w, x, own->rate, true);
}

const struct layer_def layer_def_dropout2d = {
    .name = "dropout2d", .main = "rate", .parse = parse_dropout, .write = write_dropout2d};

/* ---- flatten, reshape ------------------------------------------------------------------------ */

static value_id write_flatten(struct writer *w, const struct layer *l, value_id x)
{
    (void)l;
    if (w->b->status != OK)
        return VALUE_NONE;
    const struct shape *shape = build_shape(w->b, x);
    int64_t channels = shape_last(shape), n = shape_inner(shape, 1);
    if (shape->rank > 2 && n > channels && channels > 1)
        w->flat_channels = channels;
    return build_reshape(w->b, x, shape_of(2, shape->dim[0], n));
}

const struct layer_def layer_def_flatten = {.name = "flatten", .write = write_flatten};

struct reshape {
    struct shape shape;
};

static enum status parse_reshape(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct reshape *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    layer_sizes(k, "shape", 1, own->shape.dim + 1, &own->shape.rank);
    own->shape.rank++;
    if (keys_good(k) && own->shape.rank == 1)
        KEYS_FAIL(k, "shape", ERR_CONFIG, "key '%sshape' is missing", k->path);
    return OK;
}

static value_id write_reshape(struct writer *w, const struct layer *l, value_id x)
{
    struct shape shape = ((const struct reshape *)l->own)->shape;
    shape.dim[0] = w->r->batch;
    w->flat_channels = 0;
    if (w->b->status != OK)
        return VALUE_NONE;
    int64_t n = shape_inner(build_shape(w->b, x), 1), n_new = shape_inner(&shape, 1);
    if (n != n_new) {
        w->b->status = FAIL(ERR_CONFIG, "a sample has %lld elements here, and the new shape %lld",
                            (long long)n, (long long)n_new);
        return VALUE_NONE;
    }
    return build_reshape(w->b, x, shape);
}

const struct layer_def layer_def_reshape = {
    .name = "reshape", .main = "shape", .parse = parse_reshape, .write = write_reshape};

/* ---- global_mean ----------------------------------------------------------------------------- */

/* Over all axes between the batch and the channels. */
static value_id write_global_mean(struct writer *w, const struct layer *l, value_id x)
{
    struct attr_set axes = {.name = "axes"};
    int rank = build_shape(w->b, x)->rank;
    (void)l;
    for (int i = 1; i < rank - 1; i++)
        axes.ints[axes.n_ints++] = i;
    return axes.n_ints ? build(w->b, OP_mean, IN(x), &axes, 1) : x;
}

const struct layer_def layer_def_global_mean = {.name = "global_mean", .write = write_global_mean};

/* ---- input ----------------------------------------------------------------------------------- */

struct input {
    const char *field;
};

static enum status parse_input(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct input *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    const char *field = keys_text(k, "field", NULL);
    if (!field) {
        KEYS_FAIL(k, "field", ERR_CONFIG, "key '%sfield' is missing: {input: NAME}", k->path);
        return OK;
    }
    own->field = pool_strdup(r->pool, field);
    return own->field ? OK : pool_status(r->pool);
}

/* What came before is left: a branch begins with another input. */
static value_id write_input(struct writer *w, const struct layer *l, value_id x)
{
    const struct input *own = l->own;
    value_id found = writer_find(w, own->field);
    (void)x;
    if (w->b->status == OK && found == VALUE_NONE)
        w->b->status = FAIL(ERR_CONFIG, "input '%s' is none of the network's", own->field);
    return found;
}

const struct layer_def layer_def_input = {.name = "input",
                                          .main = "field",
                                          .needs_nothing = true,
                                          .parse = parse_input,
                                          .write = write_input};
