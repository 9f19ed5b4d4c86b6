/* sgd_momentum.c: gradient descent with momentum, as PyTorch has it (weight decay part of the
 * gradient, no dampening, the first step starts the buffer). Inputs: param, grad, buf, lr, step
 * (counts from 1), scale. scale = 0 leaves param and buf unchanged; that and seed are adamw's. */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {SGD_MOMENTUM_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    TRY(need_sgd_momentum(c));
    out_like(c, 0, 0);
    out_like(c, 1, 2);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 6.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 2}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[3,5], f32[1]=0.1, i32[1]=1, f32[1]+"},
    {.text = "f32[3,5], f32[3,5], f32[3,5], f32[1]=0.1, i32[1]=2, f32[1]+ {nesterov=true}"},
    {.text = "f32[1030], f32[1030], f32[1030], f32[1]=0.1, i32[1]=5, f32[1]+ {momentum=0.5, "
             "weight_decay=0.1}"},
    {.text = "bf16[37], f32[37], bf16[37], f32[1]=0.1, i32[1]=2, f32[1]=0.5"},
    {.text = "f32[5], f32[5], f32[5], f32[1]=0.1, i32[1]=1, f32[1]=0"},
    {.text = "bf16[2057], bf16[2057], bf16[2057], f32[1]=0.1, i32[1]=2, f32[1]=0.5 {seed=5}"},
};
static const char *const rejects[] = {
    "f32[3], f32[4], f32[3], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], f32[2], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], f32[3], f32[1], i64[1], f32[1]",
    "f32[3], f32[3], f32[3], f32[1], i32[1], f32[1] {momentum=-0.5}",
};

const struct op_def op_def_sgd_momentum = {
    .name = "sgd_momentum",
    .synopsis = "g = scale grad + weight_decay param; buf' = momentum buf + g (g when step = 1); "
                "param' = param - lr (nesterov ? g + momentum buf' : buf')",
    .min_in = 6,
    .max_in = 6,
    .n_out = 2,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    UPDATE_SLICES(3),
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
