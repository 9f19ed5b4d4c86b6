#include "train/step.h"

#include <string.h>

#include "plan/group.h"

static void *input(const struct stepper *x, const char *name)
{
    return engine_input(&x->s->engine, x->s->train, name);
}

/* What micro-batch m of a group has in its place. */
static void *input_of(const struct stepper *x, const char *name, int m)
{
    char own[GROUP_NAME];
    return input(x, group_input_name(own, name, m));
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

/* draw: the micro-step. */
static void set_batch(struct stepper *x, const struct batch *batch, int64_t draw)
{
    int m = x->n_filled++;
    feed_copy(&x->s->feed, batch, m);
    int64_t *rng = input_of(x, "rng", m);
    if (rng) {
        rng[0] = x->s->config->seed;
        rng[1] = draw;
    }
}

/* Micro-batches that run together now. What groups leave over goes one at a time, at the start. */
static int at_once(const struct stepper *x)
{
    const struct stage *t = x->s->train;
    return x->n_run < t->n_micro % t->group ? 1 : t->group;
}

static enum status run_filled(struct stepper *x)
{
    const char *section = x->s->train->group > 1 && x->n_filled > 1 ? "group" : "micro";
    TRY(run_section(x, section));
    x->n_run += x->n_filled;
    x->n_filled = 0;
    return OK;
}

/* What waits as micro-batch m of a group goes to where one alone is looked for. */
static void take_alone(const struct stepper *x, int m)
{
    const struct program *p = x->s->train->program;
    for (size_t i = 0; m > 0 && i < p->inputs.n; i++) {
        const void *from = input_of(x, p->inputs.items[i].name, m);
        if (from)
            memcpy(input(x, p->inputs.items[i].name), from, (size_t)p->inputs.items[i].n_bytes);
    }
}

/* Is a step one group, and that one section? */
static bool is_one_group(const struct stepper *x)
{
    return x->s->train->group > 1 && x->s->train->group == x->s->train->n_micro;
}

/* Are sums over micro-steps cleared before the first of them? */
static bool has_beginning(const struct stepper *x)
{
    return x->s->train->n_micro > 1 && !is_one_group(x);
}

/* Too few had labels for a whole group at the end: one at a time, and then the updates. */
static enum status run_rest(struct stepper *x)
{
    if (is_one_group(x))
        TRY(run_section(x, "begin"));
    for (int m = 0; m < x->n_filled; m++) {
        take_alone(x, m);
        TRY(run_section(x, "micro"));
    }
    return run_section(x, "update");
}

/* What ends a step. Where updates are deferred it runs those of the step before, with the inputs
 * that belong to them. */
static enum status run_last(struct stepper *x, const struct update_inputs *u)
{
    bool defers = x->s->train->plan.defer_updates;
    const char *whole = defers && !x->is_pending ? "first" : "step";
    set_update_inputs(x, x->is_pending ? &x->pending : u);
    if (x->n_filled < x->s->train->group)
        TRY(run_rest(x));
    else
        TRY(run_section(x, has_beginning(x) ? "last" : whole));
    x->is_pending = defers;
    x->pending = *u;
    return OK;
}

/* All batches of a step go through the program that its longest sample needs. */
static enum status begin_step(struct stepper *x, const struct batch *first, double seed)
{
    session_choose_length(x->s, first);
    for (int m = 0; m < x->s->train->group; m++)
        *(float *)input_of(x, LOSS_SEED, m) = (float)seed;
    return has_beginning(x) ? run_section(x, "begin") : OK;
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
 * labels is there, so that the last of them is known for what it is; where they run in groups, one
 * that is whole does. */
enum status step_run(struct stepper *x, struct train_state *state, double lr)
{
    const struct update_inputs update = {lr, state->n_updates + 1};
    int64_t n_micro = x->s->config->gradient_accumulation_steps;
    x->n_labels = x->n_run = x->n_filled = 0;
    x->has_sums = false;
    for (int64_t i = 0; i < n_micro; i++) {
        struct batch batch;
        TRY(loader_next(x->s->loader, &batch));
        if (i == 0)
            TRY(begin_step(x, &batch, 1.0 / (double)step_units(x->s)));
        if (batch.length > x->s->length)
            return fail_length(x, &batch);
        if (batch.n_valid > 0 && x->n_filled == at_once(x))
            TRY(run_filled(x));
        if (batch.n_valid > 0)
            set_batch(x, &batch, state->n_micro_steps);
        x->n_labels += batch.n_valid;
        state->n_micro_steps++;
        loader_release_slot(x->s->loader);
    }
    return x->n_labels > 0 ? run_last(x, &update) : OK;
}

enum status step_run_given(struct stepper *x, const struct step_batch *batches, int64_t n,
                           double seed, const struct update_inputs *u)
{
    x->n_run = x->n_filled = 0;
    TRY(begin_step(x, &batches[0].batch, seed));
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            TRY(run_filled(x));
        set_batch(x, &batches[i].batch, batches[i].draw);
    }
    return run_last(x, u);
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
