#include "engine/ways.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "device/disk/disk.h"
#include "engine/adapter_config.h"
#include "engine/model_open.h"

void ways_init(struct ways *w, const struct engine *e)
{
    *w = (struct ways){.e = e};
}

/* The device itself is the engine's. */
void ways_release(struct ways *w)
{
    disk_close(w->device.disk);
    model_free(w->model);
    *w = (struct ways){0};
}

/* ---- a disk ---------------------------------------------------------------------------------- */

void ways_add_folder(const struct engine *e, struct str *out)
{
    str_addf(out, "%s/offload", e->config->output_dir);
}

/* The folder that is there of a path to one that may not be: "." of "out/a" before any run. */
static void cut_to_existing(char *path)
{
    while (!file_is_folder(path)) {
        char *slash = strrchr(path, '/');
        if (!slash) {
            path[0] = '.';
            slash = path + 1;
        } else if (slash == path) {
            slash++; /* the root */
        }
        *slash = '\0';
    }
}

static enum status lend_disk(struct ways *w, char *path)
{
    cut_to_existing(path);
    if (access(path, W_OK) != 0)
        return FAIL(ERR_IO, "%s cannot be written", path);
    w->device = *w->e->device;
    TRY(device_use_disk(&w->device, path));
    return disk_is_memory(w->device.disk) ? FAIL(ERR_CONFIG, "%s is in memory", path) : OK;
}

struct device *ways_device(struct ways *w)
{
    struct str path = {0};
    if (w->device.disk)
        return w->has_no_disk ? NULL : &w->device;
    if (w->has_no_disk || w->e->device->disk || w->e->around)
        return NULL;
    ways_add_folder(w->e, &path);
    w->has_no_disk = str_status(&path) != OK || lend_disk(w, path.text) != OK;
    str_release(&path);
    return w->has_no_disk ? NULL : &w->device;
}

/* ---- an adapter ------------------------------------------------------------------------------ */

bool ways_take_adapter(const struct engine *e, enum advice_way way, struct config *c)
{
    bool is_whole = c->adapter == CONFIG_ADAPTER_NONE && !c->adapter_name_or_path &&
                    !c->load_in_4bit && !c->load_in_8bit && c->freeze.n == 0 && c->unfreeze.n == 0;
    c->adapter = way == WAY_QLORA ? CONFIG_ADAPTER_QLORA : CONFIG_ADAPTER_LORA;
    c->load_in_4bit = way == WAY_QLORA;
    /* Weights from a seed are nothing to adapt, unless others take their place over there. */
    return is_whole && e->own_model && engine_stage(e, STAGE_TRAIN) &&
           (e->model_folder || e->device->is_absent);
}

static enum status open_adapted(struct ways *w, const struct config *c)
{
    struct config from = *c;
    char *folder = NULL, *adapter_folder = NULL;
    if (w->e->model_folder)
        from.model_name_or_path = w->e->model_folder;
    enum status status = open_model(&from, NULL, &w->model, &folder);
    if (status == OK)
        status = adapter_from_config(w->model, &from, NULL, &adapter_folder);
    mem_free(folder);
    mem_free(adapter_folder);
    return status;
}

enum status ways_task(struct ways *w, enum advice_way way, const struct config *c,
                      struct task *task)
{
    *task = w->e->task;
    if (way < WAY_LORA)
        return OK;
    if (!w->model || w->model_way != way) {
        model_free(w->model);
        w->model = NULL;
        w->model_way = way;
        TRY(open_adapted(w, c));
    }
    task->model = w->model;
    if (task->def->configure)
        task->def->configure(task, c);
    return OK;
}
