/* update_call.h: calls of the rules that update every element by itself.
 *
 * They have the same inputs in the same order (optim/updates.c): parameter, gradient, the states,
 * each one tensor or codes and their scales, lr, step, scale, and a master where there is one; the
 * outputs are the parameter, the states' tensors and the master. The last attribute is the seed.
 * Where the gradient is a product, dy is in its place and x comes last.
 * The first state is coded by the signed map, the second by the unsigned one.
 */
#ifndef SNUG_DEVICE_CPU_KERNELS_UPDATE_CALL_H
#define SNUG_DEVICE_CPU_KERNELS_UPDATE_CALL_H

#include "device/cpu/kernels/update.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The input that is lr; step and scale follow. */
int update_lr_input(const struct op_call *c, int n_states);

/* workspace(): tables of codes are made at every call, in a few microseconds: kernels keep nothing.
 */
int64_t update_maps_bytes(const struct op_call *c, const struct kernel_env *env);

/* Block by block: apply's blocks are the parameter (or its master) and the states. lr: the input
 * that it is. */
enum status update_call_run(const struct kernel_ctx *x, const struct op_call *c, int n_states,
                            int lr, update_rule *apply, const void *rule);

/* Element i in f64, for the reference: grad as it is stored, p and the states to be changed. */
typedef void update_element(const struct op_call *c, const void *rule, int64_t i, double grad,
                            double *p, double *state);
enum status update_call_reference(const struct kernel_ctx *x, const struct op_call *c, int n_states,
                                  int lr, update_element *apply, const void *rule);

/* Elements [at, at + n) of a state in f64, and back; at most a block of codes, from its first on.
 */
void update_read(const struct update_stream *s, int64_t at, int64_t n, double *x);
void update_write(const struct update_stream *s, int64_t at, int64_t n, const double *x,
                  const struct update_draw *draw);

#ifdef __cplusplus
}
#endif
#endif
