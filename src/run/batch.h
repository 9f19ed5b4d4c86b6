/* batch.h: inside run/: instructions that run together.
 *
 * Updates of a step come one after the other, one instruction per tensor, with kernels of one kind
 * and without a word to each other. A device that can (device_ops.batch) is handed such a run as
 * one call, so that a hundred small tensors do not cost a hundred launches. Order inside a run
 * cannot matter: it ends where an instruction touches memory that another of the run writes, and
 * the bits are those of one call after the other.
 */
#ifndef SNUG_RUN_BATCH_H
#define SNUG_RUN_BATCH_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BATCH_MOST = 256 }; /* instructions in one run */

/* calls[i]: instruction i with its addresses, NULL where it is no compute instruction.
 * n_together[i]: how many instructions from i on run together: 1 means i alone, 0 that i belongs to
 * a run that began before it. */
void batch_find(const struct program *p, const struct device *device,
                const struct op_call *const *calls, int32_t *n_together);

#ifdef __cplusplus
}
#endif
#endif
