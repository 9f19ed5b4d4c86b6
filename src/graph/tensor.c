#include "graph/tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *text;
    int64_t size;
    bool is_float;
} table[DTYPE_COUNT] = {
#define DTYPE(name, text, bytes, is_float) [DTYPE_##name] = {text, bytes, is_float},
#include "graph/dtypes.def"
#undef DTYPE
};

const char *dtype_name(enum dtype d)
{
    return table[d].text;
}

int64_t dtype_size(enum dtype d)
{
    return table[d].size;
}

bool dtype_is_float(enum dtype d)
{
    return table[d].is_float;
}

bool dtype_parse(const char *text, enum dtype *d)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(text, table[i].text) == 0) {
            *d = (enum dtype)i;
            return true;
        }
    }
    return false;
}

enum dtype dtype_accumulator(enum dtype d)
{
    return d == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

struct shape shape_of(int rank, ...)
{
    struct shape s = {.rank = rank};
    va_list args;
    va_start(args, rank);
    for (int i = 0; i < rank; i++)
        s.dim[i] = va_arg(args, int64_t);
    va_end(args);
    return s;
}

int64_t shape_inner(const struct shape *s, int first)
{
    int64_t n = 1;
    for (int i = first; i < s->rank; i++)
        n *= s->dim[i];
    return n;
}

int64_t shape_outer(const struct shape *s, int last)
{
    int64_t n = 1;
    for (int i = 0; i < last; i++)
        n *= s->dim[i];
    return n;
}

int64_t shape_elems(const struct shape *s)
{
    return shape_inner(s, 0);
}

int64_t shape_rows(const struct shape *s)
{
    return s->rank == 0 ? 1 : shape_outer(s, s->rank - 1);
}

int64_t shape_last(const struct shape *s)
{
    return s->rank == 0 ? 1 : s->dim[s->rank - 1];
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i])
            return false;
    }
    return true;
}

bool shape_is_suffix(const struct shape *b, const struct shape *a)
{
    if (b->rank > a->rank)
        return false;
    for (int i = 0; i < b->rank; i++) {
        if (b->dim[b->rank - 1 - i] != a->dim[a->rank - 1 - i])
            return false;
    }
    return true;
}

const char *shape_text(char out[SHAPE_TEXT], const struct shape *s)
{
    size_t n = 0;
    n += (size_t)snprintf(out, SHAPE_TEXT, "[");
    for (int i = 0; i < s->rank; i++)
        n += (size_t)snprintf(out + n, SHAPE_TEXT - n, i ? ", %lld" : "%lld", (long long)s->dim[i]);
    (void)snprintf(out + n, SHAPE_TEXT - n, "]");
    return out;
}

int64_t tensor_bytes(const struct tensor *t)
{
    return shape_elems(&t->shape) * dtype_size(t->dtype);
}
