/* layers.h: a network written as a list of layers.
 *
 *     layers:
 *       - linear: 256                              the one value that a layer needs
 *       - relu                                     a layer that needs none
 *       - conv: {out: 64, kernel: 3, padding: 1}
 *       - residual: [...]                          a list inside the list
 *
 * An entry becomes a struct layer. Writing it adds nodes to a graph: their inference is what knows
 * shapes, and what it refuses is told with the entry that asked for it. A kind of layer is a row in
 * layers.def and a struct layer_def.
 */
#ifndef SNUG_MODEL_LAYERS_LAYERS_H
#define SNUG_MODEL_LAYERS_LAYERS_H

#include "model/config_keys.h"
#include "model/layers/writer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct layer {
    const struct layer_def *def;
    const char *name; /* in the names of its parameters: as given, or its place in the list */
    bool is_named;    /* as given: others may read what it makes by its name */
    const char *path; /* "layers.3": where it is in the config */
    void *own;        /* what its kind keeps */
};

struct layer_list {
    struct layer *items;
    int n;
};

/* Where layers are read into. */
struct layer_reader {
    struct pool *pool;
    struct weight_init init; /* of layers that say nothing of it */
};

struct layer_def {
    const char *name;
    const char *main; /* the key that `{linear: 10}` gives a value; NULL: such a value is wrong */
    bool
        starts_block; /* what is kept or made again: a block goes from one such layer to the next */
    bool needs_nothing; /* it may be the first layer of a network of several inputs */
    /* Mistakes go into the keys; the status is for what is not the user's. NULL: no keys. */
    enum status (*parse)(const struct layer_reader *r, struct keys *k, struct layer *l);
    value_id (*write)(struct writer *w, const struct layer *l, value_id x);
};

/* The list at `path` ("layers") of the config. */
enum status layers_parse(const struct layer_reader *r, struct keys *k, const json_t *list,
                         const char *path, struct layer_list *out) MUST_CHECK;

/* What x becomes. The entry at which writing failed is in w->failed. */
value_id layers_write(struct writer *w, const struct layer_list *list, value_id x);

/* ---- inside layers/ -------------------------------------------------------------------------- */

/* A new struct of a kind's own in l->own. */
enum status layer_own(const struct layer_reader *r, struct layer *l, void *out,
                      size_t n_bytes) MUST_CHECK;
/* One number for all axes, or a list with one for each; *n = 0: absent. */
void layer_sizes(struct keys *k, const char *name, int64_t low, int64_t out[], int *n);

#ifdef __cplusplus
}
#endif
#endif
