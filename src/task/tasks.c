#include "task/tasks.h"

#include "task/language.h"
#include "task/preference.h"
#include "task/samples.h"

const struct task_def *task_for(const struct model *model, const struct config *cfg)
{
    if (model->samples.n_fields > 0)
        return &task_samples;
    return cfg->rl == CONFIG_RL_DPO ? &task_preference : &task_language;
}
