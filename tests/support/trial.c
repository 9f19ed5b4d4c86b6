#include "support/trial.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/half.h"
#include "base/log.h"
#include "base/machine.h"
#include "device/device.h"
#include "io/safetensors.h"

enum { MOST_OVERRIDES = 48, KEPT_PATHS = 16, LONGEST_S = SNUG_TSAN ? 900 : 60 };

static struct scratch scratch;
static int n_trials;

/* ---- the folder ------------------------------------------------------------------------------ */

/* Letters by a small generator: no two windows are the same, and what follows what can be learnt.
 */
static void write_text(void)
{
    char text[TRIAL_WINDOWS * TRIAL_WINDOW + 1];
    uint32_t x = 1;
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = (char)('a' + (x >> 24) % 13);
    }
    text[sizeof(text) - 1] = '\0';
    scratch_write_text(&scratch, "text.txt", text);
}

void trials_begin(void)
{
    scratch_init(&scratch);
    n_trials = 0;
    log_set_level(LOG_ERROR);
    write_text();
}

void trials_end(void)
{
    scratch_release(&scratch);
}

const struct scratch *trials_scratch(void)
{
    return &scratch;
}

const char *trial_path(const char *key, const char *name)
{
    static char paths[KEPT_PATHS][SCRATCH_PATH];
    static int next;
    char *out = paths[next++ % KEPT_PATHS];
    int n = snprintf(out, SCRATCH_PATH, "%s=%s/%s", key, scratch.folder, name);
    assert_in_range(n, 1, SCRATCH_PATH - 1);
    return out;
}

const char *trial_text(void)
{
    return trial_path("datasets.0.path", "text.txt");
}

/* ---- configs --------------------------------------------------------------------------------- */

static const char *const tiny[] = {
    "model={model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 32, "
    "num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, "
    "max_position_embeddings: 64}",
    "max_seq_length=16",
    "per_device_train_batch_size=2",
    "learning_rate=1e-2",
    "lr_scheduler_type=constant",
    "max_steps=3",
    "save_strategy=no",
    "report_to=none",
    "device=cpu",
    "num_threads=1",
    "seed=7",
};

static enum snug_status load_config(struct snug_config **out, const char *const *overrides)
{
    const char *all[MOST_OVERRIDES];
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(tiny); i++)
        all[n++] = tiny[i];
    char folder[32];
    (void)snprintf(folder, sizeof(folder), "run-%d", n_trials);
    all[n++] = trial_path("output_dir", folder);
    all[n++] = trial_path("dataset_prepared_path", "tokens");
    for (size_t i = 0; overrides[i]; i++) {
        assert_in_range(n, 0, MOST_OVERRIDES - 1);
        all[n++] = overrides[i];
    }
    return snug_config_load(out, NULL, all, n);
}

static void expect_public_ok(enum snug_status status)
{
    if (status != SNUG_OK)
        fail_msg("%s: %s", snug_status_name(status), snug_error_message());
}

struct snug_config *trial_config(const char *const *overrides)
{
    struct snug_config *config;
    expect_public_ok(load_config(&config, overrides));
    return config;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const struct snug_settings *settings(void)
{
    static char cache[SCRATCH_PATH];
    static struct snug_settings s;
    s = (struct snug_settings){.cache_folder = scratch_path(&scratch, "cache", cache)};
    return &s;
}

void (*trial_after_step)(int64_t step);

struct watch {
    struct trial *trial;
    double started;
    volatile sig_atomic_t stop;
};

static enum snug_status on_step(void *user, const struct snug_step *step)
{
    struct watch *w = user;
    if (w->trial->n_steps < TRIAL_MOST_STEPS)
        w->trial->steps[w->trial->n_steps] = *step;
    w->trial->n_steps++;
    if (trial_after_step)
        trial_after_step(step->step);
    if (now_s() - w->started > LONGEST_S)
        w->stop = SIGTERM;
    return SNUG_OK;
}

static enum snug_status on_eval(void *user, const struct snug_evaluation *evaluation)
{
    struct trial *t = ((struct watch *)user)->trial;
    assert_in_range(t->n_evals, 0, TRIAL_MOST_EVENTS - 1);
    t->evals[t->n_evals++] = *evaluation;
    return SNUG_OK;
}

static enum snug_status on_sample(void *user, const struct snug_sample *s)
{
    struct trial *t = ((struct watch *)user)->trial;
    assert_in_range(t->n_samples, 0, TRIAL_MOST_EVENTS - 1);
    struct trial_sample *to = &t->samples[t->n_samples++];
    *to = (struct trial_sample){.step = s->step, .n_tokens = s->n_tokens, .index = s->index};
    (void)snprintf(to->prompt, sizeof(to->prompt), "%s", s->prompt);
    (void)snprintf(to->text, sizeof(to->text), "%s", s->text);
    return SNUG_OK;
}

static enum snug_status on_save(void *user, int64_t step, const char *path, double seconds)
{
    struct trial *t = ((struct watch *)user)->trial;
    (void)path;
    (void)seconds;
    assert_in_range(t->n_saves, 0, TRIAL_MOST_EVENTS - 1);
    t->saved[t->n_saves++] = step;
    return SNUG_OK;
}

static void note_plan(struct trial *t, const struct snug_config *config, const struct snug_run *run)
{
    struct snug_forecast *f = &t->plan;
    snug_run_forecast(run, f);
    (void)snprintf(t->precision, sizeof(t->precision), "%s", f->precision);
    (void)snprintf(t->device, sizeof(t->device), "%s", f->device);
    (void)snprintf(t->step_source, sizeof(t->step_source), "%s", f->step_source);
    (void)snprintf(t->folder, sizeof(t->folder), "%s", snug_config_output_dir(config));
    f->model = f->precision = f->device = f->weights = f->output_dir = NULL;
    f->binding = f->layout_method = f->fullest = f->step_source = NULL;
    f->device_room.whose = f->host_room.whose = NULL;
}

/* Whatever a run takes from the heap it gives back, however it ended. */
static void expect_nothing_left(int64_t before)
{
    if (mem_live() != before)
        fail_msg("%lld allocations are left", (long long)(mem_live() - before));
}

static enum snug_status train(struct trial *t, struct snug_run *run)
{
    struct watch watch = {.trial = t, .started = now_s()};
    struct snug_observer observer = {.user = &watch,
                                     .on_step = on_step,
                                     .on_eval = on_eval,
                                     .on_save = on_save,
                                     .on_sample = on_sample};
    struct snug_train_options o = {.observer = &observer, .stop = &watch.stop};
    return snug_run_train(run, &o);
}

/* One run is open at a time; its config lives as long. */
static struct snug_config *open_config;
static int64_t live_before_open;

struct snug_run *trial_train_open(struct trial *t, const char *const *overrides)
{
    struct snug_run *run;
    n_trials++;
    *t = (struct trial){0};
    live_before_open = mem_live();
    open_config = trial_config(overrides);
    expect_public_ok(snug_run_open(&run, open_config, settings(), SNUG_TRAIN));
    note_plan(t, open_config, run);
    expect_public_ok(train(t, run));
    return run;
}

void trial_close(struct snug_run *run)
{
    snug_run_close(run);
    snug_config_free(open_config);
    open_config = NULL;
    expect_nothing_left(live_before_open);
}

void trial_train(struct trial *t, const char *const *overrides)
{
    trial_close(trial_train_open(t, overrides));
}

void trial_plan(struct trial *t, unsigned purposes, const char *const *overrides)
{
    struct snug_run *run;
    n_trials++;
    *t = (struct trial){0};
    int64_t before = mem_live();
    struct snug_config *config = trial_config(overrides);
    expect_public_ok(snug_run_open(&run, config, settings(), purposes));
    note_plan(t, config, run);
    snug_run_close(run);
    snug_config_free(config);
    expect_nothing_left(before);
}

static void evaluate(struct snug_evaluation *e, const char *checkpoint,
                     const char *const *overrides)
{
    struct snug_run *run;
    n_trials++;
    int64_t before = mem_live();
    struct snug_config *config = trial_config(overrides);
    expect_public_ok(snug_run_open(&run, config, settings(), SNUG_EVALUATE));
    expect_public_ok(snug_run_evaluate(run, checkpoint, e));
    e->weights = NULL; /* the run's */
    snug_run_close(run);
    snug_config_free(config);
    expect_nothing_left(before);
}

void trial_evaluate(struct snug_evaluation *e, const char *const *overrides)
{
    evaluate(e, "none", overrides);
}

void trial_evaluate_saved(struct snug_evaluation *e, const char *const *overrides)
{
    evaluate(e, NULL, overrides);
}

void trial_refused(const char *part, const char *const *overrides)
{
    struct snug_config *config = NULL;
    struct snug_run *run = NULL;
    struct trial t = {0};
    n_trials++;
    int64_t before = mem_live();
    enum snug_status status = load_config(&config, overrides);
    if (status == SNUG_OK)
        status = snug_run_open(&run, config, settings(), SNUG_TRAIN);
    if (status == SNUG_OK)
        status = train(&t, run);
    if (status == SNUG_OK)
        fail_msg("it was not refused, where '%s' was due", part);
    if (!strstr(snug_error_message(), part))
        fail_msg("'%s' is not in the message: %s", part, snug_error_message());
    snug_run_close(run);
    snug_config_free(config);
    expect_nothing_left(before);
}

bool trial_is_planned(const char *const *overrides)
{
    struct snug_run *run = NULL;
    struct snug_config *config = trial_config(overrides);
    bool is_planned = snug_run_open(&run, config, settings(), SNUG_TRAIN) == SNUG_OK;
    snug_run_close(run);
    snug_config_free(config);
    return is_planned;
}

char *trial_graph(const char *const *overrides)
{
    struct snug_run *run;
    char *text;
    struct snug_config *config = trial_config(overrides);
    expect_public_ok(snug_run_open(&run, config, settings(), SNUG_TRAIN));
    expect_public_ok(snug_run_dump(run, SNUG_DUMP_GRAPH, &text));
    snug_run_close(run);
    snug_config_free(config);
    return text;
}

/* ---- looking --------------------------------------------------------------------------------- */

static struct st_reader *open_weights(const struct trial *t, int64_t step)
{
    char path[SCRATCH_PATH + 64];
    struct st_reader *reader;
    (void)snprintf(path, sizeof(path), "%s/checkpoint-%lld/model.safetensors", t->folder,
                   (long long)step);
    if (st_reader_open_file(&reader, path) != OK)
        fail_msg("%s", status_message());
    return reader;
}

static float element(const struct st_tensor *t, int64_t i)
{
    uint16_t half;
    float whole;
    assert_true(t->dtype == ST_F32 || t->dtype == ST_BF16);
    if (t->dtype == ST_F32) {
        memcpy(&whole, t->data + 4 * i, sizeof(whole));
        return whole;
    }
    memcpy(&half, t->data + 2 * i, sizeof(half));
    return bf16_to_f32(half);
}

static const struct st_tensor *find_tensor(const struct st_reader *reader, const char *name)
{
    const struct st_tensor *t;
    if (st_reader_get(reader, name, &t) != OK)
        fail_msg("%s", status_message());
    return t;
}

float *trial_tensor(const struct trial *t, int64_t step, const char *name, int64_t *n_elems)
{
    struct st_reader *reader = open_weights(t, step);
    const struct st_tensor *tensor = find_tensor(reader, name);
    float *out;
    *n_elems = tensor->n_elems;
    assert_int_equal(mem_try_array(&out, (size_t)tensor->n_elems, sizeof(*out)), OK);
    for (int64_t i = 0; i < tensor->n_elems; i++)
        out[i] = element(tensor, i);
    st_reader_close(reader);
    return out;
}

double trial_distance(const struct trial *a, const struct trial *b, int64_t step)
{
    struct st_reader *of_a = open_weights(a, step), *of_b = open_weights(b, step);
    double sum = 0;
    for (size_t k = 0; k < st_reader_count(of_a); k++) {
        const struct st_tensor *x = st_reader_at(of_a, k), *y = find_tensor(of_b, x->name);
        for (int64_t i = 0; i < x->n_elems; i++) {
            double difference = (double)element(x, i) - (double)element(y, i);
            sum += difference * difference;
        }
    }
    st_reader_close(of_a);
    st_reader_close(of_b);
    return sqrt(sum);
}

bool trial_same_losses(const struct trial *a, const struct trial *b)
{
    bool same = a->n_steps == b->n_steps;
    for (int i = 0; same && i < a->n_steps && i < TRIAL_MOST_STEPS; i++)
        same = a->steps[i].loss == b->steps[i].loss;
    return same;
}

void expect_within(double a, double b, double share)
{
    if (!(fabs(a - b) <= share * fabs(b)))
        fail_msg("%.9g is not within %g of %.9g", a, share, b);
}

bool trial_has_file(const struct trial *t, const char *name)
{
    char path[2 * SCRATCH_PATH];
    (void)snprintf(path, sizeof(path), "%s/%s", t->folder, name);
    return file_exists(path);
}
