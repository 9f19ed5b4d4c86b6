#include "task/tasks.h"

#include "task/language.h"
#include "task/samples.h"

const struct task_def *task_for(const struct model *model)
{
    return model->samples.n_fields > 0 ? &task_samples : &task_language;
}
