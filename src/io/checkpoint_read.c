/* checkpoint_read.c: an open checkpoint. */
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "io/checkpoint_internal.h"
#include "io/hf_dir.h"
#include "io/peft.h"
#include "io/weights.h"

struct checkpoint {
    char *folder;
    json_t *root;             /* state.json */
    struct st_reader *states; /* optimizer.safetensors */
};

/* Readers of single formats say ERR_DATA or ERR_IO: in a checkpoint both are a bad checkpoint. */
static enum status as_checkpoint(enum status status)
{
    return status == ERR_DATA || status == ERR_IO ? ERR_CHECKPOINT : status;
}

bool checkpoint_has_states(const struct checkpoint *c)
{
    return !json_is_true(json_object_get(c->root, "only_weights"));
}

static enum status open_parts(struct checkpoint *c, const char *path, enum checkpoint_check check)
{
    c->folder = mem_strdup(path);
    if (!c->folder)
        return FAIL(ERR_MEMORY, "%s: out of memory", path);
    TRY(checkpoint_read_state_file(&c->root, path));
    TRY(checkpoint_verify(c->root, path, check));
    if (!checkpoint_has_states(c))
        return OK;
    struct str file = {0};
    str_addf(&file, "%s/" CHECKPOINT_OPTIMIZER_FILE, path);
    enum status status = str_status(&file);
    if (status == OK)
        status = as_checkpoint(st_reader_open_file(&c->states, file.text));
    str_release(&file);
    return status;
}

enum status checkpoint_open(struct checkpoint **out, const char *path, enum checkpoint_check check)
{
    *out = NULL;
    struct checkpoint *c;
    TRY(mem_try_array(&c, 1, sizeof(*c)));
    enum status status = open_parts(c, path, check);
    if (status != OK) {
        checkpoint_close(c);
        return status;
    }
    *out = c;
    return OK;
}

enum status checkpoint_peek(const char *path, json_t **state)
{
    json_t *root;
    *state = NULL;
    if (!checkpoint_is_ours(path))
        return OK;
    TRY(checkpoint_read_state_file(&root, path));
    *state = json_incref(json_object_get(root, "state"));
    json_decref(root);
    return OK;
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return;
    st_reader_close(c->states);
    json_decref(c->root);
    mem_free(c->folder);
    mem_free(c);
}

int64_t checkpoint_step(const struct checkpoint *c)
{
    return json_integer_value(json_object_get(c->root, "step"));
}

const char *checkpoint_run(const struct checkpoint *c)
{
    const char *run = json_string_value(json_object_get(c->root, "run"));
    return run ? run : "";
}

const char *checkpoint_path(const struct checkpoint *c)
{
    return c->folder;
}

const json_t *checkpoint_state(const struct checkpoint *c)
{
    return json_object_get(c->root, "state");
}

enum status checkpoint_log_history(const struct checkpoint *c, json_t **history)
{
    *history = NULL;
    struct str path = {0};
    json_t *root = NULL;
    enum status status;
    str_addf(&path, "%s/" CHECKPOINT_TRAINER_FILE, c->folder);
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(as_checkpoint(json_read_file(&root, path.text, ERR_CHECKPOINT)), out);
    *history = json_incref(json_object_get(root, "log_history"));
    if (!json_is_array(*history)) {
        json_decref(*history);
        *history = NULL;
        status = FAIL(ERR_CHECKPOINT, "%s: log_history is not a list", path.text);
    }
out:
    json_decref(root);
    str_release(&path);
    return status;
}

/* ---- the model ---- */

enum { VALUE_TEXT = 160 };

/* A config value for a message; long ones are cut. */
static const char *value_text(char out[VALUE_TEXT], const json_t *value)
{
    size_t n = json_dumpb(value, out, VALUE_TEXT - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    out[MIN(n, (size_t)VALUE_TEXT - 1)] = '\0';
    return out;
}

static enum status fail_differs(const char *folder, const char *key, const json_t *theirs,
                                const json_t *ours)
{
    char there[VALUE_TEXT], here[VALUE_TEXT];
    return FAIL(ERR_CHECKPOINT,
                "%s is of another model: '%s' is %s there and %s here; resume with the config it "
                "was saved with, or start a new run from its weights",
                folder, key, value_text(there, theirs), value_text(here, ours));
}

/* Numbers by value: 10000 and 10000.0 are the same setting. */
static bool equal_values(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static enum status compare_configs(const char *folder, const json_t *theirs, json_t *ours)
{
    for (void *at = json_object_iter(ours); at; at = json_object_iter_next(ours, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *own = json_object_iter_value(at), *other = json_object_get(theirs, key);
        if (!other || strcmp(key, "dtype") == 0 || strcmp(key, "torch_dtype") == 0)
            continue;
        if (!equal_values(own, other))
            return fail_differs(folder, key, other, own);
    }
    return OK;
}

enum status checkpoint_check_model(const struct checkpoint *c, const struct model *model)
{
    json_t *theirs = NULL, *ours = model_export_config(model);
    enum status status;
    if (!ours) {
        status = FAIL(ERR_MEMORY, "%s: out of memory for a config", c->folder);
        goto out;
    }
    TRY_GOTO(as_checkpoint(hf_dir_read_config(&theirs, c->folder)), out);
    TRY_GOTO(compare_configs(c->folder, theirs, ours), out);
out:
    json_decref(theirs);
    json_decref(ours);
    return status;
}

enum status checkpoint_read_params(const struct checkpoint *c, const struct model_param *params,
                                   int n_params, const struct tensor *dst,
                                   const struct tensor_stage *stage, struct team *team)
{
    if (peft_is_folder(c->folder))
        return as_checkpoint(peft_load(c->folder, params, n_params, dst, stage, team));
    return as_checkpoint(weights_load_staged(c->folder, params, n_params, dst, stage, team));
}

/* ---- the states ---- */

enum status checkpoint_read_state(const struct checkpoint *c, const char *name,
                                  const struct tensor *dst, const struct tensor_stage *stage)
{
    return as_checkpoint(checkpoint_read_tensor(c->states, name, dst, stage));
}

/* A run that does without them takes no notice of them. */
static bool is_snapshot(const char *name)
{
    return strncmp(name, CHECKPOINT_SNAPSHOT, strlen(CHECKPOINT_SNAPSHOT)) == 0;
}

static size_t count_stored(const struct st_reader *r)
{
    size_t n = 0;
    for (size_t i = 0; i < st_reader_count(r); i++)
        n += !is_snapshot(st_reader_at(r, i)->name);
    return n;
}

bool checkpoint_takes_states(const struct checkpoint *c, const struct checkpoint_tensor *states,
                             size_t n_states)
{
    size_t n_wanted = 0;
    bool alike = c->states != NULL;
    for (size_t i = 0; i < n_states && alike; i++) {
        if (is_snapshot(states[i].name))
            continue;
        alike = checkpoint_has_tensor(c->states, states[i].name, &states[i].tensor);
        n_wanted++;
    }
    return alike && count_stored(c->states) == n_wanted;
}

enum status checkpoint_read_states(const struct checkpoint *c,
                                   const struct checkpoint_tensor *states, size_t n_states,
                                   const struct tensor_stage *stage)
{
    size_t n_wanted = 0;
    if (!c->states)
        return FAIL(ERR_CHECKPOINT,
                    "%s: was saved with save_only_model: true; there are no optimizer states to go "
                    "on with: start a new run from its weights (model_name_or_path: %s)",
                    c->folder, c->folder);
    size_t n_stored = count_stored(c->states);
    for (size_t i = 0; i < n_states; i++) {
        TRY(checkpoint_read_state(c, states[i].name, &states[i].tensor, stage));
        n_wanted += !is_snapshot(states[i].name);
    }
    if (n_stored != n_wanted)
        return FAIL(ERR_CHECKPOINT,
                    "%s/" CHECKPOINT_OPTIMIZER_FILE
                    ": holds %zu states, this run has %zu; the optimizer or the precision is not "
                    "the one it was saved with",
                    c->folder, n_stored, n_wanted);
    return OK;
}
