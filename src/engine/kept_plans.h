/* kept_plans.h: what searches have found, kept in the cache folder: the same plan asked for again
 * takes no search.
 *
 * A plan goes by all that it was made from: graphs, settings, budgets, the device with its rates,
 * the build. What is kept are its decisions; programs are emitted from them, placed, held against
 * the budgets and proved as those of a search are. Where they do not come to the same bytes and
 * about the same time as then, or where there is more memory by now, a search is made after all.
 */
#ifndef SNUG_ENGINE_KEPT_PLANS_H
#define SNUG_ENGINE_KEPT_PLANS_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The file of a plan. */
struct kept_plan {
    struct str path; /* empty: nothing is kept */
};

/* The engine is built, and its decisions are those that are configured. */
enum status kept_plan_name(struct kept_plan *k, const struct engine *e) MUST_CHECK;
void kept_plan_release(struct kept_plan *k); /* also of one that is all zero */

/* *found: the engine's decisions, report and programs are those that are kept, and fit. Else its
 * programs are none in particular. A file that is damaged, or of another making, is no error. */
enum status kept_plan_take(const struct kept_plan *k, struct engine *e, bool *found) MUST_CHECK;

/* What was searched for, fits and was timed. A folder that cannot be written costs the next plan
 * its time, no more. */
void kept_plan_store(const struct kept_plan *k, const struct engine *e);

#ifdef __cplusplus
}
#endif
#endif
