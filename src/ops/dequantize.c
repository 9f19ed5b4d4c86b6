/* dequantize.c: a matrix from its codes and scales (graph/quantized.h). Inputs: codes, scales, and
 * where scales are codes too the scales of groups and the tables of pieces.
 *
 * It reads a quarter of what it writes, from storage: made again for every product that reads it,
 * the matrix is never kept. */
#include "ops/dequantize.h"
#include "graph/quantized.h"
#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "code", .type = ATTR_INT, .required = true},
    {.name = "columns", .type = ATTR_INT, .required = true},
    {.name = "rows", .type = ATTR_INTS, .required = true},
    {.name = "dtype", .type = ATTR_DTYPE, .value = {.i = DTYPE_F32}},
    {.name = "matrices", .type = ATTR_INT, .value = {.i = 0}},
};

enum { CODE, COLUMNS, ROWS, TO, MATRICES };

/* Of a piece: sums of a few stay in 64 bits; of several matrices, of all. */
static const int64_t most_elems = (int64_t)1 << 56;
static const int64_t most_matrices = 1 << 20;

struct quant_layout dequantize_layout(const struct op_call *c)
{
    const struct attr *rows = &c->attrs[ROWS];
    struct quant_layout l = {.q = {.code = (enum block_code)call_int(c, CODE)},
                             .n_columns = call_int(c, COLUMNS),
                             .n_matrices = (int)call_int(c, MATRICES)};
    l.n_pieces = rows->n_ints * MAX(l.n_matrices, 1);
    l.q.nested = c->n_in > 2;
    for (int i = 0; i < rows->n_ints; i++)
        l.rows[i] = rows->ints[i];
    return l;
}

static enum status check_attrs(const struct op_call *c)
{
    const struct attr *rows = &c->attrs[ROWS];
    if (call_int(c, CODE) <= CODE_NONE || call_int(c, CODE) >= CODE_COUNT)
        return REJECT(c, "code %lld is none", (long long)call_int(c, CODE));
    if (call_int(c, COLUMNS) < 1 || rows->n_ints < 1)
        return REJECT(c, "a matrix has rows and columns");
    if (call_int(c, MATRICES) < 0 || call_int(c, MATRICES) > most_matrices)
        return REJECT(c, "%lld matrices cannot be", (long long)call_int(c, MATRICES));
    int64_t most = most_elems / MAX(call_int(c, MATRICES), (int64_t)1);
    for (int i = 0; i < rows->n_ints; i++) {
        if (rows->ints[i] < 1)
            return REJECT(c, "a piece has at least one row");
        if (rows->ints[i] > most / call_int(c, COLUMNS))
            return REJECT(c, "a piece of that many elements cannot be counted");
    }
    if (!dtype_is_float((enum dtype)call_int(c, TO)))
        return REJECT(c, "dtype must be a float dtype");
    return OK;
}

static enum status infer(const struct op_call *c)
{
    struct format_part part[QUANT_PARTS];
    TRY(check_attrs(c));
    struct quant_layout l = dequantize_layout(c);
    int n = quant_parts(&l, part);
    if (l.q.nested && l.q.code == CODE_INT8)
        return REJECT(c, "scales of int8 are no codes");
    if (c->n_in != n)
        return REJECT(c, "has %d inputs, not %d", n, c->n_in);
    for (int i = 0; i < n; i++) {
        TRY(need_dtype(c, i, part[i].dtype));
        TRY(need_shape(c, i, &part[i].shape));
    }
    out_set(c, 0, (enum dtype)call_int(c, TO), quant_shape(&l));
    return OK;
}

static const struct op_sample samples[] = {
    {.text = "u8[15]~256, f32[1]+ {code=1, columns=6, rows=[5]}"},
    {.text = "u8[96]~256, f32[3]+ {code=2, columns=64, rows=[3]}"},
    {.text = "u8[43]~256, f32[3]+ {code=1, columns=7, rows=[11, 1]}"},
    {.text = "u8[1056]~256, u8[33]~256, f32[2]+, f32[2,257] {code=1, columns=32, rows=[64, 2]}"},
    {.text = "u8[8256]~256, u8[258]~256, f32[2]+, f32[1,257] {code=2, columns=128, rows=[129]}"},
    {.text = "u8[9,33]~256, f32[9]+ {code=3, columns=33, rows=[4, 5]}"},
    {.text = "u8[3,64]~256, f32[3]+ {code=3, columns=64, rows=[3], dtype=bf16}", .tolerance = 8e-3},
    {.text = "u8[2048]~256, u8[64]~256, f32[1]+, f32[1,257] {code=1, columns=64, rows=[64], "
             "dtype=bf16}",
     .tolerance = 8e-3},
    {.text = "u8[96]~256, f32[3]+ {code=1, columns=64, rows=[3], dtype=f16}", .tolerance = 1e-3},
    {.text = "u8[96]~256, f32[3]+ {code=1, columns=64, rows=[3], dtype=f64}"},
    {.text = "u8[54]~256, f32[6]+ {code=1, columns=6, rows=[5, 1], matrices=3}"},
    {.text = "u8[30]~256, f32[2]+ {code=1, columns=6, rows=[5], matrices=2}"},
    {.text = "u8[4096]~256, u8[128]~256, f32[2]+, f32[2,257] {code=1, columns=64, rows=[64], "
             "matrices=2, dtype=bf16}",
     .tolerance = 8e-3},
    {.text = "u8[16512]~256, u8[516]~256, f32[4]+, f32[4,257] {code=2, columns=128, rows=[64, 65], "
             "matrices=2}"},
    {.text = "u8[6,64]~256, f32[6]+ {code=3, columns=64, rows=[1, 2], matrices=2}"},
    {.text = "u8[96]~256, f32[3]+ {code=1, columns=64, rows=[3], matrices=1}"},
};
static const char *const rejects[] = {
    "u8[96], f32[2] {code=1, columns=64, rows=[3]}",
    "u8[95], f32[3] {code=1, columns=64, rows=[3]}",
    "u8[96], u8[3] {code=1, columns=64, rows=[3]}",
    "u8[96], u8[3], f32[1] {code=1, columns=64, rows=[3]}",
    "u8[96], f32[3], f32[1], f32[1,257] {code=1, columns=64, rows=[3]}",
    "u8[96], u8[3], f32[1], f32[1,256] {code=1, columns=64, rows=[3]}",
    "u8[3,64], u8[3], f32[1], f32[1,257] {code=3, columns=64, rows=[3]}",
    "u8[96], f32[3] {code=4, columns=64, rows=[3]}",
    "u8[96], f32[3] {code=1, columns=0, rows=[3]}",
    "u8[96], f32[3] {code=1, columns=64, rows=[0]}",
    "u8[96], f32[3] {code=1, columns=4611686018427387904, rows=[5]}",
    "u8[96], f32[3] {code=1, columns=64, rows=[3], dtype=i32}",
    "u8[96], f32[3] {code=1, columns=64, rows=[3], matrices=2}",
    "u8[96], f32[3] {code=1, columns=64, rows=[3], matrices=-1}",
    "u8[96], f32[3] {code=1, columns=64, rows=[1152921504606846], matrices=1048576}",
};

const struct op_def op_def_dequantize = {
    .name = "dequantize",
    .synopsis = "w = map[codes] scale of the block; scale = offset + map8[codes of it] group's",
    .min_in = 2,
    .max_in = QUANT_PARTS,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_ALWAYS,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
