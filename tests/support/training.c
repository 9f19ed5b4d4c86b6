#include "support/training.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "base/half.h"
#include "base/json.h"
#include "base/rng.h"
#include "model/init.h"
#include "rewrite/rewrite.h"
#include "support/golden.h"

/* One for the whole test program: opening it measures the machine, which takes a while. */
static struct device shared_device(void)
{
    static struct device device;
    if (!device.ops)
        expect_ok(device_open_cpu(&device, 2));
    return device;
}

static void open_model(struct training *t)
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

static void build_model(struct training *t)
{
    struct builder b;
    struct model_request request = {.purpose = MODEL_TRAIN,
                                    .batch = t->options.batch,
                                    .seq_len = t->options.seq_len,
                                    .dtype = DTYPE_F32};
    expect_ok(graph_new(&t->graph, "train"));
    builder_init(&b, t->graph);
    expect_ok(model_build(t->model, &b, &request, &t->io));
}

static void build_gradients(struct training *t, struct optimizer_param *params)
{
    size_t n = (size_t)t->io.n_params;
    value_id *wanted, *grads, seed;
    expect_ok(mem_try_array(&wanted, n, sizeof(*wanted)));
    expect_ok(mem_try_array(&grads, n, sizeof(*grads)));
    for (size_t i = 0; i < n; i++)
        wanted[i] = t->io.params[i].value;
    expect_ok(graph_add_value(t->graph, "loss_seed", ROLE_INPUT, DTYPE_F32, shape_of(1, (int64_t)1),
                              NULL, &seed));
    expect_ok(optimizer_scale_seed(t->graph, &t->options.scaling, seed, &seed));
    expect_ok(autodiff(t->graph, t->io.loss_sum, seed, wanted, n, grads));
    for (size_t i = 0; i < n; i++)
        params[i] = (struct optimizer_param){t->io.params[i].name, wanted[i], grads[i],
                                             t->io.params[i].decay};
    t->io.loss_sum = adopted_value(t->graph, t->io.loss_sum);
    t->io.count = adopted_value(t->graph, t->io.count);
    expect_ok(adopt_forward(t->graph));
    mem_free(wanted);
    mem_free(grads);
}

void training_init(struct training *t, const struct training_options *o)
{
    struct optimizer_param *params;
    *t = (struct training){.options = *o, .handle = -1};
    t->options.n_micro = MAX(o->n_micro, (int64_t)1);
    t->precision = o->precision ? *o->precision : o->bf16 ? precision_bf16() : precision_f32();
    t->device = o->device ? *o->device : shared_device();
    open_model(t);
    build_model(t);
    expect_ok(rewrite_apply(t->graph, REWRITE_FORWARD));
    expect_ok(mem_try_array(&params, (size_t)t->io.n_params, sizeof(*params)));
    build_gradients(t, params);
    struct optimizer_options optimizer = {
        .kind = OPTIMIZER_ADAMW,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .epsilon = 1e-8,
        .weight_decay = 0.1,
        .max_grad_norm = o->max_grad_norm,
        .n_micro = t->options.n_micro,
        .nominal_count = (double)(o->batch * o->seq_len * t->options.n_micro),
        .precision = t->precision,
        .seed = o->seed,
        .scaling = o->scaling,
    };
    expect_ok(precision_apply(t->graph, &t->precision));
    expect_ok(optimizer_apply(t->graph, &optimizer, params, (size_t)t->io.n_params, t->io.loss_sum,
                              t->io.count));
    mem_free(params);
    expect_ok(rewrite_apply(t->graph, REWRITE_GRADIENT));
    if (t->options.n_micro == 1)
        expect_ok(schedule_updates_early(t->graph));
    expect_ok(graph_check(t->graph));
    expect_ok(plan_init(&t->plan, t->graph, t->options.n_micro));
    storage_init(&t->storage);
}

void training_emit(struct training *t)
{
    expect_ok(program_emit(&t->program, "train", t->graph, &t->plan, &t->device, &t->storage));
    expect_ok(program_place(t->program, &t->storage));
}

static void *storage_bytes(const struct training *t, const char *name)
{
    const struct storage_entry *e = storage_find(&t->storage, name);
    assert_non_null(e);
    return executor_storage_pointer(t->executor, e);
}

static void fill_param(struct training *t, const struct model_param *p)
{
    char master[256];
    void *to = storage_bytes(t, p->name);
    int64_t n = shape_elems(&p->shape);
    expect_ok(init_param(p, 7, graph_value(t->graph, p->value)->dtype, 0, n, to, NULL));
    (void)snprintf(master, sizeof(master), "master.%s", p->name);
    if (!t->precision.masters || !storage_find(&t->storage, master))
        return;
    float *m = storage_bytes(t, master);
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = ((const uint16_t *)to)[i];
        m[i] = t->precision.weights == DTYPE_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
}

void training_start(struct training *t)
{
    expect_ok(executor_new(&t->executor, &t->device, t->program->n_bytes));
    expect_ok(executor_load(t->executor, t->program, &t->storage, &t->handle));
    for (size_t v = 0; v < t->graph->values.n; v++) {
        const struct value *x = graph_value(t->graph, (value_id)v);
        const struct storage_entry *e = x->data ? storage_find(&t->storage, x->name) : NULL;
        if (e)
            expect_ok(executor_write_storage(t->executor, e, x->data));
    }
    for (int i = 0; i < t->io.n_params; i++)
        fill_param(t, &t->io.params[i]);
}

static void *input(const struct training *t, const char *name)
{
    return executor_input(t->executor, t->handle, name);
}

static void fill_batch(struct training *t, int step, int64_t i_micro)
{
    int64_t n = t->options.batch * t->options.seq_len;
    if (t->options.one_batch)
        step = 0;
    struct rng rng = {.key = 11, .stream = (uint64_t)(step * t->options.n_micro + i_micro)};
    int32_t *tokens = input(t, "tokens"), *targets = input(t, "targets");
    uint64_t vocab = (uint64_t)t->model->vocab_size;
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)rng_below(&rng, vocab);
    for (int64_t i = 0; i < n; i++)
        targets[i] = (int32_t)rng_below(&rng, vocab);
    int64_t *random = input(t, "rng");
    if (random) {
        random[0] = 5;
        random[1] = step * t->options.n_micro + i_micro;
    }
}

void training_step(struct training *t, int step)
{
    struct executor *x = t->executor;
    int64_t n_tokens = t->options.batch * t->options.seq_len * t->options.n_micro;
    *(float *)input(t, "loss_seed") = 1.0f / (float)n_tokens;
    *(float *)input(t, "lr") = t->options.lr > 0 ? (float)t->options.lr : 3e-3f;
    int32_t *number = input(t, "step"); /* with loss scaling the program counts by itself */
    if (number)
        *number = step + 1;
    if (t->options.n_micro == 1) {
        fill_batch(t, step, 0);
        expect_ok(executor_run(x, t->handle, "step"));
        return;
    }
    expect_ok(executor_run(x, t->handle, "begin"));
    for (int64_t i = 0; i < t->options.n_micro; i++) {
        fill_batch(t, step, i);
        expect_ok(executor_run(x, t->handle, "micro"));
    }
    expect_ok(executor_run(x, t->handle, "update"));
}

float training_output(const struct training *t, const char *name)
{
    return *(const float *)executor_output(t->executor, t->handle, name);
}

void training_expect_prediction(const struct training *t)
{
    for (int k = 0; k < TIER_COUNT; k++)
        assert_int_equal(executor_high_water(t->executor, (enum tier)k), t->program->n_bytes[k]);
}

uint64_t training_digest(const struct training *t)
{
    uint64_t sum = 0; /* of the entries: homes differ, and with them the order */
    for (size_t i = 0; i < t->storage.entries.n; i++) {
        const struct storage_entry *e = &t->storage.entries.items[i];
        const unsigned char *p = executor_storage_pointer(t->executor, e);
        uint64_t h = 1469598103934665603u;
        for (const char *c = e->name; *c; c++)
            h = (h ^ (unsigned char)*c) * 1099511628211u;
        for (int64_t k = 0; k < e->n_bytes; k++)
            h = (h ^ p[k]) * 1099511628211u;
        sum += h;
    }
    return sum;
}

void training_release(struct training *t)
{
    executor_free(t->executor);
    program_free(t->program);
    plan_release(&t->plan);
    storage_release(&t->storage);
    graph_free(t->graph);
    model_free(t->model);
}
