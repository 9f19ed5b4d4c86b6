/* adapted_experts.c: the graph of adapters beside experts.
 *
 *     h = x A[e]^T                        for the rows of each expert e
 *     y = y + h B[e]^T
 *
 * as in adapted_linear.c, with grouped products: A [E, rank, in] has the adapters of a projection's
 * parts one below the other, B [E, out, rank] has them along the diagonal, times their scales. An
 * adapter's file has a tensor for each expert, as PEFT writes them where experts are linear layers.
 * All experts of a projection have one or none has: they are computed as one.
 */
#include "model/adapted_experts.h"

#include <math.h>

#include "model/adapted_linear.h"

enum { MOST_PARTS = 2 };

struct adapters {
    const struct model_adapter *items; /* in the model's table */
    int n;
    int64_t first_column[MOST_PARTS], n_columns; /* of h */
};

/* ---- names ----------------------------------------------------------------------------------- */

static const char *module_of(struct parts *p, const struct expert_adapters *s, int64_t e,
                             const char *part)
{
    const char *name = pool_printf(&p->b->g->pool, "%s.%lld.%s", s->experts, (long long)e, part);
    return parts_hf_name(p, name ? name : "");
}

/* What is said of the first expert holds for all. */
static enum status check_alike(struct parts *p, const struct expert_adapters *s, const char *part)
{
    const struct adapter *a = p->m->adapter;
    const char *first = module_of(p, s, 0, part);
    for (int64_t e = 1; e < s->n_experts; e++) {
        const char *module = module_of(p, s, e, part);
        TRY(pool_status(&p->b->g->pool));
        if (!adapter_names(a, module))
            return FAIL(ERR_CONFIG,
                        "lora_target_modules: '%s' is named and '%s' is not: experts are computed "
                        "as one, name all of them ('%s') or none",
                        first, module, part);
        if (adapter_rank_of(a, module) != adapter_rank_of(a, first) ||
            adapter_scale_of(a, module) != adapter_scale_of(a, first))
            return FAIL(ERR_CONFIG,
                        "rank_pattern, alpha_pattern: '%s' and '%s' differ: experts are computed "
                        "as one, give all of them ('%s') the same",
                        first, module, part);
    }
    return OK;
}

static enum status check_adapter(struct parts *p, const struct expert_adapters *s, const char *part)
{
    if (p->m->adapter->magnitude)
        return FAIL(ERR_UNSUPPORTED,
                    "use_dora: adapters of experts ('%s') have no lengths of rows: leave experts "
                    "out of lora_target_modules, or set use_dora: false",
                    module_of(p, s, 0, part));
    return check_alike(p, s, part);
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* [E, rows, columns], which files have as a tensor for each expert; its place in the table. */
static int add_param(struct parts *p, const struct expert_adapters *s, const char *part,
                     const char *suffix, struct model_param param)
{
    struct pool *pool = &p->b->g->pool;
    struct hf_piece *pieces = pool_alloc(pool, sizeof(*pieces) * (size_t)s->n_experts);
    const char *own = pool_printf(pool, "%s.%s.%s", s->name, part, suffix);
    for (int64_t e = 0; pieces && e < s->n_experts; e++)
        pieces[e] = (struct hf_piece){
            pool_printf(pool, PEFT_PREFIX "%s.%s.weight", module_of(p, s, e, part), suffix),
            param.shape.dim[1]};
    if (p->b->status == OK)
        p->b->status = pool_status(pool);
    if (p->b->status != OK)
        return -1;
    param.name = parts_name(p, own);
    param.pieces = pieces;
    param.n_pieces = (int)s->n_experts;
    param.n_experts = s->n_experts;
    param.n_met = s->n_met;
    param.adapter = true;
    (void)parts_add_param(p, param);
    return p->out->n_params - 1;
}

/* Begins as adapters of linear layers do: each expert's A as PyTorch draws it, B of zeros. */
static void add_adapter(struct parts *p, const struct expert_adapters *s, const char *part,
                        struct model_adapter *a)
{
    int64_t rank = adapter_rank_of(p->m->adapter, a->module);
    a->scale = adapter_scale_of(p->m->adapter, a->module);
    a->down = add_param(p, s, part, "lora_A",
                        (struct model_param){.shape = shape_of(3, s->n_experts, rank, s->n_in),
                                             .init = INIT_UNIFORM,
                                             .bound = 1.0 / sqrt((double)s->n_in)});
    a->up = add_param(
        p, s, part, "lora_B",
        (struct model_param){.shape = shape_of(3, s->n_experts, a->rows, rank), .init = INIT_ZERO});
    a->magnitude = -1;
}

static struct adapters add_adapters(struct parts *p, const struct expert_adapters *s)
{
    struct adapters all = {0};
    struct model_adapter *items = adapters_make_room(p, MOST_PARTS);
    int n_parts = 0;
    while (s->parts_of[n_parts])
        n_parts++;
    BUG_ON(n_parts > MOST_PARTS);
    for (int i = 0; i < n_parts && p->b->status == OK; i++) {
        int64_t rows = s->n_out / n_parts;
        const char *module = module_of(p, s, 0, s->parts_of[i]);
        if (!adapter_names(p->m->adapter, module))
            continue;
        p->b->status = check_adapter(p, s, s->parts_of[i]);
        items[all.n] = (struct model_adapter){.module = module,
                                              .n_experts = s->n_experts,
                                              .base = s->base,
                                              .first = i * rows,
                                              .rows = rows};
        add_adapter(p, s, s->parts_of[i], &items[all.n]);
        all.first_column[all.n++] = all.n_columns;
        all.n_columns += adapter_rank_of(p->m->adapter, module);
    }
    all.items = items;
    p->out->n_adapters += all.n;
    return all;
}

/* ---- the graph ------------------------------------------------------------------------------- */

static value_id grouped(struct parts *p, value_id x, value_id w, value_id offsets)
{
    return build(p->b, OP_grouped_linear, IN(x, w, offsets), NO_ATTRS);
}

/* [rows, n_columns]; with dropout every adapter sees rows of its own, as in PEFT. */
static value_id build_down(struct parts *p, const struct expert_rows *r, const struct adapters *all)
{
    value_id part[MOST_PARTS];
    double dropout = p->r->purpose == MODEL_TRAIN ? p->m->adapter->dropout : 0;
    for (int i = 0; i < all->n; i++) {
        part[i] = p->out->params[all->items[i].down].value;
        if (dropout > 0)
            part[i] = grouped(p, parts_dropout(p, r->x, dropout), part[i], r->offsets);
    }
    value_id joined = adapters_concat(p, part, all->n, 1);
    return dropout > 0 ? joined : grouped(p, r->x, joined, r->offsets);
}

/* [E, n_out, n_columns]: zeros where a part does not read another's h, or has no adapter. */
static value_id build_up(struct parts *p, const struct adapters *all, int64_t n_out)
{
    value_id part[MOST_PARTS];
    int64_t at = 0;
    for (int i = 0; i < all->n; i++) {
        const struct model_adapter *a = &all->items[i];
        int64_t end = i + 1 < all->n ? a->first + a->rows : n_out;
        part[i] = adapters_scaled(p, p->out->params[a->up].value, a->scale);
        part[i] = adapters_pad(p, part[i], 2, all->first_column[i], all->n_columns);
        part[i] = adapters_pad(p, part[i], 1, a->first - at, end - at);
        at = end;
    }
    return adapters_concat(p, part, all->n, 1);
}

value_id adapted_experts(struct parts *p, const struct expert_rows *r,
                         const struct expert_adapters *s)
{
    struct adapters all = add_adapters(p, s);
    if (p->b->status != OK || all.n == 0 || p->r->no_adapter)
        return r->y;
    value_id more = grouped(p, build_down(p, r, &all), build_up(p, &all, s->n_out), r->offsets);
    return build(p->b, OP_add, IN(r->y, more), NO_ATTRS);
}
