/* model.c: the keys under `model:`, which the architectures read. */
#include <stdio.h>

#include "config/config_internal.h"
#include "model/model.h"

static const char *place(const void *user, const char *key)
{
    char path[2 * CONFIG_MAX_KEY];
    (void)snprintf(path, sizeof(path), "model.%s", key);
    return config_where(user, path);
}

struct key_origin config_model_origin(const struct config *cfg, const char *folder)
{
    return (struct key_origin){.where = folder ? folder : config_where(cfg, "model"),
                               .written = cfg->model,
                               .place = place,
                               .user = cfg};
}

enum status config_check_model(const struct config *cfg, int *reads_text)
{
    struct key_origin origin = config_model_origin(cfg, NULL);
    struct model *model;
    TRY(model_new(&model, cfg->model, &origin));
    *reads_text = model->samples.n_fields == 0;
    model_free(model);
    return OK;
}
