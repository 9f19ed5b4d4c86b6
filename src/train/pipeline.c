#include "train/pipeline.h"

#include <math.h>

#include "autodiff/autodiff.h"

/* ---- settings -------------------------------------------------------------------------------- */

static struct model_request request_for(const struct config *cfg, enum model_purpose purpose)
{
    bool train = purpose == MODEL_TRAIN;
    return (struct model_request){
        .purpose = purpose,
        .batch = train ? cfg->per_device_train_batch_size : cfg->per_device_eval_batch_size,
        .seq_len = cfg->max_seq_length,
        .dtype = DTYPE_F32,
        .loss_chunks = cfg->lmhead_chunks == CONFIG_AUTO ? 0 : cfg->lmhead_chunks,
        .label_smoothing = train ? cfg->label_smoothing_factor : 0.0,
        .z_loss = train ? cfg->z_loss : 0.0,
    };
}

static struct loss_scaling scaling_for(const struct pipeline *p)
{
    const struct config *cfg = p->config;
    bool fixed = cfg->loss_scale > 0;
    if (!p->precision.loss_scaling)
        return (struct loss_scaling){0};
    return (struct loss_scaling){
        .initial = fixed ? cfg->loss_scale : ldexp(1.0, (int)cfg->initial_scale_power),
        .growth = fixed ? 1.0 : 2.0,
        .backoff = fixed ? 1.0 : 0.5,
        .minimum = fixed ? cfg->loss_scale : cfg->min_loss_scale,
        .window = cfg->loss_scale_window,
        .hysteresis = cfg->loss_scale_hysteresis,
    };
}

static struct optimizer_options optimizer_for(const struct pipeline *p)
{
    const struct config *cfg = p->config;
    int64_t micro = cfg->per_device_train_batch_size * cfg->max_seq_length;
    return (struct optimizer_options){
        .kind = cfg->optim == CONFIG_OPTIM_SGD ? OPTIMIZER_SGD : OPTIMIZER_ADAMW,
        .beta1 = cfg->adam_beta1,
        .beta2 = cfg->adam_beta2,
        .epsilon = cfg->adam_epsilon,
        .momentum = cfg->momentum,
        .nesterov = cfg->nesterov,
        .weight_decay = cfg->weight_decay,
        .max_grad_norm = cfg->max_grad_norm,
        .n_micro = cfg->gradient_accumulation_steps,
        .nominal_count = (double)(micro * cfg->gradient_accumulation_steps),
        .precision = p->precision,
        .seed = precision_needs_chance(&p->precision) ? cfg->seed % INT32_MAX + 1 : 0,
        .scaling = scaling_for(p),
    };
}

/* ---- stages ---------------------------------------------------------------------------------- */

static enum status build_model(struct pipeline *p, struct stage *s, enum model_purpose purpose)
{
    struct builder b;
    struct model_request request = request_for(p->config, purpose);
    TRY(graph_new(&s->graph, purpose == MODEL_TRAIN ? "train" : "eval"));
    builder_init(&b, s->graph);
    TRY(model_build(p->model, &b, &request, &s->io));
    return builder_status(&b);
}

enum status fuse_ops(const struct config *cfg, struct graph *g, enum rewrite_stage stage)
{
    return cfg->compile == CONFIG_COMPILE_NONE ? OK : rewrite_apply(g, stage);
}

/* Backward nodes for every parameter, seeded by an input; params[i].grad receives the gradients. */
static enum status build_gradients(struct stage *s, const struct loss_scaling *scaling,
                                   struct optimizer_param *params)
{
    size_t n = (size_t)s->io.n_params;
    value_id *wanted = NULL, *grads = NULL, seed;
    enum status status;
    TRY_GOTO(mem_try_array(&wanted, MAX(n, (size_t)1), sizeof(*wanted)), out);
    TRY_GOTO(mem_try_array(&grads, MAX(n, (size_t)1), sizeof(*grads)), out);
    for (size_t i = 0; i < n; i++)
        wanted[i] = s->io.params[i].value;
    TRY_GOTO(graph_add_value(s->graph, LOSS_SEED, ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)1),
                             NULL, &seed),
             out);
    TRY_GOTO(optimizer_scale_seed(s->graph, scaling, seed, &seed), out);
    TRY_GOTO(autodiff(s->graph, s->io.loss_sum, seed, wanted, n, grads), out);
    for (size_t i = 0; i < n; i++) {
        const struct model_param *m = &s->io.params[i];
        params[i] = (struct optimizer_param){m->name, m->value, grads[i], m->decay};
    }
    s->io.loss_sum = adopted_value(s->graph, s->io.loss_sum);
    s->io.count = adopted_value(s->graph, s->io.count);
    status = adopt_forward(s->graph);
out:
    mem_free(wanted);
    mem_free(grads);
    return status;
}

static enum status check_graph(const struct graph *g)
{
#ifdef NDEBUG
    (void)g;
    return OK;
#else
    return graph_check(g);
#endif
}

/* With deterministic: true nothing runs that may give other bits next time. */
static enum status check_repeatable(const struct config *cfg, const struct graph *g)
{
    for (size_t i = 0; cfg->deterministic && i < g->nodes.n; i++) {
        const struct op_def *op = op_get(graph_node(g, (node_id)i)->op);
        if (op->nondeterministic)
            return FAIL(ERR_UNSUPPORTED,
                        "%s: deterministic is true, but %s gives other bits in every run",
                        config_where(cfg, "deterministic"), op->name);
    }
    return OK;
}

static enum status build_train_graph(struct pipeline *p)
{
    struct stage *s = &p->train;
    struct optimizer_options optimizer = optimizer_for(p);
    struct optimizer_param *params = NULL;
    enum status status;
    TRY(build_model(p, s, MODEL_TRAIN));
    TRY(fuse_ops(p->config, s->graph, REWRITE_FORWARD));
    TRY_GOTO(mem_try_array(&params, (size_t)MAX(s->io.n_params, 1), sizeof(*params)), out);
    TRY_GOTO(build_gradients(s, &optimizer.scaling, params), out);
    TRY_GOTO(precision_apply(s->graph, &p->precision), out);
    TRY_GOTO(optimizer_apply(s->graph, &optimizer, params, (size_t)s->io.n_params, s->io.loss_sum,
                             s->io.count),
             out);
    TRY_GOTO(fuse_ops(p->config, s->graph, REWRITE_GRADIENT), out);
    if (optimizer.n_micro == 1)
        TRY_GOTO(schedule_updates_early(s->graph), out);
    TRY_GOTO(check_repeatable(p->config, s->graph), out);
    TRY_GOTO(check_graph(s->graph), out);
out:
    mem_free(params);
    return status;
}

static enum status build_eval_graph(struct pipeline *p)
{
    struct stage *s = &p->eval;
    TRY(build_model(p, s, MODEL_EVAL));
    TRY(fuse_ops(p->config, s->graph, REWRITE_FORWARD));
    TRY(precision_apply(s->graph, &p->precision));
    TRY(graph_add_output(s->graph, "loss", s->io.loss_sum));
    TRY(graph_add_output(s->graph, "count", s->io.count));
    TRY(graph_eliminate_dead(s->graph));
    TRY(check_repeatable(p->config, s->graph));
    return check_graph(s->graph);
}

static enum status plan_train(struct pipeline *p)
{
    struct stage *s = &p->train;
    TRY(plan_init(&s->plan, s->graph, p->config->gradient_accumulation_steps));
    plan_recompute_cheap(&s->plan,
                         s->graph); /* norms and activations cost less than their memory */
    return plan_apply_checkpointing(&s->plan, s->graph, p->config->gradient_checkpointing,
                                    s->io.n_blocks);
}

static enum status emit_stage(struct pipeline *p, struct stage *s)
{
    return program_emit(&s->program, s->graph->name, s->graph, &s->plan, p->device, &p->storage);
}

static enum status reserve_ring(struct pipeline *p, const char *name, int64_t n_bytes)
{
    int32_t index;
    if (n_bytes == 0)
        return OK;
    return storage_need(&p->storage, name, MEMORY_STAGING, TIER_HOST, n_bytes, &index);
}

/* Host memory through which parameters and states come and go where the host cannot address the
 * device: room for the largest of them. */
static enum status reserve_staging(struct pipeline *p)
{
    int64_t most = 0;
    if (!p->device->ops->memory_is_apart)
        return OK;
    for (size_t i = 0; i < p->storage.entries.n; i++) {
        const struct storage_entry *e = &p->storage.entries.items[i];
        if (e->tier == TIER_DEVICE)
            most = MAX(most, e->n_bytes);
    }
    return reserve_ring(p, "staging", most);
}

static enum status place_and_check(struct pipeline *p, struct stage *s)
{
    if (!s->program)
        return OK;
    TRY(program_place(s->program, &p->storage));
    for (int t = 0; t < TIER_COUNT; t++)
        p->n_bytes[t] = MAX(p->n_bytes[t], s->program->n_bytes[t]);
    return program_check(s->program, &p->storage);
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

static enum status build_all(struct pipeline *p, const struct pipeline_options *o)
{
    TRY(precision_from_config(p->config, p->device, &p->precision));
    if (o->train) {
        TRY(build_train_graph(p));
        TRY(plan_train(p));
        TRY(emit_stage(p, &p->train));
    }
    if (o->evaluate) {
        TRY(build_eval_graph(p));
        TRY(plan_init(&p->eval.plan, p->eval.graph, 1));
        TRY(emit_stage(p, &p->eval));
    }
    TRY(reserve_ring(p, "data ring", o->ring_bytes));
    TRY(reserve_ring(p, "evaluation ring", o->eval_ring_bytes));
    TRY(reserve_staging(p));
    TRY(place_and_check(p, &p->train));
    TRY(place_and_check(p, &p->eval));
    p->ring = storage_find(&p->storage, "data ring");
    p->eval_ring = storage_find(&p->storage, "evaluation ring");

    return pipeline_forecast(p, o);
}

enum status pipeline_build(struct pipeline *p, const struct config *cfg, const struct model *model,
                           struct device *device, const struct pipeline_options *o)
{
    *p = (struct pipeline){.config = cfg, .model = model, .device = device};
    storage_init(&p->storage);
    enum status status = build_all(p, o);
    if (status != OK)
        pipeline_release(p);
    return status;
}

static void stage_release(struct stage *s)
{
    prediction_release(&s->prediction);
    program_free(s->program);
    plan_release(&s->plan);
    graph_free(s->graph);
}

void pipeline_release(struct pipeline *p)
{
    stage_release(&p->train);
    stage_release(&p->eval);
    storage_release(&p->storage);
    *p = (struct pipeline){0};
}
