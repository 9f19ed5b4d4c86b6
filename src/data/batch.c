#include "data/batch.h"

#include <string.h>

#include "base/compiler.h"

void batch_add(struct batch *b, const char *name, enum dtype dtype, struct shape shape)
{
    BUG_ON(b->n_items == BATCH_MOST_ITEMS);
    b->items[b->n_items++] =
        (struct batch_item){.name = name, .tensor = {.dtype = dtype, .shape = shape}};
}

int64_t batch_rows(const struct batch *b)
{
    const struct shape *s = &b->items[0].tensor.shape;
    return b->n_items > 0 && s->rank > 0 ? s->dim[0] : 0;
}

/* 0: no such tensor can be. */
static size_t item_bytes(const struct tensor *t)
{
    size_t n = (size_t)dtype_size(t->dtype);
    for (int i = 0; i < t->shape.rank; i++) {
        if (t->shape.dim[i] < 1 || __builtin_mul_overflow(n, (size_t)t->shape.dim[i], &n))
            return 0;
    }
    return n > SIZE_MAX / 2 ? 0 : (n + BATCH_ALIGN - 1) / BATCH_ALIGN * BATCH_ALIGN;
}

size_t batch_bytes(const struct batch *b)
{
    size_t sum = 0;
    for (int i = 0; i < b->n_items; i++) {
        const struct tensor *t = &b->items[i].tensor;
        size_t n = item_bytes(t);
        if (n == 0 || t->shape.rank < 1 || t->shape.dim[0] != batch_rows(b) ||
            __builtin_add_overflow(sum, n, &sum))
            return 0;
    }
    return sum;
}

void batch_place(struct batch *b, void *memory)
{
    uint8_t *at = memory;
    BUG_ON((uintptr_t)memory % BATCH_ALIGN != 0);
    for (int i = 0; i < b->n_items; i++) {
        b->items[i].tensor.data = at;
        at += item_bytes(&b->items[i].tensor);
    }
}

const struct batch_item *batch_item(const struct batch *b, const char *name)
{
    for (int i = 0; i < b->n_items; i++) {
        if (strcmp(b->items[i].name, name) == 0)
            return &b->items[i];
    }
    return NULL;
}

void *batch_row(const struct batch *b, int i, int64_t row)
{
    const struct tensor *t = &b->items[i].tensor;
    int64_t n_bytes = shape_inner(&t->shape, 1) * dtype_size(t->dtype);
    return (uint8_t *)t->data + row * n_bytes;
}
