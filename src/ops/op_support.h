/* op_support.h: what the files in src/ops share: checks that make inference rules read as rules,
 * and small builders for gradients. */
#ifndef SNUG_OPS_OP_SUPPORT_H
#define SNUG_OPS_OP_SUPPORT_H

#include "graph/builder.h"
#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* FAIL(ERR_SHAPE) with the op's name in front: return REJECT(c, "x has rank %d", r); */
#define REJECT(c, ...) status_prefix(FAIL(ERR_SHAPE, __VA_ARGS__), "%s", op_get((c)->op)->name)

/* All present inputs in [first, last] are floats of one dtype. */
enum status need_same_float(const struct op_call *c, int first, int last) MUST_CHECK;
enum status need_float(const struct op_call *c, int i) MUST_CHECK;
enum status need_dtype(const struct op_call *c, int i, enum dtype d) MUST_CHECK;
enum status need_rank(const struct op_call *c, int i, int rank) MUST_CHECK;
enum status need_shape(const struct op_call *c, int i, const struct shape *s) MUST_CHECK;

/* out[o] = dtype and shape of in[i]. */
void out_like(const struct op_call *c, int o, int i);
void out_set(const struct op_call *c, int o, enum dtype d, struct shape s);

/* infer for "one float in, same out" ops. */
enum status infer_unary(const struct op_call *c) MUST_CHECK;
/* infer for unary gradients: (dy, x or y) of one shape and dtype. */
enum status infer_unary_grad(const struct op_call *c) MUST_CHECK;

/* Gradient of a suffix-broadcast operand: dy summed over the leading axes down to v's shape. */
value_id sum_to_shape_of(struct builder *b, value_id dy, value_id v);

#ifdef __cplusplus
}
#endif
#endif
