/* lion.c: Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms"): a step of lr by the
 * sign of a mean of gradients, with decoupled weight decay. Inputs: param, grad, m, lr, step
 * (counts from 1), scale. Arithmetic is f32 whatever the storage. What scale = 0 and seed mean are
 * adamw's.
 */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {LION_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    int lr;
    TRY(need_lion(c, &lr));
    TRY(need_float(c, 2));
    out_like(c, 0, 0);
    out_like(c, 1, 2);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 10.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 2}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[3,5], f32[1]=0.01, i32[1]=3, f32[1]+"},
    {.text = "f32[1030], f32[1030], f32[1030], f32[1]=0.01, i32[1]=1, f32[1]+ {beta1=0.8, "
             "beta2=0.95, weight_decay=0.1}"},
    {.text = "bf16[37], bf16[37], f32[37], f32[1]=0.01, i32[1]=7, f32[1]=0.5"},
    {.text =
         "f32[300], f32[300]=0, f32[300]=0, f32[1]=0.01, i32[1]=1, f32[1]=1 {weight_decay=0.1}"},
    {.text = "f32[5], f32[5], f32[5], f32[1]=0.01, i32[1]=2, f32[1]=0"},
    {.text = "bf16[2057], bf16[2057], bf16[2057], f32[1]=0.01, i32[1]=100, f32[1]=1 {seed=7}"},
    {.text = "f32[70], bf16[70], bf16[70], f32[1]=0.01, i32[1]=4, f32[1]=1 {seed=3}"},
};
static const char *const rejects[] = {
    "f32[3], f32[4], f32[3], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], f32[2], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], f32[3], f32[2], i32[1], f32[1]",
    "f32[3], f32[3], f32[3], f32[1], i64[1], f32[1]",
    "f32[3], f32[3], f32[3], f32[1], i32[1], f32[1] {beta1=1.0}",
    "f32[3], f32[3], f32[3], f32[1], i32[1], f32[1] {weight_decay=-1.0}",
    "f32[3], f32[3], u8[3], f32[1], f32[1], i32[1]",
};

const struct op_def op_def_lion = {
    .name = "lion",
    .synopsis =
        "g = scale grad; param' = param (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g); "
        "m' = beta2 m + (1 - beta2) g",
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
