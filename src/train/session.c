#include "train/session.h"

#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/log.h"
#include "train/device_choice.h"
#include "train/parameters.h"
#include "train/trainer.h"

/* ---- opening --------------------------------------------------------------------------------- */

static enum status open_device(struct session *s)
{
    const struct config *cfg = s->config;
    if (cfg->offload_folder)
        return FAIL(ERR_UNSUPPORTED, "%s: this build has no disk tier; leave offload_folder out",
                    config_where(cfg, "offload_folder"));
    return device_choose(&s->device, cfg, s->options.cache_folder, s->options.n_threads);
}

static enum status check_length(const struct session *s)
{
    const struct config *cfg = s->config;
    long long length = (long long)cfg->max_seq_length, context = (long long)s->model->context;
    if (length <= context)
        return OK;
    if (config_is_set(cfg, "max_seq_length"))
        return FAIL(ERR_CONFIG, "%s: max_seq_length is %lld, but the model has positions for %lld",
                    config_where(cfg, "max_seq_length"), length, context);
    return FAIL(ERR_CONFIG,
                "the model has positions for %lld tokens, and max_seq_length is %lld unless it is "
                "given: set max_seq_length=%lld",
                context, length, context);
}

enum status session_open(struct session *s, const struct config *cfg,
                         const struct session_options *o)
{
    *s = (struct session){.config = cfg, .options = *o, .train_program = -1, .eval_program = -1};
    enum status status;
    TRY_GOTO(session_open_model(cfg, o->hub_folder, &s->model, &s->model_folder), out);
    TRY_GOTO(check_length(s), out);
    TRY_GOTO(open_device(s), out);
    if (s->device.ops->time_calls && !o->untimed)
        TRY_GOTO(kernel_times_open(&s->times, &s->device, o->cache_folder), out);
    struct loader_options train = session_loader_options(s, false);
    struct loader_options eval = session_loader_options(s, true);
    s->pipeline_options = (struct pipeline_options){
        .train = o->train,
        .evaluate = o->evaluate,
        .ring_bytes = o->train ? (int64_t)loader_ring_bytes(&train) : 0,
        .eval_ring_bytes = o->evaluate ? (int64_t)loader_ring_bytes(&eval) : 0,
        .result_bytes = o->train ? train_result_bytes(cfg) : 0,
        .times = s->times,
    };
    s->pipeline_options.data_bytes = session_data_bytes(s);
    TRY_GOTO(pipeline_build(&s->pipeline, cfg, s->model, &s->device, &s->pipeline_options), out);
    const struct model_graph *io = o->train ? &s->pipeline.train.io : &s->pipeline.eval.io;
    s->params = io->params;
    s->n_params = io->n_params;
out:
    if (status != OK)
        session_close(s);
    return status;
}

enum status session_require_fit(const struct session *s)
{
    return pipeline_require_fit(&s->pipeline, &s->pipeline_options);
}

enum status session_require_room(const struct session *s)
{
    return pipeline_require_room(&s->pipeline, &s->pipeline_options);
}

void session_close(struct session *s)
{
    loader_free(s->loader);
    loader_free(s->eval_loader);
    source_free(s->source);
    source_free(s->eval_source);
    tokenizer_free(s->tokenizer);
    executor_free(s->executor);
    pipeline_release(&s->pipeline);
    kernel_times_free(s->times);
    device_close(&s->device);
    model_free(s->model);
    mem_free(s->model_folder);
    mem_free(s->param_tensors);
    *s = (struct session){0};
}

/* ---- memory and weights ---------------------------------------------------------------------- */

static void open_stage(struct session *s)
{
    const struct storage_entry *e = storage_find(&s->pipeline.storage, "staging");
    s->stage = &host_stage;
    if (!e)
        return;
    s->staging = device_stage(&s->device, executor_storage_pointer(s->executor, e));
    s->stage = &s->staging;
}

static enum status find_params(struct session *s)
{
    size_t n = (size_t)MAX(s->n_params, 1);
    TRY(mem_try_array(&s->param_tensors, n, sizeof(*s->param_tensors)));
    const struct graph *g = s->options.train ? s->pipeline.train.graph : s->pipeline.eval.graph;
    for (int i = 0; i < s->n_params; i++) {
        const struct storage_entry *e = storage_find(&s->pipeline.storage, s->params[i].name);
        if (!e)
            return FAIL(ERR_INTERNAL, "parameter '%s' has no storage", s->params[i].name);
        s->param_tensors[i] = value_tensor(g, s->params[i].value);
        s->param_tensors[i].data = executor_storage_address(s->executor, e);
    }
    return OK;
}

static enum status load_constants(struct session *s, const struct graph *g)
{
    for (size_t v = 0; g && v < g->values.n; v++) {
        const struct value *x = graph_value(g, (value_id)v);
        const struct storage_entry *e =
            x->data ? storage_find(&s->pipeline.storage, x->name) : NULL;
        if (e)
            TRY(executor_write_storage(s->executor, e, x->data));
    }
    return OK;
}

/* The f32 copy of parameter i that updates act on; the parameter itself where it has none. */
static struct tensor master_of(const struct session *s, int i)
{
    char name[256];
    struct tensor t = s->param_tensors[i];
    (void)snprintf(name, sizeof(name), "master.%s", s->params[i].name);
    const struct storage_entry *e = storage_find(&s->pipeline.storage, name);
    if (e) {
        t.dtype = DTYPE_F32;
        t.data = executor_storage_address(s->executor, e);
    }
    return t;
}

/* weight = master, rounded as updates round it. In the stage both share one buffer: the weight is
 * the narrower, and elements are read before they are written over. */
static enum status round_master(struct session *s, const struct tensor *master,
                                const struct tensor *weight)
{
    struct tensor from, to = stage_tensor(s->stage, weight);
    TRY(stage_fetch(s->stage, master, &from));
    for (int64_t k = 0; k < shape_elems(&from.shape); k++) {
        float x = ((const float *)from.data)[k];
        ((uint16_t *)to.data)[k] = to.dtype == DTYPE_BF16 ? bf16_from_f32(x) : f16_from_f32(x);
    }
    return stage_store(s->stage, weight);
}

/* Into the masters first: small steps from a weight that was rounded to 16 bits would all be
 * rounded away again. */
static enum status load_weights(struct session *s)
{
    struct tensor *masters;
    TRY(mem_try_array(&masters, (size_t)MAX(s->n_params, 1), sizeof(*masters)));
    for (int i = 0; i < s->n_params; i++)
        masters[i] = master_of(s, i);
    struct parameter_list list = {s->params, s->n_params, masters, s->stage};
    enum status status =
        parameters_load(&list, s->model_folder, (uint64_t)s->config->seed, s->device.env.team);
    for (int i = 0; i < s->n_params && status == OK; i++) {
        if (masters[i].data != s->param_tensors[i].data)
            status = round_master(s, &masters[i], &s->param_tensors[i]);
    }
    mem_free(masters);
    return status;
}

static enum status load_program(struct session *s, const struct stage *stage, int *handle)
{
    if (!stage->program)
        return OK;
    TRY(executor_load(s->executor, stage->program, &s->pipeline.storage, handle));
    return load_constants(s, stage->graph);
}

enum status session_start(struct session *s)
{
    TRY(executor_new(&s->executor, &s->device, s->pipeline.n_bytes));
    open_stage(s);
    TRY(load_program(s, &s->pipeline.train, &s->train_program));
    TRY(load_program(s, &s->pipeline.eval, &s->eval_program));
    TRY(find_params(s));
    return load_weights(s);
}
