#include "ops/film_support.h"

static enum status infer(const struct op_call *c)
{
    TRY(need_elements(c));
    TRY(need_per_sample(c, 1));
    if (call_has(c, 2))
        TRY(need_per_sample(c, 2));
    out_like(c, 0, 0);
    return OK;
}

static enum status grad(struct builder *b, const struct node *n, const value_id *d_out,
                        const bool *wants, value_id *d_in)
{
    value_id dx = build(b, OP_film_grad, IN(d_out[0], n->in[0], n->in[1]), NO_ATTRS);
    for (int i = 0; i < n->n_in; i++) {
        if (wants[i])
            d_in[i] = i == 0 ? dx : build_output(b, i);
    }
    return builder_status(b);
}

static double flops(const struct op_call *c)
{
    return 2.0 * (double)shape_elems(&c->in[0].shape);
}

static const struct alias_rule aliases[] = {{ALIAS_MAY, 0, 0}, {.kind = ALIAS_NONE}};

static const struct op_sample samples[] = {
    {.text = "f32[3,6], f32[3,6], f32[3,6]"},
    {.text = "f32[2,3,4,33], f32[2,33], f32[2,33]"},
    {.text = "f32[2,7,20], f32[2,20]"},
    {.text = "f32[1,300,1], f32[1,1], f32[1,1]"},
    {.text = "bf16[2,9,2,40], bf16[2,40], bf16[2,40]", .tolerance = 1e-2},
};
static const char *const rejects[] = {
    "f32[3,6], f32[6], f32[3,6]", "f32[3,6], f32[3,5], f32[3,6]", "f32[3,6], f32[3,6], f32[2,6]",
    "f32[3,6], bf16[3,6]",        "i32[3,6]~3, i32[3,6]~3",       "f32[6], f32[6]",
    "f32[0,6], f32[0,6]",
};

const struct op_def op_def_film = {
    .name = "film",
    .synopsis = "y = gamma x + beta, gamma and beta by sample and channel, the same at all places",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    .aliases = aliases,
    OP_NO_ACCUMULATE,
    .recompute = RECOMPUTE_CHEAP,
    .flops = flops,
    .samples = samples,
    .n_samples = ARRAY_LEN(samples),
    .rejects = rejects,
    .n_rejects = ARRAY_LEN(rejects),
};
