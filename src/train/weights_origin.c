#include "train/weights_origin.h"

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

enum status weights_origin(const struct config *cfg, const struct model *model,
                           const char *model_folder, const char *spec, char **folder)
{
    *folder = NULL;
    if (spec && strcmp(spec, "none") == 0)
        return own_model(model_folder, folder);
    TRY(checkpoint_find(cfg->output_dir, spec ? spec : "auto", folder));
    if (!*folder)
        return own_model(model_folder, folder);
    bool verified = !spec || strcmp(spec, "last") == 0;
    enum status status = OK;
    if (verified || is_checkpoint(*folder))
        status = check_checkpoint(*folder, model, verified ? CHECKPOINT_QUICK : CHECKPOINT_FULL);
    if (status != OK) {
        mem_free(*folder);
        *folder = NULL;
    }
    return status;
}
