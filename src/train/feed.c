#include "train/feed.h"

#include <string.h>

static enum status check_item(const struct program *p, const struct batch_item *item)
{
    const struct port *port = program_input(p, item->name);
    if (!port)
        return FAIL(ERR_INTERNAL, "program '%s' has no input for '%s' of its batches", p->name,
                    item->name);
    struct tensor taken = value_tensor(p->graph, port->value);
    char is[SHAPE_TEXT], was[SHAPE_TEXT];
    struct shape whole = taken.shape;
    if (whole.rank == item->tensor.shape.rank && whole.rank > 1) /* of each row the beginning */
        whole.dim[whole.rank - 1] =
            MAX(whole.dim[whole.rank - 1], item->tensor.shape.dim[whole.rank - 1]);
    if (taken.dtype == item->tensor.dtype && shape_equal(&whole, &item->tensor.shape))
        return OK;
    return FAIL(ERR_INTERNAL, "input '%s' of program '%s' is %s%s, its batches have %s%s",
                item->name, p->name, dtype_name(taken.dtype), shape_text(is, &taken.shape),
                dtype_name(item->tensor.dtype), shape_text(was, &item->tensor.shape));
}

/* Is it the input of that name, of any micro-batch of a group? */
static bool is_of(const char *input, const char *name, int group)
{
    char own[GROUP_NAME];
    for (int m = 0; m < group; m++) {
        if (strcmp(input, group_input_name(own, name, m)) == 0)
            return true;
    }
    return false;
}

static bool is_filled(const char *input, const struct batch *b, const char *const *others,
                      int group)
{
    for (int i = 0; i < b->n_items; i++) {
        if (is_of(input, b->items[i].name, group))
            return true;
    }
    for (; *others; others++) {
        if (is_of(input, *others, group))
            return true;
    }
    return false;
}

static enum status set_item(struct feed *f, struct executor *x, int handle, const struct program *p,
                            const struct batch_item *item, int i)
{
    char name[GROUP_NAME];
    TRY(check_item(p, item));
    struct tensor taken = value_tensor(p->graph, program_input(p, item->name)->value);
    const struct shape *s = &taken.shape;
    for (int m = 0; m < group_size(p->graph); m++)
        f->inputs[m][i] = executor_input(x, handle, group_input_name(name, item->name, m));
    f->row_bytes[i] = s->dim[s->rank - 1] * dtype_size(taken.dtype);
    return OK;
}

enum status feed_init_some(struct feed *f, struct executor *x, int handle, const struct program *p,
                           const struct batch *description)
{
    *f = (struct feed){.x = x, .n_items = description->n_items};
    for (int i = 0; i < description->n_items; i++) {
        const struct batch_item *item = &description->items[i];
        if (!program_input(p, item->name))
            continue;
        TRY(set_item(f, x, handle, p, item, i));
    }
    return OK;
}

enum status feed_init(struct feed *f, struct executor *x, int handle, const struct program *p,
                      const struct batch *description, const char *const *others)
{
    *f = (struct feed){.x = x, .n_items = description->n_items};
    for (int i = 0; i < description->n_items; i++) {
        TRY(set_item(f, x, handle, p, &description->items[i], i));
    }
    for (size_t i = 0; i < p->inputs.n; i++) {
        const char *name = p->inputs.items[i].name;
        if (!is_filled(name, description, others, group_size(p->graph)))
            return FAIL(ERR_INTERNAL, "nothing fills input '%s' of program '%s'", name, p->name);
    }
    return OK;
}

/* Rows along the last axis, as much of each as the program takes. */
static void copy_rows(const struct feed *f, int i, const struct tensor *from, void *to)
{
    const struct shape *s = &from->shape;
    int64_t n_bytes = s->dim[s->rank - 1] * dtype_size(from->dtype), taken = f->row_bytes[i];
    int64_t n_rows = tensor_bytes(from) / n_bytes;
    for (int64_t row = 0; row < n_rows; row++)
        memcpy((char *)to + row * taken, (const char *)from->data + row * n_bytes, (size_t)taken);
}

void feed_copy(const struct feed *f, const struct batch *b, int m)
{
    BUG_ON(b->n_items != f->n_items);
    for (int i = 0; i < f->n_items; i++) {
        const struct tensor *t = &b->items[i].tensor;
        void *to = f->inputs[m][i];
        if (to && t->shape.dim[t->shape.rank - 1] * dtype_size(t->dtype) > f->row_bytes[i])
            copy_rows(f, i, t, to);
        else if (to)
            executor_fill_input(f->x, to, t->data, tensor_bytes(t));
    }
}
