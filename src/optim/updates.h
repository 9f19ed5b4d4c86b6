/* updates.h: inside optim/: one parameter's update, with the states its format asks for. */
#ifndef SNUG_OPTIM_UPDATES_H
#define SNUG_OPTIM_UPDATES_H

#include "optim/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The scalars every update reads. */
struct knobs {
    value_id lr, step, scale;
};

/* "<prefix>.<name>" in the graph's pool; "" once the builder has failed. */
const char *joined_name(struct builder *b, const char *prefix, const char *name);

/* Adds states, master and update of parameter i of the model. */
void update_build(struct builder *b, const struct optimizer_options *o,
                  const struct optimizer_param *p, const struct knobs *k, size_t i_param);

#ifdef __cplusplus
}
#endif
#endif
