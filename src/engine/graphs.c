#include "engine/graphs.h"

#include <string.h>

#include "autodiff/autodiff.h"
#include "model/losses.h"
#include "precision/quantize.h"
#include "rewrite/rewrite.h"

/* Inputs that meet weights have their dtype, and so have caches: activations follow from both. */
static enum status set_precision(struct stage *s, const struct precision *p)
{
    for (int i = 0; i < s->io.n_features; i++)
        TRY(precision_set_dtype(s->graph, s->io.features[i], p->weights));
    for (int i = 0; s->io.caches && i < s->io.n_blocks; i++)
        TRY(precision_set_dtype(s->graph, s->io.caches[i], p->weights));
    TRY(precision_apply(s->graph, p));
    return quantize_apply(s->graph, &s->io);
}

static enum status build_network(struct stage *s, const struct task *task, const char *name,
                                 const struct model_request *request)
{
    struct builder b;
    TRY(graph_new(&s->graph, name));
    builder_init(&b, s->graph);
    TRY(task->def->build(task, &b, request, &s->io));
    return builder_status(&b);
}

static enum status fuse(struct graph *g, const struct numerics *n, enum rewrite_stage stage)
{
    return n->unfused ? OK : rewrite_apply(g, stage);
}

/* The gradient that arrives at each loss: the seed times its weight. One without a weight is told
 * and not minimised. */
static enum status seed_losses(struct stage *s, value_id seed, struct autodiff_root *roots,
                               size_t *n_roots)
{
    struct builder b;
    builder_init(&b, s->graph);
    b.pass = PASS_BACKWARD;
    for (int i = 0; i < s->io.n_losses; i++) {
        const struct model_loss *l = &s->io.losses[i];
        struct autodiff_root *root = &roots[*n_roots];
        if (!(l->weight > 0 || l->weight < 0))
            continue;
        *root = (struct autodiff_root){s->io.sums[l->sum].value, seed};
        if (l->weight != 1.0)
            root->seed = build(&b, OP_scale, IN(seed), ATTRS({.name = "factor", .f = l->weight}));
        ++*n_roots;
    }
    return builder_status(&b);
}

/* Blocks whose gradients are predicted. */
static int n_predicted(const struct stage *s, const struct numerics *n)
{
    return (int)MAX(s->io.n_blocks - n->prediction.n_exact, (int64_t)0);
}

/* Backward nodes for the parameters that are trained, seeded by an input; params[i].grad receives
 * the gradients, shortened in the first so many blocks. */
static enum status build_gradients(struct stage *s, const struct loss_scaling *scaling,
                                   int n_shortened, struct optimizer_param *params)
{
    size_t n = (size_t)s->io.n_params, n_roots = 0;
    value_id seed;
    struct autodiff_root roots[MODEL_MOST_LOSSES];
    for (size_t i = 0; i < n; i++) {
        const struct model_param *m = &s->io.params[i];
        params[i] = (struct optimizer_param){.name = m->name,
                                             .value = m->value,
                                             .decay = m->decay,
                                             .frozen = m->frozen,
                                             .hidden = m->linear,
                                             .pieces = m->pieces,
                                             .n_pieces = m->n_pieces,
                                             .n_experts = m->n_experts,
                                             .channels_last = m->channels && m->shape.rank >= 4,
                                             .lr_factor = m->lr_factor};
    }
    TRY(graph_add_value(s->graph, LOSS_SEED, ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)1), NULL,
                        &seed));
    TRY(optimizer_scale_seed(s->graph, scaling, seed, &seed));
    TRY(seed_losses(s, seed, roots, &n_roots));
    TRY(optimizer_predictions(s->graph, roots, n_roots, params, n, n_shortened));
    for (int i = 0; i < s->io.n_sums; i++)
        s->io.sums[i].value = adopted_value(s->graph, s->io.sums[i].value);
    return adopt_forward(s->graph);
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

/* Where the same bits are asked for in every run, nothing runs that may give others. */
static enum status check_repeatable(const struct numerics *n, const struct graph *g)
{
    for (size_t i = 0; n->deterministic && i < g->nodes.n; i++) {
        const struct op_def *op = op_get(graph_node(g, (node_id)i)->op);
        if (op->nondeterministic)
            return FAIL(ERR_UNSUPPORTED,
                        "%s: deterministic is true, but %s gives other bits in every run",
                        n->deterministic, op->name);
    }
    return OK;
}

/* ---- one function per purpose ---------------------------------------------------------------- */

/* Micro-batches of a step share one update, which counts the units of all of them. */
static struct optimizer_options
optimizer_for(const struct task *task, const struct stage_request *r, const struct numerics *n)
{
    struct optimizer_options o = n->optimizer;
    o.precision = n->precision;
    o.n_micro = r->n_micro;
    struct stage_request whole = *r;
    whole.seq_len = r->full_len ? r->full_len : r->seq_len;
    o.nominal_count = (double)request_units(&whole, task);
    return o;
}

/* Codes are not trained: without an adapter there would be nothing left to train them by. */
static enum status check_trained(const struct task *task)
{
    const struct model *m = task->model;
    if (!m || m->adapter || m->quantization.code == CODE_NONE)
        return OK;
    return FAIL(ERR_CONFIG,
                "weights in %s are not trained: write adapter: qlora, which trains small matrices "
                "beside them%s",
                block_code_name(m->quantization.code),
                m->stored_quantized ? ", or take the unquantised model"
                                    : ", or leave out load_in_4bit and load_in_8bit");
}

/* The network and its gradients, shortened or whole; *params is the caller's to free. */
static enum status build_backward(struct stage *s, const char *name, const struct task *task,
                                  const struct stage_request *r, const struct numerics *n,
                                  bool shortened, struct optimizer_param **params)
{
    struct model_request request = {.purpose = MODEL_TRAIN,
                                    .batch = r->batch,
                                    .seq_len = r->seq_len,
                                    .dtype = DTYPE_F32,
                                    .loss_chunks = n->loss_chunks,
                                    .label_smoothing = n->label_smoothing,
                                    .embedding_noise = n->embedding_noise,
                                    .z_loss = n->z_loss};
    TRY(build_network(s, task, name, &request));
    TRY(fuse(s->graph, n, REWRITE_FORWARD));
    TRY(mem_try_array(params, (size_t)MAX(s->io.n_params, 1), sizeof(**params)));
    return build_gradients(s, &n->optimizer.scaling, shortened ? n_predicted(s, n) : 0, *params);
}

/* Which gradients are predicted is what a graph of predictions says. */
static enum status mark_predicted(const struct task *task, const struct stage_request *r,
                                  const struct numerics *n, struct optimizer_param *params)
{
    struct stage trial = {0};
    struct optimizer_param *predicted = NULL;
    if (!n->prediction.on)
        return OK;
    enum status status = build_backward(&trial, "trial", task, r, n, true, &predicted);
    for (int i = 0; status == OK && i < trial.io.n_params; i++)
        params[i].predicted = predicted[i].grad != VALUE_NONE;
    mem_free(predicted);
    graph_free(trial.graph);
    return status;
}

static enum status build_train(struct stage *s, const struct task *task,
                               const struct stage_request *r, const struct numerics *n)
{
    struct optimizer_options optimizer = optimizer_for(task, r, n);
    struct optimizer_param *params = NULL;
    enum status status;
    TRY(check_trained(task));
    TRY_GOTO(build_backward(s, "train", task, r, n, false, &params), out);
    TRY_GOTO(mark_predicted(task, r, n, params), out);
    TRY_GOTO(set_precision(s, &n->precision), out);
    struct optimizer_sums sums = {s->io.sums, s->io.n_sums, losses_count(&s->io)};
    TRY_GOTO(optimizer_apply(s->graph, &optimizer, params, (size_t)s->io.n_params, &sums), out);
    TRY_GOTO(fuse(s->graph, n, REWRITE_GRADIENT), out);
    TRY_GOTO(schedule_updates_early(s->graph), out);
out:
    mem_free(params);
    return status;
}

static enum status build_predict(struct stage *s, const struct task *task,
                                 const struct stage_request *r, const struct numerics *n)
{
    struct optimizer_param *params = NULL;
    enum status status;
    TRY_GOTO(build_backward(s, "predict", task, r, n, true, &params), out);
    TRY_GOTO(set_precision(s, &n->precision), out);
    struct optimizer_sums sums = {s->io.sums, s->io.n_sums, losses_count(&s->io)};
    TRY_GOTO(optimizer_predict(s->graph, params, (size_t)s->io.n_params, &sums), out);
    TRY_GOTO(fuse(s->graph, n, REWRITE_GRADIENT), out);
out:
    mem_free(params);
    return status;
}

static enum status build_measure(struct stage *s, const struct task *task,
                                 const struct stage_request *r, const struct numerics *n)
{
    struct optimizer_param *params = NULL;
    enum status status;
    TRY_GOTO(build_backward(s, "measure", task, r, n, false, &params), out);
    TRY_GOTO(mark_predicted(task, r, n, params), out);
    TRY_GOTO(set_precision(s, &n->precision), out);
    TRY_GOTO(optimizer_measure(s->graph, params, (size_t)s->io.n_params), out);
    TRY_GOTO(fuse(s->graph, n, REWRITE_GRADIENT), out);
out:
    mem_free(params);
    return status;
}

static enum status build_eval(struct stage *s, const struct task *task,
                              const struct stage_request *r, const struct numerics *n)
{
    struct model_request request = {.purpose = MODEL_EVAL,
                                    .batch = r->batch,
                                    .seq_len = r->seq_len,
                                    .dtype = DTYPE_F32,
                                    .loss_chunks = n->loss_chunks};
    TRY(build_network(s, task, r->purpose == STAGE_PROBE ? "probe" : "eval", &request));
    TRY(fuse(s->graph, n, REWRITE_FORWARD));
    TRY(set_precision(s, &n->precision));
    for (int i = 0; i < s->io.n_sums; i++)
        TRY(graph_add_output(s->graph, s->io.sums[i].name, s->io.sums[i].value));
    return graph_eliminate_dead(s->graph);
}

/* Parameters have a place in every program, read or not, because they are loaded and saved; here
 * those that nothing reads are the business of the other stages. */
static void forget_unread(struct graph *g)
{
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        bool read = graph_value(g, v)->role != ROLE_PARAMETER;
        for (node_id k = 0; (size_t)k < g->nodes.n && !read; k++) {
            const struct node *n = graph_node(g, k);
            for (int i = 0; i < n->n_in; i++)
                read |= n->in[i] == v;
        }
        if (!read)
            graph_value(g, v)->role = ROLE_FROZEN;
    }
}

static struct model_param *find_param(struct stage *s, const char *name)
{
    for (int i = 0; i < s->io.n_params; i++) {
        if (strcmp(s->io.params[i].name, name) == 0)
            return &s->io.params[i];
    }
    return NULL;
}

/* A parameter has one dtype in all stages, and other ops may read it beside an adapter: a bias that
 * is fused into GELU without one is added to what the adapter gives. */
static enum status take_dtypes_beside_adapter(struct stage *s, const struct task *task,
                                              const struct model_request *request,
                                              const struct numerics *n)
{
    struct model_request adapted = *request;
    struct stage trial = {0};
    enum status status;
    adapted.no_adapter = false;
    TRY_GOTO(build_network(&trial, task, "trial", &adapted), out);
    TRY_GOTO(fuse(trial.graph, n, REWRITE_FORWARD), out);
    TRY_GOTO(precision_apply(trial.graph, &n->precision), out);
    for (int i = 0; i < s->io.n_params; i++) {
        const struct model_param *m = find_param(&trial, s->io.params[i].name);
        if (m)
            graph_value(s->graph, s->io.params[i].value)->dtype =
                graph_value(trial.graph, m->value)->dtype;
    }
    status = graph_reinfer(s->graph);
out:
    graph_free(trial.graph);
    return status;
}

/* The network without its adapter. */
static enum status build_reference(struct stage *s, const struct task *task,
                                   const struct stage_request *r, const struct numerics *n)
{
    struct model_request request = {.purpose = MODEL_EVAL,
                                    .batch = r->batch,
                                    .seq_len = r->seq_len,
                                    .dtype = DTYPE_F32,
                                    .loss_chunks = n->loss_chunks,
                                    .no_adapter = true};
    TRY(build_network(s, task, "reference", &request));
    TRY(fuse(s->graph, n, REWRITE_FORWARD));
    TRY(precision_apply(s->graph, &n->precision));
    TRY(take_dtypes_beside_adapter(s, task, &request, n));
    TRY(quantize_apply(s->graph, &s->io));
    TRY(graph_add_output(s->graph, REFERENCE_OUTPUT, s->io.reference));
    TRY(graph_eliminate_dead(s->graph));
    forget_unread(s->graph);
    return OK;
}

/* Where nobody keeps a wider copy, parameters have the dtype of weights throughout. */
static enum status build_decode(struct stage *s, const struct task *task,
                                const struct stage_request *r, const struct numerics *n)
{
    struct model_request request = {.purpose = MODEL_DECODE,
                                    .batch = r->batch,
                                    .seq_len = r->seq_len,
                                    .cache_len = r->cache_len,
                                    .dtype = r->beside_training ? DTYPE_F32 : n->precision.weights};
    TRY(build_network(s, task, r->purpose == STAGE_PREFILL ? "prefill" : "decode", &request));
    TRY(graph_add_output(s->graph, "logits", s->io.logits));
    TRY(fuse(s->graph, n, REWRITE_FORWARD));
    return r->beside_training ? set_precision(s, &n->precision) : quantize_apply(s->graph, &s->io);
}

enum status stage_build(struct stage *s, const struct task *task, const struct stage_request *r,
                        const struct numerics *n)
{
    static enum status (*const builders[])(struct stage *, const struct task *,
                                           const struct stage_request *,
                                           const struct numerics *) = {
        [STAGE_TRAIN] = build_train,         [STAGE_EVAL] = build_eval,
        [STAGE_PREFILL] = build_decode,      [STAGE_DECODE] = build_decode,
        [STAGE_REFERENCE] = build_reference, [STAGE_PROBE] = build_eval,
        [STAGE_PREDICT] = build_predict,     [STAGE_MEASURE] = build_measure,
    };
    s->purpose = r->purpose;
    s->n_micro = r->n_micro;
    TRY(builders[r->purpose](s, task, r, n));
    TRY(check_repeatable(n, s->graph));
    return check_graph(s->graph);
}
