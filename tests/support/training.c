#include "support/training.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/rng.h"
#include "plan/group.h"
#include "support/golden.h"
#include "task/language.h"

/* One for the whole test program: opening it measures the machine, which takes a while. */
static struct device shared_device(void)
{
    static struct device device;
    if (!device.ops)
        expect_ok(device_open_cpu(&device, 2));
    return device;
}

static void read_model(struct training *t)
{
    json_t *config;
    if (t->options.config) {
        expect_ok(json_read_text(&config, t->options.config, strlen(t->options.config), "config",
                                 ERR_DATA));
    } else {
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/tests/golden/%s/config.json", SNUG_SOURCE_DIR,
                       t->options.golden);
        expect_ok(json_read_file(&config, path, ERR_DATA));
    }
    expect_ok(model_new(&t->model, config, &(struct key_origin){.where = "config"}));
    json_decref(config);
}

/* AdamW as the golden models are trained with it. */
static struct settings settings_of(const struct training_options *o)
{
    struct settings s = {
        .numerics = {.precision = o->precision ? *o->precision
                                  : o->bf16    ? precision_bf16()
                                               : precision_f32(),
                     .optimizer = {.kind = OPTIMIZER_ADAMW,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .epsilon = 1e-8,
                                   .weight_decay = 0.1,
                                   .max_grad_norm = o->max_grad_norm,
                                   .seed = o->seed,
                                   .scaling = o->scaling}},
        .decisions = {.group = o->group},
        .limits = {.n_bytes = {LIMIT_OPEN, LIMIT_OPEN, LIMIT_OPEN}},
        .seed = 7,
    };
    if (o->optimizer)
        s.numerics.optimizer = *o->optimizer;
    return s;
}

void training_init(struct training *t, const struct training_options *o)
{
    struct settings settings = settings_of(o);
    *t = (struct training){.options = *o};
    t->options.n_micro = MAX(o->n_micro, (int64_t)1);
    t->device = o->device ? *o->device : shared_device();
    read_model(t);
    t->request = (struct stage_request){.purpose = STAGE_TRAIN,
                                        .batch = o->batch,
                                        .seq_len = o->seq_len,
                                        .n_micro = t->options.n_micro};
    engine_init(&t->engine, &settings, language_task(t->model), &t->device);
    expect_ok(
        engine_build(&t->engine, &(struct engine_request){.stages = &t->request, .n_stages = 1}));
    t->stage = engine_stage(&t->engine, STAGE_TRAIN);
    expect_ok(graph_check(t->stage->graph));
    expect_ok(workload_decide(&t->engine.work, &settings.decisions));
}

void training_go_away(struct training *t)
{
    static const enum role roles[] = {ROLE_PARAMETER, ROLE_MASTER, ROLE_STATE, ROLE_GRADIENT};
    struct plan *plan = &t->stage->plan;
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        plan_set_home(plan, t->stage->graph, roles[i], TIER_HOST);
    for (value_id v = 0; (size_t)v < t->stage->graph->values.n; v++) {
        if (graph_value(t->stage->graph, v)->role == ROLE_GRADIENT &&
            plan_allows(plan, t->stage->graph, v, MOVE))
            plan_move(plan, v, TIER_HOST);
    }
}

void training_emit(struct training *t)
{
    expect_ok(workload_emit(&t->engine.work));
}

void *training_storage(const struct training *t, const char *name)
{
    const struct storage_entry *e = storage_find(&t->engine.work.storage, name);
    assert_non_null(e);
    return executor_storage_pointer(t->engine.executor, e);
}

void training_start(struct training *t)
{
    expect_ok(engine_start(&t->engine, NULL));
}

void training_stop(struct training *t)
{
    executor_free(t->engine.executor);
    t->pending = 0;
    t->engine.executor = NULL;
}

static void *input(const struct training *t, const char *name)
{
    return engine_input(&t->engine, t->stage, name);
}

/* What micro-batch m of a group has in its place. */
static void *input_of(const struct training *t, const char *name, int m)
{
    char own[GROUP_NAME];
    return input(t, group_input_name(own, name, m));
}

static void fill_batch(struct training *t, int step, int64_t i_micro, int m)
{
    int64_t n = t->options.batch * t->options.seq_len;
    if (t->options.one_batch)
        step = 0;
    struct rng rng = {.key = 11, .stream = (uint64_t)(step * t->options.n_micro + i_micro)};
    int32_t *tokens = input_of(t, "tokens", m), *targets = input_of(t, "targets", m);
    uint64_t vocab = (uint64_t)t->model->language.vocab_size;
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)rng_below(&rng, vocab);
    for (int64_t i = 0; i < n; i++)
        targets[i] = (int32_t)rng_below(&rng, vocab);
    int64_t *random = input_of(t, "rng", m);
    if (random) {
        random[0] = 5;
        random[1] = step * t->options.n_micro + i_micro;
    }
}

/* With loss scaling the program counts by itself. */
static void set_number(struct training *t, int number)
{
    int32_t *x = input(t, "step");
    if (x)
        *x = number;
}

void training_finish(struct training *t)
{
    if (t->pending) {
        set_number(t, t->pending);
        expect_ok(engine_run(&t->engine, t->stage, "finish"));
    }
    t->pending = 0;
}

static void run_section(struct training *t, const char *name)
{
    expect_ok(engine_run(&t->engine, t->stage, name));
}

/* What is left over comes first, one at a time. */
static void run_micro_steps(struct training *t, int step)
{
    int64_t n = t->options.n_micro, group = t->options.alone ? 1 : t->stage->group;
    bool whole = group > 1 && n == group;
    if (!whole)
        run_section(t, "begin");
    for (int64_t i = 0, size; i < n; i += size) {
        size = i < n % group ? 1 : group;
        for (int m = 0; m < size; m++)
            fill_batch(t, step, i + m, m);
        bool last = i + size == n && !t->options.alone;
        run_section(t, whole ? "step" : last ? "last" : size > 1 ? "group" : "micro");
    }
    if (t->options.alone)
        run_section(t, "update");
}

void training_step(struct training *t, int step)
{
    int64_t n_tokens = t->options.batch * t->options.seq_len * t->options.n_micro;
    for (int m = 0; m < t->stage->group; m++)
        *(float *)input_of(t, "loss_seed", m) = 1.0f / (float)n_tokens;
    *(float *)input(t, "lr") = t->options.lr > 0 ? (float)t->options.lr : 3e-3f;
    if (t->options.n_micro == 1) {
        bool deferred = t->stage->plan.defer_updates;
        fill_batch(t, step, 0, 0);
        set_number(t, t->pending ? t->pending : step + 1);
        expect_ok(engine_run(&t->engine, t->stage, deferred && !t->pending ? "first" : "step"));
        t->pending = deferred ? step + 1 : 0;
        return;
    }
    set_number(t, step + 1);
    run_micro_steps(t, step);
}

float training_output(const struct training *t, const char *name)
{
    return *(const float *)engine_output(&t->engine, t->stage, name);
}

void training_expect_prediction(const struct training *t)
{
    for (int k = 0; k < TIER_COUNT; k++)
        assert_int_equal(executor_high_water(t->engine.executor, (enum tier)k),
                         t->engine.work.n_bytes[k]);
}

uint64_t training_digest(struct training *t)
{
    training_finish(t);
    uint64_t sum = 0; /* of the entries: homes differ, and with them the order */
    for (size_t i = 0; i < t->engine.work.storage.entries.n; i++) {
        const struct storage_entry *e = &t->engine.work.storage.entries.items[i];
        void *here = executor_storage_pointer(t->engine.executor, e), *read = NULL;
        if (e->kind == MEMORY_STAGING) /* on the way to and from files */
            continue;
        if (!here) {
            expect_ok(mem_try_array(&read, (size_t)e->n_bytes + 1, 1));
            expect_ok(executor_read_storage(t->engine.executor, e, read));
        }
        sum += XXH64(here ? here : read, (size_t)e->n_bytes, hash_text(e->name));
        mem_free(read);
    }
    return sum;
}

void training_release(struct training *t)
{
    engine_close(&t->engine);
    model_free(t->model);
}
