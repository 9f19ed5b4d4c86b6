#include "engine/engine.h"

#include <math.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/machine.h"
#include "device/beside.h"
#include "device/disk/disk.h"
#include "engine/adapter_config.h"
#include "engine/ahead.h"
#include "engine/device_choice.h"
#include "engine/kept_plans.h"
#include "engine/model_open.h"
#include "engine/weights.h"
#include "io/weights.h"
#include "search/deferral.h"
#include "search/disk_steps.h"
#include "search/search.h"
#include "task/tasks.h"

/* ---- opening --------------------------------------------------------------------------------- */

void engine_init(struct engine *e, const struct settings *settings, struct task task,
                 struct device *device)
{
    *e =
        (struct engine){.settings = *settings, .task = task, .model = task.model, .device = device};
}

static enum status open_task(struct engine *e, const struct engine_options *o)
{
    e->task.def = o->task;
    if (o->task && !o->task->has_model)
        return OK;
    TRY(open_model(e->config, o->hub_folder, &e->own_model, &e->model_folder));
    TRY(adapter_from_config(e->own_model, e->config, o->hub_folder, &e->adapter_folder));
    e->task.model = e->model = e->own_model;
    if (!o->task)
        e->task.def = task_for(e->model, e->config);
    if (e->task.def->configure)
        e->task.def->configure(&e->task, e->config);
    return OK;
}

static enum status open_disk(struct device *d, const struct config *cfg)
{
    enum status status = device_use_disk(d, cfg->offload_folder);
    if (status != OK)
        return status_prefix(status, "%s", config_where(cfg, "offload_folder"));
    if (disk_is_memory(d->disk))
        log_warn("%s: offload_folder: '%s' is in memory (tmpfs): what is kept there is no less of "
                 "the machine's memory than what is not",
                 config_where(cfg, "offload_folder"), cfg->offload_folder);
    return OK;
}

static enum status open_device(struct engine *e, const struct engine_options *o)
{
    const struct config *cfg = e->config;
    TRY(o->gpu ? device_choose_card(&e->own_device, cfg, o->gpu)
               : device_choose(&e->own_device, cfg, o->cache_folder, o->n_threads));
    e->device = &e->own_device;
    beside_load(e->device, o->cache_folder);
    if (cfg->offload_folder)
        TRY(open_disk(e->device, cfg));
    if (!e->device->ops->time_calls || o->untimed)
        return OK;
    return kernel_times_open(&e->times, e->device, o->cache_folder);
}

enum status engine_open(struct engine *e, const struct config *cfg, const struct engine_options *o)
{
    enum status status;
    const double began = now_s();
    *e = (struct engine){.config = cfg, .cache_folder = o->cache_folder, .replans = o->replans};
    TRY_GOTO(open_task(e, o), out);
    TRY_GOTO(open_device(e, o), out);
    TRY_GOTO(settings_from_config(&e->settings, cfg, e->device), out);
    e->took.open_s = now_s() - began;
out:
    if (status != OK)
        engine_close(e);
    return status;
}

void engine_close(struct engine *e)
{
    executor_free(e->executor);
    workload_release(&e->work);
    kernel_times_free(e->times);
    device_close(&e->own_device);
    model_free(e->own_model);
    mem_free(e->model_folder);
    mem_free(e->adapter_folder);
    mem_free(e->param_tensors);
    *e = (struct engine){0};
}

/* ---- planning -------------------------------------------------------------------------------- */

enum status engine_build(struct engine *e, const struct engine_request *r)
{
    struct workload *w = &e->work;
    e->request = *r;
    TRY(workload_init(w, e->device, r->n_stages));
    for (int i = 0; i < r->n_stages; i++)
        TRY(stage_build(&w->stages[i], &e->task, &r->stages[i], &e->settings.numerics));
    w->reserves = r->reserves;
    w->n_reserves = r->n_reserves;
    w->result_bytes = r->result_bytes;
    w->data_bytes = r->data_bytes;
    w->program_bytes = executor_load_bytes;
    w->around = e->around;
    w->ahead_bytes = r->plans_ahead ? ahead_bytes(w) : 0;
    e->params = w->stages[0].io.params;
    e->n_params = w->stages[0].io.n_params;
    if (r->loads)
        w->load_bytes = weights_load_bytes(e->params, e->n_params);
    if (r->saves)
        w->save_bytes = checkpoint_save_bytes(e->params, e->n_params) + r->state_bytes;
    return OK;
}

/* Useful FLOPs of an optimizer step; what is frozen has no product for a gradient of its own. */
static double step_flops(const struct engine *e)
{
    const struct task_def *task = e->task.def;
    for (int i = 0; i < e->request.n_stages; i++) {
        const struct stage_request *r = &e->request.stages[i];
        double n_met = task->meetings ? (double)task->meetings(&e->task, r->seq_len) : 1.0;
        if (r->purpose == STAGE_TRAIN)
            return (double)request_units(r, &e->task) *
                   (task->flops(&e->task, e->forecast.n_active, r->seq_len) -
                    2.0 * n_met * (double)e->forecast.n_frozen);
    }
    return 0;
}

static void forecast_needs(struct engine *e)
{
    e->forecast = (struct forecast){0};
    forecast_memory(&e->forecast, &e->work, &e->settings.limits);
    e->forecast.step_flops = step_flops(e);
}

enum status engine_forecast(struct engine *e)
{
    forecast_needs(e);
    return forecast_time(&e->forecast, &e->work, &e->settings.limits, e->times);
}

static enum status require_modules(const struct engine *e)
{
    const struct stage *s = engine_stage(e, STAGE_TRAIN);
    unsigned asked = e->settings.decisions.recompute.modules, present;
    if (!s || !asked)
        return OK;
    TRY(plan_find_modules(s->graph, &present));
    for (int m = 0; m < MODULE_COUNT; m++) {
        if (asked >> m & ~(present >> m) & 1)
            return FAIL(ERR_CONFIG, "%s: gradient_checkpointing: no block of the network has %s",
                        e->config ? config_where(e->config, "gradient_checkpointing") : "settings",
                        module_name((enum module_kind)m));
    }
    return OK;
}

/* Where nothing fits, that is said first. */
enum status engine_require_rank(const struct engine *e)
{
    int rank = e->settings.bounds.rank, n_plans = e->report.chosen + 1;
    if (rank <= n_plans || !e->forecast.fits || !engine_stage(e, STAGE_TRAIN))
        return OK;
    return FAIL(ERR_CONFIG,
                "%s: plan_rank is %d, but %d plan%s found (what does not fit once it has addresses "
                "is passed over); another device_memory leaves others to choose from",
                e->config ? config_where(e->config, "plan_rank") : "settings", rank, n_plans,
                n_plans > 1 ? "s were" : " was");
}

/* Weights, and what an optimizer keeps of them: what may be on disk. */
static int64_t kept_bytes(const struct graph *g)
{
    int64_t n_bytes = 0;
    for (value_id v = 0; (size_t)v < g->values.n; v++) {
        const struct value *x = graph_value(g, v);
        if (x->producer == NODE_NONE && role_is_persistent(x->role))
            n_bytes += value_bytes(g, v);
    }
    return n_bytes;
}

static enum status decide(struct engine *e)
{
    struct settings *s = &e->settings;
    TRY(search_plan(&e->work, &s->limits, &s->bounds, e->times, &s->decisions, &e->report));
    TRY(deferral_try(&e->work, &s->limits, e->times, !s->bounds.fixed[EXTENT_GRADIENTS],
                     &s->decisions));
    TRY(disk_steps(&e->work, &s->limits, &s->bounds, e->times, &s->decisions));
    return workload_check(&e->work);
}

/* What is timed is the kernels of the plan that was chosen, so a choice may be made before they are
 * known, by rates. Where these were wrong, or where the code that timing loaded leaves the plan too
 * little memory, the choice is made again; by then the kernels are known. */
enum { MOST_PLANS = 3 };
static const double MISJUDGED = 0.01; /* of a step's time; less changes no order that matters */

static bool is_misjudged(const struct engine *e, double believed_s)
{
    return fabs(e->forecast.step_s - believed_s) > MISJUDGED * believed_s;
}

static enum status plan_once(struct engine *e, bool *holds)
{
    const double began = now_s();
    double believed_s;
    TRY(decide(e));
    const double chosen = now_s();
    TRY(forecast_seconds(&e->work, e->times, &believed_s));
    forecast_needs(e);
    bool fitted = e->forecast.fits;
    TRY(engine_forecast(e));
    e->took.choose_s += chosen - began;
    e->took.time_s += now_s() - chosen;
    bool had_a_choice = e->report.n_findings > 1 && engine_stage(e, STAGE_TRAIN);
    *holds = !fitted || (e->forecast.fits && !(had_a_choice && is_misjudged(e, believed_s)));
    return OK;
}

/* What an earlier process has searched for, where that still holds. */
static enum status plan_as_kept(struct engine *e, const struct kept_plan *kept, bool *holds)
{
    const double began = now_s();
    *holds = false;
    if (e->replans)
        return OK;
    TRY(kept_plan_take(kept, e, holds));
    const double chosen = now_s(), believed_s = e->forecast.step_s;
    e->took.choose_s += chosen - began;
    if (!*holds)
        return OK;
    TRY(engine_forecast(e));
    e->took.time_s += now_s() - chosen;
    *holds = e->took.was_kept = e->forecast.fits && !is_misjudged(e, believed_s);
    return OK;
}

/* What is configured does not fit, and most of its kernels are not known: they are those of any
 * other plan, too, so that a choice by what they take is made once instead of twice or more. Where
 * timing is limited, that is left to the plan that is chosen. */
static enum status time_before_choice(struct engine *e)
{
    const struct stage *s = engine_stage(e, STAGE_TRAIN);
    const double began = now_s();
    int64_t room[TIER_COUNT];
    if (!s || !e->times || e->device->limits.total_s > 0)
        return OK;
    TRY(workload_decide(&e->work, &e->settings.decisions));
    TRY(workload_bound(&e->work));
    forecast_needs(e);
    if (e->forecast.fits)
        return OK;
    forecast_room(&e->forecast, room);
    TRY(forecast_time_known(&e->forecast, &e->work, &e->settings.limits, e->times));
    if (2 * e->forecast.n_by_rate > e->forecast.n_calls) {
        TRY(workload_place(&e->work)); /* which operands of a call are one is seen by addresses */
        TRY(kernel_times_measure(e->times, s->program, room[TIER_DEVICE]));
    }
    e->took.time_s += now_s() - began;
    return OK;
}

static enum status plan_until_it_holds(struct engine *e, const struct kept_plan *kept)
{
    const struct decisions configured = e->settings.decisions;
    bool holds;
    TRY(plan_as_kept(e, kept, &holds));
    if (!holds)
        TRY(time_before_choice(e));
    for (int i = 0; i < MOST_PLANS && !holds; i++) {
        e->settings.decisions = configured;
        TRY(plan_once(e, &holds));
    }
    if (!e->took.was_kept)
        kept_plan_store(kept, e);
    return OK;
}

enum status engine_plan(struct engine *e, const struct engine_request *r)
{
    const double began = now_s();
    TRY(engine_build(e, r));
    TRY(require_modules(e));
    e->took.build_s = now_s() - began;
    if (e->device->disk)
        TRY(device_measure_disk(e->device, kept_bytes(e->work.stages[0].graph), e->cache_folder));
    struct kept_plan kept;
    enum status status = kept_plan_name(&kept, e);
    if (status == OK)
        status = plan_until_it_holds(e, &kept);
    kept_plan_release(&kept);
    return status == OK ? engine_require_rank(e) : status;
}

/* Those that were made before are somebody else's: the workload has its own copy. */
static enum status take_decisions(struct engine *e, const struct decisions *known)
{
    TRY(decisions_keep(known, &e->work.pool, &e->settings.decisions));
    TRY(workload_decide(&e->work, &e->settings.decisions));
    TRY(forecast_place(&e->work, &e->settings.limits));
    return workload_check(&e->work);
}

enum status engine_plan_beside(struct engine *e, const struct engine_request *r,
                               const struct decisions *known)
{
    TRY(engine_build(e, r));
    TRY(known ? take_decisions(e, known) : decide(e));
    forecast_needs(e);
    return forecast_time_known(&e->forecast, &e->work, &e->settings.limits, e->times);
}

struct stage *engine_stage(const struct engine *e, enum stage_purpose purpose)
{
    return workload_stage(&e->work, purpose);
}

/* ---- running --------------------------------------------------------------------------------- */

static enum status load_constants(struct engine *e, const struct graph *g)
{
    for (size_t v = 0; v < g->values.n; v++) {
        const struct value *x = graph_value(g, (value_id)v);
        const struct storage_entry *entry =
            x->data ? storage_find(&e->work.storage, x->name) : NULL;
        if (entry)
            TRY(executor_write_storage(e->executor, entry, x->data));
    }
    return OK;
}

enum status engine_allocate(struct engine *e)
{
    mem_trim(); /* what looking for weights left behind does not stay beside the arenas */
    return executor_new(&e->executor, e->device, e->work.n_bytes);
}

enum status engine_load_programs(struct engine *e)
{
    for (int i = 0; i < e->work.n_stages; i++) {
        struct stage *s = &e->work.stages[i];
        TRY(executor_load(e->executor, s->program, &e->work.storage, &s->handle));
        TRY(load_constants(e, s->graph));
    }
    return OK;
}

enum status engine_start(struct engine *e, const char *weights_folder)
{
    if (!e->executor)
        TRY(engine_allocate(e));
    TRY(engine_load_programs(e));
    TRY(engine_load_weights(e, weights_folder));
    mem_trim(); /* nor does what reading them took */
    return OK;
}

enum status engine_run(struct engine *e, const struct stage *s, const char *section)
{
    return executor_run(e->executor, s->handle, section);
}

void *engine_input(const struct engine *e, const struct stage *s, const char *name)
{
    return executor_input(e->executor, s->handle, name);
}

const void *engine_output(const struct engine *e, const struct stage *s, const char *name)
{
    return executor_output(e->executor, s->handle, name);
}

void *engine_reserve(const struct engine *e, const char *name, int64_t *n_bytes)
{
    const struct storage_entry *entry = storage_find(&e->work.storage, name);
    if (n_bytes)
        *n_bytes = entry ? entry->n_bytes : 0;
    return entry ? executor_storage_pointer(e->executor, entry) : NULL;
}
