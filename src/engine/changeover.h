/* changeover.h: other budgets for an engine that runs.
 *
 *     engine_replan        programs for other limits, beside those that run
 *     engine_change_over   what outlives a step goes from the old arenas to the new ones
 *     engine_discard       what is left of the one that is not used
 *
 * The graphs are the same, so every step after it gives the bits that it would have given. The
 * arenas of before go back to the system before the new ones are asked for: both budgets hold at
 * every moment. In between, what outlives a step lies in a file without a name: the page cache
 * keeps it where there is memory, the disk where there is not.
 */
#ifndef SNUG_ENGINE_CHANGEOVER_H
#define SNUG_ENGINE_CHANGEOVER_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ERR_FIT, with the reason, when nothing fits. On failure there is nothing to discard. The engine's
 * device, model and times are borrowed by *next. */
enum status engine_replan(const struct engine *e, const struct limits *limits,
                          struct engine *next) MUST_CHECK;

/* Between two steps. `folder`: where the file may lie. On failure e goes on as it was, unless its
 * executor is NULL: then its arenas could not be had again. Constants and places of parameters are
 * those of the new programs; inputs and reserves have to be found again. */
enum status engine_change_over(struct engine *e, struct engine *next,
                               const char *folder) MUST_CHECK;

/* After either; also after a failure. */
void engine_discard(struct engine *next);

#ifdef __cplusplus
}
#endif
#endif
