/* tasks.h: which task a model is for. */
#ifndef SNUG_TASK_TASKS_H
#define SNUG_TASK_TASKS_H

#include "task/task.h"

#ifdef __cplusplus
extern "C" {
#endif

const struct task_def *task_for(const struct model *model, const struct config *cfg);

#ifdef __cplusplus
}
#endif
#endif
