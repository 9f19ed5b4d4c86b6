/* unary_op.h: what elementwise functions of one float tensor have in common, and their gradients.
 * An op's file says its name, its formula and its derivative; the rest of its row stands here. */
#ifndef SNUG_OPS_UNARY_OP_H
#define SNUG_OPS_UNARY_OP_H

#include "ops/op_support.h"

static const struct alias_rule unary_aliases[] = {{ALIAS_MAY, 0, 0}, {ALIAS_NONE, 0, 0}};
static const char *const unary_rejects[] = {"i32[3]"};
/* Functions defined everywhere, and those of positive numbers. */
static const struct op_sample unary_samples[] = {
    {.text = "f32[3,5]"}, {.text = "f32[2,3,17]"}, {.text = "f32[1025]"}, {.text = "f32[]"}};
static const struct op_sample unary_positive_samples[] = {
    {.text = "f32[3,5]+"}, {.text = "f32[2,3,17]+"}, {.text = "f32[1025]+"}, {.text = "f32[]+"}};

#define UNARY_OP_OF(rule, sample_list)                                               \
    .min_in = 1, .max_in = 1, .n_out = 1, .infer = (rule), .aliases = unary_aliases, \
    OP_NO_ACCUMULATE, .recompute = RECOMPUTE_CHEAP, .samples = (sample_list),        \
    .n_samples = ARRAY_LEN(sample_list), .rejects = unary_rejects,                   \
    .n_rejects = ARRAY_LEN(unary_rejects)
#define UNARY_OP(sample_list) UNARY_OP_OF(infer_unary, sample_list)

/* (dy, x or y) -> dx, in place of either. */
static const struct alias_rule unary_grad_aliases[] = {
    {ALIAS_MAY, 0, 0}, {ALIAS_MAY, 0, 1}, {ALIAS_NONE, 0, 0}};
static const char *const unary_grad_rejects[] = {"f32[3], f32[4]", "f32[3], f64[3]",
                                                 "i32[3], i32[3]"};
static const struct op_sample unary_grad_samples[] = {{.text = "f32[3,5], f32[3,5]"},
                                                      {.text = "f32[2,3,17], f32[2,3,17]"},
                                                      {.text = "f32[1025], f32[1025]"}};

#define UNARY_GRAD_OP(sample_list)                                                                \
    .min_in = 2, .max_in = 2, .n_out = 1, .infer = infer_unary_grad, .no_grad = true,             \
    .aliases = unary_grad_aliases, OP_NO_ACCUMULATE, .recompute = RECOMPUTE_CHEAP,                \
    .samples = (sample_list), .n_samples = ARRAY_LEN(sample_list), .rejects = unary_grad_rejects, \
    .n_rejects = ARRAY_LEN(unary_grad_rejects)

#endif
