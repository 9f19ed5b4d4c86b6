#include "ops/layer_support.h"

enum { ROWS, DTYPE };

static const struct attr_def attrs[] = {
    {"rows", ATTR_INT, {.i = 0}, true},
    {"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, false},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_min_rank(c, 0, 1));
    TRY(need_dtype(c, 1, DTYPE_I32));
    struct shape ids = shape_without_last(c->in[0].shape);
    TRY(need_shape(c, 1, &ids));
    if (call_int(c, ROWS) < 1)
        return REJECT(c, "rows must be positive");
    enum dtype d;
    TRY(grad_dtype(c, DTYPE, 0, &d));
    struct shape s = shape_of(2, call_int(c, ROWS), shape_last(&c->in[0].shape));
    TRY(need_accumulator(c, 2, d, &s));
    out_set(c, 0, d, s);
    return OK;
}

static int64_t index_limit(const struct op_call *c)
{
    return call_int(c, ROWS);
}

static double flops(const struct op_call *c)
{
    return (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 2}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[2,3,4], i32[2,3]~10 {rows=10}"},
    {.text = "f32[2,3,4], i32[2,3]~2, f32[10,4] {rows=10}"},
    {.text = "f32[40,33], i32[40]~5, _ {rows=5}"},
    {.text = "bf16[20,17], i32[20]~4, f32[4,17] {rows=4, dtype=f32}"},
};
static const char *const rejects[] = {
    "f32[2,4], i32[3]~2 {rows=4}", "f32[2,4], f32[2] {rows=4}", "f32[2,4], i32[2]~2 {rows=0}",
    "f32[2,4], i32[2]~2, f32[3,4] {rows=4}", "bf16[2,4], i32[2]~2, f32[4,4] {rows=4}"};

const struct op_def op_def_embedding_grad = {
    .name = "embedding_grad",
    .synopsis = "dtable[v, c] = acc[v, c] + sum over i with ids[i] = v of dy[i, c]",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    .accumulate_in = 2,
    .accumulate_out = 0,
    .recompute = RECOMPUTE_NORMAL,
    .flops = flops,
    .index_limit = index_limit,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
