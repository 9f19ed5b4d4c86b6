/* surroundings.h: the memory around a plan: what the process holds, and what there is for it.
 *
 * The system says so in a dozen files. A loop over many plans reads them once: it sets
 * workload.around, and forecasts within it go by that. */
#ifndef SNUG_SEARCH_SURROUNDINGS_H
#define SNUG_SEARCH_SURROUNDINGS_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct surroundings {
    int64_t resident_bytes;  /* of the process, with what its code will take */
    int64_t peak_bytes;      /* the most it ever held */
    struct device_room room; /* of the device's memory */
    struct device_room host; /* of the host's; the same one where they are one memory */
    struct device_room disk; /* of the disk tier's folder; nothing where there is none */
};

/* Gives back what planning has freed, and looks. */
void surroundings_read(struct surroundings *s, struct device *d);

#ifdef __cplusplus
}
#endif
#endif
