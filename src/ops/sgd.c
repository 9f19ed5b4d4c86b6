/* sgd.c: plain gradient descent. Inputs: param, grad, lr, step, scale. As in PyTorch, weight decay
 * is part of the gradient. The step number is the counter of seed's draws. scale = 0 leaves param
 * unchanged; that and seed are adamw's. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {SGD_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    TRY(need_sgd(c));
    out_like(c, 0, 0);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 4.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_UPDATE, 0, 0}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[1]=0.1, i32[1]=1, f32[1]+"},
    {.text = "f32[1030], f32[1030], f32[1]=0.1, i32[1]=2, f32[1]+ {weight_decay=0.1}"},
    {.text = "bf16[37], f32[37], f32[1]=0.1, i32[1]=2, f32[1]=0.5"},
    {.text = "f32[5], f32[5], f32[1]=0.1, i32[1]=2, f32[1]=0"},
    {.text = "bf16[2057], f32[2057], f32[1]=0.1, i32[1]=2, f32[1]=0.5 {weight_decay=0.1, seed=5}"},
};
static const char *const rejects[] = {
    "f32[3], f32[4], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], f32[1], f32[1], f32[1]",
    "f32[3], f32[3], f32[3], i32[1], f32[1]",
    "f32[3], f32[3], f32[1], i32[1], f32[1] {weight_decay=-1.0}",
};

const struct op_def op_def_sgd = {
    .name = "sgd",
    .synopsis = "param' = param - lr (scale grad + weight_decay param)",
    .min_in = 5,
    .max_in = 5,
    .n_out = 1,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    UPDATE_SLICES(2),
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
