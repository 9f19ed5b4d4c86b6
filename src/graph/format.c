#include "graph/format.h"

#include <stddef.h>

#include "base/dynamic_map.h"

static const struct {
    const char *text;
    enum dtype dtype;
    int64_t block;
} table[FORMAT_COUNT] = {
#define FORMAT(name, text, dtype, block) [FORMAT_##name] = {text, DTYPE_##dtype, block},
#include "graph/formats.def"
#undef FORMAT
};

const char *format_name(enum format f)
{
    return table[f].text;
}

enum format format_of_dtype(enum dtype d)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (dtype_is_float(d) && table[f].dtype == d && table[f].block == 0)
            return (enum format)f;
    }
    return FORMAT_NONE;
}

int64_t format_block(enum format f)
{
    return table[f].block;
}

int format_parts(enum format f, const struct shape *s, struct format_part out[FORMAT_PARTS])
{
    return format_parts_stacked(f, s, NULL, out);
}

int format_parts_stacked(enum format f, const struct shape *s, const struct param_tensors *k,
                         struct format_part out[FORMAT_PARTS])
{
    int64_t block = table[f].block;
    if (f == FORMAT_NONE)
        return 0;
    out[0] = (struct format_part){"", table[f].dtype, *s};
    if (f == FORMAT_FACTORED)
        out[0].shape = factored_shape(s, k);
    if (block == 0)
        return 1;
    int64_t n_blocks = (shape_elems(s) + block - 1) / block;
    out[1] = (struct format_part){"absmax", DTYPE_F32, shape_of(1, n_blocks)};
    return 2;
}

int64_t format_size(enum format f, int64_t n_elems)
{
    struct format_part part[FORMAT_PARTS];
    struct shape line = shape_of(1, n_elems);
    int n = format_parts(f, &line, part);
    int64_t n_bytes = 0;
    for (int i = 0; i < n; i++)
        n_bytes += shape_elems(&part[i].shape) * dtype_size(part[i].dtype);
    return n_bytes;
}
