/* sequences.c: layers over sequences [batch, steps, channels], and over the places of an image as a
 * graph. */
#include <string.h>

#include "model/layers/layers.h"
#include "model/layers/modules.h"

/* false, and the builder has why: x has other axes. */
static bool need_axes(struct writer *w, value_id x, int rank, const char *what)
{
    if (w->b->status == OK && build_shape(w->b, x)->rank != rank)
        w->b->status = FAIL(ERR_CONFIG, "it needs %s", what);
    return w->b->status == OK;
}

static bool need_sequence(struct writer *w, value_id x)
{
    return need_axes(w, x, 3, "a sequence, [batch, steps, channels]");
}

static bool need_heads(struct writer *w, value_id x, int64_t heads)
{
    if (w->b->status == OK && writer_channels(w, x) % heads != 0)
        w->b->status = FAIL(ERR_CONFIG, "%lld channels are no multiple of %lld heads",
                            (long long)writer_channels(w, x), (long long)heads);
    return w->b->status == OK;
}

/* ---- lstm, gru ------------------------------------------------------------------------------- */

static enum status parse_recurrent(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct recurrent_layer *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->hidden = keys_int(k, "hidden", KEYS_REQUIRED_INT, 1, 1 << 24);
    own->n_layers = keys_int(k, "layers", 1, 1, 1024);
    own->both_ways = keys_bool(k, "bidirectional", false);
    own->dropout = keys_float(k, "dropout", 0, 0, 0.999);
    own->is_gru = strcmp(l->def->name, "gru") == 0;
    return OK;
}

static value_id write_recurrent(struct writer *w, const struct layer *l, value_id x)
{
    return need_sequence(w, x) ? module_recurrent(w, "", x, l->own) : VALUE_NONE;
}

const struct layer_def layer_def_lstm = {.name = "lstm",
                                         .main = "hidden",
                                         .starts_block = true,
                                         .parse = parse_recurrent,
                                         .write = write_recurrent};
const struct layer_def layer_def_gru = {.name = "gru",
                                        .main = "hidden",
                                        .starts_block = true,
                                        .parse = parse_recurrent,
                                        .write = write_recurrent};

/* ---- state_space ----------------------------------------------------------------------------- */

static enum status parse_state_space(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct state_space_layer *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->states = keys_int(k, "states", 16, 1, 64);
    own->kernel = keys_int(k, "kernel", 4, 1, 64);
    own->expand = keys_int(k, "expand", 2, 1, 64);
    return OK;
}

static value_id write_state_space(struct writer *w, const struct layer *l, value_id x)
{
    return need_sequence(w, x) ? module_state_space(w, "", x, l->own) : VALUE_NONE;
}

const struct layer_def layer_def_state_space = {.name = "state_space",
                                                .main = "states",
                                                .starts_block = true,
                                                .parse = parse_state_space,
                                                .write = write_state_space};

/* ---- attention, encoder, cross_attention ----------------------------------------------------- */

/* A name in the pool, NULL where the key is not there. */
static enum status parse_name(const struct layer_reader *r, struct keys *k, const char *key,
                              const char **out)
{
    const char *name = keys_text(k, key, NULL);
    *out = name ? pool_strdup(r->pool, name) : NULL;
    return *out || !name ? OK : pool_status(r->pool);
}

static enum status parse_encoder(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct encoder_layer *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->heads = keys_int(k, "heads", KEYS_REQUIRED_INT, 1, 1 << 16);
    own->dropout = keys_float(k, "dropout", 0, 0, 0.999);
    TRY(parse_name(r, k, "mask", &own->mask));
    if (strcmp(l->def->name, "attention") == 0)
        return OK;
    own->hidden = keys_int(k, "hidden", KEYS_REQUIRED_INT, 1, 1 << 24);
    own->norms_first = keys_bool(k, "norm_first", false);
    return OK;
}

static value_id write_attention(struct writer *w, const struct layer *l, value_id x)
{
    const struct encoder_layer *own = l->own;
    if (!need_sequence(w, x) || !need_heads(w, x, own->heads))
        return VALUE_NONE;
    if (!own->mask)
        return module_attention(w, "", x, own->heads, own->dropout);
    value_id mask = writer_mask(w, own->mask, build_shape(w->b, x)->dim[1]);
    return module_cross_attention(w, x, x, mask, &(struct cross_layer){own->heads, own->dropout});
}

static value_id write_encoder(struct writer *w, const struct layer *l, value_id x)
{
    const struct encoder_layer *own = l->own;
    if (!need_sequence(w, x) || !need_heads(w, x, own->heads))
        return VALUE_NONE;
    return module_encoder(w, "", x, own);
}

const struct layer_def layer_def_attention = {.name = "attention",
                                              .main = "heads",
                                              .starts_block = true,
                                              .parse = parse_encoder,
                                              .write = write_attention};
const struct layer_def layer_def_encoder = {
    .name = "encoder", .starts_block = true, .parse = parse_encoder, .write = write_encoder};

struct cross {
    struct cross_layer layer;
    const char *from, *mask; /* mask NULL: nothing is padding */
};

static enum status parse_cross(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct cross *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->layer.heads = keys_int(k, "heads", KEYS_REQUIRED_INT, 1, 1 << 16);
    own->layer.dropout = keys_float(k, "dropout", 0, 0, 0.999);
    TRY(parse_name(r, k, "from", &own->from));
    if (!own->from)
        KEYS_FAIL(k, "from", ERR_CONFIG,
                  "key '%sfrom' is missing: the input, or the name of an earlier layer, that keys "
                  "and values come from",
                  k->path);
    return parse_name(r, k, "mask", &own->mask);
}

/* What keys and values are made from. */
static value_id cross_source(struct writer *w, const struct cross *own)
{
    value_id from = writer_find_named(w, own->from);
    if (from == VALUE_NONE)
        w->b->status =
            FAIL(ERR_CONFIG,
                 "'%s' is none of the network's inputs, and no layer before this one has "
                 "that name",
                 own->from);
    return from;
}

static value_id write_cross(struct writer *w, const struct layer *l, value_id x)
{
    const struct cross *own = l->own;
    char is[SHAPE_TEXT];
    value_id mask = VALUE_NONE, from = cross_source(w, own);
    if (w->b->status != OK || !need_sequence(w, x) || !need_heads(w, x, own->layer.heads))
        return VALUE_NONE;
    const struct shape *shape = build_shape(w->b, from);
    if (shape->rank != 3 || shape->dim[0] != build_shape(w->b, x)->dim[0]) {
        w->b->status = FAIL(ERR_CONFIG,
                            "'%s' is %s; keys and values come from a sequence, [batch, steps, "
                            "channels], of the same samples",
                            own->from, shape_text(is, shape));
        return VALUE_NONE;
    }
    if (own->mask)
        mask = writer_mask(w, own->mask, shape->dim[1]);
    return module_cross_attention(w, x, from, mask, &own->layer);
}

const struct layer_def layer_def_cross_attention = {
    .name = "cross_attention", .starts_block = true, .parse = parse_cross, .write = write_cross};

/* ---- graph_attention ------------------------------------------------------------------------- */

static enum status parse_graph(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct graph_layer *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->width = keys_int(k, "out", KEYS_REQUIRED_INT, 1, 1 << 24);
    own->heads = keys_int(k, "heads", 1, 1, 1 << 16);
    own->dropout = keys_float(k, "dropout", 0, 0, 0.999);
    return OK;
}

/* The places of an image are the nodes. */
static value_id write_graph(struct writer *w, const struct layer *l, value_id x)
{
    const struct graph_layer *own = l->own;
    if (!need_axes(w, x, 4, "an image, [batch, height, width, channels]"))
        return VALUE_NONE;
    struct shape s = *build_shape(w->b, x),
                 nodes = shape_of(3, s.dim[0], s.dim[1] * s.dim[2], s.dim[3]);
    struct graph_edges edges = writer_grid(w, s.dim[1], s.dim[2]);
    x = module_graph_attention(w, "", build_reshape(w->b, x, nodes), edges, own);
    s.dim[3] = own->heads * own->width;
    return build_reshape(w->b, x, s);
}

const struct layer_def layer_def_graph_attention = {.name = "graph_attention",
                                                    .main = "out",
                                                    .starts_block = true,
                                                    .parse = parse_graph,
                                                    .write = write_graph};
