/* checkpoint_find.c: which checkpoint to go on from, and what dead runs left behind. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "io/checkpoint_internal.h"

/* ---- recovery ---- */

/* A folder with our own id is a former process's: recovery happens before the first save, and in a
 * container every run may get the same id. */
static bool is_in_use(int64_t pid)
{
    if (pid <= 0 || pid > INT32_MAX || pid == (int64_t)getpid())
        return false;
    return kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

static enum status recover_one(struct pool *pool, const char *output_dir,
                               const struct checkpoint_name *name)
{
    bool temporary = name->kind == CHECKPOINT_TEMPORARY;
    const char *left =
        pool_printf(pool, "%s/%scheckpoint-%lld-%lld", output_dir, temporary ? ".tmp-" : ".old-",
                    (long long)name->step, (long long)name->pid);
    const char *final = checkpoint_folder(pool, output_dir, CHECKPOINT_FINISHED, name->step);
    TRY(pool_status(pool));
    if (!temporary && !file_exists(final)) {
        log_warn("%s: brought back; a run was killed while it was replacing it", final);
        TRY(file_rename(left, final));
        return file_sync_folder(output_dir);
    }
    if (file_remove_tree(left) != OK)
        log_warn("%s, left by a run that was killed, could not be removed: %s", left,
                 status_message());
    else
        log_info("%s: removed; a run was killed while it was saving", left);
    return OK;
}

enum status checkpoint_recover(const char *output_dir)
{
    struct pool pool;
    struct checkpoint_list list;
    pool_init(&pool);
    enum status status = checkpoint_list(&pool, output_dir, &list);
    for (size_t i = 0; i < list.n && status == OK; i++)
        if (list.names[i].kind != CHECKPOINT_FINISHED && !is_in_use(list.names[i].pid))
            status = recover_one(&pool, output_dir, &list.names[i]);
    pool_release(&pool);
    return status;
}

/* ---- finding ---- */

/* OK when it can be gone on from. */
static enum status try_open(const char *folder)
{
    struct checkpoint *c;
    TRY(checkpoint_open(&c, folder, CHECKPOINT_FULL));
    checkpoint_close(c);
    return OK;
}

/* *found = the newest complete one, in the pool, or NULL. */
static enum status find_newest(struct pool *pool, const char *output_dir, const char **found)
{
    struct checkpoint_entries list;
    *found = NULL;
    TRY(checkpoint_entries(pool, output_dir, &list));
    for (size_t i = list.n; i-- > 0;) {
        const char *folder =
            checkpoint_folder(pool, output_dir, CHECKPOINT_FINISHED, list.items[i].step);
        TRY(pool_status(pool));
        enum status status = try_open(folder);
        if (status == OK) {
            *found = folder;
            return OK;
        }
        if (status != ERR_CHECKPOINT)
            return status;
        log_warn("%s is passed over: %s", folder, status_message());
    }
    return OK;
}

/* *found = the one that the newest says is the best; the newest where it says nothing, or that one
 * is not there any more. */
static enum status find_best(struct pool *pool, const char *output_dir, const char **found)
{
    json_t *state = NULL;
    TRY(find_newest(pool, output_dir, found));
    if (!*found)
        return OK;
    TRY(checkpoint_peek(*found, &state));
    int64_t step = json_integer_value(json_object_get(json_object_get(state, "best"), "step"));
    json_decref(state);
    const char *folder = checkpoint_folder(pool, output_dir, CHECKPOINT_FINISHED, step);
    TRY(pool_status(pool));
    if (step <= 0)
        log_warn("%s: no evaluation says which checkpoint is the best: the newest is taken, %s",
                 output_dir, *found);
    if (step <= 0 || strcmp(folder, *found) == 0)
        return OK;
    if (try_open(folder) == OK)
        *found = folder;
    else
        log_warn("%s, the best one, is passed over: %s", folder, status_message());
    return OK;
}

/* *found = a path the user gave, as it is or inside output_dir. */
static enum status find_given(struct pool *pool, const char *output_dir, const char *spec,
                              const char **found)
{
    const char *inside = pool_printf(pool, "%s/%s", output_dir, spec);
    TRY(pool_status(pool));
    *found = file_is_folder(spec) ? spec : file_is_folder(inside) ? inside : NULL;
    if (*found)
        return OK;
    return FAIL(ERR_CHECKPOINT,
                "'%s': no such checkpoint here or in %s; give the folder of one, 'last' or "
                "'best'",
                spec, output_dir);
}

enum status checkpoint_find(const char *output_dir, const char *spec, char **path)
{
    *path = NULL;
    struct pool pool;
    const char *found = NULL;
    bool best = strcmp(spec, "best") == 0, automatic = best || strcmp(spec, "auto") == 0;
    bool newest = strcmp(spec, "auto") == 0 || strcmp(spec, "last") == 0;
    pool_init(&pool);
    enum status status = best     ? find_best(&pool, output_dir, &found)
                         : newest ? find_newest(&pool, output_dir, &found)
                                  : find_given(&pool, output_dir, spec, &found);
    if (status == OK && !found && !automatic)
        status = FAIL(ERR_CHECKPOINT,
                      "%s: no complete checkpoint in it; train first, without resuming, or name "
                      "a checkpoint's folder",
                      output_dir);
    if (status == OK && found && !(*path = mem_strdup(found)))
        status = FAIL(ERR_MEMORY, "%s: out of memory", found);
    pool_release(&pool);
    return status;
}
