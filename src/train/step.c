#include "train/step.h"

static void *input(const struct stepper *x, const char *name)
{
    return engine_input(&x->s->engine, x->s->train, name);
}

static enum status run_section(struct stepper *x, const char *name)
{
    return engine_run(&x->s->engine, x->s->train, name);
}

int64_t step_units(const struct session *s)
{
    const struct task *task = &s->engine.task;
    return s->config->train_batch_size * task->def->units(task, s->config->max_seq_length);
}

static void set_update_inputs(struct stepper *x, const struct update_inputs *u)
{
    *(float *)input(x, "lr") = (float)u->lr;
    int32_t *step = input(x, "step"); /* with loss scaling the device counts by itself */
    if (step)
        *step = (int32_t)u->number;
}

static void set_batch(struct stepper *x, const struct train_state *state, const struct batch *batch)
{
    x->n_labels += batch->n_valid;
    feed_copy(&x->s->feed, batch);
    int64_t *rng = input(x, "rng");
    if (rng) {
        rng[0] = x->s->config->seed;
        rng[1] = state->n_micro_steps;
    }
}

/* The section that ends a step. Where updates are deferred it runs those of the step before, with
 * the inputs that belong to them. */
static enum status run_last(struct stepper *x, const struct update_inputs *u)
{
    bool defers = x->s->train->plan.defer_updates;
    const char *whole = defers && !x->is_pending ? "first" : "step";
    set_update_inputs(x, x->is_pending ? &x->pending : u);
    TRY(run_section(x, x->s->config->gradient_accumulation_steps > 1 ? "last" : whole));
    x->is_pending = defers;
    x->pending = *u;
    return OK;
}

/* All batches of a step go through the program that its longest sample needs. */
static enum status begin_step(struct stepper *x, const struct batch *first)
{
    session_choose_length(x->s, first);
    *(float *)input(x, LOSS_SEED) = (float)(1.0 / (double)step_units(x->s));
    return x->s->config->gradient_accumulation_steps > 1 ? run_section(x, "begin") : OK;
}

/* Steps begin elsewhere in the data than they would have, since the batch was changed. */
static enum status fail_length(const struct stepper *x, const struct batch *b)
{
    return FAIL(ERR_CHECKPOINT,
                "a sample of %lld tokens in a step whose longest has %lld: with group_by_length a "
                "run goes on with the batch that it had; set group_by_length: false",
                (long long)b->length, (long long)x->s->length);
}

/* A micro-batch without a label adds nothing, and a step of such ones alone would be a mean over
 * none: neither is run, and the optimizer does not see them. A batch runs when the next one with
 * labels is there, so that the last of them is known for what it is. */
enum status step_run(struct stepper *x, struct train_state *state, double lr)
{
    const struct update_inputs update = {lr, state->n_updates + 1};
    int64_t n_micro = x->s->config->gradient_accumulation_steps;
    x->n_labels = 0;
    for (int64_t i = 0; i < n_micro; i++) {
        struct batch batch;
        TRY(loader_next(x->s->loader, &batch));
        if (i == 0)
            TRY(begin_step(x, &batch));
        if (batch.length > x->s->length)
            return fail_length(x, &batch);
        if (batch.n_valid > 0 && x->n_labels > 0)
            TRY(run_section(x, "micro"));
        if (batch.n_valid > 0)
            set_batch(x, state, &batch);
        state->n_micro_steps++;
        loader_release_slot(x->s->loader);
    }
    return x->n_labels > 0 ? run_last(x, &update) : OK;
}

enum status step_finish(struct stepper *x)
{
    if (!x->is_pending)
        return OK;
    set_update_inputs(x, &x->pending);
    TRY(run_section(x, "finish"));
    x->is_pending = false;
    return OK;
}
