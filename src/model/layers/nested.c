/* nested.c: layers made of lists of layers: sequential, residual, branch. */
#include <string.h>

#include "model/layers/layers.h"

enum { MOST_BRANCHES = 16 };

struct nested {
    struct layer_list lists[MOST_BRANCHES];
    int n_lists;
    bool adds; /* how branches join: added, else behind each other along the channels */
};

static enum status parse_list(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct nested *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->n_lists = 1;
    const json_t *list = keys_array(k, "layers");
    const char *path = pool_printf(r->pool, "%s.%s", l->path, l->def->name);
    return path ? layers_parse(r, k->outer, list, path, &own->lists[0]) : pool_status(r->pool);
}

/* ---- sequential ------------------------------------------------------------------------------ */

static value_id write_sequential(struct writer *w, const struct layer *l, value_id x)
{
    return layers_write(w, &((const struct nested *)l->own)->lists[0], x);
}

const struct layer_def layer_def_sequential = {.name = "sequential",
                                               .main = "layers",
                                               .starts_block = true,
                                               .needs_nothing = true,
                                               .parse = parse_list,
                                               .write = write_sequential};

/* ---- residual -------------------------------------------------------------------------------- */

static enum status check_same(struct writer *w, value_id x, value_id y, const char *what)
{
    char is[SHAPE_TEXT], due[SHAPE_TEXT];
    if (shape_equal(build_shape(w->b, x), build_shape(w->b, y)))
        return OK;
    return FAIL(ERR_CONFIG, "%s: shapes %s and %s cannot be added", what,
                shape_text(is, build_shape(w->b, y)), shape_text(due, build_shape(w->b, x)));
}

/* Adds y to x where both have one shape. */
static value_id join_sum(struct writer *w, value_id x, value_id y, const char *what)
{
    if (w->b->status == OK)
        w->b->status = check_same(w, x, y, what);
    return build(w->b, OP_add, IN(x, y), NO_ATTRS);
}

static value_id write_residual(struct writer *w, const struct layer *l, value_id x)
{
    value_id y = layers_write(w, &((const struct nested *)l->own)->lists[0], x);
    return join_sum(w, x, y, "residual");
}

const struct layer_def layer_def_residual = {.name = "residual",
                                             .main = "layers",
                                             .starts_block = true,
                                             .parse = parse_list,
                                             .write = write_residual};

/* ---- branch ---------------------------------------------------------------------------------- */

static enum status parse_lists(const struct layer_reader *r, struct keys *k, const json_t *lists,
                               const char *path, struct nested *own)
{
    size_t n = json_array_size(lists);
    if (n < 2 || n > MOST_BRANCHES) {
        KEYS_FAIL(k, "branches", ERR_CONFIG, "%s: expected from 2 to %d lists of layers", path,
                  (int)MOST_BRANCHES);
        return OK;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *list = json_array_get(lists, i);
        const char *one = pool_printf(r->pool, "%s.%zu", path, i);
        if (!one)
            return pool_status(r->pool);
        own->n_lists++;
        if (json_array_size(list) > 0 || !json_is_array(list)) /* an empty one passes x on */
            TRY(layers_parse(r, k->outer, list, one, &own->lists[i]));
    }
    return OK;
}

static enum status parse_branch(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct nested *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    const char *join = keys_text(k, "join", "concat");
    own->adds = strcmp(join, "add") == 0;
    if (!own->adds && strcmp(join, "concat") != 0)
        KEYS_FAIL(k, "join", ERR_CONFIG, "key '%sjoin' is '%s'; branches join by concat or add",
                  k->path, join);
    const char *path = pool_printf(r->pool, "%s.%s", l->path, l->def->name);
    return path ? parse_lists(r, k, keys_array(k, "branches"), path, own) : pool_status(r->pool);
}

static value_id write_one(struct writer *w, const struct nested *own, int i, value_id x)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "%d", i);
    const char *before = writer_enter(w, name);
    value_id y = layers_write(w, &own->lists[i], x);
    w->prefix = before;
    w->flat_channels = 0; /* rows that are joined have no one order */
    return y;
}

static value_id write_branch(struct writer *w, const struct layer *l, value_id x)
{
    const struct nested *own = l->own;
    value_id ends[MOST_BRANCHES], sum = VALUE_NONE;
    for (int i = 0; i < own->n_lists; i++) {
        ends[i] = write_one(w, own, i, x);
        sum = i == 0 ? ends[i] : own->adds ? join_sum(w, sum, ends[i], "branch") : sum;
    }
    int64_t axis = build_shape(w->b, ends[0])->rank - 1;
    if (own->adds || w->b->status != OK)
        return sum;
    return build(w->b, OP_concat, ends, own->n_lists, ATTRS({.name = "axis", .i = axis}));
}

const struct layer_def layer_def_branch = {.name = "branch",
                                           .main = "branches",
                                           .starts_block = true,
                                           .needs_nothing = true,
                                           .parse = parse_branch,
                                           .write = write_branch};
