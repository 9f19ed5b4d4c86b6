#include "support/planned_apart.h"

#include "support/golden.h"

void planned_apart_open(struct planned_apart *x)
{
    scratch_init(&x->scratch);
    expect_ok(device_open_cpu(&x->device, 1));
    expect_ok(device_use_disk(&x->device, x->scratch.folder));
    x->apart = x->device;
    x->ops = *x->device.ops;
    x->ops.memory_is_apart = true;
    x->apart.ops = &x->ops;
}

void planned_apart_close(struct planned_apart *x)
{
    device_close(&x->device);
    scratch_release(&x->scratch);
}
