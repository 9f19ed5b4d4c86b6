/* elastic_budgets.h: budgets that a run may be given while it goes on, planned for beforehand. */
#ifndef SNUG_TRAIN_ELASTIC_BUDGETS_H
#define SNUG_TRAIN_ELASTIC_BUDGETS_H

#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does the config ask for it? */
bool elastic_plans_ahead(const struct config *cfg);

/* What the host's part of a memory that is shared may take when a run gives way. */
int64_t elastic_host_limit(const struct session *s);

/* Lists them, for a session that is planned. */
enum status elastic_open(struct session *s) MUST_CHECK;

/* Between two steps: begins with it once the run is under way (n_steps are done), and says when all
 * are planned. */
enum status elastic_plan_ahead(struct session *s, int64_t n_steps) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
