/* lanes.h: what each queue of a program does over its predicted time, for people to look at.
 *
 * Time is cut into columns; a span is a run of them in which a queue does mostly the same.
 */
#ifndef SNUG_PROGRAM_LANES_H
#define SNUG_PROGRAM_LANES_H

#include "program/predict.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What instructions are part of: a pass, as reports see it, or copies. */
enum lane_part { LANE_RECOMPUTE = PASS_COUNT, LANE_COPY, LANE_PART_COUNT };

struct lane_span {
    enum queue queue;
    int part; /* a pass, or an enum lane_part */
    int first, n_columns;
    double busy; /* share of its time, in (0, 1] */
};

struct lanes {
    VEC(struct lane_span) spans; /* by queue, then by time */
    int n_columns;
    double seconds; /* that the columns stand for */
    bool is_used[QUEUE_COUNT];
    double busy[QUEUE_COUNT]; /* share of the time of a step, with what it repeats */
};

/* n_columns is at least 1; n_micro: micro-batches of a step. */
enum status lanes_init(struct lanes *l, const struct prediction *prediction,
                       const struct program *p, const struct device *device, int64_t n_micro,
                       int n_columns) MUST_CHECK;
void lanes_release(struct lanes *l);

#ifdef __cplusplus
}
#endif
#endif
