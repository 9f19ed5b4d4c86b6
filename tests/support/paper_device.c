#include "support/paper_device.h"

static void *queue(struct device *d, enum queue q)
{
    (void)q;
    return d;
}

static int64_t context_bytes(struct device *d)
{
    (void)d;
    return 0;
}

/* There is as much as a budget may name. */
static enum status room(struct device *d, struct device_room *out)
{
    (void)d;
    *out = (struct device_room){.total_bytes = (int64_t)1 << 50, .free_bytes = (int64_t)1 << 50};
    return OK;
}

void paper_device_make(struct device *d)
{
    static struct device_ops ops;
    const struct link_rate link = {.alone = 55e9, .both = 47e9, .latency_s = 8e-6};
    ops = *d->ops;
    ops.memory_is_apart = true;
    ops.queue = queue;
    ops.context_bytes = context_bytes;
    ops.room = room;
    ops.fill = NULL;
    ops.time_calls = NULL;
    d->ops = &ops;
    d->rates = (struct device_rates){.matmul_flops = 60e12,
                                     .half_matmul_flops = 650e12,
                                     .memory_bytes = 3.5e12,
                                     .launch_s = 2e-6};
    d->rates.links[TIER_DEVICE][TIER_HOST] = link;
    d->rates.links[TIER_HOST][TIER_DEVICE] = link;
}
