/* A plan is chosen by what its kernels take, also where nothing was known of them before: a first
 * choice by rates is made again once its kernels were timed. The device exists on paper. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/model_open.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "task/language.h"

static struct device device;
static struct device_ops ops;
static double kernel_s; /* what every kernel takes */
static int n_timed;

static enum status made_up_time(struct device *d, const struct timed_calls *t,
                                struct call_time *out)
{
    (void)d;
    (void)t;
    n_timed++;
    *out = (struct call_time){.seconds = kernel_s};
    return OK;
}

static int open_device(void **state)
{
    (void)state;
    expect_ok(device_open_cpu(&device, 2));
    const struct device_ops *cpu = device.ops;
    paper_device_make(&device);
    ops = *device.ops;
    ops.fill = cpu->fill;
    ops.time_calls = made_up_time;
    device.ops = &ops;
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    return 0;
}

struct planned {
    struct config *config;
    struct model *model;
    char *folder;
    struct task task;
    struct stage_request stage;
    struct settings settings;
    struct kernel_times *times;
};

static void open_planned(struct planned *p)
{
    const char *overrides[] = {"max_seq_length=512",
                               "model.max_position_embeddings=512",
                               "per_device_train_batch_size=16",
                               "bf16=true",
                               "device_memory=160MiB",
                               "host_memory=8GiB"};
    *p = (struct planned){0};
    expect_ok(config_load(&p->config, "configs/demo.yaml", overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(p->config, 1));
    expect_ok(open_model(p->config, NULL, &p->model, &p->folder));
    p->task = language_task(p->model);
    expect_ok(settings_from_config(&p->settings, p->config, &device));
    expect_ok(request_from_config(&p->stage, STAGE_TRAIN, p->config, &p->task));
    expect_ok(kernel_times_open(&p->times, &device, NULL));
}

static void close_planned(struct planned *p)
{
    kernel_times_free(p->times);
    model_free(p->model);
    mem_free(p->folder);
    config_free(p->config);
}

/* Seconds of a step of the plan that is chosen. */
static double plan_step(struct planned *p)
{
    struct engine e;
    engine_init(&e, &p->settings, p->task, &device);
    e.times = p->times;
    expect_ok(engine_plan(&e, &(struct engine_request){.stages = &p->stage, .n_stages = 1}));
    assert_true(e.forecast.fits);
    double seconds = e.forecast.step_s;
    e.times = NULL; /* not its own */
    engine_close(&e);
    return seconds;
}

static void a_choice_by_rates_is_made_again_when_they_were_wrong(void **state)
{
    (void)state;
    struct planned p;
    open_planned(&p);
    kernel_s = 1e-3; /* copies are free beside it, computing again is not */
    double first = plan_step(&p);
    assert_true(n_timed > 0);
    assert_true(first <= 1.01 * plan_step(&p));
    close_planned(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_by_rates_is_made_again_when_they_were_wrong),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
