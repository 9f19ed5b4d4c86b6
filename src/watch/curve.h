/* curve.h: the course of a run from its metrics.jsonl, in bounded memory however long it is.
 *
 * Steps are gathered into at most CURVE_POINTS points; when there are more, neighbours become one,
 * which keeps the mean, the least and the most. Reading goes on where it stopped. Steps that were
 * run twice (a run that was killed and resumed) count as they came last.
 */
#ifndef SNUG_WATCH_CURVE_H
#define SNUG_WATCH_CURVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CURVE_POINTS = 1024, CURVE_EVALS = 256 };

struct curve_point {
    int64_t first, last;     /* steps */
    int64_t n;               /* with a loss */
    double sum, least, most; /* of the losses */
    double lr;               /* of the last step */
    double rate, n_rates;    /* sum of steps per second, and over how many steps */
};

struct curve_eval {
    int64_t step;
    double loss;
};

struct curve {
    struct curve_point points[CURVE_POINTS];
    int n;
    int64_t n_steps;                      /* that are in them */
    int64_t stride;                       /* steps that a point gathers */
    struct curve_eval evals[CURVE_EVALS]; /* the last ones */
    int n_evals;
    /* where reading stopped */
    int64_t offset;
    uint64_t file; /* which file that was */
    struct str line;
};

/* Reads what has been written since, at most `most` bytes of it; *more = there is more. A file that
 * is not there has nothing in it. */
enum status curve_read(struct curve *c, const char *folder, int64_t most, bool *more) MUST_CHECK;
void curve_release(struct curve *c);

/* For tests and readers: one step; one line of the file. */
void curve_add(struct curve *c, int64_t step, double loss, double lr, double rate);
void curve_take_line(struct curve *c, const char *line);

#ifdef __cplusplus
}
#endif
#endif
