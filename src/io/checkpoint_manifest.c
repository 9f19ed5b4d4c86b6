/* checkpoint_manifest.c: state.json, the file that makes a folder a checkpoint.
 *
 *     {
 *       "xxh64": "0123456789abcdef",    of this file with zeros in place of these digits
 *       "format": "snug-checkpoint", "version": 1,
 *       "run": "20261115-170912-403127-8f3ac21b", "step": 500,
 *       "state": {...},                 the trainer's
 *       "only_weights": true,           where there are no optimizer states
 *       "files": {"config.json": {"size": 816, "xxh64": "..."}, ...}
 *     }
 *
 * As its own checksum covers every byte, whatever passes is exactly what was written.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/vec.h"
#include "io/checkpoint_internal.h"
#include "io/file_hash.h"
#include "io/json_file.h"
#include "io/run_folder.h"

/* How the file starts; the digits follow. */
static const char opening[] = "{\n  \"xxh64\": \"";
static const char zeros[] = "0000000000000000";
static const char manifest_format[] = "snug-checkpoint";
enum { VERSION = 1 };

/* ---- writing ---- */

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* *names = the entries of the folder in the pool, sorted: the file is the same whatever the order
 * in which the system lists them. */
static enum status list_files(struct pool *pool, const char *folder, char ***names, size_t *n)
{
    VEC(char *) found = {0};
    DIR *d = opendir(folder);
    if (!d)
        return FAIL(ERR_IO, "%s: cannot open folder", folder);
    enum status status = OK;
    for (struct dirent *e = readdir(d); e && status == OK; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *copy = pool_strdup(pool, e->d_name);
        status = pool_status(pool);
        if (status == OK)
            status = vec_push(&found, copy);
    }
    (void)closedir(d);
    if (status == OK)
        status = pool_try(pool, names, (found.n + 1) * sizeof(**names));
    if (status == OK && found.n > 0) {
        qsort(found.items, found.n, sizeof(*found.items), compare_text);
        memcpy(*names, found.items, found.n * sizeof(**names));
    }
    *n = found.n;
    vec_release(&found);
    return status;
}

static enum status add_file(struct pool *pool, json_t *files, const char *folder, const char *name)
{
    const char *path = pool_printf(pool, "%s/%s", folder, name);
    TRY(pool_status(pool));
    uint64_t hash;
    int64_t n_bytes;
    char digits[HASH_TEXT];
    TRY(file_hash(path, &hash, &n_bytes));
    json_t *entry =
        json_pack("{s:I, s:s}", "size", (json_int_t)n_bytes, "xxh64", file_hash_text(digits, hash));
    if (!entry || json_object_set_new(files, name, entry) != 0)
        return FAIL(ERR_MEMORY, "%s: out of memory for the list of files", folder);
    return OK;
}

static enum status list_into(json_t *files, const char *folder)
{
    struct pool pool;
    char **names;
    size_t n = 0;
    pool_init(&pool);
    enum status status = list_files(&pool, folder, &names, &n);
    for (size_t i = 0; i < n && status == OK; i++)
        status = add_file(&pool, files, folder, names[i]);
    pool_release(&pool);
    return status;
}

static enum status write_text(const char *folder, const json_t *root)
{
    struct str text = {0}, path = {0};
    char digits[HASH_TEXT];
    enum status status;
    TRY_GOTO(json_add_text(&text, root), out);
    BUG_ON(!str_starts_with(text.text, opening));
    (void)file_hash_text(digits, file_hash_bytes(text.text, text.n));
    memcpy(text.text + sizeof(opening) - 1, digits, HASH_DIGITS);
    str_addf(&path, "%s/" CHECKPOINT_STATE_FILE, folder);
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(file_write_atomic(path.text, text.text, text.n), out);
out:
    str_release(&text);
    str_release(&path);
    return status;
}

enum status checkpoint_write_state(const char *folder, const char *run, int64_t step, json_t *state,
                                   bool only_weights)
{
    BUG_ON(!json_is_object(state));
    json_t *root = json_pack("{s:s, s:s, s:i, s:s*, s:I, s:O, s:{}}", "xxh64", zeros, "format",
                             manifest_format, "version", VERSION, "run", run, "step",
                             (json_int_t)step, "state", state, "files");
    if (!root || (only_weights && json_object_set_new(root, "only_weights", json_true()) != 0)) {
        json_decref(root);
        return FAIL(ERR_MEMORY, "%s: out of memory for " CHECKPOINT_STATE_FILE, folder);
    }
    enum status status = list_into(json_object_get(root, "files"), folder);
    if (status == OK)
        status = write_text(folder, root);
    json_decref(root);
    return status;
}

/* ---- reading ---- */

/* Compares the checksum in the text with the text, where the digits become zeros. */
static enum status check_text(char *text, size_t n_bytes, const char *path)
{
    char digits[HASH_TEXT];
    size_t n_opening = sizeof(opening) - 1;
    if (n_bytes < n_opening + HASH_DIGITS || memcmp(text, opening, n_opening) != 0)
        return FAIL(ERR_CHECKPOINT, "%s: cut off or damaged: it does not start as it should", path);
    char *at = text + n_opening;
    char stored[HASH_DIGITS];
    memcpy(stored, at, HASH_DIGITS);
    memcpy(at, zeros, HASH_DIGITS);
    (void)file_hash_text(digits, file_hash_bytes(text, n_bytes));
    if (memcmp(stored, digits, HASH_DIGITS) != 0)
        return FAIL(ERR_CHECKPOINT,
                    "%s: cut off, damaged or edited: its checksum does not match its contents",
                    path);
    return OK;
}

static enum status check_root(const json_t *root, const char *path)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (!format || strcmp(format, manifest_format) != 0)
        return FAIL(ERR_CHECKPOINT, "%s: not the state of a checkpoint", path);
    if (version != VERSION)
        return FAIL(ERR_CHECKPOINT,
                    "%s: version %lld of the format, this program reads %d; use the program that "
                    "wrote it",
                    path, (long long)version, VERSION);
    const json_t *run = json_object_get(root, "run"), *step = json_object_get(root, "step");
    if (!json_is_integer(step) || !json_is_object(json_object_get(root, "state")) ||
        !json_is_object(json_object_get(root, "files")))
        return FAIL(ERR_CHECKPOINT, "%s: step, state or files is missing", path);
    if (json_integer_value(step) < 0)
        return FAIL(ERR_CHECKPOINT, "%s: step is %lld; no checkpoint has a negative one", path,
                    (long long)json_integer_value(step));
    if (run && !run_id_is_valid(json_string_value(run)))
        return FAIL(ERR_CHECKPOINT, "%s: 'run' is not the id of a run", path);
    return OK;
}

enum status checkpoint_read_state_file(json_t **root, const char *folder)
{
    *root = NULL;
    struct str path = {0};
    char *text = NULL;
    size_t n_bytes;
    enum status status;
    str_addf(&path, "%s/" CHECKPOINT_STATE_FILE, folder);
    TRY_GOTO(str_status(&path), out);
    if (!file_exists(path.text)) {
        status =
            FAIL(ERR_CHECKPOINT,
                 "%s: missing: the checkpoint is incomplete, or Snug did not write it", path.text);
        goto out;
    }
    TRY_GOTO(file_read(path.text, &text, &n_bytes), out);
    TRY_GOTO(check_text(text, n_bytes, path.text), out);
    TRY_GOTO(json_read_text(root, text, n_bytes, path.text, ERR_CHECKPOINT), out);
    TRY_GOTO(check_root(*root, path.text), out);
out:
    if (status != OK) {
        json_decref(*root);
        *root = NULL;
    }
    mem_free(text);
    str_release(&path);
    return status == ERR_IO ? ERR_CHECKPOINT : status;
}

static enum status verify_file(const char *path, const json_t *entry, enum checkpoint_check check)
{
    int64_t size, due = json_integer_value(json_object_get(entry, "size"));
    const char *digits = json_string_value(json_object_get(entry, "xxh64"));
    if (!file_exists(path))
        return FAIL(ERR_CHECKPOINT, "%s: missing", path);
    TRY(file_size(path, &size));
    if (size != due)
        return FAIL(ERR_CHECKPOINT, "%s: has %" PRId64 " bytes, %" PRId64 " were written; %s", path,
                    size, due, size < due ? "it was cut off" : "it was changed");
    if (check == CHECKPOINT_QUICK && str_ends_with(path, ".safetensors"))
        return OK;
    uint64_t hash;
    char found[HASH_TEXT];
    TRY(file_hash(path, &hash, &size));
    if (!digits || strcmp(file_hash_text(found, hash), digits) != 0)
        return FAIL(ERR_CHECKPOINT,
                    "%s: damaged or changed: its checksum is not the one it was written with",
                    path);
    return OK;
}

enum status checkpoint_verify(const json_t *root, const char *folder, enum checkpoint_check check)
{
    json_t *files = json_object_get(root, "files");
    struct str path = {0};
    enum status status = OK;
    for (void *at = json_object_iter(files); at && status == OK;
         at = json_object_iter_next(files, at)) {
        const char *name = json_object_iter_key(at);
        str_clear(&path);
        str_addf(&path, "%s/%s", folder, name);
        TRY_GOTO(str_status(&path), out);
        TRY_GOTO(verify_file(path.text, json_object_iter_value(at), check), out);
    }
out:
    str_release(&path);
    return status == ERR_IO ? ERR_CHECKPOINT : status;
}
