/* samples.h: training a network whose samples are tensors. */
#ifndef SNUG_TASK_SAMPLES_H
#define SNUG_TASK_SAMPLES_H

#include "task/task.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct task_def task_samples;

/* ---- inside task/ ---------------------------------------------------------------------------- */

extern const struct task_data_def samples_data;

#ifdef __cplusplus
}
#endif
#endif
