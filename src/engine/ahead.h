/* ahead.h: plans for other budgets, made beside a run, so that a change to one of them takes no
 * search.
 *
 *     ahead_want    a budget that may come
 *     ahead_start   a thread of the lowest priority plans for those that are not planned for yet
 *     ahead_stop    at once, whatever it is at: before the engine is changed
 *     ahead_find    what there is for a budget
 *
 * What is kept of a plan is its decisions; programs are emitted from them in a moment. The thread
 * holds no more of the heap than ahead_bytes says: what would take more is not planned for.
 */
#ifndef SNUG_ENGINE_AHEAD_H
#define SNUG_ENGINE_AHEAD_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ahead_plan {
    struct limits limits;
    int64_t batch;                        /* sequences of a micro-batch */
    const struct engine_request *request; /* of it, where it may be another than the engine's */
    const struct config *config;          /* likewise; borrowed */
    bool failed;  /* there is no plan: it would have taken too much memory */
    bool is_done; /* planned, with this result: */
    bool fits;
    int64_t needs[TIER_COUNT];
    double step_s;
    struct decisions decisions;
    struct pool pool; /* of these */
};

struct ahead;

/* Bytes that planning a workload takes beside it, at most. */
int64_t ahead_bytes(const struct workload *w);

enum status ahead_new(struct ahead **out) MUST_CHECK;
void ahead_free(struct ahead *a); /* stops it first; NULL is fine */

/* The functions from here on are for the thread that trains, and all but ahead_is_busy,
 * ahead_end and ahead_stop for when the other one is stopped. */

/* One more to plan for, unless it is there already; beyond the most it is forgotten. */
enum status ahead_want(struct ahead *a, const struct limits *limits, int64_t batch) MUST_CHECK;
/* The same with a micro-batch that may be another than the engine's; what is asked of an engine
 * then is borrowed until ahead_free. */
enum status ahead_want_batch(struct ahead *a, const struct limits *limits, int64_t batch,
                             const struct engine_request *request,
                             const struct config *config) MUST_CHECK;
/* What the engine runs now is a plan too. */
enum status ahead_keep(struct ahead *a, const struct engine *e, int64_t batch) MUST_CHECK;

/* Plans for what is wanted; the engine stays as it is until ahead_stop. Nothing is started where
 * nothing is left to do. */
enum status ahead_start(struct ahead *a, const struct engine *e) MUST_CHECK;
void ahead_stop(struct ahead *a);
bool ahead_is_busy(const struct ahead *a);
/* Waits until all is planned; false: nothing was under way. */
bool ahead_end(struct ahead *a);

/* Of the plans for this micro-batch that keep these limits, the fastest; NULL: there is none, or
 * none for a budget that is at most an eighth less than the device's (`any`: never mind). */
const struct ahead_plan *ahead_find(const struct ahead *a, const struct limits *limits,
                                    int64_t batch, bool any);

/* How many are planned, and the most of the heap that the thread held. */
int ahead_n_done(const struct ahead *a);
int64_t ahead_peak_bytes(const struct ahead *a);

#ifdef __cplusplus
}
#endif
#endif
