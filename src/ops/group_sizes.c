#include "ops/expert_support.h"

static const struct attr_def attrs[] = {{"dtype", ATTR_DTYPE, {.i = DTYPE_NONE}, true}};

static enum status infer(const struct op_call *c)
{
    TRY(need_offsets(c, 0));
    enum dtype d = (enum dtype)call_int(c, 0);
    if (d != DTYPE_F32 && d != DTYPE_F64)
        return REJECT(c, "dtype must be f32 or f64, not %s", dtype_name(d));
    out_set(c, 0, d, shape_of(1, n_groups(c, 0)));
    return OK;
}

static const struct op_sample samples[] = {
    {.text = "i32[5] {dtype=f32}"},
    {.text = "i32[2] {dtype=f64}"},
    {.text = "i32[130] {dtype=f32}"},
};
static const char *const rejects[] = {
    "i32[1] {dtype=f32}",
    "f32[5] {dtype=f32}",
    "i32[5] {dtype=bf16}",
    "i32[2,3] {dtype=f32}",
};

const struct op_def op_def_group_sizes = {
    .name = "group_sizes",
    .synopsis = "y[e] = offsets[e + 1] - offsets[e]: rows of each group",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .no_grad_inputs = 1u << 0,
    .offset_inputs = 1u << 0,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
