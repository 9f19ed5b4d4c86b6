/* checkpoint_internal.h: what the checkpoint_*.c files share: names of folders, and the state file.
 */
#ifndef SNUG_IO_CHECKPOINT_INTERNAL_H
#define SNUG_IO_CHECKPOINT_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CHECKPOINT_STATE_FILE     "state.json"
#define CHECKPOINT_TRAINER_FILE   "trainer_state.json"
#define CHECKPOINT_OPTIMIZER_FILE "optimizer.safetensors"

/* ---- names (checkpoint_names.c) ---- */

enum checkpoint_kind {
    CHECKPOINT_OTHER,     /* not a name of ours */
    CHECKPOINT_FINISHED,  /* checkpoint-<step> */
    CHECKPOINT_TEMPORARY, /* .tmp-checkpoint-<step>-<pid>: being written, or being removed */
    CHECKPOINT_ASIDE,     /* .old-checkpoint-<step>-<pid>: being replaced */
};

struct checkpoint_name {
    enum checkpoint_kind kind;
    int64_t step, pid; /* pid of TEMPORARY and ASIDE */
};

/* Exactly the spellings we write; "checkpoint-007" is OTHER. */
struct checkpoint_name checkpoint_parse_name(const char *name);

/* output_dir/name in the pool, with this process's id where one belongs; NULL when out of memory
 * (the pool says so). */
const char *checkpoint_folder(struct pool *pool, const char *output_dir, enum checkpoint_kind kind,
                              int64_t step);

/* Names of the kinds of ours in output_dir, in the pool, finished ones by step, oldest first. A
 * folder that does not exist has none. */
struct checkpoint_list {
    struct checkpoint_name *names;
    size_t n;
};
enum status checkpoint_list(struct pool *pool, const char *output_dir,
                            struct checkpoint_list *out) MUST_CHECK;

/* Whether folder/state.json exists: only Snug writes one. */
bool checkpoint_is_ours(const char *folder);

/* ---- the state file (checkpoint_manifest.c) ---- */

/* Hashes every file in the folder and writes state.json; `run` may be NULL. */
enum status checkpoint_write_state(const char *folder, const char *run, int64_t step, json_t *state,
                                   bool only_weights) MUST_CHECK;

/* *root = state.json, whole and of a version we know; the caller drops it. */
enum status checkpoint_read_state_file(json_t **root, const char *folder) MUST_CHECK;

/* The files of the manifest against the folder. */
enum status checkpoint_verify(const json_t *root, const char *folder,
                              enum checkpoint_check check) MUST_CHECK;

/* ---- optimizer.safetensors (checkpoint_tensors.c) ---- */

enum status checkpoint_write_tensors(const char *folder, const struct checkpoint_tensor *states,
                                     size_t n_states, const struct tensor_stage *stage) MUST_CHECK;
/* One tensor into dst, which must have its dtype and shape. */
/* Is there one of that name, of exactly the dtype and shape of dst? */
bool checkpoint_has_tensor(const struct st_reader *reader, const char *name,
                           const struct tensor *dst);
enum status checkpoint_read_tensor(const struct st_reader *reader, const char *name,
                                   const struct tensor *dst,
                                   const struct tensor_stage *stage) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
