/* forecast.c: what a pipeline will take, said before anything runs: memory, whether it fits, time.
 */
#include "base/alloc.h"
#include "base/host_memory.h"
#include "train/pipeline.h"

/* Kernels are timed in memory that the plan will need anyway, so only for a plan that fits. */
static enum status forecast_time(struct pipeline *p, const struct pipeline_options *o)
{
    struct forecast *f = &p->forecast;
    struct stage *s = &p->train;
    if (!s->program)
        return OK;
    if (o->times && f->fits)
        TRY(kernel_times_measure(o->times, s->program));
    TRY(predict(&s->prediction, s->program, p->device, o->times));
    TRY(predict_step(&s->prediction, s->program, p->device, s->plan.n_micro, &f->step_s));
    f->n_calls = s->prediction.n_calls;
    f->n_by_rate = s->prediction.n_by_rate;
    int64_t tokens =
        p->config->per_device_train_batch_size * p->config->max_seq_length * s->plan.n_micro;
    f->step_flops =
        (double)tokens * model_flops_per_token(p->model, f->n_params, p->config->max_seq_length);
    return OK;
}

const char *forecast_source(const struct forecast *f)
{
    return f->n_by_rate < f->n_calls ? "measured kernels" : "rates";
}

static void forecast_memory(struct pipeline *p)
{
    struct forecast *f = &p->forecast;
    const struct program *fullest = p->train.program ? p->train.program : p->eval.program;
    if (p->eval.program && p->eval.program->n_bytes[TIER_DEVICE] > fullest->n_bytes[TIER_DEVICE])
        fullest = p->eval.program;
    f->arena_bytes = p->n_bytes[TIER_DEVICE];
    f->host_bytes = p->n_bytes[TIER_HOST];
    f->disk_bytes = p->n_bytes[TIER_DISK];
    program_memory_at(fullest, &p->storage, TIER_DEVICE, program_peak(fullest, TIER_DEVICE),
                      f->breakdown);
    f->fragmentation = f->arena_bytes;
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
        f->fragmentation -= f->breakdown[c];
}

/* What the process holds beside its arenas, and how much of the device it takes in all. Planning
 * and reading data come before there are arenas: of these only what is more than the run's counts.
 */
static void forecast_process(struct pipeline *p, const struct pipeline_options *o)
{
    struct forecast *f = &p->forecast;
    mem_trim(); /* what planning left behind does not stay */
    f->context_bytes = p->device->ops->context_bytes(p->device);
    f->beside_bytes = process_resident() + o->result_bytes;
    f->before_bytes = process_peak();
    f->process_bytes = f->arena_bytes + f->context_bytes;
    if (p->device->ops->memory_is_apart)
        return;
    f->process_bytes += o->result_bytes + MAX(f->host_bytes, f->data_bytes - f->arena_bytes);
    f->process_bytes = MAX(f->process_bytes, f->before_bytes);
    f->before_bytes = MAX(f->before_bytes - f->arena_bytes, (int64_t)0);
}

int64_t pipeline_needs(const struct pipeline *p, enum tier t)
{
    const struct forecast *f = &p->forecast;
    switch (t) {
    case TIER_DEVICE:
        return f->arena_bytes + (p->device->ops->memory_is_apart ? f->context_bytes : 0);
    case TIER_HOST:
        return MAX(f->beside_bytes + MAX(f->host_bytes, f->data_bytes), f->before_bytes);
    default:
        return f->disk_bytes;
    }
}

static void forecast_fit(struct pipeline *p)
{
    struct forecast *f = &p->forecast;
    int64_t needs[TIER_COUNT];
    for (int t = 0; t < TIER_COUNT; t++)
        needs[t] = pipeline_needs(p, (enum tier)t);
    budget_read(&f->budget, p->device, p->config, needs);
    enum tier over = budget_over(&f->budget);
    f->fits = over == TIER_COUNT;
    f->binding = f->fits ? TIER_DEVICE : over;
}

enum status pipeline_forecast(struct pipeline *p, const struct pipeline_options *o)
{
    p->forecast.n_params = model_count_params(o->train ? &p->train.io : &p->eval.io);
    p->forecast.data_bytes = o->data_bytes;
    forecast_memory(p);
    forecast_process(p, o);
    forecast_fit(p);
    TRY(forecast_time(p, o));
    forecast_process(p, o); /* timing may have taken more, for a moment, than the run will */
    forecast_fit(p);
    return OK;
}
