/* place.c: lifetimes to addresses, tier by tier. Storage comes first, in the order it was asked
 * for; what lives inside a step is packed above it. */
#include "plan/layout.h"
#include "program/emit.h"

/* What is laid out in a tier: buffers with memory of their own that live inside a step. */
struct tier_items {
    struct layout_item *items;
    int32_t *index; /* buffer of each */
    size_t n;
};

static bool is_laid_out(const struct buffer *b)
{
    return b->storage < 0 && b->merged_into < 0;
}

static void items_release(struct tier_items x[TIER_COUNT])
{
    for (int t = 0; t < TIER_COUNT; t++) {
        mem_free(x[t].items);
        mem_free(x[t].index);
    }
}

static enum status items_reserve(struct tier_items x[TIER_COUNT], const struct program *p)
{
    size_t n[TIER_COUNT] = {0};
    for (size_t i = 0; i < p->buffers.n; i++)
        n[p->buffers.items[i].tier] += is_laid_out(&p->buffers.items[i]);
    for (int t = 0; t < TIER_COUNT; t++) {
        TRY(mem_try_array(&x[t].items, MAX(n[t], (size_t)1), sizeof(*x[t].items)));
        TRY(mem_try_array(&x[t].index, MAX(n[t], (size_t)1), sizeof(*x[t].index)));
    }
    return OK;
}

/* x: all zero; to be released in any case. */
static enum status items_find(struct tier_items x[TIER_COUNT], const struct program *p)
{
    TRY(items_reserve(x, p));
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        struct tier_items *of = &x[b->tier];
        if (!is_laid_out(b))
            continue;
        of->items[of->n] =
            (struct layout_item){.n_bytes = b->n_bytes, .first = b->first, .last = b->last};
        of->index[of->n++] = (int32_t)i;
    }
    return OK;
}

/* room: bytes of the tier that there are for it; 0: as few as it takes. */
static enum status place_tier(struct program *p, const struct tier_items *x,
                              const struct storage *storage, enum tier tier, int64_t room)
{
    const int64_t enough = MAX(room - storage->n_bytes[tier], (int64_t)0);
    struct layout_result r;
    TRY(layout_solve(x->items, x->n, tier_align(tier), enough, &r));
    for (size_t k = 0; k < x->n; k++)
        p->buffers.items[x->index[k]].offset = storage->n_bytes[tier] + x->items[k].offset;
    p->n_storage[tier] = storage->n_bytes[tier];
    p->n_bytes[tier] = storage->n_bytes[tier] + r.height;
    p->lower_bound[tier] = storage->n_bytes[tier] + r.lower_bound;
    p->layout_method[tier] = r.method;
    p->layout_work += r.work;
    return OK;
}

enum status program_bound(struct program *p, const struct storage *storage)
{
    struct tier_items x[TIER_COUNT] = {0};
    enum status status = items_find(x, p);
    for (int t = 0; t < TIER_COUNT && status == OK; t++) {
        int64_t live;
        status = layout_lower_bound(x[t].items, x[t].n, tier_align((enum tier)t), &live, NULL);
        if (status == OK)
            p->n_bytes[t] = p->lower_bound[t] = storage->n_bytes[t] + live;
    }
    items_release(x);
    return status;
}

static enum status place_tiers(struct program *p, const struct storage *storage,
                               const int64_t room[TIER_COUNT])
{
    struct tier_items x[TIER_COUNT] = {0};
    enum status status = items_find(x, p);
    p->layout_work = 0;
    for (int t = 0; t < TIER_COUNT && status == OK; t++)
        status = place_tier(p, &x[t], storage, (enum tier)t, room ? room[t] : 0);
    items_release(x);
    return status;
}

enum status program_place(struct program *p, const struct storage *storage,
                          const int64_t room[TIER_COUNT])
{
    TRY(place_tiers(p, storage, room));
    for (size_t i = 0; i < p->buffers.n; i++) {
        struct buffer *b = &p->buffers.items[i];
        if (b->storage >= 0)
            b->offset = storage->entries.items[b->storage].offset;
        else if (b->merged_into >= 0)
            b->offset = p->buffers.items[buffer_root(p, (int32_t)i)].offset;
    }
    for (size_t i = 0; i < p->operands.n; i++) {
        struct operand *o = &p->operands.items[i];
        if (o->buffer >= 0)
            o->offset = operand_offset(&p->buffers.items[o->buffer], o);
    }
    for (size_t i = 0; i < p->inputs.n; i++)
        p->inputs.items[i].offset = p->buffers.items[p->inputs.items[i].buffer].offset;
    for (size_t i = 0; i < p->outputs.n; i++)
        p->outputs.items[i].offset = p->buffers.items[p->outputs.items[i].buffer].offset;
    return OK;
}
