#include "train/run_start.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "train/run_settings.h"
#include "train/trainer.h"

/* ---- finding the checkpoint ------------------------------------------------------------------ */

static enum status find_checkpoint(struct run_start *r, const char *spec)
{
    char *path = NULL;
    TRY(checkpoint_find(r->folder.path, spec, &path));
    if (!path)
        return OK;
    bool verified = strcmp(spec, "last") == 0 || strcmp(spec, "auto") == 0;
    enum status status =
        checkpoint_open(&r->checkpoint, path, verified ? CHECKPOINT_QUICK : CHECKPOINT_FULL);
    mem_free(path);
    return status;
}

/* True when the checkpoint is one of those in the run's folder. */
static bool is_inside(const struct run_start *r)
{
    char above[PATH_MAX], folder[PATH_MAX], own[PATH_MAX];
    int n = snprintf(above, sizeof(above), "%s/..", checkpoint_path(r->checkpoint));
    return n > 0 && (size_t)n < sizeof(above) && realpath(above, folder) &&
           realpath(r->folder.path, own) && strcmp(folder, own) == 0;
}

/* Notes the newest run here. *goes_on = whether no checkpoint in the folder is newer than the one
 * resumed from. */
static enum status look_around(struct run_start *r, bool *goes_on)
{
    struct pool pool;
    struct checkpoint_entries list;
    const char *run = r->checkpoint ? checkpoint_run(r->checkpoint) : "";
    const char *newest = run;
    pool_init(&pool);
    enum status status = checkpoint_entries(&pool, r->folder.path, &list);
    *goes_on = run_id_is_valid(run);
    for (size_t i = 0; i < list.n && status == OK; i++) {
        const struct checkpoint_entry *e = &list.items[i];
        int by_run = strcmp(e->run, run);
        if (!e->ours)
            continue;
        if (strcmp(e->run, newest) > 0)
            newest = e->run;
        if (by_run > 0 ||
            (r->checkpoint && by_run == 0 && e->step > checkpoint_step(r->checkpoint)))
            *goes_on = false;
    }
    (void)snprintf(r->newest, sizeof(r->newest), "%s", newest);
    pool_release(&pool);
    return status;
}

/* ---- the id and the folder ------------------------------------------------------------------- */

static enum status choose_id(struct run_start *r)
{
    bool goes_on;
    TRY(look_around(r, &goes_on));
    if (!goes_on)
        return run_id_make(r->id, r->newest);
    memcpy(r->id, checkpoint_run(r->checkpoint), sizeof(r->id));
    return OK;
}

/* `auto` is for jobs that are started again and again: one that was killed before its first
 * checkpoint has left nothing but metrics, and begins anew. */
static enum status check_unused(struct run_start *r, const struct config *cfg)
{
    char *other = NULL;
    const char *spec = cfg->resume_from_checkpoint;
    bool again = spec && strcmp(spec, "auto") == 0;
    if (r->checkpoint && is_inside(r))
        return OK;
    const char *own = r->checkpoint ? checkpoint_run(r->checkpoint) : r->id;
    TRY(run_folder_find_other(&r->folder, own, &other));
    if (!other)
        return OK;
    r->overwrites = cfg->overwrite_output_dir || (again && strcmp(other, RUN_FOLDER_METRICS) == 0);
    enum status status = OK;
    if (!r->overwrites)
        status = FAIL(ERR_USAGE,
                      "%s holds %s of another run: go on with that run (--resume), choose another "
                      "output_dir (%s), or start over there with overwrite_output_dir: true, which "
                      "removes its checkpoints and metrics.jsonl",
                      r->folder.path, other, config_where(cfg, "output_dir"));
    mem_free(other);
    return status;
}

enum status run_start_open(struct run_start *r, const struct config *cfg)
{
    const char *spec = cfg->resume_from_checkpoint;
    enum status status;
    *r = (struct run_start){0};
    TRY(run_folder_open(&r->folder, cfg->output_dir));
    TRY_GOTO(checkpoint_recover(cfg->output_dir), out);
    if (spec)
        TRY_GOTO(find_checkpoint(r, spec), out);
    TRY_GOTO(choose_id(r), out);
    TRY_GOTO(check_unused(r, cfg), out);
out:
    if (status != OK)
        run_start_close(r);
    return status;
}

enum status run_start_confirm(struct run_start *r, const struct session *s)
{
    int64_t n_steps;
    bool changed;
    TRY(train_total_steps(s, &n_steps));
    TRY(run_settings_make(s, n_steps, &r->settings));
    if (r->checkpoint) {
        TRY(checkpoint_check_model(r->checkpoint, s->engine.model));
        TRY(run_settings_compare(s, r->settings, r->checkpoint, &changed));
        if (changed)
            TRY(run_id_make(r->id, r->newest));
    }
    if (r->overwrites)
        TRY(run_folder_clear(&r->folder));
    return run_folder_claim(&r->folder, r->id);
}

void run_start_close(struct run_start *r)
{
    checkpoint_close(r->checkpoint);
    json_decref(r->settings);
    run_folder_close(&r->folder);
    *r = (struct run_start){.folder.lock = -1};
}
