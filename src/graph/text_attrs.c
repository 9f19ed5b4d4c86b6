/* text_attrs.c: attribute lists "{axis=1, dims=[2,3], causal=true}" from and to text, driven by the
 * op's attr_defs. */
#include <string.h>

#include "graph/text.h"

/* The attribute called `name`, or -1. */
static int find_attr(const struct op_def *d, const char *name)
{
    for (int i = 0; i < d->n_attrs; i++) {
        if (strcmp(d->attrs[i].name, name) == 0)
            return i;
    }
    return -1;
}

static enum status read_ints(struct text *t, struct attr *a)
{
    TRY(text_need(t, "["));
    if (text_take(t, "]"))
        return OK;
    do {
        if (a->n_ints == MAX_ATTR_INTS)
            return TEXT_FAIL(t, "a list attribute has at most %d numbers", MAX_ATTR_INTS);
        TRY(text_int(t, &a->ints[a->n_ints]));
        a->n_ints++;
    } while (text_take(t, ","));
    return text_need(t, "]");
}

static enum status read_bool(struct text *t, struct attr *a)
{
    a->i = text_take_word(t, "true");
    if (!a->i && !text_take_word(t, "false"))
        return TEXT_FAIL(t, "expected true or false here");
    return OK;
}

static enum status read_attr(struct text *t, enum attr_type type, struct attr *a)
{
    enum dtype d;
    *a = (struct attr){0};
    switch (type) {
    case ATTR_INT:
        return text_int(t, &a->i);
    case ATTR_FLOAT:
        return text_double(t, &a->f);
    case ATTR_BOOL:
        return read_bool(t, a);
    case ATTR_INTS:
        return read_ints(t, a);
    case ATTR_DTYPE:
        TRY(text_dtype(t, &d));
        a->i = d;
        return OK;
    }
    return OK;
}

enum status text_attrs(struct text *t, const struct op_def *d, struct attr *attrs)
{
    bool given[TEXT_MAX_ATTRS] = {false};
    struct text_place start = text_here(t);
    BUG_ON(d->n_attrs > TEXT_MAX_ATTRS);
    for (int i = 0; i < d->n_attrs; i++)
        attrs[i] = d->attrs[i].value;
    if (text_take(t, "{") && !text_take(t, "}")) {
        do {
            struct text_place place = text_here(t);
            char name[TEXT_WORD];
            TRY(text_word(t, name));
            int i = find_attr(d, name);
            if (i < 0 || given[i])
                return status_prefix(FAIL(ERR_SHAPE, "%s: %s attribute '%s'", d->name,
                                          i < 0 ? "there is no" : "repeated", name),
                                     "line %d, column %d", place.line, place.column);
            given[i] = true;
            TRY(text_need(t, "="));
            TRY(read_attr(t, d->attrs[i].type, &attrs[i]));
        } while (text_take(t, ","));
        TRY(text_need(t, "}"));
    }
    for (int i = 0; i < d->n_attrs; i++) {
        if (d->attrs[i].required && !given[i])
            return status_prefix(
                FAIL(ERR_SHAPE, "%s: attribute '%s' must be given", d->name, d->attrs[i].name),
                "line %d, column %d", start.line, start.column);
    }
    return OK;
}

static bool attr_equal(enum attr_type type, const struct attr *a, const struct attr *b)
{
    switch (type) {
    case ATTR_FLOAT: /* bits: 0 and -0 differ, a NaN equals itself */
        return memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
    case ATTR_INTS:
        return a->n_ints == b->n_ints &&
               memcmp(a->ints, b->ints, (size_t)a->n_ints * sizeof(a->ints[0])) == 0;
    default:
        return a->i == b->i;
    }
}

static void add_attr(struct str *out, enum attr_type type, const struct attr *a)
{
    switch (type) {
    case ATTR_INT:
        str_addf(out, "%lld", (long long)a->i);
        break;
    case ATTR_FLOAT:
        text_add_double(out, a->f);
        break;
    case ATTR_BOOL:
        str_add(out, a->i ? "true" : "false");
        break;
    case ATTR_DTYPE:
        str_add(out, dtype_name((enum dtype)a->i));
        break;
    case ATTR_INTS:
        str_add(out, "[");
        for (int i = 0; i < a->n_ints; i++)
            str_addf(out, i ? ",%lld" : "%lld", (long long)a->ints[i]);
        str_add(out, "]");
        break;
    }
}

void text_add_attrs(struct str *out, const struct op_def *d, const struct attr *attrs)
{
    const char *before = " {";
    for (int i = 0; i < d->n_attrs; i++) {
        const struct attr_def *def = &d->attrs[i];
        if (!def->required && attr_equal(def->type, &attrs[i], &def->value))
            continue;
        str_addf(out, "%s%s=", before, def->name);
        add_attr(out, def->type, &attrs[i]);
        before = ", ";
    }
    if (before[0] == ',')
        str_add(out, "}");
}
