/* frames.c: a list of layers for every step of a sequence, with one set of weights.
 *
 *     - frames: [{conv: {out: 8, kernel: 3}}, batch_norm, relu, global_mean]    [B, T, ..] -> [B,
 * T, ..]
 *
 * Batch norm takes the statistics of each step for itself, and the running ones move at each. Where
 * the list stands at the top of a network every step is a block of its own: what is kept or made
 * again.
 */
#include "model/layers/layers.h"
#include "model/layers/modules.h"

struct frames {
    struct layer_list layers;
};

static enum status parse_frames(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct frames *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    const json_t *list = keys_array(k, "layers");
    const char *path = pool_printf(r->pool, "%s.%s", l->path, l->def->name);
    return path ? layers_parse(r, k->outer, list, path, &own->layers) : pool_status(r->pool);
}

static value_id write_step(struct writer *w, const struct frames *own, value_id x, int64_t t)
{
    bool repeats = w->repeats;
    if (w->depth == 1)
        writer_start_block(w);
    w->repeats = repeats || t > 0;
    value_id y = layers_write(w, &own->layers, writer_step(w, x, t));
    w->repeats = repeats;
    w->flat_channels = 0; /* rows of steps have no one order */
    return writer_as_step(w, y);
}

static value_id write_frames(struct writer *w, const struct layer *l, value_id x)
{
    value_id *ends;
    if (build_shape(w->b, x)->rank < 3) {
        w->b->status = FAIL(ERR_CONFIG, "it needs a sequence, [batch, steps, ..]");
        return VALUE_NONE;
    }
    int64_t n_steps = build_shape(w->b, x)->dim[1];
    w->b->status = pool_try(&w->b->g->pool, &ends, (size_t)n_steps * sizeof(*ends));
    for (int64_t t = 0; t < n_steps && w->b->status == OK; t++)
        ends[t] = write_step(w, l->own, x, t);
    return w->b->status == OK ? writer_concat(w, ends, (int)n_steps, 1) : VALUE_NONE;
}

const struct layer_def layer_def_frames = {
    .name = "frames", .main = "layers", .parse = parse_frames, .write = write_frames};
