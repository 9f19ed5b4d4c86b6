/* regression_task.h: a task that is not language modelling: a small network of linear layers that
 * maps four features to two targets, with two losses of different weights. */
#ifndef SNUG_TESTS_REGRESSION_TASK_H
#define SNUG_TESTS_REGRESSION_TASK_H

#include "task/task.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { REGRESSION_FEATURES = 4, REGRESSION_TARGETS = 2, REGRESSION_HIDDEN = 8 };
enum { REGRESSION_SAMPLES = 50 };

/* What is minimised: mean of squared errors + 0.25 x mean of squared outputs. */
#define REGRESSION_PENALTY 0.25

extern const struct task_def task_regression;

/* Sample i, which is a function of its number. */
void regression_sample(int64_t i, float features[REGRESSION_FEATURES],
                       float targets[REGRESSION_TARGETS]);

#ifdef __cplusplus
}
#endif
#endif
