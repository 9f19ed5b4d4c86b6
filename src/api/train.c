/* train.c: training and evaluation of a planned run. */

#include "api/api_internal.h"
#include "base/alloc.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/machine.h"
#include "engine/weights_origin.h"
#include "io/checkpoint.h"
#include "report/observe.h"
#include "train/reference.h"
#include "watch/publish.h"

/* ---- the caller's observer behind the trainer's interface ------------------------------------ */

static enum status tell_step(void *user, const struct step_record *r)
{
    const struct snug_observer *o = user;
    struct snug_step s = {
        .step = r->step,
        .n_steps = r->n_steps,
        .epoch = r->epoch,
        .loss = r->loss,
        .grad_norm = r->grad_norm,
        .learning_rate = r->lr,
        .loss_scale = r->loss_scale,
        .skipped = r->skipped,
        .n_tokens = r->n_units,
        .n_tokens_total = r->n_units_total,
        .seconds = r->seconds,
        .tokens_per_s = r->units_per_s,
        .mfu = r->mfu,
        .eta_s = r->eta_s,
        .arena_bytes = r->arena_bytes,
        .arena_predicted = r->arena_predicted,
        .device_bytes = r->device_bytes,
        .device_predicted = r->device_predicted,
        .host_bytes = r->host_bytes,
    };
    return o->on_step ? internal_status(o->on_step(o->user, &s)) : OK;
}

_Static_assert((int)SNUG_METRICS_MOST == (int)MOST_METRIC_VALUES, "snug.h has another limit");

static struct snug_evaluation public_evaluation(const struct evaluation *e)
{
    struct snug_evaluation out = {.loss = e->loss,
                                  .seconds = e->seconds,
                                  .n_tokens = e->n_units,
                                  .unit = e->unit ? e->unit->many : NULL,
                                  .n_batches = e->n_batches,
                                  .n_metrics = e->n_values};
    for (int i = 0; i < e->n_values; i++)
        out.metrics[i] = (struct snug_metric){e->values[i].name, e->values[i].value};
    return out;
}

static enum status tell_eval(void *user, const struct eval_record *r)
{
    const struct snug_observer *o = user;
    struct snug_evaluation e = public_evaluation(&r->result);
    e.step = r->step;
    return o->on_eval ? internal_status(o->on_eval(o->user, &e)) : OK;
}

static enum status tell_save(void *user, int64_t step, const char *path, double seconds)
{
    const struct snug_observer *o = user;
    return o->on_save ? internal_status(o->on_save(o->user, step, path, seconds)) : OK;
}

static enum status tell_sample(void *user, const struct sample_record *r)
{
    const struct snug_observer *o = user;
    const struct snug_sample s = {.step = r->step,
                                  .index = r->i_prompt,
                                  .prompt = r->prompt,
                                  .text = r->text,
                                  .n_tokens = r->n_tokens,
                                  .ended = r->ended,
                                  .seconds = r->seconds};
    return o->on_sample ? internal_status(o->on_sample(o->user, &s)) : OK;
}

/* ---- training -------------------------------------------------------------------------------- */

/* Everything that watches a run. */
struct watchers {
    struct observe_terminal terminal;
    struct observe_metrics metrics;
    struct observe_tensorboard tensorboard;
    struct publisher publisher;
    struct snug_observer caller;
    struct train_observer list[5];
    size_t n;
};

/* Every run has a folder of its own there: TensorBoard draws the files of one folder as one curve.
 */
static enum status open_tensorboard(struct observe_tensorboard *o, const struct snug_run *run,
                                    const char *id)
{
    const struct config *cfg = run->config->config;
    const char *above = run->settings.logging_dir ? run->settings.logging_dir : cfg->logging_dir;
    struct str folder = {0};
    str_addf(&folder, "%s/%s", above, id);
    enum status status = str_status(&folder);
    if (status == OK)
        status = observe_tensorboard_open(o, cfg, folder.text);
    str_release(&folder);
    return status;
}

static enum status open_watchers(struct watchers *w, struct snug_run *run, const char *id,
                                 const struct snug_train_options *o)
{
    const struct config *cfg = run->config->config;
    *w = (struct watchers){.metrics.file.file.fd = -1, .tensorboard.file.file.fd = -1};
    TRY(observe_metrics_open(&w->metrics, cfg, id, &run->session.engine.forecast,
                             &run->session.engine.task.def->unit));
    w->list[w->n++] = observe_metrics(&w->metrics);
    if (config_reports_to(cfg, CONFIG_REPORT_TENSORBOARD)) {
        TRY(open_tensorboard(&w->tensorboard, run, id));
        w->list[w->n++] = observe_tensorboard(&w->tensorboard);
    }
    if (o->terminal)
        w->list[w->n++] = observe_terminal(&w->terminal, cfg);
    if (o->observer) {
        w->caller = *o->observer;
        w->list[w->n++] = (struct train_observer){.user = &w->caller,
                                                  .on_step = tell_step,
                                                  .on_eval = tell_eval,
                                                  .on_save = tell_save,
                                                  .on_sample = tell_sample};
    }
    return OK;
}

/* Once its programs are loaded. */
static void open_publisher(struct watchers *w, struct snug_run *run, const char *id)
{
    publisher_open(&w->publisher, &run->session, id, run->precision);
    if (w->publisher.live)
        w->list[w->n++] = publisher_observer(&w->publisher);
}

static void close_watchers(struct watchers *w)
{
    publisher_close(&w->publisher);
    observe_metrics_close(&w->metrics);
    observe_tensorboard_close(&w->tensorboard);
}

/* The folder also gets the config as it was resolved: what the run was. */
static enum status save_config(const struct config *cfg)
{
    struct str path = {0}, text = {0};
    str_addf(&path, "%s/config.yaml", cfg->output_dir);
    enum status status = str_status(&path);
    if (status == OK)
        status = file_make_folders(cfg->output_dir);
    if (status == OK)
        status = config_print_yaml(cfg, &text);
    if (status == OK)
        status = file_write_atomic(path.text, str_text(&text), text.n);
    str_release(&path);
    str_release(&text);
    return status;
}

static enum status train(struct snug_run *run, const struct snug_train_options *o,
                         struct run_start *start, struct watchers *w)
{
    struct session *s = &run->session;
    TRY(engine_require_fit(&s->engine));
    TRY(engine_require_room(&s->engine));
    TRY(run_start_open(start, s->config));
    TRY(session_data(s));
    TRY(engine_allocate(&s->engine)); /* before what lies in the folder is replaced */
    TRY(run_start_confirm(start, s));
    TRY(save_config(s->config));
    TRY(open_watchers(w, run, start->id, o));
    TRY(session_start(s));
    open_publisher(w, run, start->id);
    bool profiled = o->profile || o->profile_steps > 0;
    struct profile_options profile = {
        .path = o->profile, .n_steps = o->profile_steps ? o->profile_steps : PROFILE_N_STEPS};
    struct train_options options = {.observers = w->list,
                                    .n_observers = w->n,
                                    .stop = o->stop,
                                    .profile = profiled ? &profile : NULL};
    double began = now_s();
    run->has_trained = true;
    enum status status = train_run(s, start, &options, &run->trained);
    run->train_s = now_s() - began;
    return status;
}

enum snug_status snug_run_train(struct snug_run *run, const struct snug_train_options *options)
{
    struct watchers w = {.metrics.file.file.fd = -1, .tensorboard.file.file.fd = -1};
    struct run_start start = {0};
    const enum log_level level = log_get_level();
    enum status status;
    if (!run->session.options.train || run->session.engine.executor)
        return public_status(FAIL(ERR_USAGE, "this run was not opened for training, or has been "
                                             "used already"));
    if (options->terminal && level == LOG_QUIET)
        log_set_level(LOG_INFO); /* of a program that has said nothing else */
    status = train(run, options, &start, &w);
    log_set_level(level);
    publisher_end(&w.publisher, status);
    /* A run that failed keeps its own message, whatever becomes of the last line. */
    enum status ended = status == OK ? observe_metrics_end(&w.metrics, &run->trained, status) : OK;
    if (status != OK) {
        struct str message = {0};
        str_add(&message, status_message());
        if (observe_metrics_end(&w.metrics, &run->trained, status) != OK)
            (void)FAIL(status, "%s", str_text(&message));
        str_release(&message);
    }
    close_watchers(&w);
    run_start_close(&start);
    return public_status(status != OK ? status : ended);
}

void snug_run_result(const struct snug_run *run, struct snug_train_result *out)
{
    const struct train_result *r = &run->trained;
    *out = (struct snug_train_result){
        .n_steps = r->n_steps,
        .last_step = r->last_step,
        .n_kept = r->n_kept,
        .losses = r->losses,
        .step_s = r->step_seconds,
        .n_skipped = r->n_skipped,
        .loss_scale = r->loss_scale,
        .median_step_s = r->median_step_s,
        .seconds = run->train_s,
        .tokens_per_s = r->units_per_s,
        .samples_per_s = r->samples_per_s,
        .mfu = r->mfu,
        .arena_bytes = r->arena_bytes,
        .host_bytes = r->host_bytes,
        .device_bytes = r->device_bytes,
        .resident_bytes = r->resident_bytes,
        .disk_bytes = r->disk_bytes,
        .disk_read_rate = r->disk_read_rate,
        .disk_write_rate = r->disk_write_rate,
        .disk_busy = r->disk_busy,
        .last_checkpoint = r->last_checkpoint,
        .profile = r->profile,
        .phases = {.has_phases = r->phases.has_phases,
                   .n_accepted = r->phases.n_accepted,
                   .n_rejected = r->phases.n_rejected,
                   .n_withheld = r->phases.n_withheld,
                   .n_undone = r->phases.n_undone,
                   .n_jumped = r->phases.n_jumped,
                   .seconds = r->phases.seconds,
                   .share = r->phases.share},
        .control = {.has_control = r->control.has_control,
                    .n_measured = r->control.n_measured,
                    .n_paid = r->control.n_paid,
                    .n_predicted = r->control.n_predicted,
                    .variance_ratio = r->control.variance_ratio,
                    .cost_ratio = r->control.cost_ratio,
                    .time_ratio = r->control.time_ratio,
                    .seconds = r->control.seconds,
                    .share = r->control.share},
    };
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static enum status evaluate(struct snug_run *run, const char *checkpoint, struct evaluation *out)
{
    struct session *s = &run->session;
    if (!config_is_set(s->config, "datasets") && !config_is_set(s->config, "eval_datasets"))
        return FAIL(ERR_CONFIG, "no evaluation data: set eval_datasets or datasets (`datasets: "
                                "[{type: synthetic}]` for made-up tokens)");
    TRY(engine_require_fit(&s->engine));
    TRY(engine_require_room(&s->engine));
    TRY(session_data(s));
    TRY(weights_origin(s->config, s->engine.model, s->engine.model_folder,
                       checkpoint_spec(run->config, checkpoint), &run->weights));
    const char *folder = s->engine.model_folder;
    bool untrained = !run->weights || (folder && strcmp(run->weights, folder) == 0);
    TRY(session_start_with(s, run->weights));
    TRY(reference_fill(s, untrained));
    return session_evaluate(s, s->config->eval_max_batches, out);
}

enum snug_status snug_run_evaluate(struct snug_run *run, const char *checkpoint,
                                   struct snug_evaluation *out)
{
    struct evaluation e = {0};
    const struct config *cfg = run->config->config;
    *out = (struct snug_evaluation){0};
    if (!run->session.options.evaluate || run->session.options.train ||
        run->session.engine.executor)
        return public_status(FAIL(ERR_USAGE, "this run was not opened for evaluation alone, or "
                                             "has been used already"));
    enum status status = evaluate(run, checkpoint, &e);
    *out = public_evaluation(&e);
    out->weights = run->weights;
    out->resident_bytes = process_peak();
    out->resident_predicted = run->session.engine.forecast.resident_bytes;
    out->data = cfg->eval_datasets.n    ? "eval_datasets"
                : cfg->val_set_size > 0 ? "val_set_size"
                                        : "datasets";
    return public_status(status);
}

enum snug_status snug_checkpoint_verify(const char *path)
{
    struct checkpoint *c;
    enum status status = checkpoint_open(&c, path, CHECKPOINT_FULL);
    if (status == OK)
        checkpoint_close(c);
    return public_status(status);
}
