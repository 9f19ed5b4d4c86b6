#include "train/inference.h"

#include <string.h>

#include "base/alloc.h"
#include "base/host_memory.h"
#include "base/str.h"
#include "plan/plan.h"
#include "train/budget.h"
#include "train/device_choice.h"
#include "train/parameters.h"
#include "train/session.h"

#define SCRATCH_NAME "scratch"
#define STAGING_NAME "staging"

/* ---- planning -------------------------------------------------------------------------------- */

static enum status build_graph(struct inference *x, struct inference_stage *s, const char *name)
{
    struct builder b;
    struct model_request request = {.purpose = MODEL_DECODE,
                                    .batch = 1,
                                    .seq_len = s->n_tokens,
                                    .cache_len = x->options.cache_len,
                                    .dtype = x->dtype};
    TRY(graph_new(&s->graph, name));
    builder_init(&b, s->graph);
    TRY(model_build(x->model, &b, &request, &s->io));
    TRY(builder_status(&b));
    TRY(graph_add_output(s->graph, "logits", s->io.logits));
    TRY(fuse_ops(x->config, s->graph, REWRITE_FORWARD));
    return graph_check(s->graph);
}

static enum status build_stage(struct inference *x, struct inference_stage *s, const char *name,
                               int64_t n_tokens)
{
    s->n_tokens = n_tokens;
    TRY(build_graph(x, s, name));
    TRY(plan_init(&s->plan, s->graph, 1));
    return program_emit(&s->program, name, s->graph, &s->plan, &x->device, &x->storage);
}

static enum status place_stage(struct inference *x, struct inference_stage *s)
{
    if (!s->program)
        return OK;
    TRY(program_place(s->program, &x->storage));
    for (int t = 0; t < TIER_COUNT; t++)
        x->n_bytes[t] = MAX(x->n_bytes[t], s->program->n_bytes[t]);
    return program_check(s->program, &x->storage);
}

static enum status refuse(const struct inference *x, const struct budget *b, enum tier t,
                          bool is_given)
{
    char need[BYTES_TEXT], weights[BYTES_TEXT], fix[320];
    struct str have = {0};
    budget_add_text(b, t, is_given, &have);
    enum status status = FAIL(
        ERR_FIT,
        "does not fit: the model in use needs %s (%lld bytes) of %s memory, %s of it weights and a "
        "cache of %lld tokens; %s: %s, or ask for fewer tokens",
        format_bytes(need, b->needs[t]), (long long)b->needs[t], tier_name(t),
        format_bytes(weights, x->storage.n_bytes[t]), (long long)x->options.cache_len,
        str_text(&have), budget_fix(b, t, is_given, fix));
    str_release(&have);
    return status;
}

/* The same rules as for training (budget.h). */
static enum status require_fit(struct inference *x)
{
    bool apart = x->device.ops->memory_is_apart;
    const int64_t needs[TIER_COUNT] = {
        [TIER_DEVICE] = x->n_bytes[TIER_DEVICE] + (apart ? x->context_bytes : 0),
        [TIER_HOST] = x->n_bytes[TIER_HOST] + process_resident(),
        [TIER_DISK] = x->n_bytes[TIER_DISK],
    };
    struct budget b;
    budget_read(&b, &x->device, x->config, needs);
    enum tier over = budget_over(&b), lacking = budget_short(&b);
    if (over != TIER_COUNT)
        return refuse(x, &b, over, b.given[over]);
    return lacking == TIER_COUNT ? OK : refuse(x, &b, lacking, false);
}

/* Host memory through which weights come where the host cannot address the device: room for the
 * largest of them. */
static enum status reserve_staging(struct inference *x)
{
    int32_t index;
    int64_t most = 0;
    for (size_t i = 0; i < x->storage.entries.n; i++) {
        const struct storage_entry *e = &x->storage.entries.items[i];
        if (e->tier == TIER_DEVICE && e->kind == MEMORY_WEIGHTS)
            most = MAX(most, e->n_bytes);
    }
    if (!x->device.ops->memory_is_apart || most == 0)
        return OK;
    return storage_need(&x->storage, STAGING_NAME, MEMORY_STAGING, TIER_HOST, most, &index);
}

static enum status plan_all(struct inference *x)
{
    int32_t index;
    if (x->options.chunk > 1)
        TRY(build_stage(x, &x->prefill, "prefill", x->options.chunk));
    TRY(build_stage(x, &x->decode, "decode", 1));
    if (x->options.scratch_bytes > 0)
        TRY(storage_need(&x->storage, SCRATCH_NAME, MEMORY_STAGING, TIER_HOST,
                         x->options.scratch_bytes, &index));
    TRY(reserve_staging(x));
    TRY(place_stage(x, &x->prefill));
    TRY(place_stage(x, &x->decode));
    x->context_bytes = x->device.ops->context_bytes(&x->device);
    return require_fit(x);
}

static enum status choose_dtype(struct inference *x)
{
    struct precision precision;
    TRY(precision_from_config(x->config, &x->device, &precision));
    x->dtype = x->options.dtype == DTYPE_NONE ? precision.weights : x->options.dtype;
    return OK;
}

enum status inference_open(struct inference *x, const struct config *cfg,
                           const struct inference_options *o)
{
    *x = (struct inference){.config = cfg, .options = *o};
    enum status status;
    storage_init(&x->storage);
    TRY_GOTO(session_open_model(cfg, o->hub_folder, &x->model, &x->model_folder), out);
    if (o->cache_len > x->model->context) {
        status = FAIL(ERR_USAGE, "a sequence of %lld tokens: the model has positions for %lld",
                      (long long)o->cache_len, (long long)x->model->context);
        goto out;
    }
    TRY_GOTO(device_choose(&x->device, cfg, o->cache_folder, o->n_threads), out);
    TRY_GOTO(choose_dtype(x), out);
    TRY_GOTO(plan_all(x), out);
out:
    if (status != OK)
        inference_close(x);
    return status;
}

static void close_stage(struct inference_stage *s)
{
    program_free(s->program);
    plan_release(&s->plan);
    graph_free(s->graph);
}

void inference_close(struct inference *x)
{
    executor_free(x->executor);
    close_stage(&x->prefill);
    close_stage(&x->decode);
    storage_release(&x->storage);
    device_close(&x->device);
    model_free(x->model);
    mem_free(x->model_folder);
    mem_free(x->param_tensors);
    *x = (struct inference){0};
}

/* ---- loading --------------------------------------------------------------------------------- */

static enum status load_stage(struct inference *x, struct inference_stage *s)
{
    if (!s->program)
        return OK;
    TRY(executor_load(x->executor, s->program, &x->storage, &s->handle));
    for (size_t v = 0; v < s->graph->values.n; v++) {
        const struct value *c = graph_value(s->graph, (value_id)v);
        const struct storage_entry *e = c->data ? storage_find(&x->storage, c->name) : NULL;
        if (e)
            TRY(executor_write_storage(x->executor, e, c->data));
    }
    return OK;
}

static enum status find_params(struct inference *x)
{
    const struct model_graph *io = &x->decode.io;
    size_t n = (size_t)MAX(io->n_params, 1);
    TRY(mem_try_array(&x->param_tensors, n, sizeof(*x->param_tensors)));
    for (int i = 0; i < io->n_params; i++) {
        const struct storage_entry *e = storage_find(&x->storage, io->params[i].name);
        if (!e)
            return FAIL(ERR_INTERNAL, "parameter '%s' has no storage", io->params[i].name);
        x->param_tensors[i] = value_tensor(x->decode.graph, io->params[i].value);
        x->param_tensors[i].data = executor_storage_address(x->executor, e);
    }
    return OK;
}

static void open_stage(struct inference *x)
{
    const struct storage_entry *e = storage_find(&x->storage, STAGING_NAME);
    x->stage = &host_stage;
    if (!e)
        return;
    x->staging = device_stage(&x->device, executor_storage_pointer(x->executor, e));
    x->stage = &x->staging;
}

enum status inference_load(struct inference *x, const char *folder)
{
    TRY(executor_new(&x->executor, &x->device, x->n_bytes));
    open_stage(x);
    TRY(load_stage(x, &x->prefill));
    TRY(load_stage(x, &x->decode));
    TRY(find_params(x));
    const struct storage_entry *scratch = storage_find(&x->storage, SCRATCH_NAME);
    x->scratch = scratch ? executor_storage_pointer(x->executor, scratch) : NULL;
    struct parameter_list list = {x->decode.io.params, x->decode.io.n_params, x->param_tensors,
                                  x->stage};
    return parameters_load(&list, folder, (uint64_t)x->config->seed, x->device.env.team);
}

/* ---- running --------------------------------------------------------------------------------- */

static enum status run_stage(struct inference *x, const struct inference_stage *s,
                             const int32_t *tokens, int64_t first)
{
    int32_t *in = executor_input(x->executor, s->handle, "tokens");
    int32_t *positions = executor_input(x->executor, s->handle, "positions");
    int32_t *position = executor_input(x->executor, s->handle, "position");
    memcpy(in, tokens, (size_t)s->n_tokens * sizeof(*in));
    if (position)
        *position = (int32_t)first;
    for (int64_t t = 0; positions && t < s->n_tokens; t++)
        positions[t] = (int32_t)(first + t);
    return executor_run(x->executor, s->handle, "forward");
}

enum status inference_extend(struct inference *x, const int32_t *tokens, int64_t n, int64_t first,
                             struct tensor *logits)
{
    if (n < 1 || first < 0 || first + n > x->options.cache_len)
        return FAIL(ERR_INTERNAL, "tokens %lld..%lld of a cache of %lld", (long long)first,
                    (long long)(first + n), (long long)x->options.cache_len);
    const struct inference_stage *used = &x->decode;
    int64_t chunk = x->prefill.program ? x->prefill.n_tokens : 1;
    if (chunk > 1 && n >= chunk) {
        used = &x->prefill;
        for (int64_t at = 0; at < n; at += chunk) {
            /* The last chunk begins early enough to be whole: what it shares with the one before
             * is written into the cache a second time, the same. */
            int64_t from = MIN(at, n - chunk);
            TRY(run_stage(x, used, tokens + from, first + from));
        }
    } else {
        for (int64_t at = 0; at < n; at++)
            TRY(run_stage(x, used, tokens + at, first + at));
    }
    *logits = value_tensor(used->graph, used->io.logits);
    logits->shape = shape_of(1, x->model->vocab_size);
    const void *data = executor_output(x->executor, used->handle, "logits");
    memcpy(&logits->data, &data, sizeof(data)); /* a tensor's pointer is not const; it is read */
    return OK;
}
