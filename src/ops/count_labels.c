#include "ops/expert_support.h"

enum { IGNORE, DTYPE };

static const struct attr_def attrs[] = {
    {"ignore", ATTR_INT, {.i = -100}, false},
    {"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, true},
};

static enum status infer(const struct op_call *c)
{
    TRY(need_dtype(c, 0, DTYPE_I32));
    enum dtype d = (enum dtype)call_int(c, DTYPE);
    if (d != DTYPE_F32 && d != DTYPE_F64)
        return REJECT(c, "dtype must be f32 or f64, not %s", dtype_name(d));
    out_set(c, 0, d, shape_of(1, INT64_C(1)));
    return OK;
}

static const struct op_sample samples[] = {
    {.text = "i32[7]~5 {dtype=f32}"},
    {.text = "i32[3,40]~4 {ignore=2, dtype=f32}"},
    {.text = "i32[2,1500]~3 {ignore=1, dtype=f64}"},
};
static const char *const rejects[] = {
    "f32[7] {dtype=f32}",
    "i32[7] {dtype=i32}",
};

const struct op_def op_def_count_labels = {
    .name = "count_labels",
    .synopsis = "y = how many targets are not `ignore`",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .no_grad_inputs = 1u << 0,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
