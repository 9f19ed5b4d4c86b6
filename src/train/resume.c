#include "train/resume.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "io/checkpoint.h"
#include "io/metrics.h"
#include "train/trainer.h"

/* ---- the record of a run --------------------------------------------------------------------- */

enum status train_state_init(struct train_state *t)
{
    *t = (struct train_state){.saved_step = -1};
    return history_init(&t->history);
}

void train_state_release(struct train_state *t)
{
    history_release(&t->history);
    *t = (struct train_state){0};
}

/* ---- optimizer storage as tensors ------------------------------------------------------------ */

/* The storage of a training run beside its parameters: optimizer states and masters. */
struct states {
    VEC(struct checkpoint_tensor) list;
};

static enum status collect_states(struct session *s, struct states *out)
{
    const struct graph *g = s->pipeline.train.graph;
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        const struct value *x = graph_value(g, v);
        bool is_state = x->role == ROLE_STATE || x->role == ROLE_MASTER;
        if (x->producer != NODE_NONE || !is_state)
            continue;
        const struct storage_entry *e = storage_find(&s->pipeline.storage, x->name);
        if (!e)
            continue;
        struct checkpoint_tensor c = {.name = x->name, .tensor = value_tensor(g, v)};
        c.tensor.data = executor_storage_address(s->executor, e);
        TRY(vec_push(&out->list, c));
    }
    return OK;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static json_t *pack_state(const struct session *s, const struct train_state *t)
{
    struct loader_cursor c;
    loader_get_cursor(s->loader, &c);
    return json_pack("{s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:I}}", "step",
                     (json_int_t)t->step, "micro_steps", (json_int_t)t->n_micro_steps, "tokens",
                     (json_int_t)t->n_tokens, "seed", (json_int_t)s->config->seed, "cursor", "seed",
                     (json_int_t)c.seed, "epoch", (json_int_t)c.epoch, "next_window",
                     (json_int_t)c.next_window, "n_windows", (json_int_t)c.n_windows, "seq_len",
                     (json_int_t)c.seq_len);
}

enum status train_save(struct session *s, struct train_state *t, double epoch, char **path)
{
    struct states states = {0};
    json_t *state = pack_state(s, t), *history = history_json(&t->history);
    enum status status = OK;
    *path = NULL;
    if (!state || !history) {
        status = FAIL(ERR_MEMORY, "out of memory for the checkpoint's state");
        goto out;
    }
    TRY_GOTO(collect_states(s, &states), out);
    struct checkpoint_content content = {
        .model = s->model,
        .params = s->params,
        .n_params = s->n_params,
        .param_tensors = s->param_tensors,
        .stage = s->stage,
        .states = states.list.items,
        .n_states = states.list.n,
        .state = state,
        .epoch = epoch,
        .log_history = history,
        .extras_folder = s->model_folder,
    };
    TRY_GOTO(checkpoint_save(s->config->output_dir, t->step, &content,
                             (int)s->config->save_total_limit, path),
             out);
    t->saved_step = t->step;
out:
    vec_release(&states.list);
    json_decref(state);
    json_decref(history);
    mem_trim();
    return status;
}

/* ---- resuming -------------------------------------------------------------------------------- */

static enum status get_int(const json_t *o, const char *key, int64_t *out)
{
    const json_t *x = json_object_get(o, key);
    if (!json_is_integer(x))
        return FAIL(ERR_CHECKPOINT, "state.json: '%s' is missing or not an integer", key);
    *out = (int64_t)json_integer_value(x);
    return OK;
}

static enum status unpack_state(struct session *s, const json_t *o, struct train_state *t)
{
    struct loader_cursor c = {0};
    int64_t cursor_seed, seed;
    const json_t *cursor = json_object_get(o, "cursor");
    TRY(get_int(o, "step", &t->step));
    TRY(get_int(o, "micro_steps", &t->n_micro_steps));
    TRY(get_int(o, "tokens", &t->n_tokens));
    TRY(get_int(o, "seed", &seed));
    TRY(get_int(cursor, "seed", &cursor_seed));
    TRY(get_int(cursor, "epoch", &c.epoch));
    TRY(get_int(cursor, "next_window", &c.next_window));
    TRY(get_int(cursor, "n_windows", &c.n_windows));
    TRY(get_int(cursor, "seq_len", &c.seq_len));
    if (seed != s->config->seed)
        return FAIL(ERR_CONFIG,
                    "%s: seed is %lld, but the checkpoint was made with seed %lld; a run resumes "
                    "exactly only with the same seed",
                    config_where(s->config, "seed"), (long long)s->config->seed, (long long)seed);
    c.seed = (uint64_t)cursor_seed;
    return loader_set_cursor(s->loader, &c);
}

static enum status read_all(struct session *s, const struct checkpoint *c, struct train_state *t)
{
    struct states states = {0};
    enum status status;
    json_t *history = NULL;
    TRY_GOTO(checkpoint_check_model(c, s->model), out);
    TRY_GOTO(collect_states(s, &states), out);
    TRY_GOTO(checkpoint_read_params(c, s->params, s->n_params, s->param_tensors, s->stage,
                                    s->device.env.n_threads),
             out);
    TRY_GOTO(checkpoint_read_states(c, states.list.items, states.list.n, s->stage), out);
    TRY_GOTO(unpack_state(s, checkpoint_state(c), t), out);
    TRY_GOTO(checkpoint_log_history(c, &history), out);
    history_read(&t->history, history);
    t->saved_step = t->step;
out:
    json_decref(history);
    vec_release(&states.list);
    mem_trim();
    return status;
}

enum status train_resume(struct session *s, struct train_state *t)
{
    const char *spec = s->config->resume_from_checkpoint;
    struct checkpoint *c = NULL;
    char *path = NULL;
    enum status status;
    TRY(checkpoint_recover(s->config->output_dir));
    if (!spec)
        return OK;
    TRY(checkpoint_find(s->config->output_dir, spec, &path));
    if (!path)
        return OK;
    bool verified = strcmp(spec, "last") == 0 || strcmp(spec, "auto") == 0;
    TRY_GOTO(checkpoint_open(&c, path, verified ? CHECKPOINT_QUICK : CHECKPOINT_FULL), out);
    TRY_GOTO(read_all(s, c, t), out);
    log_info("resumed from %s at step %lld", path, (long long)t->step);
out:
    checkpoint_close(c);
    mem_free(path);
    return status;
}
