/* rates.h: what this machine's processors can do, for the time model and for MFU. */
#ifndef SNUG_DEVICE_CPU_RUNTIME_RATES_H
#define SNUG_DEVICE_CPU_RUNTIME_RATES_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills in d->rates, in well under a second, on scratch memory that is given back. *undisturbed:
 * each rate had a round without other programs in the way. */
enum status cpu_measure(struct device *d, bool *undisturbed) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
