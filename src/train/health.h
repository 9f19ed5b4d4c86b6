/* health.h: how a run stands with its memory, in five words, and what grows.
 *
 * u is what the run needs (or holds, where that is more) of what it may have: its budget, or what
 * others leave it where that is less. The words are decided by u, from the top:
 *
 *     emergency      u >= emergency       critical   u >= critical      warning   u >= warning
 *     underutilised  u < 0.8 target       healthy    else
 *
 * Thresholds stand for a run that fills its budget up to `target`. What a plan takes is exact and
 * does not grow: where it fills more than that, it fills it on purpose, and the thresholds move
 * into what is left of the budget in proportion. So a plan is never alarming by itself; others that
 * take what it counts on are, and so is a process that holds more than it was planned to.
 */
#ifndef SNUG_TRAIN_HEALTH_H
#define SNUG_TRAIN_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum health {
    HEALTH_UNDERUTILISED,
    HEALTH_HEALTHY,
    HEALTH_WARNING,
    HEALTH_CRITICAL,
    HEALTH_EMERGENCY,
    HEALTH_COUNT
};
const char *health_name(enum health h);

struct health_profile {
    const char *name;
    double target, warning, critical, emergency;
};
extern const struct health_profile health_profiles[3]; /* balanced, aggressive, conservative */
/* NULL: there is none of that name. */
const struct health_profile *health_profile_find(const char *name);

struct health_input {
    int64_t need, own, free;
    int64_t budget; /* INT64_MAX: none was given */
    int64_t room;   /* what could be had when it was planned; 0: not known */
};

struct health_view {
    enum health health;
    double use;     /* u */
    double planned; /* u as it was planned */
};
struct health_view health_look(const struct health_profile *p, const struct health_input *in);

/* ---- what grows ------------------------------------------------------------------------------ */

enum { GROWTH_SAMPLES = 20, GROWTH_HORIZON_S = 600 };

/* The last samples of a number of bytes. */
struct growth {
    int64_t id; /* whose: a process, or anything but 0 */
    double time[GROWTH_SAMPLES];
    int64_t n_bytes[GROWTH_SAMPLES];
    int n, next;
};
void growth_add(struct growth *g, double time, int64_t n_bytes);
/* Bytes a second by which it has grown steadily: over all samples, in nearly all of them, and never
 * back by more than a little; 0: it does not. */
double growth_rate(const struct growth *g);
/* Does it grow so that `free` bytes are gone within the horizon? *seconds = until then. */
bool growth_is_leak(const struct growth *g, int64_t free_bytes, double *seconds);
int64_t growth_bytes(const struct growth *g); /* from the first sample to the last */

#ifdef __cplusplus
}
#endif
#endif
