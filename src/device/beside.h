/* beside.h: what a process holds of the host's memory beside its arenas, as earlier runs had it.
 *
 * Libraries of a GPU load code when a kernel is first called. A plan whose kernels were all timed
 * by an earlier process is made before that, in a process that is smaller than it will be. The
 * least that a run on this GPU with this build has held is what every run will hold.
 */
#ifndef SNUG_DEVICE_BESIDE_H
#define SNUG_DEVICE_BESIDE_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* d->beside_bytes, where the folder knows it and the device's memory is apart; NULL: no folder. */
void beside_load(struct device *d, const char *cache_folder);
/* What a run has held. The least of all runs is kept; a folder that cannot be written costs the
 * next plan its precision, no more. */
void beside_store(const struct device *d, const char *cache_folder, int64_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
