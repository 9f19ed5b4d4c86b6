/* changeover.h: other budgets for an engine that runs.
 *
 *     engine_replan        programs for other limits, beside those that run
 *     engine_change_over   what outlives a step goes from the old arenas to the new ones
 *     engine_discard       what is left of the one that is not used
 *
 * The graphs are the same, so every step after it gives the bits that it would have given. Budgets
 * hold at every moment: the old one until the change is made, the new one from then on. Within them
 * new arenas are filled from the old ones; where both at once are too much, what outlives a step
 * waits in host memory, and where that is too little, in a file (route.h).
 */
#ifndef SNUG_ENGINE_CHANGEOVER_H
#define SNUG_ENGINE_CHANGEOVER_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is wanted instead of what runs. */
struct replan {
    struct limits limits;
    const struct engine_request *request; /* NULL: the same; its arrays outlive the change */
    const struct config *config;          /* that it is of; NULL: the same */
    const struct decisions *known;        /* made before, for these limits; NULL: searched for */
    int rank; /* of the plan that is wanted, by the times that are known; 0: as configured, timed */
    bool is_timed; /* kernels may be timed: nothing runs meanwhile */
};

/* ERR_FIT, with the reason, when nothing fits. On failure there is nothing to discard. The engine's
 * device, model and times are borrowed by *next. */
enum status engine_replan(const struct engine *e, const struct replan *r,
                          struct engine *next) MUST_CHECK;

/* The same to see what comes of it, or from another thread, while e runs: of the system nothing is
 * asked: what there is for it is `around`. A plan over budget is no error here: forecast.fits. */
enum status engine_replan_beside(const struct engine *e, const struct replan *r,
                                 const struct surroundings *around, struct engine *next) MUST_CHECK;

/* What there will be around other programs: the arenas of those that run are gone by then. */
void surroundings_without(struct surroundings *s, const struct engine *e);

struct changeover {
    const char *folder; /* where a file may lie */
    /* afterwards: */
    int64_t moved_bytes;              /* what outlives a step */
    int64_t memory_bytes, file_bytes; /* of these: that waited in memory, in a file */
    int64_t held[TIER_COUNT];         /* the most of each memory meanwhile, as route.h has it */
};

/* Between two steps. On failure e goes on as it was, unless its executor is NULL: then its arenas
 * could not be had again. Constants and places of parameters are those of the new programs; inputs
 * and reserves have to be found again. */
enum status engine_change_over(struct engine *e, struct engine *next,
                               struct changeover *c) MUST_CHECK;

/* After either; also after a failure. */
void engine_discard(struct engine *next);

#ifdef __cplusplus
}
#endif
#endif
