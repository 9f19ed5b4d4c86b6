/* elastic.h: budgets that change while a run goes on.
 *
 * Between two steps the run looks for a request (io/budget_request.h) and changes over to programs
 * planned for it; what does not fit is refused with the reason, and the run goes on as it was.
 */
#ifndef SNUG_TRAIN_ELASTIC_H
#define SNUG_TRAIN_ELASTIC_H

#include "io/budget_request.h"
#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A request, and what came of it. */
struct budget_record {
    int64_t step;       /* after which it came */
    const char *wanted; /* "device_memory=9GiB" */
    bool changed;
    const char *text;                /* in words; the reason where it was refused */
    const struct forecast *forecast; /* of the programs that run from here on */
    double seconds;                  /* from the request's being read to the next step */
};

/* A change that was asked for, carried out or refused: an error only where the run cannot go on. To
 * be called when no update is pending. *r points into *answer. */
enum status elastic_change(struct session *s, const struct budget_request *request,
                           struct str *answer, struct budget_record *r) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
