/* adapted_linear.c: the graph of a linear layer with adapters.
 *
 *     y = x W^T + bias                    one product, whatever W is stacked of
 *     h = x A^T                           A: the adapters' one below the other
 *     y = y + h B^T                       B: the adapters' along the diagonal, times their scales
 *
 * B has zeros where a layer does not read another's h, and rows of zeros for layers without an
 * adapter: ranks are small, so that this costs little, and y is added to once. With dropout every
 * adapter sees an x of its own, as in PEFT, and h is put together from products with each.
 *
 * DoRA (Liu et al., "DoRA: Weight-Decomposed Low-Rank Adaptation", 2024, eq. 5) gives the rows of
 * V = W + scale B A trained lengths m. Gradients do not go through |V| (their section 4.3):
 *
 *     y = y + (m - |V|) / |V| y           and then the bias
 */
#include "model/adapted_linear.h"

#include <math.h>
#include <string.h>

enum { MOST_PIECES = 4 };

/* The adapters of one linear layer. */
struct adapters {
    const struct model_adapter *items; /* in the model's table */
    int n;
    int64_t n_rows;                               /* of W */
    int64_t ranks[MOST_PIECES];                   /* of each */
    int64_t first_column[MOST_PIECES], n_columns; /* of h */
};

/* ---- parameters ------------------------------------------------------------------------------ */

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Adds "<module>.<suffix>", which files have with `ending`; its place in the table. */
static int add_param(struct parts *p, const struct linear_spec *s, const char *module,
                     const char *suffix, const char *ending, struct model_param param)
{
    struct pool *pool = &p->b->g->pool;
    struct hf_piece *piece = pool_alloc(pool, sizeof(*piece));
    const char *own = pool_printf(pool, "%s.%s.%s", s->name, last_part(module), suffix);
    const char *stored = pool_printf(pool, PEFT_PREFIX "%s.%s%s", module, suffix, ending);
    if (p->b->status == OK)
        p->b->status = pool_status(pool);
    if (p->b->status != OK)
        return -1;
    *piece = (struct hf_piece){stored, param.shape.dim[0]};
    param.name = parts_name(p, own);
    param.pieces = piece;
    param.n_pieces = 1;
    param.adapter = true;
    (void)parts_add_param(p, param);
    return p->out->n_params - 1;
}

/* A as PyTorch draws the weights of a linear layer, B of zeros: at first nothing is added. The
 * lengths of DoRA are those of the rows of W, which are there when weights are loaded. */
static void add_adapter(struct parts *p, const struct linear_spec *s, struct model_adapter *a)
{
    int64_t rank = adapter_rank_of(p->m->adapter, a->module);
    double bound = 1.0 / sqrt((double)s->n_in);
    a->scale = adapter_scale_of(p->m->adapter, a->module);
    a->down =
        add_param(p, s, a->module, "lora_A", ".weight",
                  (struct model_param){
                      .shape = shape_of(2, rank, s->n_in), .init = INIT_UNIFORM, .bound = bound});
    a->up = add_param(p, s, a->module, "lora_B", ".weight",
                      (struct model_param){.shape = shape_of(2, a->rows, rank), .init = INIT_ZERO});
    a->magnitude = -1;
    if (p->m->adapter->magnitude)
        a->magnitude =
            add_param(p, s, a->module, "lora_magnitude_vector", "",
                      (struct model_param){.shape = shape_of(1, a->rows), .init = INIT_ONE});
}

struct model_adapter *adapters_make_room(struct parts *p, int n)
{
    struct model_graph *out = p->out;
    struct model_adapter *larger;
    size_t n_before = (size_t)out->n_adapters;
    if (p->b->status == OK)
        p->b->status = pool_try(&p->b->g->pool, &larger, (n_before + (size_t)n) * sizeof(*larger));
    if (p->b->status != OK)
        return NULL;
    if (n_before > 0)
        memcpy(larger, out->adapters, n_before * sizeof(*larger));
    out->adapters = larger;
    return larger + n_before;
}

/* base: where W is in the table of parameters. */
static struct adapters add_adapters(struct parts *p, const struct linear_spec *s, int base)
{
    struct adapters all = {0};
    struct model_adapter *items = adapters_make_room(p, s->n_pieces);
    BUG_ON(s->n_pieces > MOST_PIECES);
    for (int i = 0; i < s->n_pieces && p->b->status == OK; i++) {
        const char *module = parts_hf_name(p, s->pieces[i].name);
        int64_t first = all.n_rows;
        all.n_rows += s->pieces[i].rows;
        if (!adapter_has(p->m->adapter, module))
            continue;
        items[all.n] = (struct model_adapter){
            .module = module, .base = base, .first = first, .rows = s->pieces[i].rows};
        add_adapter(p, s, &items[all.n]);
        all.ranks[all.n] = adapter_rank_of(p->m->adapter, module);
        all.first_column[all.n] = all.n_columns;
        all.n_columns += all.ranks[all.n++];
    }
    all.items = items;
    p->out->n_adapters += all.n;
    return all;
}

/* ---- the graph ------------------------------------------------------------------------------- */

static value_id value_of(const struct parts *p, int i_param)
{
    return p->b->status == OK ? p->out->params[i_param].value : VALUE_NONE;
}

value_id adapters_concat(struct parts *p, const value_id *parts, int n, int64_t axis)
{
    if (n == 1)
        return parts[0];
    return build(p->b, OP_concat, parts, n, ATTRS({.name = "axis", .i = axis}));
}

value_id adapters_pad(struct parts *p, value_id x, int64_t axis, int64_t start, int64_t size)
{
    if (p->b->status != OK || build_shape(p->b, x)->dim[axis] == size)
        return x;
    return build(p->b, OP_slice_grad, IN(x),
                 ATTRS({.name = "axis", .i = axis}, {.name = "start", .i = start},
                       {.name = "size", .i = size}));
}

/* Parts of the rows of W, one for each adapter, as all of its rows: zeros where there is none. */
static value_id join_rows(struct parts *p, const struct adapters *all, const value_id *part)
{
    value_id padded[MOST_PIECES];
    int64_t at = 0;
    for (int i = 0; i < all->n; i++) {
        const struct model_adapter *a = &all->items[i];
        int64_t end = i + 1 < all->n ? a->first + a->rows : all->n_rows;
        padded[i] = adapters_pad(p, part[i], 0, a->first - at, end - at);
        at = end;
    }
    return adapters_concat(p, padded, all->n, 0);
}

/* [.., n_columns] */
static value_id build_down(struct parts *p, value_id x, const struct adapters *all)
{
    value_id part[MOST_PIECES];
    double dropout = p->r->purpose == MODEL_TRAIN ? p->m->adapter->dropout : 0;
    for (int i = 0; i < all->n; i++) {
        part[i] = value_of(p, all->items[i].down);
        if (dropout > 0)
            part[i] = plain_linear(p, parts_dropout(p, x, dropout), part[i], VALUE_NONE);
    }
    if (p->b->status != OK)
        return VALUE_NONE;
    if (dropout > 0)
        return adapters_concat(p, part, all->n, build_shape(p->b, x)->rank - 1);
    return plain_linear(p, x, adapters_concat(p, part, all->n, 0), VALUE_NONE);
}

value_id adapters_scaled(struct parts *p, value_id x, double factor)
{
    return factor == 1.0 ? x : build(p->b, OP_scale, IN(x), ATTRS({.name = "factor", .f = factor}));
}

/* [n_rows, n_columns]; scales that are all the same are applied once. */
static value_id build_up(struct parts *p, const struct adapters *all)
{
    value_id part[MOST_PIECES];
    bool same = true;
    for (int i = 1; i < all->n; i++)
        same = same && all->items[i].scale == all->items[0].scale;
    for (int i = 0; i < all->n; i++) {
        const struct model_adapter *a = &all->items[i];
        part[i] = adapters_scaled(p, value_of(p, a->up), same ? 1.0 : a->scale);
        part[i] = adapters_pad(p, part[i], 1, all->first_column[i], all->n_columns);
    }
    return adapters_scaled(p, join_rows(p, all, part), same ? all->items[0].scale : 1.0);
}

/* (m - |V|) / |V| for every row of W. */
static value_id build_stretch(struct parts *p, value_id w, const struct adapters *all)
{
    struct builder *b = p->b;
    value_id part[MOST_PIECES];
    for (int i = 0; i < all->n; i++) {
        const struct model_adapter *a = &all->items[i];
        value_id length =
            build(b, OP_adapted_norm, IN(w, value_of(p, a->down), value_of(p, a->up)),
                  ATTRS({.name = "first", .i = a->first}, {.name = "scale", .f = a->scale}));
        value_id more = build(b, OP_sub, IN(value_of(p, a->magnitude), length), NO_ATTRS);
        part[i] = build(b, OP_div, IN(more, length), NO_ATTRS);
    }
    return join_rows(p, all, part);
}

value_id adapted_linear(struct parts *p, value_id x, const struct linear_spec *s, value_id w,
                        value_id bias)
{
    struct builder *b = p->b;
    bool stretches = p->m->adapter->magnitude;
    struct adapters all = add_adapters(p, s, p->out->n_params - (bias == VALUE_NONE ? 1 : 2));
    if (b->status != OK || all.n == 0 || p->r->no_adapter)
        return plain_linear(p, x, w, bias);
    value_id y = plain_linear(p, x, w, stretches ? VALUE_NONE : bias);
    value_id h = build_down(p, x, &all), up = build_up(p, &all);
    y = build(b, OP_add, IN(y, plain_linear(p, h, up, VALUE_NONE)), NO_ATTRS);
    if (!stretches)
        return y;
    value_id more = build(b, OP_mul, IN(y, build_stretch(p, w, &all)), NO_ATTRS);
    y = build(b, OP_add, IN(y, more), NO_ATTRS);
    return bias == VALUE_NONE ? y : build(b, OP_add, IN(y, bias), NO_ATTRS);
}
