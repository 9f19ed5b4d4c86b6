/* place.c: lifetimes to addresses, tier by tier. Storage comes first, in the order it was asked
 * for; what lives inside a step is packed above it. */
#include "plan/layout.h"
#include "program/emit.h"

static enum status place_tier(struct program *p, const struct storage *storage, enum tier tier)
{
    struct layout_item *items;
    int32_t *index;
    size_t n = 0;
    TRY(mem_try_array(&items, MAX(p->buffers.n, (size_t)1), sizeof(*items)));
    enum status status = mem_try_array(&index, MAX(p->buffers.n, (size_t)1), sizeof(*index));
    if (status != OK) {
        mem_free(items);
        return status;
    }
    for (size_t i = 0; i < p->buffers.n; i++) {
        const struct buffer *b = &p->buffers.items[i];
        if (b->tier != tier || b->storage >= 0 || b->merged_into >= 0)
            continue;
        items[n] = (struct layout_item){.n_bytes = b->n_bytes, .first = b->first, .last = b->last};
        index[n++] = (int32_t)i;
    }
    struct layout_result r;
    TRY_GOTO(layout_solve(items, n, ARENA_ALIGN, &r), out);
    for (size_t k = 0; k < n; k++)
        p->buffers.items[index[k]].offset = storage->n_bytes[tier] + items[k].offset;
    p->n_storage[tier] = storage->n_bytes[tier];
    p->n_bytes[tier] = storage->n_bytes[tier] + r.height;
    p->lower_bound[tier] = storage->n_bytes[tier] + r.lower_bound;
    p->layout_method[tier] = r.method;
out:
    mem_free(items);
    mem_free(index);
    return status;
}

enum status program_place(struct program *p, const struct storage *storage)
{
    for (int t = 0; t < TIER_COUNT; t++)
        TRY(place_tier(p, storage, (enum tier)t));
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
            o->offset = p->buffers.items[o->buffer].offset;
    }
    for (size_t i = 0; i < p->inputs.n; i++)
        p->inputs.items[i].offset = p->buffers.items[p->inputs.items[i].buffer].offset;
    for (size_t i = 0; i < p->outputs.n; i++)
        p->outputs.items[i].offset = p->buffers.items[p->outputs.items[i].buffer].offset;
    return OK;
}
