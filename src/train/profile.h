/* profile.h: where the time of some training steps went, instruction by instruction: a table for
 * people, and a trace for Perfetto or chrome://tracing (trace.h).
 *
 *     TRY(profile_init(&p, session, &options, n));    after session_start; n: steps of the run
 *     profile_step_begin(&p, i);                      around every step of the run, i = 1, 2, ...
 *     TRY(profile_step_end(&p, i, seconds));          writes the trace after the last timed step
 *     profile_table(&p, &text);
 *     profile_release(&p);
 *
 * Steps before the first timed one run as always: on a GPU step 1 loads code and step 2 makes the
 * recording, so what a step takes without being watched is known from step 3.
 */
#ifndef SNUG_TRAIN_PROFILE_H
#define SNUG_TRAIN_PROFILE_H

#include "run/timing.h"
#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PROFILE_FIRST_STEP = 4, PROFILE_N_STEPS = 3 };

struct profile_options {
    const char *path; /* of the trace; NULL: none is written */
    int64_t n_steps;  /* timed ones, from PROFILE_FIRST_STEP on; at least 1 */
};

struct profiled_step {
    int64_t step;             /* 1-based, of this run */
    size_t first_run, n_runs; /* of sections, in timing.runs */
    double start_s, seconds;  /* since timing_init */
};

struct profile {
    struct session *s; /* borrowed */
    struct profile_options options;
    struct timing timing;
    VEC(struct profiled_step) steps;
    double unwatched_s; /* shortest of the steps without timing that count; 0: none yet */
    bool written;
};

/* Refuses (ERR_USAGE) a run of fewer steps than are to be timed. */
enum status profile_init(struct profile *p, struct session *s, const struct profile_options *o,
                         int64_t n_steps_of_run) MUST_CHECK;
void profile_release(struct profile *p); /* also of one that is all zero */

void profile_step_begin(struct profile *p, int64_t i_step);
enum status profile_step_end(struct profile *p, int64_t i_step, double seconds) MUST_CHECK;

/* Seconds of a timed step, the mean. */
double profile_step_s(const struct profile *p);

/* When the instructions of a program ran: seconds since its first section began, the mean over the
 * runs of their section; sections stand one behind the other, each once. */
struct instr_times {
    double *start, *seconds; /* by instruction; NULL: not known */
};
/* Of the steps timed so far; all zero before the first. */
enum status profile_times(const struct profile *p, struct instr_times *out) MUST_CHECK;
void instr_times_release(struct instr_times *t);

/* Per op: calls and milliseconds of a step, share, how near to the limit set by the device's rates,
 * and what was predicted. Appends nothing before a step was timed. */
void profile_table(const struct profile *p, struct str *out);

#ifdef __cplusplus
}
#endif
#endif
