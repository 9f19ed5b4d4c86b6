/* elastic.h: budgets, and micro-batches, that change while a run goes on.
 *
 * Between two steps the run looks for a request (io/budget_request.h); with `elastic` and
 * `dynamic_batch` also at what memory others have left. It then changes over to programs planned
 * for what is wanted; what does not fit is refused with the reason, and the run goes on as it was.
 */
#ifndef SNUG_TRAIN_ELASTIC_H
#define SNUG_TRAIN_ELASTIC_H

#include "io/budget_request.h"
#include "train/dynamic_batch.h"
#include "train/pressure.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A change that was wanted, and what came of it. */
struct budget_record {
    int64_t step;       /* after which it came */
    const char *wanted; /* "device_memory=9GiB" */
    const char *why;    /* the run wants it by itself; NULL: it was asked */
    bool changed;
    bool was_planned;                /* beforehand */
    const char *text;                /* in words; the reason where it was refused */
    const struct forecast *forecast; /* of the programs that run from here on */
    int64_t batch, n_micro;          /* sequences of a micro-batch, and how many are a step */
    double seconds;                  /* from the request's being read to the next step */
    double planning_s, carrying_s;   /* of these; where it was changed: */
    struct changeover over;          /* what was carried, and how */
};

/* What a run wants, whoever it comes from. */
struct elastic_wish {
    struct limits limits;
    bool hurries;            /* any plan that was made beforehand will do */
    bool grows;              /* it is for a larger micro-batch: else it is nothing */
    struct str wanted, why;  /* of a record */
    enum pressure_wish from; /* that it answers; PRESSURE_NONE: another */
    struct health_input reading;
};
void elastic_wish_release(struct elastic_wish *w);

struct elastic {
    struct limits asked; /* by the config, or by the last request that was granted */
    struct pressure pressure;
    struct dynamic_batch batch;
    double read_at, read_s; /* when others' memory was last read, and how long it took */
};
void elastic_init(struct elastic *x, const struct session *s);

/* A request as a wish. */
enum status elastic_request(const struct session *s, const struct budget_request *r,
                            struct elastic_wish *w) MUST_CHECK;

/* After a step: *wants: what others have left makes the run want another budget or micro-batch. */
enum status elastic_look(struct elastic *x, struct session *s, int64_t step, struct elastic_wish *w,
                         bool *wants) MUST_CHECK;

/* A wish, granted or refused: an error only where the run cannot go on. To be called when no update
 * is pending. *r points into *w and *answer; r->text NULL: there was nothing to gain. */
enum status elastic_change(struct elastic *x, struct session *s, const struct elastic_wish *w,
                           int64_t step, struct str *answer, struct budget_record *r) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
