/* snapshot.h: a plan as a memory snapshot of PyTorch (torch.cuda.memory._snapshot, pickled), for
 * the viewers of those: pytorch.org/memory_viz takes the file as it is.
 *
 *     {"segments": [{"device", "address", "total_size", "allocated_size", "active_size",
 *                    "requested_size", "stream", "segment_type", "blocks": [{"address", "size",
 *                    "requested_size", "state", "frames": [...]}, ...]}, ...],
 *      "device_traces": [[{"action", "addr", "size", "stream", "time_us", "category",
 *                          "frames": [{"filename", "line", "name"}]}, ...], ...]}
 *
 * Device 0 is the device's memory, 1 the host's, 2 the disk; each has one segment, the arena, and
 * a block or an event for every buffer with memory of its own. Frames say the buffer's name and
 * why it is there, what made it, and where in the step that is; lines are instructions.
 */
#ifndef SNUG_REPORT_SNAPSHOT_H
#define SNUG_REPORT_SNAPSHOT_H

#include "report/plan_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends the file, which has NUL bytes in it. */
enum status snapshot_print(const struct plan_data *d, struct str *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
