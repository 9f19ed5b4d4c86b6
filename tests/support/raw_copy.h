/* raw_copy.h: copies between addresses, for tests that lay out memory by hand. */
#ifndef SNUG_TESTS_RAW_COPY_H
#define SNUG_TESTS_RAW_COPY_H

#include <stdlib.h>

#include "device/device.h"

/* Ends the test program when the device refuses: there is nothing to test then. */
static inline void raw_copy(struct device *d, enum queue q, void *dst, const void *src,
                            int64_t n_bytes)
{
    struct memory to = memory_of_host(dst, n_bytes), from = memory_of_host(src, n_bytes);
    if (device_copy(d, q, (struct place){&to, 0}, (struct place){&from, 0}, n_bytes) != OK)
        abort();
}

#endif
