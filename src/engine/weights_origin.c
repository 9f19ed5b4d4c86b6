#include "engine/weights_origin.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/checkpoint.h"

static enum status check_checkpoint(const char *folder, const struct model *model,
                                    enum checkpoint_check check)
{
    struct checkpoint *c;
    TRY(checkpoint_open(&c, folder, check));
    enum status status = checkpoint_check_model(c, model);
    checkpoint_close(c);
    return status;
}

static bool is_checkpoint(const char *folder)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/state.json", folder);
    return file_exists(path);
}

static enum status own_model(const char *model_folder, char **folder)
{
    *folder = model_folder ? mem_strdup(model_folder) : NULL;
    if (model_folder && !*folder)
        return FAIL(ERR_MEMORY, "%s: out of memory", model_folder);
    return OK;
}

/* Weights that were trained and cannot be read are not replaced by untrained ones unasked. */
static enum status refuse_lost_weights(const char *output_dir)
{
    struct pool pool;
    struct checkpoint_entries found = {0};
    bool any = false;
    pool_init(&pool);
    enum status status = checkpoint_entries(&pool, output_dir, &found);
    for (size_t i = 0; i < found.n && status == OK; i++)
        any |= found.items[i].ours;
    pool_release(&pool);
    if (status == OK && any)
        return FAIL(ERR_CHECKPOINT,
                    "%s: has checkpoints, but none that is whole and can be read; name a model's "
                    "folder (--checkpoint), or `none` for the model as configured",
                    output_dir);
    return status;
}

enum status weights_origin(const struct config *cfg, const struct model *model,
                           const char *model_folder, const char *spec, char **folder)
{
    *folder = NULL;
    if (spec && strcmp(spec, "none") == 0)
        return own_model(model_folder, folder);
    const char *wanted = spec ? spec : cfg->load_best_model_at_end ? "best" : "auto";
    TRY(checkpoint_find(cfg->output_dir, wanted, folder));
    if (!*folder) {
        TRY(refuse_lost_weights(cfg->output_dir));
        return own_model(model_folder, folder);
    }
    bool verified = !spec || strcmp(spec, "last") == 0 || strcmp(spec, "best") == 0;
    enum status status = OK;
    if (verified || is_checkpoint(*folder))
        status = check_checkpoint(*folder, model, verified ? CHECKPOINT_QUICK : CHECKPOINT_FULL);
    if (status != OK) {
        mem_free(*folder);
        *folder = NULL;
    }
    return status;
}
