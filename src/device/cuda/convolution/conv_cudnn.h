/* conv_cudnn.h: convolutions and their gradients through cuDNN's graph interface.
 *
 * A plan for a shape is built once, when it is first asked for, and kept with the device's
 * libraries; where cuDNN has none that keeps to the allowance (declared/convolution.h), that is
 * kept too, and the call is declined. Calls with more elements than cuDNN counts run in parts,
 * one after the other (declared/conv_parts.h).
 */
#ifndef SNUG_DEVICE_CUDA_CONVOLUTION_CONV_CUDNN_H
#define SNUG_DEVICE_CUDA_CONVOLUTION_CONV_CUDNN_H

#include "device/cuda/declared/convolution.h"
#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* gpu_answers.convolution_declines */
const char *cuda_conv_declines(const struct kernel_env *env, const struct conv_shape *s);
enum status cuda_conv_run(const struct kernel_ctx *x, const struct op_call *c) MUST_CHECK;

/* conv_add.cu: what engines leave to others. to = from + what it holds, n elements. */
enum status conv_add(const struct kernel_ctx *x, enum dtype dtype, void *to, const void *from,
                     int64_t n) MUST_CHECK;
/* to, in f32, = from, in `dtype`, or what it holds and that. */
enum status conv_widen(const struct kernel_ctx *x, enum dtype dtype, void *to, const void *from,
                       int64_t n, bool adds) MUST_CHECK;
/* y[n_rows, n] += bias[n] */
enum status conv_add_bias(const struct kernel_ctx *x, enum dtype dtype, void *y, const void *bias,
                          int64_t n_rows, int64_t n) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
