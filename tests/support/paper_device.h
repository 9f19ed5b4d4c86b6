/* paper_device.h: a GPU that exists on paper, for planning: memory of its own, three queues, the
 * rates of a data centre's card. Its kernels are the CPU's; programs for it are not run. */
#ifndef SNUG_TESTS_PAPER_DEVICE_H
#define SNUG_TESTS_PAPER_DEVICE_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an open CPU into one, for one device at a time. */
void paper_device_make(struct device *d);

#ifdef __cplusplus
}
#endif
#endif
