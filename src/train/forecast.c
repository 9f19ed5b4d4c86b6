/* forecast.c: what a pipeline will take, said before anything runs: memory, whether it fits, time.
 */
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

int64_t pipeline_needs(const struct pipeline *p, enum tier t)
{
    bool whole = t == TIER_DEVICE && p->device->ops->memory_is_apart;
    return p->n_bytes[t] + (whole ? p->forecast.context_bytes : 0);
}

/* The budget of a tier without one: on a GPU what others leave of it. */
static int64_t whole_tier(struct device *d, enum tier t)
{
    struct device_room room;
    if (t != TIER_DEVICE || !d->ops->room || d->ops->room(d, &room) != OK)
        return INT64_MAX;
    return room_available(&room);
}

static void forecast_fit(struct pipeline *p)
{
    struct forecast *f = &p->forecast;
    const int64_t asked[TIER_COUNT] = {p->config->device_memory, p->config->host_memory,
                                       p->config->disk_memory};
    f->fits = true;
    f->binding = TIER_DEVICE;
    for (int t = 0; t < TIER_COUNT; t++) {
        bool given = asked[t] != CONFIG_AUTO && asked[t] != CONFIG_UNSET;
        f->budget[t] = given ? asked[t] : whole_tier(p->device, (enum tier)t);
        if (pipeline_needs(p, (enum tier)t) > f->budget[t]) {
            f->binding = f->fits ? (enum tier)t : f->binding;
            f->fits = false;
        }
    }
}

enum status pipeline_forecast(struct pipeline *p, const struct pipeline_options *o)
{
    p->forecast.n_params = model_count_params(o->train ? &p->train.io : &p->eval.io);
    p->forecast.context_bytes = p->device->ops->context_bytes(p->device);
    forecast_memory(p);
    forecast_fit(p);
    return forecast_time(p, o);
}
