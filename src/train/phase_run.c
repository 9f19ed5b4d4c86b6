#include "train/phase_run.h"

static enum status act(struct stepper *x, struct train_state *state, const struct phase_action *a,
                       struct jump_record *r)
{
    struct session *s = x->s;
    if (a->snapshot < 0 && !a->undo)
        return OK;
    TRY(step_finish(x));
    if (a->undo)
        TRY(jump_undo(s));
    if (a->snapshot >= 0)
        TRY(jump_snapshot(s, a->snapshot));
    if (!(a->n_steps > 0))
        return OK;
    TRY(jump_try(s, a->n_steps, r));
    phases_jumped(&state->phases, s->config, a->n_steps, r->length, r->difference);
    return OK;
}

enum status phase_run_after_step(struct stepper *x, struct train_state *state, double loss,
                                 double grad_norm, struct jump_record *r, bool *happened)
{
    const struct config *cfg = x->s->config;
    struct phase_action a = phases_step(&state->phases, cfg, loss, grad_norm);
    *happened = a.undo || a.withheld || a.n_steps > 0;
    *r = (struct jump_record){.method = config_choice_name("phases", (int)cfg->predictive_phases),
                              .outcome = a.undo ? JUMP_UNDONE : JUMP_WITHHELD};
    TRY(act(x, state, &a, r));
    r->step = state->step;
    return OK;
}
