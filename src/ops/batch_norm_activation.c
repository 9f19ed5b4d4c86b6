#include "ops/film_support.h"

static const struct attr_def attrs[] = {
    [ACTIVATED_EPSILON] = {"epsilon", ATTR_FLOAT, {.f = 1e-5}, false},
    [ACTIVATED_SLOPE] = {"slope", ATTR_FLOAT, {.f = 0.0}, false},
    [ACTIVATED_SILU] = {"silu", ATTR_BOOL, {.i = 0}, false},
};

static enum status infer(const struct op_call *c)
{
    enum dtype statistics = dtype_accumulator(c->in[0].dtype);
    TRY(need_channel_norm(c));
    if (!(call_float(c, ACTIVATED_EPSILON) >= 0.0))
        return REJECT(c, "epsilon must not be negative");
    if (call_bool(c, ACTIVATED_SILU) && call_float(c, ACTIVATED_SLOPE) != 0.0)
        return REJECT(c, "silu has no slope");
    for (int i = ACTIVATED_SCALE; i <= ACTIVATED_SHIFT; i++) {
        if (call_has(c, i))
            TRY(need_per_sample(c, i));
    }
    if (call_has(c, ACTIVATED_SHIFT) && !call_has(c, ACTIVATED_SCALE))
        return REJECT(c, "a shift goes with a scale");
    if (call_has(c, ACTIVATED_SCALE) && call_bool(c, ACTIVATED_SILU))
        return REJECT(c, "a scale goes with slopes, not with silu");
    out_like(c, 0, 0);
    out_set(c, 1, statistics, shape_of(1, shape_last(&c->in[0].shape)));
    out_set(c, 2, statistics, shape_of(1, shape_last(&c->in[0].shape)));
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    const value_id scale = node_input(n, ACTIVATED_SCALE);
    const value_id in[] = {d_out[0],
                           n->in[0],
                           node_input(n, ACTIVATED_GAMMA),
                           node_input(n, ACTIVATED_BETA),
                           n->out[1],
                           n->out[2],
                           scale};
    const struct attr_set set[] = {{.name = "slope", .f = n->attrs[ACTIVATED_SLOPE].f},
                                   {.name = "silu", .i = n->attrs[ACTIVATED_SILU].i}};
    TRY(no_grad_through(n, d_out, 1, 2));
    bool with_film = scale != VALUE_NONE;
    value_id dx = build(b, with_film ? OP_batch_norm_film_grad : OP_batch_norm_activation_grad, in,
                        (int)ARRAY_LEN(in) - !with_film, set, with_film ? 1 : 2);
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] != VALUE_NONE && wants[i])
            d_in[i] = i == 0 ? dx : build_output(b, i);
    }
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 11.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[3,5], f32[5], f32[5]"},
    {.text = "f32[2,3,4,32], f32[32], f32[32] {epsilon=0.001, slope=0.01}"},
    {.text = "f32[4,7,17], f32[17], _ {silu=true}"},
    {.text = "f32[5,8], _, f32[8], f32[5,8] {slope=0.2}"},
    {.text = "f32[3,200,6], f32[6], f32[6], f32[3,6], f32[3,6] {slope=0.01}"},
    {.text = "bf16[9,2,40], f32[40], f32[40], bf16[9,40], bf16[9,40]", .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,5], f32[4], f32[5]",
    "f32[3,5], f32[5], f32[3]",
    "i32[3,5]~3, f32[5], f32[5]",
    "f32[3,5] {epsilon=-1}",
    "f32[5]",
    "f32[3,5] {silu=true, slope=0.1}",
    "f32[3,5], f32[5], f32[5], f32[5]",
    "f32[3,5], f32[5], f32[5], _, f32[3,5]",
    "f32[3,5], f32[5], f32[5], f32[3,5] {silu=true}",
};

const struct op_def op_def_batch_norm_activation = {
    .name = "batch_norm_activation",
    .synopsis = "y = scale f(z) + shift, z = batch_norm(x): f(z) = z where z > 0, else slope z; or "
                "silu(z); scale and shift by sample and channel",
    .min_in = 1,
    .max_in = 5,
    .n_out = 3,
    .attrs = attrs,
    .n_attrs = ARRAY_LEN(attrs),
    .infer = infer,
    .grad = grad,
    .f32_inputs = 1u << ACTIVATED_GAMMA | 1u << ACTIVATED_BETA,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .module = MODULE_NORM,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
