/* evaluate.c: mean loss over held-out data, in the same arena as training. */
#include <math.h>

#include "base/machine.h"
#include "train/session.h"

/* Synthetic data has no end; without eval_max_batches a sample of it is taken. */
enum { ENDLESS_BATCHES = 1 << 24, SAMPLE_BATCHES = 64 };

static enum status evaluate_batch(struct session *s, double *sums)
{
    struct batch batch;
    TRY(loader_next(s->eval_loader, &batch));
    feed_copy(&s->eval_feed, &batch, 0);
    loader_release_slot(s->eval_loader);
    TRY(engine_run(&s->engine, s->eval, "forward"));
    const struct model_graph *io = &s->eval->io;
    for (int i = 0; i < io->n_sums; i++)
        sums[i] += (double)*(const float *)engine_output(&s->engine, s->eval, io->sums[i].name);
    return OK;
}

static void add_value(struct evaluation *out, struct metric_value v)
{
    BUG_ON(out->n_values == MOST_METRIC_VALUES);
    out->values[out->n_values++] = v;
}

static void fill_values(const struct session *s, const double *sums, struct evaluation *out)
{
    const struct model_graph *io = &s->eval->io;
    const struct task_def *task = s->engine.task.def;
    out->loss = losses_total(io, sums);
    for (int i = 0; i < io->n_losses; i++) {
        if (!losses_is_told(io, i))
            continue;
        add_value(out, (struct metric_value){losses_name(io, i), losses_mean(io, i, sums), true});
    }
    for (int i = 0; i < task->n_metrics; i++) {
        const struct task_metric *m = &task->metrics[i];
        double value = m->value(io, sums);
        if (!isnan(value) || !m->is_optional)
            add_value(out, (struct metric_value){m->name, value, m->is_logged});
    }
}

enum status session_evaluate(struct session *s, int64_t max_batches, struct evaluation *out)
{
    *out = (struct evaluation){0};
    const struct task_def *task = s->engine.task.def;
    double start = now_s(), sums[MODEL_MOST_SUMS] = {0};
    int64_t n = loader_n_batches(s->eval_loader);
    if (max_batches > 0)
        n = MIN(n, max_batches);
    else if (n > ENDLESS_BATCHES)
        n = SAMPLE_BATCHES;
    /* Always the same batches: the loader starts over each time. */
    struct loader_cursor begin;
    loader_get_cursor(s->eval_loader, &begin);
    begin.epoch = 0;
    begin.next_sample = 0;
    TRY(loader_set_cursor(s->eval_loader, &begin));
    TRY(session_start_loader(s, true));
    enum status status = OK;
    for (int64_t i = 0; i < n && status == OK; i++)
        status = evaluate_batch(s, sums);
    loader_stop(s->eval_loader);
    TRY(status);
    double count = sums[losses_count(&s->eval->io)];
    if (!(count > 0))
        return FAIL(ERR_DATA,
                    "no labels in the evaluation data: every %s of its %lld batches is masked (%s)",
                    task->unit.one, (long long)n, task->masked);
    *out = (struct evaluation){
        .unit = &task->unit, .n_units = (int64_t)count, .n_batches = n, .seconds = now_s() - start};
    fill_values(s, sums, out);
    return OK;
}
