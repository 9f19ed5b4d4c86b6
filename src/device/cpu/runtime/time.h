/* time.h: the CPU's side of device_ops.fill and device_ops.time_calls. */
#ifndef SNUG_DEVICE_CPU_RUNTIME_TIME_H
#define SNUG_DEVICE_CPU_RUNTIME_TIME_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status cpu_fill(struct device *d, const struct tensor *t, struct index_rule rule) MUST_CHECK;
enum status cpu_time_calls(struct device *d, const struct timed_calls *t,
                           struct call_time *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
