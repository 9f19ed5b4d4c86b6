#include "engine/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/split.h"
#include "engine/adapter_config.h"
#include "engine/adapter_rows.h"
#include "engine/averages.h"
#include "engine/coded_params.h"
#include "io/peft.h"
#include "io/weights.h"
#include "model/init.h"

/* ---- where they lie -------------------------------------------------------------------------- */

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

struct tensor engine_master(const struct engine *e, int i)
{
    char name[256];
    const struct graph *g = e->work.stages[0].graph;
    (void)snprintf(name, sizeof(name), "master.%s", e->params[i].name);
    const struct storage_entry *entry = storage_find(&e->work.storage, name);
    value_id v = entry ? graph_find_value(g, name) : VALUE_NONE;
    struct tensor t = {.dtype = v == VALUE_NONE ? DTYPE_F32 : graph_value(g, v)->dtype,
                       .shape = e->param_tensors[i].shape};
    if (entry)
        t.data = executor_storage_address(e->executor, entry);
    return t;
}

/* The f32 copy of parameter i that updates act on; the parameter itself where it has none. */
static struct tensor master_of(const struct engine *e, int i)
{
    struct tensor t = engine_master(e, i);
    return t.data && t.dtype == DTYPE_F32 ? t : e->param_tensors[i];
}

/* Buffers of the network are states that are kept with its parameters. */
static bool is_param(const struct engine *e, value_id v)
{
    const struct model_graph *io = &engine_stage(e, STAGE_TRAIN)->io;
    for (int i = 0; i < io->n_params; i++) {
        if (io->params[i].value == v)
            return true;
    }
    return false;
}

enum status engine_find_states(const struct engine *e, struct engine_states *out)
{
    const struct graph *g = engine_stage(e, STAGE_TRAIN)->graph;
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        const struct value *x = graph_value(g, v);
        bool is_state = x->role == ROLE_STATE || x->role == ROLE_MASTER;
        if (x->producer != NODE_NONE || !is_state || is_param(e, v))
            continue;
        const struct storage_entry *entry = storage_find(&e->work.storage, x->name);
        if (!entry)
            continue;
        struct checkpoint_tensor c = {.name = x->name, .tensor = value_tensor(g, v)};
        if (e->executor)
            c.tensor.data = executor_storage_address(e->executor, entry);
        TRY(vec_push(&out->list, c));
    }
    return OK;
}

/* ---- what is put there first ----------------------------------------------------------------- */

static enum status draw_param(struct engine *e, int i, const struct tensor *to)
{
    int64_t n = shape_elems(&to->shape), most = stage_elems(e->stage, to, 1);
    for (int64_t at = 0; at < n; at += most) {
        struct tensor part = tensor_part(to, at, MIN(most, n - at));
        struct tensor host = stage_tensor(e->stage, &part);
        TRY(init_param(&e->params[i], e->settings.seed, host.dtype, at, shape_elems(&host.shape),
                       host.data, e->device->env.team));
        TRY(stage_store(e->stage, &part));
    }
    return OK;
}

/* Those that are the adapter's, or those that are not, drawn from the seed. */
static enum status draw(struct engine *e, const struct tensor *to, bool adapter)
{
    const struct coded_origin origin = {.seed = e->settings.seed, .team = e->device->env.team};
    for (int i = 0; i < e->n_params; i++) {
        if (e->params[i].adapter != adapter)
            continue;
        if (param_is_coded(&e->params[i])) {
            TRY(coded_param_load(e, i, &origin));
            continue;
        }
        TRY(draw_param(e, i, &to[i]));
    }
    return OK;
}

/* Parameter i, which is number `stored` of the folder's. */
static enum status load_param(struct engine *e, const struct weights *w, int stored, int i,
                              const struct tensor *to)
{
    const struct coded_origin origin = {
        .weights = w, .stored = stored, .team = e->device->env.team};
    if (param_is_coded(&e->params[i]))
        return coded_param_load(e, i, &origin);
    return weights_read_staged(w, stored, to, e->stage, e->device->env.team);
}

/* Those that are not the adapter's, which a model's folder holds. */
static enum status load_model(struct engine *e, const char *folder, const struct tensor *to)
{
    struct model_param *params;
    struct weights *w = NULL;
    int *index = NULL, n = 0;
    enum status status;
    TRY_GOTO(mem_try_array(&params, (size_t)MAX(e->n_params, 1), sizeof(*params)), out);
    TRY_GOTO(mem_try_array(&index, (size_t)MAX(e->n_params, 1), sizeof(*index)), out);
    for (int i = 0; i < e->n_params; i++) {
        if (e->params[i].adapter)
            continue;
        params[n] = e->params[i];
        index[n++] = i;
    }
    TRY_GOTO(weights_open(&w, folder, params, n), out);
    for (int k = 0; k < n; k++)
        TRY_GOTO(load_param(e, w, k, index[k], &to[index[k]]), out);
out:
    weights_close(w);
    mem_free(params);
    mem_free(index);
    return status;
}

/* to[i] = parameter i. */
static enum status fill(struct engine *e, const char *folder, const struct tensor *to)
{
    struct weight_folders from;
    TRY(weight_folders(&from, e->model, folder, e->model_folder, e->adapter_folder));
    TRY(from.model ? load_model(e, from.model, to) : draw(e, to, false));
    if (from.adapter)
        return peft_load(from.adapter, e->params, e->n_params, to, e->stage, e->device->env.team);
    TRY(draw(e, to, true));
    return measure_rows(e, to);
}

enum { ROUND_PIECE = 1 << 16 }; /* elements worth handing to another thread */

struct rounding {
    const float *from;
    uint16_t *to;
    enum dtype dtype;
};

static void round_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct rounding *r = job;
    (void)thread;
    if (r->dtype == DTYPE_BF16) {
        for (int64_t k = first; k < last; k++)
            r->to[k] = bf16_from_f32(r->from[k]);
    } else {
        for (int64_t k = first; k < last; k++)
            r->to[k] = f16_from_f32(r->from[k]);
    }
}

/* weight = master, rounded as updates round it. In the stage both share one buffer: the weight is
 * the narrower, and elements are read before they are written over, by one thread. */
static enum status round_master(struct engine *e, const struct tensor *master,
                                const struct tensor *weight)
{
    int64_t n = shape_elems(&master->shape);
    int64_t most = MIN(stage_elems(e->stage, master, 1), stage_elems(e->stage, weight, 1));
    for (int64_t at = 0; at < n; at += most) {
        struct tensor wide = tensor_part(master, at, MIN(most, n - at)), from;
        struct tensor narrow = tensor_part(weight, at, MIN(most, n - at));
        struct tensor to = stage_tensor(e->stage, &narrow);
        TRY(stage_fetch(e->stage, &wide, &from));
        struct rounding r = {from.data, to.data, to.dtype};
        team_run(from.data == to.data ? NULL : e->device->env.team, shape_elems(&from.shape),
                 ROUND_PIECE, round_some, &r);
        TRY(stage_store(e->stage, &narrow));
    }
    return OK;
}

/* A master of bytes holds what the weight lacks of 24 bits: nothing, of a weight that was read as
 * bf16. */
static enum status clear_rest(struct engine *e, int i)
{
    struct tensor rest = engine_master(e, i);
    if (!rest.data || rest.dtype != DTYPE_U8)
        return OK;
    return stage_set(e->stage, &rest, SPLIT_NOTHING);
}

/* Into the masters first: small steps from a weight that was rounded to 16 bits would all be
 * rounded away again. */
static enum status fill_masters_first(struct engine *e, const char *folder)
{
    struct tensor *masters;
    TRY(mem_try_array(&masters, (size_t)MAX(e->n_params, 1), sizeof(*masters)));
    for (int i = 0; i < e->n_params; i++)
        masters[i] = master_of(e, i);
    enum status status = fill(e, folder, masters);
    for (int i = 0; i < e->n_params && status == OK; i++) {
        if (masters[i].data != e->param_tensors[i].data)
            status = round_master(e, &masters[i], &e->param_tensors[i]);
        if (status == OK)
            status = clear_rest(e, i);
    }
    if (status == OK)
        status = averages_start(e, masters);
    mem_free(masters);
    return status;
}

enum status engine_bind_params(struct engine *e)
{
    open_stage(e);
    return find_params(e);
}

enum status engine_load_weights(struct engine *e, const char *folder)
{
    TRY(engine_bind_params(e));
    return fill_masters_first(e, folder);
}
