/* activation_calls.h: an activation made together with its gradient, beside the two made apart, on
 * any device: the same bits in every dtype, however operands are aligned, and in place. */
#ifndef SNUG_TESTS_ACTIVATION_CALLS_H
#define SNUG_TESTS_ACTIVATION_CALLS_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs every kernel of gelu_bias_with_grad and of the gates with gradients; prints what differs and
 * returns how many calls did. Failures of the device fail the test. */
int activation_calls_check(struct device *d);

#ifdef __cplusplus
}
#endif
#endif
