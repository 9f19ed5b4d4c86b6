/* adamw.c: AdamW with decoupled weight decay, as PyTorch has it. Inputs: param, grad, m, v, lr,
 * step (counts from 1), scale. Arithmetic is f32 whatever the storage. scale = 0 (nothing counted,
 * or a norm that is not finite; see clip_scale) leaves param, m and v unchanged.
 *
 * seed = 0 rounds what is stored in bf16 to nearest; any other seed stochastically
 * (base/rounding.h; the step is the counter), without which bf16 parameters and states stop moving.
 */
#include "ops/update_support.h"

static const struct attr_def attrs[] = {ADAMW_ATTR_DEFS};

static enum status infer(const struct op_call *c)
{
    TRY(need_adamw(c));
    out_like(c, 0, 0);
    out_like(c, 1, 2);
    out_like(c, 2, 3);
    return OK;
}

static double flops(const struct op_call *c)
{
    return 16.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {
    {ALIAS_UPDATE, 0, 0}, {ALIAS_UPDATE, 1, 2}, {ALIAS_UPDATE, 2, 3}, {ALIAS_NONE, 0, 0}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[3,5], f32[3,5], f32[3,5]+, f32[1]=0.01, i32[1]=3, f32[1]+"},
    {.text = "f32[1030], f32[1030], f32[1030], f32[1030]+, f32[1]=0.01, i32[1]=1, f32[1]+ "
             "{beta1=0.8, beta2=0.95, epsilon=0.001, weight_decay=0.1}"},
    {.text = "bf16[37], bf16[37], f32[37], f32[37]+, f32[1]=0.01, i32[1]=7, f32[1]=0.5"},
    {.text = "f32[37], bf16[37], bf16[37], bf16[37]+, f32[1]=0.01, i32[1]=100, f32[1]=1"},
    {.text = "f32[5], f32[5], f32[5], f32[5]+, f32[1]=0.01, i32[1]=2, f32[1]=0"},
    {.text = "bf16[2057], bf16[2057], bf16[2057], bf16[2057]+, f32[1]=0.01, i32[1]=100, f32[1]=1 "
             "{seed=7}"},
    {.text = "bf16[3,7], f32[3,7], f32[3,7], f32[3,7]+, f32[1]=0.01, i32[1]=4, f32[1]=1 "
             "{seed=1152921504606846977}"},
    {.text = "f32[70], bf16[70], bf16[70], bf16[70]+, f32[1]=0.01, i32[1]=4, f32[1]=1 {seed=3}"},
    {.text = "bf16[70], bf16[70], bf16[70], bf16[70]+, f32[1]=0.01, i32[1]=4, f32[1]=0 {seed=3}"},
};
static const char *const rejects[] = {
    "f32[3], f32[4], f32[3], f32[3], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], f32[3], f32[3], f32[2], i32[1], f32[1]",
    "f32[3], f32[3], f32[3], f32[3], f32[1], i64[1], f32[1]",
    "f32[3], f32[3], f32[3], i32[3], f32[1], i32[1], f32[1]",
    "f32[3], f32[3], f32[3], f32[3], f32[1], i32[1], f32[1] {beta1=1.0}",
    "f32[3], f32[3], f32[3], f32[3], f32[1], i32[1], f32[1] {epsilon=-1.0}",
    "f32[3], f32[3], f32[3], f32[3], f32[1], i32[1], bf16[1]",
};

const struct op_def op_def_adamw = {
    .name = "adamw",
    .synopsis = "g = scale grad; p = param (1 - lr weight_decay); m' = beta1 m + (1 - beta1) g; v' "
                "= beta2 v + (1 - beta2) g^2; param' = p - lr / (1 - beta1^step) m' / (sqrt(v' / "
                "(1 - beta2^step)) + epsilon)",
    .min_in = 7,
    .max_in = 7,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .no_grad = true,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    UPDATE_SLICES(4),
    .recompute = RECOMPUTE_NEVER,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
