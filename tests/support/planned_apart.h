/* planned_apart.h: a CPU with a disk, and the same as if its memory were apart from the host's: for
 * plans and programs that are looked at. Nothing runs on the second. */
#ifndef SNUG_TESTS_PLANNED_APART_H
#define SNUG_TESTS_PLANNED_APART_H

#include "device/device.h"
#include "support/scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct planned_apart {
    struct scratch scratch; /* the disk's folder */
    struct device device, apart;
    struct device_ops ops; /* of the second */
};

void planned_apart_open(struct planned_apart *x);
void planned_apart_close(struct planned_apart *x);

#ifdef __cplusplus
}
#endif
#endif
