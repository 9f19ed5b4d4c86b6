/* queues.h: a section on its queues: when each instruction begins, and when the last one ends.
 *
 * Queues run side by side and each is in order; events tell one how far another has come. A copy
 * runs at the rate its link has for one way, and at the one for both ways as long as a copy on the
 * other queue runs too: the same wires, and the same memory of the host.
 */
#ifndef SNUG_PROGRAM_QUEUES_H
#define SNUG_PROGRAM_QUEUES_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* alone, starts: of the section's instructions; alone: what each takes when nothing slows it. */
enum status queues_run(const struct program *p, const struct device *device,
                       const struct section *s, const double *alone, double *starts,
                       double *seconds) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
