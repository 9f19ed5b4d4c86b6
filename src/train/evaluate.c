/* evaluate.c: mean loss over held-out data, in the same arena as training. */
#include "base/machine.h"
#include "train/session.h"

/* Synthetic data has no end; without eval_max_batches a sample of it is taken. */
enum { ENDLESS_BATCHES = 1 << 24, SAMPLE_BATCHES = 64 };

static enum status evaluate_batch(struct session *s, double *loss, double *count)
{
    struct batch batch;
    TRY(loader_next(s->eval_loader, &batch));
    feed_copy(&s->eval_feed, &batch);
    loader_release_slot(s->eval_loader);
    TRY(engine_run(&s->engine, s->eval, "forward"));
    *loss += (double)*(const float *)engine_output(&s->engine, s->eval, "loss");
    *count += (double)*(const float *)engine_output(&s->engine, s->eval, "count");
    return OK;
}

enum status session_evaluate(struct session *s, int64_t max_batches, struct evaluation *out)
{
    *out = (struct evaluation){0};
    double start = now_s(), loss = 0, count = 0;
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
        status = evaluate_batch(s, &loss, &count);
    loader_stop(s->eval_loader);
    TRY(status);
    if (!(count > 0))
        return FAIL(ERR_DATA,
                    "no labels in the evaluation data: every token of its %lld batches is "
                    "masked (-100)",
                    (long long)n);
    *out = (struct evaluation){.loss = loss / count,
                               .n_tokens = (int64_t)count,
                               .n_batches = n,
                               .seconds = now_s() - start};
    return OK;
}
