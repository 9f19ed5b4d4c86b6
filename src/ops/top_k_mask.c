#include "ops/op_support.h"

static const struct attr_def attrs[] = {
    {.name = "k", .type = ATTR_INT, .required = true},
};

static enum status infer(const struct op_call *c)
{
    int64_t k = call_int(c, 0);
    TRY(need_float(c, 0));
    if (c->in[0].shape.rank < 1)
        return REJECT(c, "a scalar has no last axis");
    if (k < 0 || k > shape_last(&c->in[0].shape))
        return REJECT(c, "k is %lld of %lld elements", (long long)k,
                      (long long)shape_last(&c->in[0].shape));
    out_like(c, 0, 0);
    return OK;
}

/* Every element is compared with all others of its row. */
static double flops(const struct op_call *c)
{
    return (double)shape_elems(&c->in[0].shape) * (double)shape_last(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[3,5] {k=2}"},   {.text = "f32[2,3,17] {k=17}"}, {.text = "f32[2,130] {k=45}"},
    {.text = "f32[4,1] {k=1}"},   {.text = "f32[7] {k=0}"},       {.text = "f32[5,9] {k=4}"},
    {.text = "bf16[2,20] {k=7}"},
};
static const char *const rejects[] = {
    "f32[] {k=0}", "i32[3]~4 {k=1}", "f32[3] {k=4}", "f32[3] {k=-1}", "f32[3]",
};

const struct op_def op_def_top_k_mask = {
    .name = "top_k_mask",
    .synopsis = "y = 1 for the k largest elements along the last axis (of equal ones the first), "
                "else 0; it has no gradient",
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
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
