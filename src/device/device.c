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

enum status device_tune(struct device *d, const struct device_tuning *t)
{
    if (!d->ops->tune && t->tf32)
        return FAIL(ERR_UNSUPPORTED,
                    "tf32 is a format of NVIDIA GPUs; the %s multiplies f32 in full precision",
                    d->ops->name);
    if (!d->ops->tune && t->search)
        return FAIL(ERR_UNSUPPORTED, "the %s has no algorithms to search among", d->ops->name);
    if (d->ops->tune)
        TRY(d->ops->tune(d, t));
    d->tuning = *t;
    return OK;
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
    return gpu_refuse(GPU_NOT_BUILT, &(struct gpu_facts){0});
}

void gpu_look(struct gpu_facts *f, int index)
{
    *f = (struct gpu_facts){.index = index};
}

void gpu_look_closer(struct gpu_facts *f)
{
    (void)f;
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
