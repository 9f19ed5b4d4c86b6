/* weight_grad.h: the gradient of a convolution's weights: for each block of results, values of x
 * are broadcast from where they lie and multiplied with the results' gradients.
 *
 * The results are cut into spans, by shapes alone; each has sums of its own, which are added in
 * their order at the end. So the number of threads does not show.
 */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_WEIGHT_GRAD_H
#define SNUG_DEVICE_CPU_CONVOLUTION_WEIGHT_GRAD_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

int64_t conv_grad_weight_direct_workspace(const struct op_call *c, const struct kernel_env *env);
kernel_run conv_grad_weight_direct;

#ifdef __cplusplus
}
#endif
#endif
