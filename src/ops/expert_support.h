/* expert_support.h: what the ops of mixtures of experts share.
 *
 * Routing gives each of N tokens k of E experts: N k rows, whatever the routing, in the order of
 * their experts. Rows of one expert are a group; only where groups begin is known no earlier than
 * at run time:
 *
 *     offsets [E + 1]  rows offsets[e] .. offsets[e + 1] - 1 are expert e's
 *     order [N k]      row r is slot order[r] % k of token order[r] / k
 *     place [N k]      the other way: slot j of token n is row place[n k + j]
 */
#ifndef SNUG_OPS_EXPERT_SUPPORT_H
#define SNUG_OPS_EXPERT_SUPPORT_H

#include "ops/layer_support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attribute positions that kernels read. */
enum { ROUTE_EXPERTS_PER_TOKEN, ROUTE_NORMALIZE, ROUTE_EPSILON };
enum { ROUTE_GRAD_NORMALIZE, ROUTE_GRAD_EPSILON };
enum { COMBINE_SLOTS };
enum { CAPACITY_ROWS };
enum { BALANCE_FACTOR };

/* Input i: i32 offsets of one group or more. */
static inline enum status MUST_CHECK need_offsets(const struct op_call *c, int i)
{
    TRY(need_dtype(c, i, DTYPE_I32));
    TRY(need_rank(c, i, 1));
    if (c->in[i].shape.dim[0] < 2)
        return REJECT(c, "input %d must hold the offsets of at least one group", i);
    return OK;
}

static inline int64_t n_groups(const struct op_call *c, int i_offsets)
{
    return c->in[i_offsets].shape.dim[0] - 1;
}

/* Inputs i and i + 1: order and place of n_rows rows. */
static inline enum status MUST_CHECK need_permutation(const struct op_call *c, int i,
                                                      int64_t n_rows)
{
    struct shape s = shape_of(1, n_rows);
    for (int k = i; k <= i + 1; k++) {
        TRY(need_dtype(c, k, DTYPE_I32));
        TRY(need_shape(c, k, &s));
    }
    return OK;
}

/* The optional weights of slots, input i: [tokens, slots] in the accumulator's dtype. */
static inline enum status MUST_CHECK need_slot_weights(const struct op_call *c, int i,
                                                       int64_t n_tokens, int64_t n_slots)
{
    struct shape s = shape_of(2, n_tokens, n_slots);
    if (!call_has(c, i))
        return OK;
    TRY(need_dtype(c, i, dtype_accumulator(c->in[0].dtype)));
    return need_shape(c, i, &s);
}

#ifdef __cplusplus
}
#endif
#endif
