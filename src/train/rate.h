/* rate.h: the learning rate that a config asks for. */
#ifndef SNUG_TRAIN_RATE_H
#define SNUG_TRAIN_RATE_H

#include "config/config.h"
#include "optim/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a run of so many steps. */
struct schedule rate_schedule(const struct config *cfg, int64_t n_steps);

/* For lr_scheduler_type: reduce_lr_on_plateau. */
bool rate_has_plateau(const struct config *cfg);
struct plateau rate_plateau(const struct config *cfg, bool greater_is_better);

#ifdef __cplusplus
}
#endif
#endif
