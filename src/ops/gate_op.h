/* gate_op.h: what gated activations have in common: the last axis of x is [g, u], y = f(g) u. An
 * op's file says its name and its formula; the rest of its row stands here. */
#ifndef SNUG_OPS_GATE_OP_H
#define SNUG_OPS_GATE_OP_H

#include "ops/op_support.h"

/* Input i as gate and up: *half has the shape of y. */
static inline enum status MUST_CHECK gate_half(const struct op_call *c, int i, struct shape *half)
{
    *half = c->in[i].shape;
    if (half->rank < 1 || half->dim[half->rank - 1] % 2 != 0)
        return REJECT(c, "x's last axis must be even: gate, then up");
    half->dim[half->rank - 1] /= 2;
    return OK;
}

/* ---- x -> y ---- */

static inline enum status infer_gate(const struct op_call *c)
{
    struct shape half;
    TRY(need_float(c, 0));
    TRY(gate_half(c, 0, &half));
    out_set(c, 0, c->in[0].dtype, half);
    return OK;
}

static inline double gate_flops(const struct op_call *c)
{
    return 6.0 * (double)shape_elems(&c->out[0].shape);
}

#define GATE_SAMPLES                                                         \
    {.text = "f32[3,10]"}, {.text = "f32[2,3,34]"}, {.text = "f32[1,2100]"}, \
    {                                                                        \
        .text = "f32[2]"                                                     \
    }
#define GATE_REJECTS "f32[3,5]", "f32[]", "i32[4]"

#define GATE_OP                                                                  \
    .min_in = 1, .max_in = 1, .n_out = 1, .infer = infer_gate, OP_NO_ACCUMULATE, \
    .recompute = RECOMPUTE_CHEAP, .flops = gate_flops, .samples = samples,       \
    .n_samples = ARRAY_LEN(samples), .rejects = rejects, .n_rejects = ARRAY_LEN(rejects)

/* ---- dy, x -> dx; and y with it ---- */

static inline enum status infer_gate_grad(const struct op_call *c)
{
    struct shape half;
    TRY(need_same_float(c, 0, 1));
    TRY(gate_half(c, 1, &half));
    TRY(need_shape(c, 0, &half));
    out_like(c, 0, 1);
    if (c->n_out > 1)
        out_like(c, 1, 0);
    return OK;
}

static inline double gate_grad_flops(const struct op_call *c)
{
    return (c->n_out > 1 ? 13.0 : 12.0) * (double)shape_elems(&c->in[0].shape);
}

#define GATE_GRAD_SAMPLES                                                        \
    {.text = "f32[3,5], f32[3,10]"}, {.text = "f32[2,3,17], f32[2,3,34]"},       \
        {.text = "f32[1,1050], f32[1,2100]"}, {.text = "f32[9,64], f32[9,128]"}, \
    {                                                                            \
        .text = "f32[1], f32[2]"                                                 \
    }
#define GATE_GRAD_REJECTS \
    "f32[3,5], f32[3,5]", "f32[3,5], f32[3,11]", "f32[3,5], f64[3,10]", "f32[], f32[]"

#define GATE_GRAD_OP                                                                              \
    .min_in = 2, .max_in = 2, .infer = infer_gate_grad, .no_grad = true, .aliases = aliases,      \
    OP_NO_ACCUMULATE, .recompute = RECOMPUTE_CHEAP, .flops = gate_grad_flops, .samples = samples, \
    .n_samples = ARRAY_LEN(samples), .rejects = rejects, .n_rejects = ARRAY_LEN(rejects)

#endif
