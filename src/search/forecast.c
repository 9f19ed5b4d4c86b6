#include "search/forecast.h"

const char *forecast_source(const struct forecast *f)
{
    if (f->estimated)
        return "an estimate";
    return f->n_by_rate < f->n_calls ? "measured kernels" : "rates";
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void forecast_arenas(struct forecast *f, const struct workload *w)
{
    const struct program *fullest = workload_fullest(w, TIER_DEVICE)->program;
    f->arena_bytes = w->n_bytes[TIER_DEVICE];
    f->host_bytes = w->n_bytes[TIER_HOST];
    f->disk_bytes = w->n_bytes[TIER_DISK];
    program_memory_at(fullest, &w->storage, TIER_DEVICE, program_peak(fullest, TIER_DEVICE),
                      f->breakdown);
    fullest = workload_fullest(w, TIER_HOST)->program;
    program_memory_at(fullest, &w->storage, TIER_HOST, program_peak(fullest, TIER_HOST),
                      f->host_breakdown);
    fullest = workload_fullest(w, TIER_DISK)->program;
    program_memory_at(fullest, &w->storage, TIER_DISK, program_peak(fullest, TIER_DISK),
                      f->disk_breakdown);
    f->fragmentation = f->arena_bytes;
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
        f->fragmentation -= f->breakdown[c];
}

/* What a run holds for a while: a checkpoint is written when all arenas are in use, weights are
 * read when of an arena whose pages come with their use only storage is. */
static int64_t passing_bytes(const struct workload *w)
{
    int64_t unused = w->n_bytes[TIER_DEVICE] - w->storage.n_bytes[TIER_DEVICE];
    int64_t loading = w->load_bytes - (w->device->ops->memory_is_apart ? 0 : unused);
    return MAX(w->save_bytes, loading);
}

/* What the process will hold beside its arenas and data. */
static int64_t beside_bytes(const struct workload *w, const struct surroundings *around)
{
    int64_t n_bytes = around->resident_bytes + w->result_bytes + w->ahead_bytes + passing_bytes(w);
    for (int i = 0; w->program_bytes && i < w->n_stages; i++)
        n_bytes += w->program_bytes(w->stages[i].program);
    return n_bytes;
}

int64_t forecast_recordings(const struct workload *w)
{
    const struct device_ops *ops = w->device->ops;
    return ops->recording_bytes ? ops->recording_bytes(w->device, workload_n_instrs(w)) : 0;
}

/* What the process holds beside its arenas, and how much of the device it takes in all. Planning
 * and reading data come before there are arenas: of these only what is more than the run's counts.
 */
static void forecast_process(struct forecast *f, const struct workload *w,
                             const struct surroundings *around)
{
    const struct device_ops *ops = w->device->ops;
    f->data_bytes = w->data_bytes;
    f->beside_bytes = beside_bytes(w, around);
    f->around_bytes = around->resident_bytes;
    f->before_bytes = around->peak_bytes;
    if (ops->memory_is_apart) {
        f->recorded_bytes = forecast_recordings(w);
        f->context_bytes = ops->context_bytes(w->device) + f->recorded_bytes;
        f->process_bytes = f->arena_bytes + f->context_bytes;
        f->resident_bytes = f->beside_bytes + MAX(f->host_bytes, f->data_bytes);
        f->resident_bytes = MAX(f->resident_bytes, f->before_bytes);
        return;
    }
    f->context_bytes = f->beside_bytes;
    f->process_bytes =
        f->arena_bytes + f->beside_bytes + MAX(f->host_bytes, f->data_bytes - f->arena_bytes);
    f->process_bytes = MAX(f->process_bytes, f->before_bytes);
    f->before_bytes = MAX(f->before_bytes - f->arena_bytes, (int64_t)0);
    f->resident_bytes = f->process_bytes;
}

static void forecast_fit(struct forecast *f, const struct workload *w,
                         const struct surroundings *around, const struct limits *limits)
{
    bool apart = w->device->ops->memory_is_apart;
    const int64_t needs[TIER_COUNT] = {
        [TIER_DEVICE] = f->arena_bytes + (apart ? f->context_bytes : 0),
        [TIER_HOST] = MAX(f->beside_bytes + MAX(f->host_bytes, f->data_bytes), f->before_bytes),
        [TIER_DISK] = f->disk_bytes,
    };
    budget_make(&f->budget, around, !apart, limits, needs);
    enum tier over = budget_over(&f->budget);
    f->fits = over == TIER_COUNT;
    f->binding = f->fits ? TIER_DEVICE : over;
}

/* What depends on the machine and on what else the process holds. */
static void forecast_around(struct forecast *f, const struct workload *w,
                            const struct limits *limits)
{
    struct surroundings now;
    const struct surroundings *around = w->around;
    if (!around) {
        surroundings_read(&now, w->device);
        around = &now;
    }
    forecast_process(f, w, around);
    forecast_fit(f, w, around, limits);
}

void forecast_memory(struct forecast *f, const struct workload *w, const struct limits *limits)
{
    f->n_params = model_count_params(&w->stages[0].io);
    f->n_active = model_count_active(&w->stages[0].io);
    f->n_trained = model_count_trained(&w->stages[0].io);
    f->n_frozen = model_count_frozen(&w->stages[0].io);
    forecast_arenas(f, w);
    forecast_around(f, w, limits);
}

void forecast_room(const struct forecast *f, int64_t room[TIER_COUNT])
{
    const struct budget *b = &f->budget;
    int64_t arenas[TIER_COUNT] = {f->arena_bytes, f->host_bytes, f->disk_bytes};
    for (int t = 0; t < TIER_COUNT; t++) {
        int64_t beside = MAX(b->needs[t] - arenas[t], (int64_t)0);
        room[t] = b->n_bytes[t] == INT64_MAX ? INT64_MAX / 4 : b->n_bytes[t] - beside;
    }
}

enum status forecast_place(struct workload *w, const struct limits *limits)
{
    struct forecast f = {0};
    int64_t room[TIER_COUNT];
    TRY(workload_bound(w));
    forecast_memory(&f, w, limits);
    forecast_room(&f, room);
    return workload_place_within(w, room);
}

/* ---- time ------------------------------------------------------------------------------------ */

static enum status stage_seconds(const struct workload *w, const struct stage *stage,
                                 const struct kernel_times *times, double *seconds)
{
    struct prediction p;
    TRY(predict(&p, stage->program, w->device, times));
    enum status status = predict_step(&p, stage->program, w->device, stage->n_micro, seconds);
    prediction_release(&p);
    return status;
}

enum status forecast_seconds(const struct workload *w, const struct kernel_times *times,
                             double *seconds)
{
    const struct stage *trains = workload_stage(w, STAGE_TRAIN);
    *seconds = 0;
    if (trains)
        return stage_seconds(w, trains, times, seconds);
    for (int i = 0; i < w->n_stages; i++) {
        double once;
        TRY(stage_seconds(w, &w->stages[i], times, &once));
        *seconds += once;
    }
    return OK;
}

enum status forecast_idle(const struct workload *w, const struct kernel_times *times,
                          double *seconds)
{
    const struct stage *s = workload_stage(w, STAGE_TRAIN);
    struct prediction predicted;
    *seconds = 0;
    if (!s)
        return OK;
    const struct program *p = s->program;
    TRY(predict(&predicted, p, w->device, times));
    enum status status = predict_step(&predicted, p, w->device, s->n_micro, seconds);
    for (size_t x = 0; status == OK && x < p->sections.n; x++) {
        const struct section *section = &p->sections.items[x];
        double n_runs = (double)section_runs(p, section, s->n_micro);
        for (int32_t k = section->first; k < section->first + section->n; k++) {
            if (p->instrs.items[k].kind == INSTR_COMPUTE)
                *seconds -= n_runs * predicted.seconds[k];
        }
    }
    prediction_release(&predicted);
    return status;
}

/* What a step moves to and from disk: the one wears it out. */
static void forecast_traffic(struct forecast *f, const struct stage *s)
{
    const struct program *p = s->program;
    f->disk_read = f->disk_written = 0;
    f->disk_read_s = f->disk_written_s = 0;
    for (size_t x = 0; x < p->sections.n; x++) {
        const struct section *section = &p->sections.items[x];
        int64_t n_runs = section_runs(p, section, s->n_micro);
        for (int32_t k = section->first; k < section->first + section->n; k++) {
            const struct instr *i = &p->instrs.items[k];
            const struct operand *o = &p->operands.items[i->first_operand];
            if (i->kind != INSTR_COPY)
                continue;
            bool from = o[0].tier == TIER_DISK, to = o[1].tier == TIER_DISK;
            double seconds = (double)n_runs * s->prediction.seconds[k];
            f->disk_read += from ? n_runs * o[0].n_bytes : 0;
            f->disk_read_s += from ? seconds : 0;
            f->disk_written += to ? n_runs * o[1].n_bytes : 0;
            f->disk_written_s += to ? seconds : 0;
        }
    }
}

enum status forecast_time(struct forecast *f, struct workload *w, const struct limits *limits,
                          struct kernel_times *times)
{
    const struct stage *s = workload_stage(w, STAGE_TRAIN);
    if (s && times && f->fits)
        TRY(kernel_times_measure(times, s->program, s->program->n_bytes[TIER_DEVICE]));
    return forecast_time_known(f, w, limits, times);
}

enum status forecast_time_known(struct forecast *f, struct workload *w, const struct limits *limits,
                                const struct kernel_times *times)
{
    struct stage *s = workload_stage(w, STAGE_TRAIN);
    if (!s)
        return OK;
    prediction_release(&s->prediction);
    TRY(predict(&s->prediction, s->program, w->device, times));
    TRY(predict_step(&s->prediction, s->program, w->device, s->n_micro, &f->step_s));
    forecast_traffic(f, s);
    f->estimated = w->device->is_absent;
    f->n_calls = s->prediction.n_calls;
    f->n_by_rate = s->prediction.n_by_rate;
    forecast_around(f, w, limits); /* timing may have taken more, for a moment, than the run will */
    return OK;
}
