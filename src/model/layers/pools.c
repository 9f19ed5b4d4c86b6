/* pools.c: layers that make fewer places, or more, of the axes between batch and channels. */
#include <string.h>

#include "model/layers/layers.h"
#include "model/layers/windows.h"

/* ---- windows --------------------------------------------------------------------------------- */

struct pool_layer {
    struct layer_window window;
    bool count_padding;
};

static enum status parse_pool(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct pool_layer *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    own->window.steps_by_kernel = true;
    window_parse(k, &own->window);
    return OK;
}

static enum status parse_avg_pool(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    TRY(parse_pool(r, k, l));
    ((struct pool_layer *)l->own)->count_padding = keys_bool(k, "count_padding", true);
    return OK;
}

static value_id write_pool(struct writer *w, const struct layer *l, value_id x, enum op_id op)
{
    const struct pool_layer *own = l->own;
    struct window_sizes s;
    if (!window_sizes(w, x, &own->window, &s))
        return VALUE_NONE;
    const struct attr_set attrs[] = {window_attr("kernel", s.kernel, s.rank),
                                     window_attr("stride", s.stride, s.rank),
                                     window_attr("pad_before", s.pad_before, s.rank),
                                     window_attr("pad_after", s.pad_after, s.rank),
                                     {.name = "count_padding", .i = own->count_padding}};
    return build(w->b, op, IN(x), attrs, op == OP_avg_pool ? 5 : 4);
}

static value_id write_max_pool(struct writer *w, const struct layer *l, value_id x)
{
    return write_pool(w, l, x, OP_max_pool);
}

static value_id write_avg_pool(struct writer *w, const struct layer *l, value_id x)
{
    return write_pool(w, l, x, OP_avg_pool);
}

const struct layer_def layer_def_max_pool = {
    .name = "max_pool", .main = "kernel", .parse = parse_pool, .write = write_max_pool};
const struct layer_def layer_def_avg_pool = {
    .name = "avg_pool", .main = "kernel", .parse = parse_avg_pool, .write = write_avg_pool};

/* ---- sizes ----------------------------------------------------------------------------------- */

struct resize {
    struct layer_window sizes; /* in kernel: what comes out, or how many times as much */
    bool linear, is_factor;
};

static enum status parse_adaptive(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct resize *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    layer_sizes(k, "out", 1, own->sizes.kernel, &own->sizes.n_kernel);
    if (keys_good(k) && own->sizes.n_kernel == 0)
        KEYS_FAIL(k, "out", ERR_CONFIG, "key '%sout' is missing", k->path);
    return OK;
}

static value_id write_adaptive(struct writer *w, const struct layer *l, value_id x)
{
    const struct resize *own = l->own;
    struct window_sizes s;
    if (!window_sizes(w, x, &own->sizes, &s))
        return VALUE_NONE;
    struct attr_set out = window_attr("out", s.kernel, s.rank);
    return build(w->b, OP_adaptive_avg_pool, IN(x), &out, 1);
}

const struct layer_def layer_def_adaptive_avg_pool = {
    .name = "adaptive_avg_pool", .main = "out", .parse = parse_adaptive, .write = write_adaptive};

static enum status parse_resize(const struct layer_reader *r, struct keys *k, struct layer *l)
{
    struct resize *own;
    TRY(layer_own(r, l, &own, sizeof(*own)));
    int64_t factors[MAX_RANK];
    int n_factors;
    const char *mode = keys_text(k, "mode", "nearest");
    layer_sizes(k, "out", 1, own->sizes.kernel, &own->sizes.n_kernel);
    layer_sizes(k, "factor", 1, factors, &n_factors);
    own->linear = strcmp(mode, "linear") == 0;
    if (!own->linear && strcmp(mode, "nearest") != 0)
        KEYS_FAIL(k, "mode", ERR_CONFIG, "key '%smode' is '%s'; there are nearest and linear",
                  k->path, mode);
    if (keys_good(k) && !n_factors == !own->sizes.n_kernel)
        KEYS_FAIL(k, "factor", ERR_CONFIG, "%s: give factor, or out: the sizes that come out",
                  l->path);
    if (n_factors) {
        own->is_factor = true;
        own->sizes.n_kernel = n_factors;
        memcpy(own->sizes.kernel, factors, sizeof(factors));
    }
    return OK;
}

static value_id write_resize(struct writer *w, const struct layer *l, value_id x)
{
    const struct resize *own = l->own;
    struct window_sizes s;
    if (!window_sizes(w, x, &own->sizes, &s))
        return VALUE_NONE;
    for (int i = 0; i < s.rank && own->is_factor; i++)
        s.kernel[i] *= build_shape(w->b, x)->dim[i + 1];
    const struct attr_set attrs[] = {{.name = "linear", .i = own->linear},
                                     window_attr("out", s.kernel, s.rank)};
    return build(w->b, OP_resize, IN(x), attrs, ARRAY_LEN(attrs));
}

const struct layer_def layer_def_resize = {
    .name = "resize", .main = "factor", .parse = parse_resize, .write = write_resize};
