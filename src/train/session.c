#include "train/session.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
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
    return device_choose(&s->device, cfg, s->options.cache_folder);
}

static struct loader_options loader_options(const struct session *s, bool eval)
{
    const struct config *cfg = s->config;
    bool split = !cfg->eval_datasets.n && cfg->val_set_size > 0;
    return (struct loader_options){
        .batch = eval ? cfg->per_device_eval_batch_size : cfg->per_device_train_batch_size,
        .seq_len = cfg->max_seq_length,
        .split = !split ? SPLIT_ALL
                 : eval ? SPLIT_EVAL
                        : SPLIT_TRAIN,
        .val_set_size = cfg->val_set_size,
        .shuffle = eval ? 0 : cfg->shuffle,
        .seed = (uint64_t)cfg->data_seed,
        .keep_last = eval,
        .n_ranks = 1,
        .n_slots = cfg->dataloader_prefetch,
    };
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
static void plan_data(struct session *s);

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
    struct loader_options train = loader_options(s, false), eval = loader_options(s, true);
    s->pipeline_options = (struct pipeline_options){
        .train = o->train,
        .evaluate = o->evaluate,
        .ring_bytes = o->train ? (int64_t)loader_ring_bytes(&train) : 0,
        .eval_ring_bytes = o->evaluate ? (int64_t)loader_ring_bytes(&eval) : 0,
        .result_bytes = o->train ? train_result_bytes(cfg) : 0,
        .times = s->times,
    };
    plan_data(s);
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

/* ---- data ------------------------------------------------------------------------------------ */

enum status session_open_tokenizer(const struct config *cfg, const char *model_folder,
                                   struct tokenizer **out)
{
    if (cfg->tokenizer)
        return tokenizer_open(out, cfg->tokenizer);
    return tokenizer_open(out, model_folder ? model_folder : "bytes");
}

static enum source_kind source_kind(enum config_dataset_type type)
{
    static const enum source_kind kinds[] = {
        [CONFIG_DATASET_AUTO] = SOURCE_AUTO,      [CONFIG_DATASET_TEXT] = SOURCE_TEXT,
        [CONFIG_DATASET_JSONL] = SOURCE_JSONL,    [CONFIG_DATASET_TOKENS] = SOURCE_TOKENS,
        [CONFIG_DATASET_NANOGPT] = SOURCE_TOKENS, [CONFIG_DATASET_SYNTHETIC] = SOURCE_SYNTHETIC,
        [CONFIG_DATASET_RANDOM] = SOURCE_RANDOM,
    };
    return kinds[type];
}

/* Synthetic data without an end: so much that no run comes round to it again, and the same amount
 * for every run, so that one can be resumed with more steps. */
#define ENDLESS_TOKENS ((int64_t)1 << 40)

static enum status need_one_kind(const struct config *cfg, const struct config_datasets *d,
                                 const char *key)
{
    for (size_t i = 1; i < d->n; i++) {
        if (d->items[i].type != d->items[0].type)
            return FAIL(ERR_UNSUPPORTED,
                        "%s: %s mixes dataset types; give all of them type: auto, or "
                        "tokenize them into one format first",
                        config_where(cfg, key), key);
    }
    return OK;
}

/* What a list of datasets is to a source; the paths are the caller's to free. */
static enum status describe_source(const struct session *s, const struct config_datasets *d,
                                   struct source_options *o, const char ***paths)
{
    const struct config *cfg = s->config;
    size_t n_paths = 0;
    TRY(mem_try_array(paths, MAX(d->n, (size_t)1), sizeof(**paths)));
    for (size_t i = 0; i < d->n; i++) {
        if (d->items[i].path)
            (*paths)[n_paths++] = d->items[i].path;
    }
    *o = (struct source_options){
        .kind = d->n ? source_kind(d->items[0].type) : SOURCE_SYNTHETIC,
        .paths = *paths,
        .n_paths = n_paths,
        .vocab_size = s->model->vocab_size,
        .text_field = d->n ? d->items[0].text_field : NULL,
        .n_tokens = d->n && d->items[0].n_tokens > 0 ? d->items[0].n_tokens : ENDLESS_TOKENS,
        .seed = (uint64_t)cfg->data_seed,
    };
    if (d->n && d->items[0].type == CONFIG_DATASET_NANOGPT)
        o->headerless = d->items[0].token_dtype == CONFIG_TOKEN_U32 ? TOKEN_U32 : TOKEN_U16;
    return OK;
}

/* Where tokenised text is kept: where the config says, else with what else is kept for the next
 * run, else with the run itself. */
static enum status tokens_folder(const struct session *s, struct str *out)
{
    const struct config *cfg = s->config;
    if (cfg->dataset_prepared_path) {
        str_add(out, cfg->dataset_prepared_path);
        return str_status(out);
    }
    if (s->options.cache_folder) {
        str_addf(out, "%s/tokens", s->options.cache_folder);
        if (str_status(out) == OK && file_make_folders(str_text(out)) == OK)
            return OK;
        str_clear(out);
    }
    str_addf(out, "%s/tokens", cfg->output_dir);
    return str_status(out);
}

static enum status open_source(struct session *s, const struct config_datasets *d, const char *key,
                               struct source **out)
{
    const struct budget *b = &s->pipeline.forecast.budget;
    const char **paths = NULL;
    struct source_options o;
    struct str folder = {0};
    enum status status;
    TRY(need_one_kind(s->config, d, key));
    TRY_GOTO(describe_source(s, d, &o, &paths), out);
    TRY_GOTO(tokens_folder(s, &folder), out);
    bool synthetic = o.kind == SOURCE_SYNTHETIC || o.kind == SOURCE_RANDOM;
    if (!synthetic && o.kind != SOURCE_TOKENS && !s->tokenizer)
        TRY_GOTO(session_open_tokenizer(s->config, s->model_folder, &s->tokenizer), out);
    o.tokenizer = s->tokenizer;
    o.cache_folder = str_text(&folder);
    o.spare_bytes = b->n_bytes[TIER_HOST] - b->needs[TIER_HOST];
    TRY_GOTO(source_open(out, &o), out);
out:
    str_release(&folder);
    mem_free(paths);
    return status;
}

/* Memory that reading a list of datasets takes, beside a tokenizer. */
static int64_t data_bytes(const struct session *s, const struct config_datasets *d)
{
    const char **paths = NULL;
    struct source_options o;
    int64_t n_bytes = describe_source(s, d, &o, &paths) == OK ? source_open_bytes(&o) : 0;
    mem_free(paths);
    return n_bytes;
}

/* What data takes is planned before it is read. A tokenizer that cannot be opened is not planned
 * with; training says what is wrong with it. */
static void plan_data(struct session *s)
{
    const struct config *cfg = s->config;
    int64_t n_bytes = MAX(data_bytes(s, &cfg->datasets), data_bytes(s, &cfg->eval_datasets));
    if (n_bytes > 0 && session_open_tokenizer(cfg, s->model_folder, &s->tokenizer) != OK)
        s->tokenizer = NULL;
    s->pipeline_options.data_bytes = n_bytes;
}

static enum status open_loader(struct session *s, bool eval)
{
    struct loader_options o = loader_options(s, eval);
    const struct source *from = eval && s->eval_source ? s->eval_source : s->source;
    return loader_open(eval ? &s->eval_loader : &s->loader, from, &o);
}

enum status session_data(struct session *s)
{
    const struct config *cfg = s->config;
    bool own_eval = s->options.evaluate && cfg->eval_datasets.n > 0;
    if (s->options.train || !own_eval)
        TRY(open_source(s, &cfg->datasets, "datasets", &s->source));
    if (own_eval)
        TRY(open_source(s, &cfg->eval_datasets, "eval_datasets", &s->eval_source));
    if (s->options.train)
        TRY(open_loader(s, false));
    if (s->options.evaluate)
        TRY(open_loader(s, true));
    mem_trim();
    return OK;
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
        parameters_load(&list, s->model_folder, (uint64_t)s->config->seed, s->device.env.n_threads);
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
