#include "train/control_run.h"

#include <string.h>

#include "base/machine.h"
#include "optim/optimizer.h"
#include "train/probe.h"

/* ---- what is kept ---------------------------------------------------------------------------- */

/* The micro-batches of a step lie one after the other, behind them what is said of each. */
struct kept {
    struct step_batch *batches; /* [n] */
    int64_t *order;             /* [n] of those with labels, the drawn ones first */
    int64_t n;                  /* with labels */
};

static int64_t each_bytes(const struct session *s)
{
    struct batch b = session_loader_options(s, false).batch;
    return align_up((int64_t)batch_bytes(&b), BATCH_ALIGN);
}

int64_t control_bytes(const struct session *s, const struct config *cfg)
{
    return cfg->gradient_accumulation_steps *
           (each_bytes(s) + (int64_t)sizeof(struct step_batch) + (int64_t)sizeof(int64_t));
}

static char *kept_memory(const struct session *s, struct kept *k)
{
    int64_t n = s->config->gradient_accumulation_steps;
    char *memory = engine_reserve(&s->engine, STEP_BATCHES_NAME, NULL);
    *k = (struct kept){.batches = (void *)(memory + n * each_bytes(s))};
    k->order = (void *)(k->batches + n);
    return memory;
}

/* Takes the step's batches from the loader; those without labels add nothing and are left out. */
static enum status keep_batches(struct session *s, struct train_state *state, struct kept *k)
{
    char *memory = kept_memory(s, k);
    for (int64_t i = 0; i < s->config->gradient_accumulation_steps; i++) {
        struct batch b;
        TRY(loader_next(s->loader, &b));
        struct step_batch *to = &k->batches[k->n];
        *to = (struct step_batch){.batch = b, .draw = state->n_micro_steps++};
        batch_place(&to->batch, memory + k->n * each_bytes(s));
        for (int item = 0; item < b.n_items; item++)
            memcpy(to->batch.items[item].tensor.data, b.items[item].tensor.data,
                   (size_t)tensor_bytes(&b.items[item].tensor));
        k->n += b.n_valid > 0;
        loader_release_slot(s->loader);
    }
    return OK;
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Batch, dropout and seed of a stage other than the one that trains. */
static void set_inputs(struct session *s, const struct stage *stage, const struct feed *feed,
                       const struct step_batch *b, double seed)
{
    int64_t *rng = engine_input(&s->engine, stage, "rng");
    feed_copy(feed, &b->batch, 0);
    *(float *)engine_input(&s->engine, stage, LOSS_SEED) = (float)seed;
    if (rng) {
        rng[0] = s->config->seed;
        rng[1] = b->draw;
    }
}

static enum status predict_batch(struct session *s, const struct step_batch *b, double seed)
{
    set_inputs(s, s->predict, &s->predict_feed, b, seed);
    return engine_run(&s->engine, s->predict, "step");
}

static double measured(const struct session *s, const char *name)
{
    return (double)*(const float *)engine_output(&s->engine, s->measure, name);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Draws of dropout that no step has. */
static struct step_batch probe(const struct session *s, int64_t i)
{
    return (struct step_batch){.batch = probe_batch(s, i), .draw = -1 - i};
}

/* The difference of two batches, predicted and true. */
static enum status measure_pair(struct session *s, int64_t i, double seed,
                                struct control_moments *sums)
{
    const struct step_batch a = probe(s, i), b = probe(s, i + 1);
    TRY(predict_batch(s, &a, seed));
    TRY(predict_batch(s, &b, -seed));
    TRY(engine_run(&s->engine, s->measure, "begin"));
    set_inputs(s, s->measure, &s->measure_feed, &a, seed);
    TRY(engine_run(&s->engine, s->measure, "micro"));
    set_inputs(s, s->measure, &s->measure_feed, &b, -seed);
    TRY(engine_run(&s->engine, s->measure, "last"));
    sums->gradient += measured(s, MEASURED_SQUARES);
    sums->predicted += measured(s, MEASURED_PREDICTED);
    sums->product += 0.5 * measured(s, MEASURED_PRODUCT);
    return OK;
}

/* FLOPs of a micro-batch: how long it takes would differ from run to run, and with it the losses.
 */
static double pass_flops(const struct stage *s)
{
    double sum = 0;
    for (node_id k = 0; (size_t)k < s->graph->nodes.n; k++) {
        const struct node *n = graph_node(s->graph, k);
        if (n->pass == PASS_FORWARD || n->pass == PASS_BACKWARD)
            sum += node_flops(s->graph, n);
    }
    return sum;
}

double control_cost(const struct session *s)
{
    if (!s->predict)
        return 0;
    double n = (double)s->config->gradient_accumulation_steps;
    double m = (double)s->config->true_micro_batches;
    return m / n + pass_flops(s->predict) / pass_flops(s->train);
}

enum status control_measure(struct stepper *x, struct control_record *r)
{
    struct session *s = x->s;
    struct control_moments sums = {0};
    double began = now_s();
    double seed = (double)s->config->gradient_accumulation_steps / (double)step_units(s);
    TRY(step_finish(x));
    for (int64_t i = 0; i + 1 < s->config->probe_batches; i += 2)
        TRY(measure_pair(s, i, seed, &sums));
    *r = control_judge(&sums, s->config, control_cost(s));
    r->seconds = now_s() - began;
    return OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* The sums of losses are those of all batches, which have all been through a forward pass. */
static void add_sums(struct stepper *x)
{
    const struct model_graph *io = &x->s->predict->io;
    for (int i = 0; i < io->n_sums; i++)
        x->sums[i] +=
            (double)*(const float *)engine_output(&x->s->engine, x->s->predict, io->sums[i].name);
}

static int64_t count_labels(const struct kept *k, int64_t n)
{
    int64_t n_labels = 0;
    for (int64_t i = 0; i < n; i++)
        n_labels += k->batches[k->order[i]].batch.n_valid;
    return n_labels;
}

/* seed: that of a batch in a plain step. */
static enum status predict_all(struct stepper *x, const struct kept *k, int64_t n_true, double seed)
{
    x->has_sums = true;
    memset(x->sums, 0, sizeof(x->sums));
    for (int64_t i = 0; i < k->n; i++) {
        double weight = i < n_true ? 1.0 - (double)k->n / (double)n_true : 1.0;
        TRY(predict_batch(x->s, &k->batches[k->order[i]], seed * weight));
        add_sums(x);
    }
    return OK;
}

/* The update divides by the labels of the true batches, the step has those of all. */
static enum status run_kept(struct stepper *x, struct kept *k, int64_t n_true, double coefficient,
                            const struct update_inputs *u)
{
    double of_labels = (double)count_labels(k, n_true) / (double)x->n_labels;
    double seed = of_labels / (double)step_units(x->s);
    if (n_true < k->n)
        TRY(predict_all(x, k, n_true, coefficient * seed));
    for (int64_t i = 0; i < n_true; i++) /* in rising order: none is overwritten before its turn */
        k->batches[i] = k->batches[k->order[i]];
    return step_run_given(x, k->batches, n_true, seed * (double)k->n / (double)n_true, u);
}

enum status control_step_drawn(struct stepper *x, struct train_state *state, double lr,
                               const int64_t *order)
{
    const struct config *cfg = x->s->config;
    const struct update_inputs update = {lr, state->n_updates + 1};
    struct kept k;
    TRY(step_finish(x));
    TRY(keep_batches(x->s, state, &k));
    int64_t n_true = MIN(cfg->true_micro_batches, k.n);
    if (order && k.n == cfg->gradient_accumulation_steps)
        memcpy(k.order, order, (size_t)k.n * sizeof(*order));
    else
        control_draw((uint64_t)cfg->seed, state->step, k.n, n_true, k.order);
    x->n_labels = count_labels(&k, k.n);
    if (x->n_labels == 0)
        return OK;
    state->control.n_predicted += n_true < k.n;
    return run_kept(x, &k, n_true, state->control.coefficient, &update);
}

enum status control_step(struct stepper *x, struct train_state *state, double lr)
{
    return control_step_drawn(x, state, lr, NULL);
}

/* ---- where it cannot be ---------------------------------------------------------------------- */

enum status control_check(const struct session *s)
{
    const struct task *task = &s->engine.task;
    const char *where = config_where(s->config, "predicted_gradients");
    int64_t n_blocks = task->def->n_blocks(task);
    if (s->engine.settings.numerics.precision.loss_scaling)
        return FAIL(ERR_CONFIG,
                    "%s: predicted_gradients has no loss scaling, which fp16 needs: write bf16: "
                    "true, or leave it out",
                    where);
    if (s->engine.model && s->engine.model->samples.has_batch_norm)
        return FAIL(ERR_CONFIG,
                    "%s: predicted_gradients runs batches twice, and batch norm would take its "
                    "statistics from both: leave it out",
                    where);
    if (n_blocks == 0)
        return FAIL(ERR_CONFIG,
                    "%s: predicted_gradients: residual goes along the residual stream of blocks, "
                    "and this network has none: leave it out",
                    where);
    if (s->config->exact_blocks >= n_blocks)
        return FAIL(ERR_CONFIG,
                    "%s: exact_blocks is %lld of %lld blocks: nothing would be left to predict",
                    config_where(s->config, "exact_blocks"), (long long)s->config->exact_blocks,
                    (long long)n_blocks);
    return OK;
}
