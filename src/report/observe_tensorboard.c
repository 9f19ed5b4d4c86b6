/* observe_tensorboard.c: scalars for TensorBoard, under the tags people's dashboards know. */
#include <math.h>

#include "base/compiler.h"
#include "report/observe.h"

enum status observe_tensorboard_open(struct observe_tensorboard *o, const struct config *cfg,
                                     const char *folder)
{
    *o = (struct observe_tensorboard){.file.file.fd = -1, .config = cfg};
    return tfevents_open(&o->file, folder, observe_wall_time());
}

/* A scalar whose name is the task's. */
static enum status tell_value(struct observe_tensorboard *o, double t, int64_t step,
                              const char *group, const char *name, double value)
{
    struct str tag = {0};
    str_addf(&tag, "%s/%s", group, name);
    enum status status = str_status(&tag);
    if (status == OK && !isnan(value))
        status = tfevents_scalar(&o->file, t, step, tag.text, (float)value);
    str_release(&tag);
    return status;
}

static enum status on_step(void *user, const struct step_record *r)
{
    struct observe_tensorboard *o = user;
    loss_mean_add(&o->loss, r->loss);
    if (!observe_is_due(o->config, r))
        return OK;
    const double gib = 1.0 / (1024.0 * 1024.0 * 1024.0);
    const struct {
        const char *tag;
        double value;
    } scalars[] = {
        {"train/loss", loss_mean_take(&o->loss)},
        {"train/grad_norm", r->grad_norm},
        {"train/learning_rate", r->lr},
        {"train/epoch", r->epoch},
        {"train/step_ms", 1e3 * r->seconds},
        {"train/mfu", r->mfu},
        {"memory/arena_gib", gib * (double)r->arena_bytes},
        {"memory/process_gib", gib * (double)r->device_bytes},
        {"memory/process_predicted_gib", gib * (double)r->device_predicted},
    };
    double t = observe_wall_time();
    for (size_t i = 0; i < ARRAY_LEN(scalars); i++) {
        if (!isnan(scalars[i].value))
            TRY(tfevents_scalar(&o->file, t, r->step, scalars[i].tag, (float)scalars[i].value));
    }
    TRY(tell_value(o, t, r->step, "train", r->unit->rate_tag, r->units_per_s));
    for (int i = 0; i < r->n_losses; i++)
        TRY(tell_value(o, t, r->step, "train", r->losses[i].name, r->losses[i].value));
    if (r->loss_scale > 0)
        TRY(tfevents_scalar(&o->file, t, r->step, "train/loss_scale", (float)r->loss_scale));
    return OK;
}

static enum status on_eval(void *user, const struct eval_record *r)
{
    struct observe_tensorboard *o = user;
    double t = observe_wall_time();
    const struct evaluation *e = &r->result;
    TRY(tfevents_scalar(&o->file, t, r->step, "eval/loss", (float)e->loss));
    for (int i = 0; i < e->n_values; i++) {
        if (e->values[i].is_logged)
            TRY(tell_value(o, t, r->step, "eval", e->values[i].name, e->values[i].value));
    }
    return tfevents_scalar(&o->file, t, r->step, "eval/runtime", (float)r->result.seconds);
}

struct train_observer observe_tensorboard(struct observe_tensorboard *o)
{
    return (struct train_observer){.user = o, .on_step = on_step, .on_eval = on_eval};
}

void observe_tensorboard_close(struct observe_tensorboard *o)
{
    (void)!tfevents_close(&o->file); /* every record is written when it is made */
}
