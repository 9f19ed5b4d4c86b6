/* sdpa.h: attention through cuDNN's graph interface: bf16 and f16, on the packed layout as it
 * is (queries, keys and values are strided views of one buffer).
 *
 * A plan for a shape is built once, when workspace is asked for, and kept with the device's
 * libraries. Where the plan of the whole call wants too much workspace, the call runs in equal
 * parts, one after the other (sdpa_part.h). Where cuDNN takes grouped heads only with as many
 * key/value heads as query heads, keys and values are repeated first (sdpa_groups.h). Where it
 * has no plan for a shape on this GPU, or even small parts want an absurd workspace, that is kept
 * too: run then sets *done to false and the caller computes the call itself.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_SDPA_H
#define SNUG_DEVICE_CUDA_ATTENTION_SDPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes for the plan of an attention or attention_grad call; 0 when there is none. */
int64_t cuda_sdpa_workspace(const struct op_call *c, const struct kernel_env *env);
int64_t cuda_sdpa_grad_workspace(const struct op_call *c, const struct kernel_env *env);

/* How a call runs whose workspace was asked for, in words, for people: the plan and its part. */
void cuda_sdpa_describe(const struct op_call *c, const struct kernel_env *env, char *text,
                        size_t n_bytes);

enum status cuda_sdpa_run(const struct kernel_ctx *x, const struct op_call *c,
                          bool *done) MUST_CHECK;
enum status cuda_sdpa_grad_run(const struct kernel_ctx *x, const struct op_call *c,
                               bool *done) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
