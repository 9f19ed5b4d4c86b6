/* preference.h: preferring one answer to another (Rafailov et al., "Direct Preference Optimization:
 * Your Language Model is Secretly a Reward Model", 2023).
 *
 * A sample is a prompt with two answers. With log p the sum of the log-probabilities of an answer's
 * tokens, and log q the same of the model as it was before the run,
 *
 *     reward = beta (log p - log q)               of each answer
 *     margin = reward of chosen - reward of rejected
 *     loss   = -(1 - e) log sigmoid(margin) - e log sigmoid(-margin)        e: label smoothing
 *
 * log q is the task's reference (task.h): no second model exists.
 */
#ifndef SNUG_TASK_PREFERENCE_H
#define SNUG_TASK_PREFERENCE_H

#include "task/task.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct task_def task_preference;

#ifdef __cplusplus
}
#endif
#endif
