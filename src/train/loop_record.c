#include <math.h>

#include "base/host_memory.h"
#include "base/log.h"
#include "base/machine.h"
#include "train/loop.h"

/* ---- numbers to go on with ------------------------------------------------------------------- */

enum { STUCK_STEPS = 20 };

/* A step that overflowed was skipped, and the next one has a smaller scale: nothing is wrong until
 * there is no smaller one. */
static enum status check_scale(struct loop *l, const struct step_record *r)
{
    const struct config *cfg = l->s->config;
    bool fixed = cfg->loss_scale > 0;
    bool least = fixed || r->loss_scale <= cfg->min_loss_scale;
    l->n_stuck = r->skipped && least ? l->n_stuck + 1 : 0;
    if (l->n_stuck < STUCK_STEPS)
        return OK;
    return FAIL(ERR_NUMERIC,
                "step %lld: %d steps in a row overflowed with the loss scale at %g, %s. The model "
                "does not stay inside half precision: lower learning_rate (%g), or use bf16: true "
                "or f32%s",
                (long long)r->step, (int)STUCK_STEPS, r->loss_scale,
                fixed ? "which loss_scale fixes" : "the least that min_loss_scale allows", r->lr,
                fixed ? ", or loss_scale: 0 to let it adapt" : "");
}

enum status loop_check_numbers(struct loop *l, const struct step_record *r)
{
    if (r->loss_scale > 0)
        TRY(check_scale(l, r));
    if ((isfinite(r->loss) && isfinite(r->grad_norm)) || r->skipped || r->n_units == 0)
        return OK;
    return FAIL(ERR_NUMERIC,
                "step %lld: the %s is %s. Lower learning_rate (%g), warm up longer, or set "
                "max_grad_norm; %s%s",
                (long long)r->step, isfinite(r->loss) ? "gradient norm" : "loss",
                isnan(isfinite(r->loss) ? r->grad_norm : r->loss) ? "NaN" : "infinite", r->lr,
                l->result->last_checkpoint ? "the last good checkpoint is " : "nothing was saved",
                l->result->last_checkpoint ? l->result->last_checkpoint : "");
}

/* ---- memory and time ------------------------------------------------------------------------- */

/* A change of budgets that found no way back has left no arenas. */
void loop_measure_memory(const struct loop *l)
{
    struct engine *e = &l->s->engine;
    struct train_result *result = l->result;
    if (!e->executor)
        return;
    result->arena_bytes = executor_high_water(e->executor, TIER_DEVICE);
    result->host_bytes = executor_high_water(e->executor, TIER_HOST);
    result->device_bytes = MAX(result->device_bytes, e->device->ops->used_bytes(e->device));
    result->resident_bytes = process_peak();
    result->disk_bytes = executor_disk_bytes(e->executor);
}

static void record_memory(const struct loop *l, struct step_record *r)
{
    const struct train_result *result = l->result;
    const struct forecast *f = &l->s->engine.forecast;
    loop_measure_memory(l);
    r->arena_bytes = result->arena_bytes;
    r->host_bytes = result->host_bytes;
    r->device_bytes = result->device_bytes;
    r->arena_predicted = f->arena_bytes;
    r->device_predicted = f->process_bytes;
}

/* Model FLOPs utilisation: of what the model's matrix products could reach. A step that was faster
 * shows that the rate was measured while the machine was busy: then that step is the measure. */
double loop_mfu(struct loop *l, double seconds)
{
    bool half = dtype_size(l->s->engine.settings.numerics.precision.weights) == 2;
    double reached = l->s->engine.forecast.step_flops / seconds;
    l->peak_flops = MAX(l->peak_flops, device_matmul_rate(&l->s->engine.device->rates, half));
    if (reached > l->peak_flops) {
        if (!l->peak_doubted)
            log_warn("a step went beyond the rate of matrix products that was measured when the "
                     "run began (the machine was busy then): MFU is of the fastest step");
        l->peak_doubted = true;
        l->peak_flops = reached;
    }
    return reached / l->peak_flops;
}

/* ---- what a step was ------------------------------------------------------------------------- */

static double output(struct loop *l, const char *name)
{
    const float *x = engine_output(&l->s->engine, l->s->train, name);
    return (double)*x;
}

/* What is minimised, and by its name each of several losses that it is made of. */
static void record_losses(struct loop *l, struct step_record *r)
{
    const struct model_graph *io = &l->s->train->io;
    double sums[MODEL_MOST_SUMS];
    r->loss = (double)NAN;
    if (l->stepper.n_labels == 0)
        return;
    for (int i = 0; i < io->n_sums; i++)
        sums[i] = l->stepper.has_sums ? l->stepper.sums[i] : output(l, io->sums[i].name);
    r->loss = losses_total(io, sums);
    r->losses = l->losses;
    for (int i = 0; i < io->n_losses; i++) {
        if (losses_is_told(io, i))
            l->losses[r->n_losses++] =
                (struct metric_value){losses_name(io, i), losses_mean(io, i, sums), true};
    }
}

struct step_record loop_record_step(struct loop *l, double lr, double seconds)
{
    bool ran = l->stepper.n_labels > 0;
    double norm = ran ? output(l, "grad_norm") : 0.0;
    bool scaled = l->s->engine.settings.numerics.precision.loss_scaling;
    struct step_record r = {
        .step = l->state.step,
        .n_steps = l->n_steps,
        .epoch = loop_epoch(l),
        .grad_norm = norm,
        .phase = phase_name(l->state.phases.kind),
        .predicted = l->stepper.has_sums,
        .loss_scale = scaled ? output(l, "loss_scale") : 0.0,
        .skipped = scaled && !isfinite(norm),
        .lr = lr,
        .unit = &l->s->engine.task.def->unit,
        .n_units = l->stepper.n_labels,
        .seconds = seconds,
        .units_per_s = (double)step_units(l->s) / seconds,
        /* it did this much of what a plain one does */
        .mfu = loop_mfu(l, l->stepper.has_sums ? seconds / l->result->control.cost_ratio : seconds),
    };
    record_losses(l, &r);
    l->state.n_units += r.n_units;
    r.n_units_total = l->state.n_units;
    double mean =
        (now_s() - l->started - l->paused_s) / (double)MAX(l->result->n_steps, (int64_t)1);
    r.eta_s = mean * (double)(l->n_steps - l->state.step);
    record_memory(l, &r);
    return r;
}
