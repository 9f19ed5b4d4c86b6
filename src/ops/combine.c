#include "ops/expert_support.h"

static const struct attr_def attrs[] = {{"slots", ATTR_INT, {.i = 0}, true}};

static enum status infer(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_rank(c, 0, 2));
    int64_t n_rows = c->in[0].shape.dim[0], slots = call_int(c, COMBINE_SLOTS);
    TRY(need_permutation(c, 1, n_rows));
    if (slots < 1 || n_rows % slots != 0)
        return REJECT(c, "%lld rows are no multiple of %lld slots", (long long)n_rows,
                      (long long)slots);
    TRY(need_slot_weights(c, 3, n_rows / slots, slots));
    out_set(c, 0, c->in[0].dtype, shape_of(2, n_rows / slots, c->in[0].shape.dim[1]));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dy = d_out[0], weights = node_input(n, 3);
    if (wants[0]) {
        const value_id in[] = {dy, n->in[1], n->in[2], weights};
        d_in[0] = build(b, OP_dispatch, in, weights == VALUE_NONE ? 3 : 4, NO_ATTRS);
    }
    if (weights != VALUE_NONE && wants[3])
        d_in[3] = build(b, OP_combine_grad_weights, IN(dy, n->in[0], n->in[1], n->in[2]), NO_ATTRS);
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return (call_has(c, 3) ? 2.0 : 1.0) * (double)shape_elems(&c->in[0].shape);
}

static const struct op_sample samples[] = {
    {.text = "f32[6,5], i32[6], i32[6] {slots=2}"},
    {.text = "f32[6,5], i32[6], i32[6], f32[3,2] {slots=2}"},
    {.text = "f32[7,33], i32[7], i32[7], f32[7,1] {slots=1}"},
    {.text = "f32[15,1030], i32[15], i32[15], f32[5,3] {slots=3}"},
};
static const char *const rejects[] = {
    "f32[6,5], i32[6], i32[6] {slots=4}",
    "f32[6,5], i32[5], i32[5] {slots=1}",
    "f32[6,5], i32[6], i32[6], f32[6] {slots=2}",
    "f32[6,5], i32[6], i32[6] {slots=0}",
    "bf16[6,5], i32[6], i32[6], bf16[3,2] {slots=2}",
};

const struct op_def op_def_combine = {
    .name = "combine",
    .synopsis = "y[n, c] = sum over slots j of weights[n, j] x[place[n k + j], c]; without "
                "weights 1",
    .min_in = 3,
    .max_in = 4,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .no_grad_inputs = 1u << 1 | 1u << 2,
    .permutation_inputs = 1u << 1 | 1u << 2,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
