/* run.c: a planned model: opening it and what is known before it runs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "device/disk/disk.h"
#include "engine/prospects.h"

enum { DRAWING_COLUMNS = 72 };

static void name_precision(struct snug_run *r)
{
    const struct precision *p = &r->session.engine.settings.numerics.precision;
    const char *rest = p->loss_scaling    ? " with f32 masters and loss scaling"
                       : p->split_masters ? " with 24-bit masters"
                       : p->masters       ? " with f32 masters"
                       : p->weights == DTYPE_BF16 && r->session.options.train
                           ? " with stochastic rounding"
                           : "";
    (void)snprintf(r->precision, sizeof(r->precision), "%s%s", dtype_name(p->weights), rest);
}

static enum status make_timeline(const struct snug_run *r, int n_columns, struct timeline *t)
{
    const struct workload *w = &r->session.engine.work;
    const struct stage *s = workload_fullest(w, TIER_DEVICE);
    return timeline_init(t, &(struct timeline_view){.program = s->program,
                                                    .storage = &w->storage,
                                                    .tier = TIER_DEVICE,
                                                    .n_columns = n_columns,
                                                    .n_micro = s->n_micro});
}

static enum status open_run(struct snug_run *r, unsigned purposes)
{
    const struct config *cfg = r->config->config;
    bool train = (purposes & SNUG_TRAIN) != 0;
    bool asked = cfg->eval_strategy != CONFIG_INTERVAL_NO || cfg->eval_on_start;
    struct session_options o = {
        .train = train,
        .evaluate = (purposes & SNUG_EVALUATE) != 0 || (train && asked),
        .hub_folder = r->settings.hub_folder,
        .cache_folder = r->settings.cache_folder,
        .gpu = r->settings.gpu,
        .n_threads = r->settings.num_threads,
        .replans = r->settings.replans,
    };
    if (!o.train && !o.evaluate)
        return FAIL(ERR_USAGE, "a run is for training or for evaluation: neither was asked for");
    TRY(session_open(&r->session, cfg, &o));
    r->is_open = true;
    name_precision(r);
    return make_timeline(r, DRAWING_COLUMNS, &r->timeline);
}

enum snug_status snug_run_open(struct snug_run **out, const struct snug_config *config,
                               const struct snug_settings *settings, unsigned purposes)
{
    struct snug_run *r;
    *out = NULL;
    enum status status = mem_try_array(&r, 1, sizeof(*r));
    if (status != OK)
        return public_status(status);
    r->config = config;
    r->settings = settings_or_none(settings);
    status = open_run(r, purposes);
    if (status == OK)
        *out = r;
    else
        snug_run_close(r);
    return public_status(status);
}

void snug_run_close(struct snug_run *run)
{
    if (!run)
        return;
    timeline_release(&run->timeline);
    if (run->is_open)
        session_close(&run->session);
    train_result_release(&run->trained);
    mem_free(run->weights);
    mem_free(run);
}

enum snug_status snug_run_require_fit(const struct snug_run *run)
{
    return public_status(engine_require_fit(&run->session.engine));
}

/* ---- the forecast ---------------------------------------------------------------------------- */

_Static_assert((int)SNUG_MEMORY_COUNT == (int)MEMORY_CLASS_COUNT, "snug.h lacks a memory class");
_Static_assert((int)SNUG_MEMORY_LOGITS == (int)MEMORY_LOGITS, "snug.h has another order");
_Static_assert((int)SNUG_MEMORY_STAGING == (int)MEMORY_STAGING, "snug.h has another order");

_Static_assert((int)SNUG_EXTENT_COUNT == (int)EXTENT_COUNT, "snug.h lacks an extent");
_Static_assert((int)SNUG_EXTENT_OPTIMIZER == (int)EXTENT_STATES, "snug.h has another order");

const char *snug_extent_name(enum snug_extent e)
{
    return extent_name((enum extent)e);
}

const char *snug_memory_name(enum snug_memory m)
{
    return memory_class_name((enum memory_class)m);
}

static void tell_model(const struct snug_run *run, struct snug_forecast *out)
{
    const struct session *s = &run->session;
    const struct config *cfg = s->config;
    const struct task *task = &s->engine.task;
    out->model = s->engine.model->model_type;
    out->n_params = s->engine.forecast.n_params;
    out->n_active = s->engine.forecast.n_active;
    out->n_trainable = s->train ? s->engine.forecast.n_trained : 0;
    out->n_layers = s->engine.model->n_layers;
    out->vocab_size = s->engine.model->language.vocab_size;
    out->precision = run->precision;
    out->device = s->engine.device->description;
    out->weights = run->weights ? run->weights : s->engine.model_folder;
    out->output_dir = cfg->output_dir;
    out->micro_batch = cfg->per_device_train_batch_size;
    out->n_micro = cfg->gradient_accumulation_steps;
    out->n_ranks = cfg->n_ranks;
    out->unit = task->def->unit.many;
    out->seq_len = task->def->units(task, cfg->max_seq_length);
    out->tokens_per_step = cfg->train_batch_size * task->def->units(task, cfg->max_seq_length);
}

static void tell_disk(const struct device *d, const struct forecast *f, struct snug_forecast *out)
{
    if (!d->disk)
        return;
    out->disk_folder = disk_folder(d->disk);
    out->disk_read = f->disk_read;
    out->disk_written = f->disk_written;
    out->disk_read_rate = d->rates.links[TIER_DISK][TIER_HOST].alone;
    out->disk_write_rate = d->rates.links[TIER_HOST][TIER_DISK].alone;
    out->disk_read_in_turns = d->rates.links[TIER_DISK][TIER_HOST].both;
    out->disk_write_in_turns = d->rates.links[TIER_HOST][TIER_DISK].both;
    if (f->disk_read_s > 0)
        out->step_read_rate = (double)f->disk_read / f->disk_read_s;
    if (f->disk_written_s > 0)
        out->step_write_rate = (double)f->disk_written / f->disk_written_s;
}

static void tell_memory(const struct snug_run *run, struct snug_forecast *out)
{
    const struct forecast *f = &run->session.engine.forecast;
    const struct budget *b = &f->budget;
    const struct program *fullest =
        workload_fullest(&run->session.engine.work, TIER_DEVICE)->program;
    out->fits = f->fits;
    out->binding = tier_name(f->binding);
    out->arena_bytes = f->arena_bytes;
    out->host_bytes = f->host_bytes;
    out->disk_bytes = f->disk_bytes;
    out->context_bytes = f->context_bytes;
    out->device_bytes = f->process_bytes;
    out->resident_bytes = f->resident_bytes;
    out->arena_lower_bound = fullest->lower_bound[TIER_DEVICE];
    out->layout_method = fullest->layout_method[TIER_DEVICE];
    out->data_bytes = f->data_bytes;
    out->beside_bytes = f->beside_bytes;
    out->device_needs = b->needs[TIER_DEVICE];
    out->host_needs = b->needs[TIER_HOST];
    out->device_budget = b->n_bytes[TIER_DEVICE];
    out->host_budget = b->n_bytes[TIER_HOST];
    out->disk_budget = b->n_bytes[TIER_DISK];
    out->device_budget_given = b->given[TIER_DEVICE];
    out->host_budget_given = b->given[TIER_HOST];
    out->disk_budget_given = b->given[TIER_DISK];
    tell_disk(run->session.engine.device, f, out);
    out->memory_is_shared = b->is_shared;
    out->device_room = (struct snug_room){b->room.whose, b->room.total_bytes, b->room.free_bytes};
    out->host_room = (struct snug_room){b->host.whose, b->host.total_bytes, b->host.free_bytes};
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++) {
        out->breakdown[c] = f->breakdown[c];
        out->host_breakdown[c] = f->host_breakdown[c];
        out->disk_breakdown[c] = f->disk_breakdown[c];
    }
    out->fragmentation = f->fragmentation;
    out->fullest = run->timeline.peak_place;
}

static void tell_time(const struct snug_run *run, struct snug_forecast *out)
{
    const struct engine *e = &run->session.engine;
    const struct forecast *f = &e->forecast;
    const struct stage *train = run->session.train;
    out->opening_s = e->took.open_s;
    out->building_s = e->took.build_s;
    out->choosing_s = e->took.choose_s;
    out->timing_s = e->took.time_s;
    out->was_kept = e->took.was_kept;
    out->step_s = f->step_s;
    out->is_estimate = f->estimated;
    out->step_source = forecast_source(f);
    out->n_kernels = f->n_calls;
    out->n_by_rate = f->n_by_rate;
    out->step_flops = f->step_flops;
    out->tokens_per_s = out->step_s > 0 ? (double)out->tokens_per_step / out->step_s : 0;
    if (!train)
        return;
    struct program_cost cost;
    out->n_blocks_recomputed = train->plan.n_blocks_recomputed;
    for (size_t i = 0; i < train->program->sections.n; i++) {
        const struct section *s = &train->program->sections.items[i];
        program_cost(train->program, s->first, s->n, e->device, &cost);
        out->recompute_flops +=
            cost.recompute_flops * (double)section_runs(train->program, s, out->n_micro);
    }
}

static void tell_decisions(const struct snug_run *run, struct snug_forecast *out)
{
    const struct engine *e = &run->session.engine;
    const struct decisions *d = &e->settings.decisions;
    out->n_blocks = e->work.stages[0].plan.n_blocks;
    out->ring_bytes = d->ring_bytes;
    out->defers_updates = d->defer_updates;
    out->micro_batch_group = e->work.stages[0].group;
    for (int i = 0; i < EXTENT_COUNT; i++)
        out->extents[i] = MIN(d->n[i], out->n_blocks + 1);
    out->extents[EXTENT_RECOMPUTED] = out->n_blocks_recomputed;
}

void snug_run_forecast(const struct snug_run *run, struct snug_forecast *out)
{
    *out = (struct snug_forecast){0};
    tell_model(run, out);
    tell_memory(run, out);
    tell_time(run, out);
    tell_decisions(run, out);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Settings that config_resolve filled in, in one line. */
static void add_derived(const struct snug_run *run, struct str *s)
{
    const struct config *cfg = run->session.config;
    json_t *all = NULL;
    const char *key, *before = "settings filled in: ";
    if (config_json(cfg, &all) != OK)
        return;
    for (size_t i = 0; (key = snug_config_key(i)); i++) {
        const json_t *value = json_object_get(all, key);
        if (strcmp(config_where(cfg, key), "derived") != 0 || json_is_null(value))
            continue;
        if (json_is_integer(value))
            str_addf(s, "%s%s=%lld", before, key, (long long)json_integer_value(value));
        else if (json_is_string(value))
            str_addf(s, "%s%s=%s", before, key, json_string_value(value));
        else if (json_is_real(value))
            str_addf(s, "%s%s=%g", before, key, json_real_value(value));
        before = " ";
    }
    str_add(s, "\n");
    json_decref(all);
}

/* What else would have fitted, and how much longer a step would take. */
static void add_runners_up(const struct engine *e, struct str *s)
{
    enum { SHOWN = 3 };
    const struct search_report *r = &e->report;
    for (int i = 0; i < MIN(r->n_findings, SHOWN); i++) {
        double slower = 100 * (r->findings[i].seconds / r->findings[r->chosen].seconds - 1);
        if (i == r->chosen)
            continue;
        str_addf(s, "plan_rank=%d, %.1f %% %s: ", i + 1, fabs(slower),
                 slower < 0 ? "faster" : "slower");
        finding_add_difference(&r->findings[i], &r->findings[r->chosen], s);
        str_add(s, "\n");
    }
    if (r->n_emitted > 0)
        str_addf(s, "chosen from %d estimates, %d programs%s\n", r->n_ranked, r->n_emitted,
                 e->took.was_kept ? " when it was first asked for (--replan: once more)" : "");
}

/* What leaves the device or is made again because it has to, and how far ahead it is fetched. */
static void add_extents(const struct snug_run *run, struct str *s)
{
    const struct engine *e = &run->session.engine;
    const struct decisions *d = &e->settings.decisions;
    bool chosen = d->form_bytes > 0;
    char ring[BYTES_TEXT];
    for (int i = 0; i < EXTENT_COUNT; i++)
        chosen = chosen || (d->n[i] > 0 && !e->settings.bounds.fixed[i]);
    if (chosen) {
        str_add(s, e->forecast.fits ? "to fit the budgets: " : "the least there is: ");
        decisions_add_text(d, e->work.stages[0].plan.n_blocks, s);
        str_add(s, "\n");
        add_runners_up(e, s);
    } else if (decisions_copy(d) && d->ring_bytes > 0) {
        str_addf(s, "%s are fetched ahead of what needs them\n", format_bytes(ring, d->ring_bytes));
    }
    if (!chosen && e->work.stages[0].group > 1)
        str_addf(s, "micro-batches run in groups of %d, block by block\n", e->work.stages[0].group);
    if (!chosen && d->defer_updates)
        str_add(s, "updates run in the next step, each before what it updates is read\n");
}

/* What a plan for a card takes for granted. */
static void add_assumptions(const struct snug_run *run, struct str *s)
{
    const struct engine *e = &run->session.engine;
    const struct budget *b = &e->forecast.budget;
    char total[BYTES_TEXT];
    if (!e->device->is_absent)
        return;
    if (precision_is_replaced(run->config->config, e->device))
        str_addf(s, "bf16 is planned as fp16 with loss scaling: %s does not compute in bfloat16\n",
                 e->device->description);
    if (budget_is_beyond(run->config->config, e->device))
        str_addf(s, "device_memory is more than %s has: planned for all of that\n", b->room.whose);
    if (!b->given[TIER_HOST])
        str_addf(s, "host memory is %s's, %s; host_memory plans for another machine\n",
                 b->host.whose, format_bytes(total, b->host.total_bytes));
}

/* A plan does without the data; what reading it takes is then not in it. */
static void add_missing(const struct config_datasets *all, struct str *s)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct config_dataset *d = &all->items[i];
        if (d->path && !strpbrk(d->path, "*?") && !file_exists(d->path) && !file_is_folder(d->path))
            str_addf(s, "%s: %s is not here: what reading it takes is not planned for\n", d->where,
                     d->path);
    }
}

static void add_choices(const struct snug_run *run, struct str *s)
{
    const struct session *x = &run->session;
    const struct config *cfg = x->config;
    if (x->n_batches_planned > 0)
        str_addf(s,
                 "micro-batch: %lld, %lld accumulated, the best of %d that were "
                 "planned; another one adds gradients up in another order\n",
                 (long long)cfg->per_device_train_batch_size,
                 (long long)cfg->gradient_accumulation_steps, x->n_batches_planned);
    if (cfg->bf16 == CONFIG_TRISTATE_AUTO)
        str_addf(s, "bf16: auto is %s on this device\n", run->precision);
    if (x->engine.model->balances_tokens && cfg->gradient_accumulation_steps > 1)
        str_add(s, "experts are balanced over the tokens of each micro-batch\n");
    const struct sample_facts *samples = &x->engine.model->samples;
    if (samples->has_batch_norm && cfg->gradient_accumulation_steps > 1)
        str_addf(s, "batch norm takes its statistics from each micro-batch of %lld samples\n",
                 (long long)cfg->per_device_train_batch_size);
    if (samples->has_batch_norm || samples->coupling)
        str_add(s, "samples that do not fill a batch at the end of an epoch are left out of "
                   "training\n");
    if (cfg->lmhead_chunks == CONFIG_AUTO && samples->n_fields == 0)
        str_add(s, "the loss is computed in chunks as the kernel chooses: the logits of a batch "
                   "never exist\n");
    if (x->options.train && !(cfg->max_grad_norm > 0) &&
        !x->engine.settings.numerics.precision.loss_scaling)
        str_addf(s, "each weight is updated as soon as its gradient is complete%s\n",
                 cfg->gradient_accumulation_steps > 1 ? ", in the last micro-step" : "");
    if (cfg->num_threads == 0)
        str_addf(s, "num_threads: %d\n", x->engine.device->env.n_threads);
    if (x->options.train && x->options.evaluate)
        str_add(s, "evaluation shares the arena of training\n");
}

enum snug_status snug_run_decisions(const struct snug_run *run, char **text)
{
    struct str s = {0};
    add_extents(run, &s);
    add_assumptions(run, &s);
    add_choices(run, &s);
    add_missing(&run->session.config->datasets, &s);
    add_missing(&run->session.config->eval_datasets, &s);
    add_derived(run, &s);
    return hand_out(&s, str_status(&s), text);
}

enum snug_status snug_run_prospects(const struct snug_run *run, char **text)
{
    struct str s = {0};
    struct prospects p;
    const struct engine *e = &run->session.engine;
    enum status status = engine_prospects(e, &p);
    if (status == OK) {
        prospects_add_text(&p, &e->forecast, &s);
        status = str_status(&s);
    }
    return hand_out(&s, status, text);
}

enum snug_status snug_run_timeline(const struct snug_run *run, int n_columns, int n_rows,
                                   bool colour, char **text)
{
    struct str s = {0};
    struct timeline t;
    struct timeline_style style = {.budget =
                                       run->session.engine.forecast.budget.n_bytes[TIER_DEVICE],
                                   .n_rows = n_rows,
                                   .colour = colour};
    enum status status = make_timeline(run, n_columns, &t);
    if (status == OK) {
        status = timeline_draw(&t, &style, &s);
        timeline_release(&t);
    }
    return hand_out(&s, status, text);
}

enum snug_status snug_run_dump(const struct snug_run *run, enum snug_dump what, char **text)
{
    struct str s = {0};
    const struct session *session = &run->session;
    const struct stage *stage = session->train ? session->train : session->eval;
    enum status status =
        what == SNUG_DUMP_GRAPH ? graph_print(stage->graph, &s) : program_print(stage->program, &s);
    return hand_out(&s, status, text);
}
