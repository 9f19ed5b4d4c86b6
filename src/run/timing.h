/* timing.h: when the instructions of a program ran.
 *
 *     TRY(timing_init(&t, program, device));
 *     executor_time_into(x, handle, &t);    every run of a section is written down ...
 *     TRY(executor_run(x, handle, "step"));
 *     executor_time_into(x, handle, NULL);  ... until here
 *     t.runs.items[0].end[k]
 *     timing_release(&t);
 *
 * Where kernels run when they are called, the clock is asked before and after. On a device with
 * queues each instruction is followed by a mark on its queue, in recordings too: an instruction
 * lasts from the mark before it to its own, so what a queue waits for shows as the length of the
 * wait, and the gap between two kernels belongs to the second. Marks cost about a microsecond each.
 */
#ifndef SNUG_RUN_TIMING_H
#define SNUG_RUN_TIMING_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One run of a section. */
struct timed_run {
    const struct section *section; /* borrowed from the program */
    double start_s;                /* since timing_init, by the host's clock */
    double seconds;                /* until everything was finished, by the host's clock */
    double *begin, *end; /* per instruction of the section, seconds since the run's beginning */
};

struct timing {
    const struct program *p; /* borrowed */
    struct device *device;   /* borrowed */
    struct pool pool;
    VEC(struct timed_run) runs;
    double origin_s;
};

enum status timing_init(struct timing *t, const struct program *p,
                        struct device *device) MUST_CHECK;
void timing_release(struct timing *t);
/* Forgets the runs, keeps the clock. */
void timing_clear(struct timing *t);
/* Seconds since timing_init. */
double timing_now(const struct timing *t);

/* ---- what the executor calls ----------------------------------------------------------------- */

enum status timing_enter(struct timing *t, const struct section *s) MUST_CHECK;
/* Around what is enqueued: the section's beginning, and n instructions that ran together. */
enum status timing_begin(struct timing *t) MUST_CHECK;
void timing_before(struct timing *t, int32_t at);
enum status timing_after(struct timing *t, int32_t at, int32_t n) MUST_CHECK;
/* Everything has finished. n_together: see batch.h; calls: per instruction, NULL where none. */
enum status timing_leave(struct timing *t, const int32_t *n_together,
                         const struct op_call *const *calls) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
