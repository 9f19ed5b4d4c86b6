/* A plan is chosen by what its kernels take, also where nothing was known of them before: they are
 * timed before the choice, or where that may not take long the choice is made again when those of
 * the first one were. The device exists on paper. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/sanitizer.h"
#include "engine/engine.h"
#include "engine/model_open.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "task/language.h"

static struct device device;
static struct device_ops ops;
static const struct device_ops *cpu;
static double kernel_s; /* what every kernel takes */
static int n_timed;
static const struct engine *planning;
static bool had_chosen;       /* when a kernel was timed for the first time */
static int64_t largest_bytes; /* that were allocated */
static int n_calls;           /* of the plan's kernels */

static enum status made_up_time(struct device *d, const struct timed_calls *t,
                                struct call_time *out)
{
    const struct op_call *c = &t->calls[0];
    (void)d;
    if (c->op == OP_linear) /* operands have places of their own */
        assert_true(c->in[0].data != c->in[1].data && c->in[0].data != c->out[0].data);
    if (n_timed++ == 0)
        had_chosen = planning->report.n_findings > 0;
    *out = (struct call_time){.seconds = kernel_s};
    return OK;
}

static enum status note_bytes(struct device *d, enum tier t, int64_t n_bytes, void **out)
{
    largest_bytes = MAX(largest_bytes, n_bytes);
    return cpu->memory_alloc(d, t, n_bytes, out);
}

static int open_device(void **state)
{
    (void)state;
    expect_ok(device_open_cpu(&device, 2));
    cpu = device.ops;
    paper_device_make(&device);
    ops = *device.ops;
    ops.fill = cpu->fill;
    ops.memory_alloc = note_bytes;
    ops.time_calls = made_up_time;
    device.cache_bytes = (int64_t)1 << 30; /* copies of a call take all there is */
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
    planning = &e;
    expect_ok(engine_plan(&e, &(struct engine_request){.stages = &p->stage, .n_stages = 1}));
    assert_true(e.forecast.fits);
    double seconds = e.forecast.step_s;
    n_calls = e.forecast.n_calls;
    e.times = NULL; /* not its own */
    engine_close(&e);
    return seconds;
}

/* Computing again is not free where every kernel takes so long, and copies are beside it. */
static void expect_the_best_choice(double total_s, bool after_one)
{
    struct planned p;
    device.limits.total_s = total_s;
    n_timed = 0;
    largest_bytes = 0;
    open_planned(&p);
    kernel_s = 1e-3;
    double first = plan_step(&p);
    assert_true(n_timed > 0);
    assert_int_equal(had_chosen, after_one);
    assert_in_range(largest_bytes, 1, p.settings.limits.n_bytes[TIER_DEVICE]);
    assert_true(first <= 1.01 * plan_step(&p));
    close_planned(&p);
}

static void kernels_are_timed_before_a_choice(void **state)
{
    (void)state;
    expect_the_best_choice(0, false);
}

static void a_choice_by_rates_is_made_again_when_they_were_wrong(void **state)
{
    (void)state;
    if (SNUG_ASAN) /* the same searches as above */
        skip();
    expect_the_best_choice(1000, true);
}

static void nothing_else_is_timed_where_there_is_no_choice(void **state)
{
    (void)state;
    struct planned p;
    device.limits.total_s = 0;
    n_timed = 0;
    open_planned(&p);
    p.settings.limits.n_bytes[TIER_DEVICE] = (int64_t)64 << 30;
    (void)plan_step(&p);
    assert_int_equal(n_timed, n_calls);
    close_planned(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_timed_before_a_choice),
        cmocka_unit_test(a_choice_by_rates_is_made_again_when_they_were_wrong),
        cmocka_unit_test(nothing_else_is_timed_where_there_is_no_choice),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
