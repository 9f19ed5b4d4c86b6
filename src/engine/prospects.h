/* prospects.h: what binds a plan that fits, and what other budgets or settings would make of it,
 * found by planning them.
 */
#ifndef SNUG_ENGINE_PROSPECTS_H
#define SNUG_ENGINE_PROSPECTS_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The run with one thing changed. */
struct prospect {
    char setting[128]; /* as it is given: "device_memory=9GiB", "optim=adamw_8bit" */
    bool is_budget;    /* it gives memory, and keeps the mathematics */
    bool fits;
    double step_s;
    int64_t device_needs; /* bytes */
};

enum { MOST_PROSPECTS = 12 };

struct prospects {
    struct prospect items[MOST_PROSPECTS];
    int n;
    bool keeps_all;     /* nothing was recomputed and nothing has left the device */
    double recompute_s; /* of a step: spent on what is made again */
    double waiting_s;   /* of a step: the computing queue has nothing to do */
};

/* Of a plan to train that fits: each prospect is a plan, and takes as long. */
enum status engine_prospects(const struct engine *e, struct prospects *out) MUST_CHECK;
/* In lines. */
void prospects_add_text(const struct prospects *p, const struct forecast *now, struct str *out);

#ifdef __cplusplus
}
#endif
#endif
