/* weights.c: an engine's parameters: where they lie, and what is put there first. */
#include <stdio.h>

#include "base/half.h"
#include "engine/engine.h"
#include "engine/parameters.h"

static void open_stage(struct engine *e)
{
    const struct storage_entry *entry = storage_find(&e->work.storage, STAGING_NAME);
    e->stage = &host_stage;
    if (!entry)
        return;
    e->staging = executor_stage(e->executor, entry);
    e->stage = &e->staging;
}

static enum status find_params(struct engine *e)
{
    const struct graph *g = e->work.stages[0].graph;
    mem_free(e->param_tensors);
    TRY(mem_try_array(&e->param_tensors, (size_t)MAX(e->n_params, 1), sizeof(*e->param_tensors)));
    for (int i = 0; i < e->n_params; i++) {
        const struct storage_entry *entry = storage_find(&e->work.storage, e->params[i].name);
        if (!entry)
            return FAIL(ERR_INTERNAL, "parameter '%s' has no storage", e->params[i].name);
        e->param_tensors[i] = value_tensor(g, e->params[i].value);
        e->param_tensors[i].data = executor_storage_address(e->executor, entry);
    }
    return OK;
}

/* The f32 copy of parameter i that updates act on; the parameter itself where it has none. */
static struct tensor master_of(const struct engine *e, int i)
{
    char name[256];
    struct tensor t = e->param_tensors[i];
    (void)snprintf(name, sizeof(name), "master.%s", e->params[i].name);
    const struct storage_entry *entry = storage_find(&e->work.storage, name);
    if (entry) {
        t.dtype = DTYPE_F32;
        t.data = executor_storage_address(e->executor, entry);
    }
    return t;
}

/* weight = master, rounded as updates round it. In the stage both share one buffer: the weight is
 * the narrower, and elements are read before they are written over. */
static enum status round_master(struct engine *e, const struct tensor *master,
                                const struct tensor *weight)
{
    struct tensor from, to = stage_tensor(e->stage, weight);
    TRY(stage_fetch(e->stage, master, &from));
    for (int64_t k = 0; k < shape_elems(&from.shape); k++) {
        float x = ((const float *)from.data)[k];
        ((uint16_t *)to.data)[k] = to.dtype == DTYPE_BF16 ? bf16_from_f32(x) : f16_from_f32(x);
    }
    return stage_store(e->stage, weight);
}

/* Into the masters first: small steps from a weight that was rounded to 16 bits would all be
 * rounded away again. */
static enum status fill_params(struct engine *e, const char *folder)
{
    struct tensor *masters;
    TRY(mem_try_array(&masters, (size_t)MAX(e->n_params, 1), sizeof(*masters)));
    for (int i = 0; i < e->n_params; i++)
        masters[i] = master_of(e, i);
    struct parameter_list list = {e->params, e->n_params, masters, e->stage};
    enum status status = parameters_load(&list, folder, e->settings.seed, e->device->env.team);
    for (int i = 0; i < e->n_params && status == OK; i++) {
        if (masters[i].data != e->param_tensors[i].data)
            status = round_master(e, &masters[i], &e->param_tensors[i]);
    }
    mem_free(masters);
    return status;
}

enum status engine_load_weights(struct engine *e, const char *folder)
{
    open_stage(e);
    TRY(find_params(e));
    return fill_params(e, folder);
}
