/* apart_device.h: a CPU whose device memory the host cannot address, as a GPU's: pages of the
 * device tier are open while a kernel or a copy runs and closed otherwise, so that host code which
 * follows a device address ends with a segmentation fault on machines without a GPU too. */
#ifndef SNUG_TESTS_APART_DEVICE_H
#define SNUG_TESTS_APART_DEVICE_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an open CPU device into one. One device tier at a time, or two while programs change. */
void apart_device_make(struct device *d);

/* The n-th allocation of the device tier from now on fails, and so do those after it, `n` in all.
 */
void apart_fail_allocations(int nth, int n);

/* What devices made from now on have as staging_bytes. */
extern int64_t apart_staging_bytes;

/* Whether a CPU opened by the library is to be one (support/opened_apart.c). */
extern bool cpu_opens_apart;

#ifdef __cplusplus
}
#endif
#endif
