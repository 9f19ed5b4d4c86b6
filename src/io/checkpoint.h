/* checkpoint.h: what a run needs to go on, on disk, whole or not at all.
 *
 *   <output_dir>/checkpoint-<step>/
 *       config.json, model.safetensors (or shards + index), tokenizer files   a Hugging Face model
 *       (of a model with an adapter: config.json and PEFT's files, which hold what is trained)
 *       optimizer.safetensors     every state and master by name, in its own dtype
 *       trainer_state.json        global_step, epoch, log_history: what plotting scripts read
 *       state.json                written last: the run, the step, the trainer's state, and a
 * manifest with size and XXH64 of every other file; it carries a checksum of itself
 *
 * Every run has an id (run_folder.h) that begins with the time it was started: of the checkpoints
 * in a folder those of a later run are newer, whatever their steps.
 *
 * Everything is written to <output_dir>/.tmp-checkpoint-<step>-<pid>, synced, and renamed, so a
 * folder named checkpoint-<step> is a finished one. A checkpoint of the same step (saved again
 * after a resume) is first renamed to .old-checkpoint-<step>-<pid>: see replace_folder.h for the
 * order. What a killed run leaves behind is put right by checkpoint_recover, called at the start
 * of a run.
 *
 *     TRY(checkpoint_recover(output_dir));
 *     TRY(checkpoint_find(output_dir, "auto", &path));
 *     if (path) {
 *         TRY(checkpoint_open(&c, path, CHECKPOINT_QUICK));
 *         ... checkpoint_state(c), checkpoint_read_params, checkpoint_read_states ...
 *         checkpoint_close(c);
 *     }
 *     ...
 *     TRY(checkpoint_save(output_dir, step, &content, save_total_limit, NULL));
 *
 * Saving and reading stream from and to the caller's tensors: beside them saving holds
 * checkpoint_save_bytes, reading weights_load_bytes, and both the text of the JSON files.
 */
#ifndef SNUG_IO_CHECKPOINT_H
#define SNUG_IO_CHECKPOINT_H

#include <jansson.h>

#include "base/pool.h"
#include "base/team.h"
#include "io/export.h"

#ifdef __cplusplus
extern "C" {
#endif

struct checkpoint_tensor {
    const char *name;     /* "m.<param>", "v.<param>", "master.<param>", ... */
    struct tensor tensor; /* in host memory, or where a stage reads and writes it */
};

/* ---- saving ---- */

/* Everything is borrowed for the call. */
struct checkpoint_content {
    const struct model *model;
    const struct model_param *params; /* [n_params] */
    int n_params;
    const struct tensor *param_tensors;     /* [n_params]: the file stores each in its own dtype */
    enum dtype weights_dtype;               /* of the matrices: what config.json says */
    const struct checkpoint_tensor *states; /* [n_states] */
    size_t n_states;
    bool only_weights;                /* states are not saved: no run can go on from it */
    int64_t best_step;                /* the step whose checkpoint rotation spares; 0: none */
    double best_value;                /* of the metric there; for trainer_state.json */
    const struct tensor_stage *stage; /* how to read both */
    const char *run;                  /* id of the run it belongs to; NULL: none */
    json_t *state;       /* an object: whatever the trainer needs back (RNG, cursor, scaler, ...) */
    double epoch;        /* for trainer_state.json */
    json_t *log_history; /* an array of objects (loss, grad_norm, ..., step), or NULL */
    /* Where tokenizer and generation files are copied from, or NULL. It should be a folder that
     * stays: not a checkpoint, which rotation removes. */
    const char *extras_folder;
    const char *base;        /* of an adapter: as export_content has it */
    const char *tokenizer;   /* as tokenizer_open takes it: written too; NULL: none beside those */
    int64_t max_shard_bytes; /* 0: what Hugging Face cuts at */
};

/* Writes checkpoint-<step>, then removes the oldest ones until `keep` are left (0 or less: all
 * stay), never the one just written; folders that Snug did not write do not count and are not
 * touched. On failure nothing of it remains and older checkpoints are as they were. *path (may be
 * NULL; freed by the caller with mem_free) = where it is. */
enum status checkpoint_save(const char *output_dir, int64_t step,
                            const struct checkpoint_content *content, int64_t keep,
                            char **path) MUST_CHECK;
/* Held while it writes, beside what it is given: parameters keep their dtype. */
int64_t checkpoint_save_bytes(const struct model_param *params, int n_params);

/* ---- finding ---- */

/* Puts right what dead runs left: removes their temporary folders, and brings back a checkpoint
 * that was set aside when its replacement did not arrive. Folders of processes that are alive are
 * left alone. Call it before a run's first save, not during one. */
enum status checkpoint_recover(const char *output_dir) MUST_CHECK;

/* *path (freed by the caller with mem_free) = the checkpoint that `spec` means:
 *   "best"  the one that the newest says is the best, where it does; else as "auto"
 *   "last"  the newest complete one of the newest run in output_dir, its checksums verified; none
 * is ERR_CHECKPOINT "auto"  the same, but none is OK and *path is NULL other   a path, as it is or
 * inside output_dir; not verified: checkpoint_open does Incomplete or damaged ones are passed over
 * with a warning that says why. */
enum status checkpoint_find(const char *output_dir, const char *spec, char **path) MUST_CHECK;

/* What is called a finished checkpoint in output_dir, the oldest first: by run, then by step. One
 * whose state cannot be read stands among those of the newest run. In the pool. */
struct checkpoint_entry {
    const char *run; /* "": none was noted */
    int64_t step;
    bool ours; /* it has a state.json, which only Snug writes */
};
struct checkpoint_entries {
    struct checkpoint_entry *items;
    size_t n;
};
enum status checkpoint_entries(struct pool *pool, const char *output_dir,
                               struct checkpoint_entries *out) MUST_CHECK;

/* Removes one of them. */
enum status checkpoint_remove(const char *output_dir, int64_t step) MUST_CHECK;

/* ---- reading ---- */

struct checkpoint;

/* Sizes and the checksums of the small files are always verified. */
enum checkpoint_check {
    CHECKPOINT_FULL,  /* and the checksums of all tensors: reads every byte once */
    CHECKPOINT_QUICK, /* after checkpoint_find has done that already */
};

/* *state (dropped by the caller) = the object given as `state` when the folder was saved, without a
 * look at its other files; NULL: the folder is no checkpoint. */
enum status checkpoint_peek(const char *path, json_t **state) MUST_CHECK;

/* Whatever is wrong with it is ERR_CHECKPOINT, with the file and the reason. */
enum status checkpoint_open(struct checkpoint **out, const char *path,
                            enum checkpoint_check check) MUST_CHECK;
void checkpoint_close(struct checkpoint *c); /* NULL is fine */

int64_t checkpoint_step(const struct checkpoint *c);
const char *checkpoint_run(const struct checkpoint *c); /* id; "": none was noted */
const char *checkpoint_path(const struct checkpoint *c);
/* The object given as `state`; borrowed. */
const json_t *checkpoint_state(const struct checkpoint *c);
/* *history = the array given as log_history, a new reference. */
enum status checkpoint_log_history(const struct checkpoint *c, json_t **history) MUST_CHECK;

/* OK when the checkpoint is of this model: each key both configs have is equal. */
enum status checkpoint_check_model(const struct checkpoint *c,
                                   const struct model *model) MUST_CHECK;

/* Parameters (of a model with an adapter: those that are trained) into tensors of their shapes (any
 * float dtype; the same dtype as at saving gives the same bits), written through the stage. */
enum status checkpoint_read_params(const struct checkpoint *c, const struct model_param *params,
                                   int n_params, const struct tensor *dst,
                                   const struct tensor_stage *stage, struct team *team) MUST_CHECK;

/* One state into a tensor of exactly its dtype and shape. */
enum status checkpoint_read_state(const struct checkpoint *c, const char *name,
                                  const struct tensor *dst,
                                  const struct tensor_stage *stage) MUST_CHECK;
/* Whether it was saved with only_weights. */
bool checkpoint_has_states(const struct checkpoint *c);
/* All of them; the checkpoint must hold these and no others but snapshots ("snapshot.<i>", of
 * predictive phases), or the optimizer is another one. */
#define CHECKPOINT_SNAPSHOT "snapshot."
/* Are they those that checkpoint_read_states wants? By names, dtypes and shapes; data is not
 * looked at. */
bool checkpoint_takes_states(const struct checkpoint *c, const struct checkpoint_tensor *states,
                             size_t n_states);
enum status checkpoint_read_states(const struct checkpoint *c,
                                   const struct checkpoint_tensor *states, size_t n_states,
                                   const struct tensor_stage *stage) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
