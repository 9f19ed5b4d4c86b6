#include "device/device.h"

#include <stddef.h>

const char *tier_name(enum tier t)
{
    static const char *const names[TIER_COUNT] = {"device", "host", "disk"};
    return names[t];
}

const char *queue_name(enum queue q)
{
    static const char *const names[QUEUE_COUNT] = {"compute", "in", "out", "disk", "comm"};
    return names[q];
}

void device_close(struct device *d)
{
    if (d->ops)
        d->ops->close(d);
    *d = (struct device){0};
}

#ifndef SNUG_HAVE_CUDA
enum status device_open_cuda_cached(struct device *d, int index, const char *cache_folder)
{
    (void)index;
    (void)cache_folder;
    *d = (struct device){0};
    return FAIL(ERR_UNSUPPORTED, "this build has no CUDA; build with -DSNUG_CUDA=ON, or use "
                                 "device: cpu");
}

int device_count_cuda(void)
{
    return 0;
}
#endif

enum status device_open_cuda(struct device *d, int index)
{
    return device_open_cuda_cached(d, index, NULL);
}
