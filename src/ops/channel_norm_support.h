/* channel_norm_support.h: what norms by channel share: batch_norm, group_norm, their gradients. x
 * is [N, .., C]; gamma and beta, where given, are [C]; statistics are kept in f32 (f64 beside f64).
 */
#ifndef SNUG_OPS_CHANNEL_NORM_SUPPORT_H
#define SNUG_OPS_CHANNEL_NORM_SUPPORT_H

#include "ops/layer_support.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RUNNING_MOMENTUM, RUNNING_EPSILON, RUNNING_COUNT, RUNNING_OF_VARIANCE };
enum { GROUP_NORM_GROUPS, GROUP_NORM_EPSILON };
enum { GROUP_NORM_GRAD_DTYPE = 1 }; /* after the groups */
/* batch_norm_activation: x, gamma, beta, scale, shift -> y, mean, rstd. */
enum { ACTIVATED_X, ACTIVATED_GAMMA, ACTIVATED_BETA, ACTIVATED_SCALE, ACTIVATED_SHIFT };
enum { ACTIVATED_EPSILON, ACTIVATED_SLOPE, ACTIVATED_SILU };
/* Its gradients: dy, x, gamma, beta, mean, rstd, scale -> dx, dgamma, dbeta, dscale, dshift. */
enum {
    ACTIVATED_GRAD_DY,
    ACTIVATED_GRAD_X,
    ACTIVATED_GRAD_GAMMA,
    ACTIVATED_GRAD_BETA,
    ACTIVATED_GRAD_MEAN,
    ACTIVATED_GRAD_RSTD,
    ACTIVATED_GRAD_SCALE
};
enum { ACTIVATED_GRAD_SLOPE, ACTIVATED_GRAD_DTYPE, ACTIVATED_GRAD_SILU };

/* Input 0 is a float tensor [N, .., C] with elements. */
static inline enum status MUST_CHECK need_elements(const struct op_call *c)
{
    TRY(need_float(c, 0));
    TRY(need_min_rank(c, 0, 2));
    for (int i = 0; i < c->in[0].shape.rank; i++) {
        if (c->in[0].shape.dim[i] < 1)
            return REJECT(c, "axis %d is empty", i);
    }
    return OK;
}

/* x, input 0, has elements, and gamma and beta, inputs 1 and 2, fit where they are given. */
static inline enum status MUST_CHECK need_channel_norm(const struct op_call *c)
{
    TRY(need_elements(c));
    for (int i = 1; i <= 2; i++) {
        if (call_has(c, i))
            TRY(need_weight(c, i, 0, shape_last(&c->in[0].shape)));
    }
    return OK;
}

/* The groups cut the channels of input 0 evenly; statistics are [N, groups]. */
static inline enum status MUST_CHECK need_groups(const struct op_call *c, struct shape *statistics)
{
    const struct shape *x = &c->in[0].shape;
    int64_t groups = call_int(c, GROUP_NORM_GROUPS);
    TRY(need_min_rank(c, 0, 2));
    if (groups < 1 || shape_last(x) % groups != 0)
        return REJECT(c, "%lld channels cannot be cut into %lld groups", (long long)shape_last(x),
                      (long long)groups);
    *statistics = shape_of(2, x->dim[0], groups);
    return OK;
}

/* dy, x, [gamma], mean, rstd -> dx, dgamma, dbeta; the last two in the dtype of attribute i_attr.
 */
static inline enum status MUST_CHECK infer_norm_grad(const struct op_call *c,
                                                     const struct shape *statistics, int i_attr)
{
    const struct shape *dy = &c->in[0].shape;
    TRY(need_elements(c));
    TRY(need_same_float(c, 0, 1));
    TRY(need_shape(c, 1, dy));
    if (!call_has(c, 3) || !call_has(c, 4))
        return REJECT(c, "mean and rstd must be given");
    if (call_has(c, 2))
        TRY(need_weight(c, 2, 0, shape_last(dy)));
    TRY(need_statistics(c, 3, 0, statistics));
    TRY(need_statistics(c, 4, 0, statistics));
    enum dtype d;
    TRY(grad_dtype(c, i_attr, 0, &d));
    out_like(c, 0, 0);
    out_set(c, 1, d, shape_of(1, shape_last(dy)));
    out_set(c, 2, d, shape_of(1, shape_last(dy)));
    return OK;
}

/* dy, x, [gamma], [beta], mean, rstd -> dx, dgamma, dbeta. */
static inline enum status MUST_CHECK infer_activated_grad(const struct op_call *c)
{
    const struct shape *dy = &c->in[ACTIVATED_GRAD_DY].shape;
    struct shape channels = shape_of(1, shape_last(dy));
    enum dtype d;
    TRY(need_elements(c));
    TRY(need_same_float(c, ACTIVATED_GRAD_DY, ACTIVATED_GRAD_X));
    TRY(need_shape(c, ACTIVATED_GRAD_X, dy));
    for (int i = ACTIVATED_GRAD_GAMMA; i <= ACTIVATED_GRAD_BETA; i++) {
        if (call_has(c, i))
            TRY(need_weight(c, i, 0, channels.dim[0]));
    }
    if (!call_has(c, ACTIVATED_GRAD_MEAN) || !call_has(c, ACTIVATED_GRAD_RSTD))
        return REJECT(c, "mean and rstd must be given");
    TRY(need_statistics(c, ACTIVATED_GRAD_MEAN, 0, &channels));
    TRY(need_statistics(c, ACTIVATED_GRAD_RSTD, 0, &channels));
    TRY(grad_dtype(c, ACTIVATED_GRAD_DTYPE, 0, &d));
    out_like(c, 0, 0);
    out_set(c, 1, d, channels);
    out_set(c, 2, d, channels);
    return OK;
}

/* grad of a norm x, gamma, beta -> y, mean, rstd by its gradient op. */
static inline enum status MUST_CHECK build_norm_grad(struct builder *b, enum op_id op,
                                                     const struct node *n, const value_id *d_out,
                                                     const bool *wants, value_id *d_in)
{
    value_id gamma = node_input(n, 1), beta = node_input(n, 2);
    const struct attr_set groups = {.name = "groups", .i = n->attrs[GROUP_NORM_GROUPS].i};
    const value_id in[] = {d_out[0], n->in[0], gamma, n->out[1], n->out[2]};
    TRY(no_grad_through(n, d_out, 1, 2));
    value_id dx = build(b, op, in, (int)ARRAY_LEN(in), &groups, op == OP_group_norm_grad);
    if (wants[0])
        d_in[0] = dx;
    if (gamma != VALUE_NONE && wants[1])
        d_in[1] = build_output(b, 1);
    if (beta != VALUE_NONE && wants[2])
        d_in[2] = build_output(b, 2);
    return builder_status(b);
}

#ifdef __cplusplus
}
#endif
#endif
