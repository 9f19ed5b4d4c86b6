/* pair_op.h: what elementwise functions of two float tensors of one shape have in common. */
#ifndef SNUG_OPS_PAIR_OP_H
#define SNUG_OPS_PAIR_OP_H

#include "ops/op_support.h"

static enum status infer_pair(const struct op_call *c)
{
    TRY(need_same_float(c, 0, 1));
    TRY(need_shape(c, 1, &c->in[0].shape));
    out_like(c, 0, 0);
    return OK;
}

static const struct alias_rule pair_aliases[] = {
    {ALIAS_MAY, 0, 0}, {ALIAS_MAY, 0, 1}, {ALIAS_NONE, 0, 0}};
static const struct op_sample pair_samples[] = {{.text = "f32[3,5], f32[3,5]"},
                                                {.text = "f32[2,3,17], f32[2,3,17]"},
                                                {.text = "f32[1025], f32[1025]"},
                                                {.text = "f32[], f32[]"}};
static const char *const pair_rejects[] = {"f32[3], f32[4]", "f32[2,3], f32[3]", "f32[3], f64[3]",
                                           "i32[3], i32[3]"};

#define PAIR_OP                                                                         \
    .min_in = 2, .max_in = 2, .n_out = 1, .infer = infer_pair, .aliases = pair_aliases, \
    OP_NO_ACCUMULATE, .recompute = RECOMPUTE_CHEAP, .samples = pair_samples,            \
    .n_samples = ARRAY_LEN(pair_samples), .rejects = pair_rejects,                      \
    .n_rejects = ARRAY_LEN(pair_rejects)

#endif
