/* sdpa.h: attention through cuDNN's graph interface: bf16 and f16, on the packed layout as it
 * is (queries, keys and values are strided views of one buffer).
 *
 * A plan for a shape is built once, when it is first asked for, and kept with the device's
 * libraries. Where the plan of the whole call wants too much workspace, the call runs in equal
 * parts, one after the other (sdpa_part.h). Where cuDNN takes grouped heads only with as many
 * key/value heads as query heads, keys and values are repeated first (sdpa_groups.h). Where it
 * has no plan for a shape on this GPU, or even small parts want an absurd workspace, that is kept
 * too, and the call is declined.
 */
#ifndef SNUG_DEVICE_CUDA_ATTENTION_SDPA_H
#define SNUG_DEVICE_CUDA_ATTENTION_SDPA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The members of struct kernel, for calls of attention and attention_grad in one 16-bit float dtype
 * without dropout. */
const char *cuda_sdpa_declines(const struct op_call *c, const struct kernel_env *env);
int64_t cuda_sdpa_workspace(const struct op_call *c, const struct kernel_env *env);
enum status cuda_sdpa_run(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;
enum status cuda_sdpa_grad_run(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;

/* How a call runs that was not declined, in words, for people: the plan and its part. */
void cuda_sdpa_describe(const struct op_call *c, const struct kernel_env *env, char *text,
                        size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
