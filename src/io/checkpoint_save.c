/* checkpoint_save.c: writing a checkpoint, and removing the oldest. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/temporary.h"
#include "io/checkpoint_internal.h"
#include "io/file_hash.h"
#include "io/json_file.h"
#include "io/replace_folder.h"
#include "io/tokenizer_files.h"
#include "io/weights.h"

/* ---- the files ---- */

static enum status write_model(const char *folder, const struct checkpoint_content *c)
{
    struct export_content content = {
        .model = c->model,
        .params = c->params,
        .n_params = c->n_params,
        .tensors = c->param_tensors,
        .stage = c->stage,
        .dtype = c->weights_dtype,
        .as_in_memory = true,
        .extras_folder = c->extras_folder,
        .adapter = c->model->adapter != NULL,
        .base = c->base,
        .max_shard_bytes = c->max_shard_bytes,
    };
    /* A checkpoint without a tokenizer is worth more than none. */
    if (content.extras_folder && !file_is_folder(content.extras_folder)) {
        log_warn("%s: no such folder any more; the checkpoint is saved without tokenizer files",
                 content.extras_folder);
        content.extras_folder = NULL;
    }
    TRY(export_write(folder, &content));
    if (!c->tokenizer)
        return OK;
    if (strcmp(c->tokenizer, "bytes") == 0 || file_exists(c->tokenizer))
        return tokenizer_files_write(c->tokenizer, folder);
    log_warn("%s: no such tokenizer any more; the checkpoint is saved without it", c->tokenizer);
    return OK;
}

/* The keys of Hugging Face's TrainerState; it refuses others. */
static enum status write_trainer_state(const char *folder, int64_t step,
                                       const struct checkpoint_content *c)
{
    json_t *history = c->log_history ? json_incref(c->log_history) : json_array();
    bool has_best = c->best_step > 0;
    json_t *best = has_best ? json_sprintf("checkpoint-%lld", (long long)c->best_step) : NULL;
    json_t *root =
        json_pack("{s:o, s:o?, s:f, s:I, s:b, s:b, s:b, s:o}", "best_metric",
                  has_best ? json_finite(c->best_value) : json_null(), "best_model_checkpoint",
                  has_best ? best : json_null(), "epoch", c->epoch, "global_step", (json_int_t)step,
                  "is_hyper_param_search", 0, "is_local_process_zero", 1, "is_world_process_zero",
                  1, "log_history", history);
    enum status status = json_file_write(folder, CHECKPOINT_TRAINER_FILE, root);
    json_decref(root);
    return status;
}

/* state.json last: its manifest lists the others. */
static enum status write_files(const char *folder, int64_t step, const struct checkpoint_content *c)
{
    TRY(write_model(folder, c));
    if (!c->only_weights)
        TRY(checkpoint_write_tensors(folder, c->states, c->n_states, c->stage));
    TRY(write_trainer_state(folder, step, c));
    return checkpoint_write_state(folder, c->run, step, c->state, c->only_weights);
}

int64_t checkpoint_save_bytes(const struct model_param *params, int n_params)
{
    int64_t weights = weights_save_bytes(params, n_params, DTYPE_NONE, DTYPE_NONE);
    return MAX(weights, (int64_t)FILE_HASH_BYTES);
}

/* ---- the folder ---- */

struct place {
    struct pool pool;
    const char *final, *temporary, *aside;
    bool keep_aside; /* it is not ours to remove */
};

static enum status name_place(struct place *p, const char *output_dir, int64_t step)
{
    p->final = checkpoint_folder(&p->pool, output_dir, CHECKPOINT_FINISHED, step);
    p->temporary = checkpoint_folder(&p->pool, output_dir, CHECKPOINT_TEMPORARY, step);
    p->aside = checkpoint_folder(&p->pool, output_dir, CHECKPOINT_ASIDE, step);
    TRY(pool_status(&p->pool));
    if (!file_exists(p->final) || checkpoint_is_ours(p->final))
        return OK;
    /* Something under our name without a state.json: another program's, or the rest of a damaged
     * one. It is moved out of the way, not removed. */
    p->keep_aside = true;
    int i = 0;
    do {
        p->aside = pool_printf(&p->pool, "%s.replaced-%d", p->final, ++i);
        TRY(pool_status(&p->pool));
    } while (file_exists(p->aside));
    return OK;
}

static enum status write_and_place(const struct place *p, const char *output_dir, int64_t step,
                                   const struct checkpoint_content *content)
{
    enum status status;
    TRY(file_make_folders(output_dir));
    TRY(file_remove_tree(p->temporary));
    temporary_note(p->temporary);
    TRY_GOTO(file_make_folders(p->temporary), out);
    TRY_GOTO(write_files(p->temporary, step, content), out);
    TRY_GOTO(replace_folder(output_dir, p->temporary, p->final, p->aside), out);
out:
    if (status != OK)
        (void)!file_remove_tree(p->temporary);
    temporary_forget(p->temporary);
    return status;
}

/* Removes what replace_folder set aside. The checkpoint is written: trouble here is no failure. */
static void clear_aside(const struct place *p)
{
    if (p->keep_aside)
        log_warn("%s was there already and is not Snug's: it is now %s", p->final, p->aside);
    else if (file_remove_tree(p->aside) != OK)
        log_warn("the old checkpoint of this step could not be removed: %s", status_message());
}

/* ---- rotation ---- */

/* Renamed first, so that a crash half-way leaves a temporary folder and not half a checkpoint. */
enum status checkpoint_remove(const char *output_dir, int64_t step)
{
    struct pool pool;
    pool_init(&pool);
    const char *folder = checkpoint_folder(&pool, output_dir, CHECKPOINT_FINISHED, step);
    const char *doomed = checkpoint_folder(&pool, output_dir, CHECKPOINT_TEMPORARY, step);
    enum status status;
    TRY_GOTO(pool_status(&pool), out);
    TRY_GOTO(file_rename(folder, doomed), out);
    TRY_GOTO(file_remove_tree(doomed), out);
out:
    pool_release(&pool);
    return status;
}

static enum status rotate(const char *output_dir, int64_t step_written, int64_t best_step,
                          int64_t keep)
{
    struct pool pool;
    struct checkpoint_entries list;
    pool_init(&pool);
    enum status status = checkpoint_entries(&pool, output_dir, &list);
    int64_t n_excess = -keep;
    for (size_t i = 0; i < list.n; i++)
        n_excess += list.items[i].ours;
    for (size_t i = 0; i < list.n && n_excess > 0 && status == OK; i++) {
        if (!list.items[i].ours || list.items[i].step == step_written ||
            list.items[i].step == best_step)
            continue;
        status = checkpoint_remove(output_dir, list.items[i].step);
        n_excess--;
    }
    pool_release(&pool);
    return status;
}

enum status checkpoint_save(const char *output_dir, int64_t step,
                            const struct checkpoint_content *content, int64_t keep, char **path)
{
    struct place p = {0};
    char *copy = NULL;
    enum status status;
    BUG_ON(step < 0);
    pool_init(&p.pool);
    TRY_GOTO(name_place(&p, output_dir, step), out);
    if (path && !(copy = mem_strdup(p.final))) {
        status = FAIL(ERR_MEMORY, "%s: out of memory", p.final);
        goto out;
    }
    TRY_GOTO(write_and_place(&p, output_dir, step, content), out);
    if (file_exists(p.aside))
        clear_aside(&p);
    if (keep > 0 && rotate(output_dir, step, content->best_step, keep) != OK)
        log_warn("old checkpoints could not be removed (tried again at the next save): %s",
                 status_message());
out:
    if (path)
        *path = status == OK ? copy : NULL;
    if (status != OK) {
        mem_free(copy);
        status = status_prefix(status, "the checkpoint of step %lld is not saved", (long long)step);
    }
    pool_release(&p.pool);
    return status;
}
