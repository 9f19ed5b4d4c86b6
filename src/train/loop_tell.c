#include "train/loop.h"

enum status tell_step(const struct loop *l, const struct step_record *r)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_step)
            TRY(x->on_step(x->user, r));
    }
    return OK;
}

enum status tell_phase(const struct loop *l, enum train_phase phase)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_phase)
            TRY(x->on_phase(x->user, phase, l->state.step));
    }
    return OK;
}

enum status tell_eval(const struct loop *l, const struct eval_record *r)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_eval)
            TRY(x->on_eval(x->user, r));
    }
    return OK;
}

enum status tell_sample(const struct loop *l, const struct sample_record *r)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_sample)
            TRY(x->on_sample(x->user, r));
    }
    return OK;
}

enum status tell_save(const struct loop *l, const char *path, double seconds)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_save)
            TRY(x->on_save(x->user, l->state.step, path, seconds));
    }
    return OK;
}

enum status tell_budget(const struct loop *l, const struct budget_record *r)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_budget)
            TRY(x->on_budget(x->user, r));
    }
    return OK;
}

enum status tell_trials(const struct loop *l, const struct trials_record *r)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_trials)
            TRY(x->on_trials(x->user, r));
    }
    return OK;
}

enum status tell_jump(const struct loop *l, const struct jump_record *r)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_jump)
            TRY(x->on_jump(x->user, r));
    }
    return OK;
}

enum status tell_control(const struct loop *l, const struct control_record *r)
{
    for (size_t i = 0; i < l->o->n_observers; i++) {
        const struct train_observer *x = &l->o->observers[i];
        if (x->on_control)
            TRY(x->on_control(x->user, r));
    }
    return OK;
}
