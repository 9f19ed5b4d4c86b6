/* pressure.h: when a run that gives way to others (`elastic`) wants another budget.
 *
 * Readings are words of health.h. One emergency is enough, a critical reading has to come twice in
 * a row and a warning three times; after a change nothing is wanted for a while, the longer the
 * less urgent it is. Memory has to have come back for ten readings before more is wanted again.
 */
#ifndef SNUG_TRAIN_PRESSURE_H
#define SNUG_TRAIN_PRESSURE_H

#include "train/health.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pressure_wish {
    PRESSURE_NONE,
    PRESSURE_LESS, /* than it has */
    PRESSURE_MORE, /* than it has, but not all that it had */
    PRESSURE_ALL,  /* that it had before it gave way */
};

struct pressure {
    const struct health_profile *profile;
    int64_t cooldown;    /* steps */
    int64_t changed_at;  /* after which step; -1: never */
    int n[HEALTH_COUNT]; /* readings in a row that are as bad as this or worse */
    int n_roomy;         /* in a row that leave room for more */
    bool gave_way;       /* it has less than it had, and: */
    int64_t whole_need;  /* what it needed then */
    int64_t whole_room;  /* what could be had when that was planned */
    enum health health;  /* of the last reading */
};

void pressure_init(struct pressure *p, const struct health_profile *profile, int64_t cooldown);

/* A reading after a step. */
enum pressure_wish pressure_look(struct pressure *p, const struct health_input *in, int64_t step);
/* Bytes to be planned for: what the profile's target leaves of what there is. */
int64_t pressure_target(const struct pressure *p, const struct health_input *in);
/* The wish was granted, or could not be: in either case nothing is wanted for a while. `before`:
 * the reading that it came from. */
void pressure_note(struct pressure *p, enum pressure_wish wish, const struct health_input *before,
                   bool granted, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
