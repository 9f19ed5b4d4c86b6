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
    if (taken.dtype == item->tensor.dtype && shape_equal(&taken.shape, &item->tensor.shape))
        return OK;
    return FAIL(ERR_INTERNAL, "input '%s' of program '%s' is %s%s, its batches have %s%s",
                item->name, p->name, dtype_name(taken.dtype), shape_text(is, &taken.shape),
                dtype_name(item->tensor.dtype), shape_text(was, &item->tensor.shape));
}

static bool is_listed(const char *name, const char *const *names)
{
    for (; *names; names++) {
        if (strcmp(*names, name) == 0)
            return true;
    }
    return false;
}

enum status feed_init_some(struct feed *f, struct executor *x, int handle, const struct program *p,
                           const struct batch *description)
{
    *f = (struct feed){.n_items = description->n_items};
    for (int i = 0; i < description->n_items; i++) {
        const struct batch_item *item = &description->items[i];
        if (!program_input(p, item->name))
            continue;
        TRY(check_item(p, item));
        f->inputs[i] = executor_input(x, handle, item->name);
    }
    return OK;
}

enum status feed_init(struct feed *f, struct executor *x, int handle, const struct program *p,
                      const struct batch *description, const char *const *others)
{
    *f = (struct feed){.n_items = description->n_items};
    for (int i = 0; i < description->n_items; i++) {
        TRY(check_item(p, &description->items[i]));
        f->inputs[i] = executor_input(x, handle, description->items[i].name);
    }
    for (size_t i = 0; i < p->inputs.n; i++) {
        const char *name = p->inputs.items[i].name;
        if (!batch_item(description, name) && !is_listed(name, others))
            return FAIL(ERR_INTERNAL, "nothing fills input '%s' of program '%s'", name, p->name);
    }
    return OK;
}

void feed_copy(const struct feed *f, const struct batch *b)
{
    BUG_ON(b->n_items != f->n_items);
    for (int i = 0; i < f->n_items; i++) {
        if (f->inputs[i])
            memcpy(f->inputs[i], b->items[i].tensor.data,
                   (size_t)tensor_bytes(&b->items[i].tensor));
    }
}
