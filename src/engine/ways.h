/* ways.h: what a run could have that is no change of its numbers, lent to trials of advice: a disk
 * tier, and a model with an adapter.
 */
#ifndef SNUG_ENGINE_WAYS_H
#define SNUG_ENGINE_WAYS_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ways {
    const struct engine *e;
    struct device device; /* the engine's, with a disk; all zero: none was asked for yet */
    bool has_no_disk;     /* there is none to lend */
    struct model *model;  /* the engine's, with an adapter; NULL: none was asked for yet */
    enum advice_way model_way;
};

void ways_init(struct ways *w, const struct engine *e);
void ways_release(struct ways *w);

/* The folder that offload_folder could be. */
void ways_add_folder(const struct engine *e, struct str *out);
/* The engine's device with a disk tier where that folder would be, measured for a moment; nothing
 * is left there. NULL: it has one already, or cannot, or a run waits for an answer. */
struct device *ways_device(struct ways *w);

/* *c: an adapter is trained. False: there is one, or nothing that it could be trained on. */
bool ways_take_adapter(const struct engine *e, enum advice_way way, struct config *c);
/* The engine's task, with the model as that config has it. */
enum status ways_task(struct ways *w, enum advice_way way, const struct config *c,
                      struct task *task) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
