#include "train/resume.h"

#include "base/alloc.h"
#include "base/log.h"
#include "engine/averages.h"
#include "engine/weights.h"
#include "io/checkpoint.h"
#include "train/jump.h"
#include "train/trainer.h"

/* ---- the record of a run --------------------------------------------------------------------- */

enum status train_state_init(struct train_state *t, const struct config *cfg)
{
    *t = (struct train_state){.saved_step = -1,
                              .best = best_begin(cfg),
                              .phases = phases_begin(cfg),
                              .control = control_begin(cfg)};
    return history_init(&t->history);
}

void train_state_release(struct train_state *t)
{
    history_release(&t->history);
    *t = (struct train_state){0};
}

/* ---- saving ---------------------------------------------------------------------------------- */

static json_t *pack_state(const struct session *s, const struct run_start *start,
                          const struct train_state *t)
{
    struct loader_cursor c;
    loader_get_cursor(s->loader, &c);
    json_t *phases = t->phases.kind == PHASE_NONE ? NULL : phases_json(&t->phases);
    json_t *control = t->control.is_on ? control_json(&t->control) : NULL;
    return json_pack("{s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:I}, s:o, s:o*, s:o*, s:O}",
                     "step", (json_int_t)t->step, "updates", (json_int_t)t->n_updates,
                     "micro_steps", (json_int_t)t->n_micro_steps, "tokens", (json_int_t)t->n_units,
                     "cursor", "seed", (json_int_t)c.seed, "epoch", (json_int_t)c.epoch,
                     "next_window", (json_int_t)c.next_sample, "n_windows", (json_int_t)c.n_samples,
                     "seq_len", (json_int_t)c.sample_size, "best", best_json(&t->best), "phases",
                     phases, "control", control, "settings", start->settings);
}

/* Where the micro-batch may change: what it is now; the settings say what it was at first. */
static enum status add_batch(const struct session *s, json_t *state)
{
    if (!s->config->dynamic_batch)
        return OK;
    json_t *n = json_integer((json_int_t)s->config->per_device_train_batch_size);
    return json_object_set_new(state, "micro_batch", n) == 0
               ? OK
               : FAIL(ERR_MEMORY, "out of memory for the checkpoint's state");
}

static const char *tokenizer_of(const struct session *s)
{
    const struct task_data_def *data = s->engine.task.def->data;
    return data->tokenizer ? data->tokenizer(s->data) : NULL;
}

enum status train_save(struct session *s, const struct run_start *start, struct train_state *t,
                       double epoch, char **path)
{
    if (!s->engine.model)
        return FAIL(ERR_UNSUPPORTED, "%s: no checkpoint can be made of a network without a model",
                    s->engine.task.def->name);
    struct engine_states states = {0};
    json_t *state = pack_state(s, start, t), *history = history_json(&t->history);
    enum status status = OK;
    *path = NULL;
    if (!state || !history) {
        status = FAIL(ERR_MEMORY, "out of memory for the checkpoint's state");
        goto out;
    }
    TRY_GOTO(add_batch(s, state), out);
    TRY_GOTO(engine_find_states(&s->engine, &states), out);
    TRY_GOTO(jump_add_states(s, t->phases.slots, &states), out);
    struct checkpoint_content content = {
        .model = s->engine.model,
        .params = s->engine.params,
        .n_params = s->engine.n_params,
        .param_tensors = s->engine.param_tensors,
        .weights_dtype = s->engine.settings.numerics.precision.weights,
        .stage = s->engine.stage,
        .states = states.list.items,
        .n_states = states.list.n,
        .only_weights = s->config->save_only_model,
        .best_step = s->config->load_best_model_at_end ? t->best.step : 0,
        .best_value = t->best.value,
        .run = start->id,
        .state = state,
        .epoch = epoch,
        .log_history = history,
        .extras_folder = s->engine.model_folder,
        .base = s->config->model_name_or_path,
        .tokenizer = tokenizer_of(s),
    };
    TRY_GOTO(averages_swap(&s->engine), out);
    status = checkpoint_save(s->config->output_dir, t->step, &content, s->config->save_total_limit,
                             path);
    enum status back = averages_swap(&s->engine);
    status = status == OK ? back : status;
    if (status == OK)
        t->saved_step = t->step;
out:
    vec_release(&states.list);
    json_decref(state);
    json_decref(history);
    mem_trim();
    return status;
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* More of anything than a run can have: what is above was never written by one. */
#define COUNT_MOST ((int64_t)1 << 56)

static enum status get_count(const json_t *o, const char *key, int64_t *out)
{
    const json_t *x = json_object_get(o, key);
    if (!json_is_integer(x))
        return FAIL(ERR_CHECKPOINT, "state.json: '%s' is missing or not an integer", key);
    *out = (int64_t)json_integer_value(x);
    if (*out < 0 || *out > COUNT_MOST)
        return FAIL(ERR_CHECKPOINT, "state.json: '%s' is %lld, which no run writes", key,
                    (long long)*out);
    return OK;
}

/* A position in data of the same length holds for a new order or other tokens too; in any other
 * data there is nothing to begin with but the beginning. Settings that differ were accepted. */
static enum status set_cursor(struct session *s, const struct loader_cursor *saved)
{
    struct loader_cursor now, c = *saved;
    loader_get_cursor(s->loader, &now);
    c.seed = now.seed;
    if (c.n_samples == now.n_samples && c.sample_size == now.sample_size)
        return loader_set_cursor(s->loader, &c);
    const struct dataset *d = loader_dataset(s->loader);
    log_warn("the data has %lld %s of %lld %s, it had %lld of %lld: it is read from its beginning",
             (long long)now.n_samples, d->noun, (long long)now.sample_size, d->size_noun,
             (long long)c.n_samples, (long long)c.sample_size);
    return OK;
}

static enum status unpack_state(struct session *s, const struct checkpoint *checkpoint,
                                struct train_state *t)
{
    struct loader_cursor c = {0};
    const json_t *o = checkpoint_state(checkpoint), *cursor = json_object_get(o, "cursor");
    TRY(get_count(o, "step", &t->step));
    t->n_updates = t->step; /* checkpoints of before do not say */
    if (json_object_get(o, "updates"))
        TRY(get_count(o, "updates", &t->n_updates));
    TRY(get_count(o, "micro_steps", &t->n_micro_steps));
    TRY(get_count(o, "tokens", &t->n_units));
    TRY(best_read(&t->best, json_object_get(o, "best")));
    TRY(get_count(cursor, "epoch", &c.epoch));
    TRY(get_count(cursor, "next_window", &c.next_sample));
    TRY(get_count(cursor, "n_windows", &c.n_samples));
    TRY(get_count(cursor, "seq_len", &c.sample_size));
    if (t->step != checkpoint_step(checkpoint) || t->step > TRAIN_MOST_STEPS ||
        t->n_updates > t->step)
        return FAIL(ERR_CHECKPOINT,
                    "state.json: 'step' is %lld and 'updates' %lld in the checkpoint of step %lld",
                    (long long)t->step, (long long)t->n_updates,
                    (long long)checkpoint_step(checkpoint));
    return set_cursor(s, &c);
}

static enum status read_all(struct session *s, const struct checkpoint *c, struct train_state *t)
{
    struct engine *e = &s->engine;
    struct engine_states states = {0};
    enum status status;
    json_t *history = NULL;
    TRY_GOTO(phases_read(&t->phases, s->config, json_object_get(checkpoint_state(c), "phases")),
             out);
    TRY_GOTO(control_read(&t->control, json_object_get(checkpoint_state(c), "control")), out);
    TRY_GOTO(engine_find_states(&s->engine, &states), out);
    TRY_GOTO(jump_add_states(s, t->phases.slots, &states), out);
    TRY_GOTO(checkpoint_read_params(c, e->params, e->n_params, e->param_tensors, e->stage,
                                    e->device->env.team),
             out);
    TRY_GOTO(checkpoint_read_states(c, states.list.items, states.list.n, e->stage), out);
    e->averages_are_weights = true; /* as they were saved */
    TRY_GOTO(averages_swap(e), out);
    TRY_GOTO(unpack_state(s, c, t), out);
    TRY_GOTO(checkpoint_log_history(c, &history), out);
    history_read(&t->history, history);
    t->saved_step = t->step;
out:
    json_decref(history);
    vec_release(&states.list);
    mem_trim();
    return status;
}

enum status train_resume(struct session *s, const struct run_start *start, struct train_state *t)
{
    struct checkpoint *c = start->checkpoint;
    if (!c)
        return OK;
    enum status status = read_all(s, c, t);
    if (status != OK)
        return status_prefix(status, "%s", checkpoint_path(c));
    log_info("resumed from %s at step %lld", checkpoint_path(c), (long long)t->step);
    return OK;
}

/* ---- the best -------------------------------------------------------------------------------- */

static enum status read_params(struct session *s, const char *path)
{
    struct engine *e = &s->engine;
    struct checkpoint *c;
    TRY(checkpoint_open(&c, path, CHECKPOINT_FULL));
    enum status status = checkpoint_read_params(c, e->params, e->n_params, e->param_tensors,
                                                e->stage, e->device->env.team);
    checkpoint_close(c);
    mem_trim();
    return status;
}

enum status train_load_best(struct session *s, const struct train_state *t)
{
    struct str path = {0};
    if (!s->config->load_best_model_at_end || t->best.step == 0)
        return OK;
    str_addf(&path, "%s/checkpoint-%lld", s->config->output_dir, (long long)t->best.step);
    enum status status = str_status(&path);
    if (status == OK && t->best.step != t->step)
        status = read_params(s, path.text);
    if (status == OK)
        log_info("the best evaluation was after step %lld (%s %.6g): the run ends with the weights "
                 "of %s",
                 (long long)t->best.step, s->config->metric_for_best_model, t->best.value,
                 path.text);
    str_release(&path);
    return status;
}
