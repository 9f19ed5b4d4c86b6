/* predict.h: how long the instructions of a program will take, and when each will run.
 *
 * An instruction takes what was measured for its kernel (kernel_times.h) or, where nothing was,
 * what the device's rates give: the longer of its arithmetic and its memory traffic. A section's
 * time is that of its queues: each is in order, and waits for the events of the others.
 */
#ifndef SNUG_PROGRAM_PREDICT_H
#define SNUG_PROGRAM_PREDICT_H

#include "program/kernel_times.h"

#ifdef __cplusplus
extern "C" {
#endif

struct prediction {
    double *seconds; /* per instruction: how long it holds its queue */
    int n_calls;     /* distinct calls of kernels */
    int n_by_rate;   /* those of them whose time comes from the rates */
};

/* Of a program that is emitted; it need not be placed. times NULL: everything by rate. */
enum status predict(struct prediction *out, const struct program *p, const struct device *device,
                    const struct kernel_times *times) MUST_CHECK;
void prediction_release(struct prediction *p);

/* Seconds from the beginning of the section to its end. starts (NULL: not wanted) has room for
 * every instruction of the program; those of the section receive when they begin. */
enum status predict_section(const struct prediction *prediction, const struct program *p,
                            const struct device *device, const struct section *s, double *starts,
                            double *seconds) MUST_CHECK;

/* Seconds of an optimizer step: all sections, each as often as it runs. */
enum status predict_step(const struct prediction *prediction, const struct program *p,
                         const struct device *device, int64_t n_micro, double *seconds) MUST_CHECK;

/* When instructions begin, in seconds: starts[] by instruction, every section once and one behind
 * the other; section_s[] says how long each takes. Both are zero where there is no prediction, and
 * have room for one more than there are. */
enum status predict_starts(const struct prediction *prediction, const struct program *p,
                           const struct device *device, double *starts,
                           double *section_s) MUST_CHECK;
/* When the computing queue has come to each instruction: the clock by which memory is taken and
 * given back. It never goes back; behind the last instruction stands the end. */
enum status predict_clock(const struct prediction *prediction, const struct program *p,
                          const struct device *device, double *clock) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
