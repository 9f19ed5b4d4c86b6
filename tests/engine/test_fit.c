/* A plan against what others leave of a memory: the message has need, free memory, holders and the
 * nearest change that would fit. The device is the CPU with a driver that is made up: as a GPU
 * whose memory is apart, or as the machine's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/model_open.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "task/language.h"

#define MIB ((int64_t)1 << 20)

/* ---- a device with a made-up driver ---------------------------------------------------------- */

static struct device device;
static struct device_ops ops;
static struct device_room driver_says;

static enum status made_up_room(struct device *d, struct device_room *out)
{
    (void)d;
    *out = driver_says;
    return OK;
}

static void set_free(int64_t n_bytes)
{
    driver_says = (struct device_room){.whose = "the GPU",
                                       .total_bytes = 100 * 1024 * MIB,
                                       .free_bytes = n_bytes,
                                       .sees_processes = true,
                                       .n_holders = 1,
                                       .holders = {{4711, 100 * 1024 * MIB - n_bytes, "python3"}}};
}

static bool is_loaded; /* code comes into memory with the first timing, and stays */

static int64_t made_up_context(struct device *d)
{
    (void)d;
    return 3 * MIB + (is_loaded ? MIB / 8 : 0);
}

static enum status loading_time_calls(struct device *d, const struct timed_calls *t,
                                      struct call_time *out)
{
    (void)d;
    (void)t;
    is_loaded = true;
    *out = (struct call_time){.seconds = 1e-6};
    return OK;
}

static int open_device(void **state)
{
    (void)state;
    expect_ok(device_open_cpu(&device, 2));
    ops = *device.ops;
    ops.room = made_up_room;
    ops.memory_is_apart = true;
    ops.context_bytes = made_up_context;
    device.ops = &ops;
    return 0;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static struct kernel_times *times; /* NULL: kernels are not timed */

struct planned {
    struct config *config;
    struct model *model;
    struct task task;
    char *folder;
    struct stage_request stage;
    struct engine engine;
};

static void plan(struct planned *p, const char *extra1, const char *extra2)
{
    const char *overrides[] = {"model_name_or_path=tests/golden/llama", "max_seq_length=32",
                               "per_device_train_batch_size=8", extra1 ? extra1 : "seed=1",
                               extra2 ? extra2 : "seed=1"};
    struct settings settings;
    *p = (struct planned){0};
    expect_ok(config_load(&p->config, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(p->config, 1));
    expect_ok(open_model(p->config, NULL, &p->model, &p->folder));
    p->task = language_task(p->model);
    expect_ok(settings_from_config(&settings, p->config, &device));
    expect_ok(request_from_config(&p->stage, STAGE_TRAIN, p->config, &p->task));
    engine_init(&p->engine, &settings, p->task, &device);
    p->engine.config = p->config;
    p->engine.times = times;
    times = NULL; /* it is the engine's */
    expect_ok(
        engine_plan(&p->engine, &(struct engine_request){.stages = &p->stage, .n_stages = 1}));
}

static void drop(struct planned *p)
{
    engine_close(&p->engine);
    model_free(p->model);
    mem_free(p->folder);
    config_free(p->config);
}

/* What a run needs with these settings. */
static int64_t needs(const char *extra)
{
    struct planned p;
    plan(&p, extra, NULL);
    int64_t n_bytes = p.engine.forecast.budget.needs[TIER_DEVICE];
    drop(&p);
    return n_bytes;
}

static void expect_words(int64_t need)
{
    char bytes[64];
    (void)snprintf(bytes, sizeof(bytes), "(%lld bytes), ", (long long)need);
    expect_message("does not fit: device memory needs");
    expect_message(bytes);
    expect_message("of the GPU's 100.00 GiB are free: process 4711 (python3) holds");
    expect_message("is what can be had");
}

static void too_little_free_memory_names_the_holder_and_the_change(void **state)
{
    (void)state;
    struct planned p;
    set_free(1024 * MIB);
    int64_t kept = needs(NULL);
    plan(&p, "device_memory=1GiB", NULL); /* for a GPU that nobody else uses */
    set_free(kept - 1);
    assert_int_equal(engine_require_room(&p.engine), ERR_FIT);
    expect_words(kept);
    expect_message("\n  device_memory=");
    drop(&p);
}

static void no_budget_means_what_is_free(void **state)
{
    (void)state;
    struct planned p;
    set_free(1024 * MIB);
    int64_t kept = needs(NULL);
    set_free(kept - 1);
    plan(&p, NULL, NULL);
    assert_true(p.engine.forecast.fits);
    assert_int_equal(p.engine.forecast.budget.n_bytes[TIER_DEVICE], kept - 1);
    assert_true(p.engine.forecast.budget.needs[TIER_DEVICE] < kept);
    drop(&p);
    set_free(3 * MIB + 1024); /* beside the context, room for next to nothing */
    plan(&p, NULL, NULL);
    assert_false(p.engine.forecast.fits);
    assert_int_equal(engine_require_fit(&p.engine), ERR_FIT);
    assert_true(p.engine.forecast.budget.needs[TIER_DEVICE] < kept); /* the least there is */
    expect_words(p.engine.forecast.budget.needs[TIER_DEVICE]);
    drop(&p);
    set_free(kept);
    plan(&p, NULL, NULL);
    assert_true(p.engine.forecast.fits);
    assert_int_equal(engine_require_fit(&p.engine), OK);
    assert_int_equal(engine_require_room(&p.engine), OK);
    drop(&p);
}

static void a_budget_is_a_plan_and_free_memory_a_condition(void **state)
{
    (void)state;
    struct planned p;
    set_free(1024);
    plan(&p, "device_memory=1GiB", NULL);
    assert_int_equal(engine_require_fit(&p.engine), OK);
    assert_int_equal(engine_require_room(&p.engine), ERR_FIT);
    expect_message("end what holds the rest");
    drop(&p);
}

static void what_timing_loads_is_planned_with(void **state)
{
    (void)state;
    struct planned p;
    set_free(1024 * MIB);
    int64_t kept = needs(NULL);
    char budget[64];
    (void)snprintf(budget, sizeof(budget), "device_memory=%lldB", (long long)kept);
    ops.time_calls = loading_time_calls;
    expect_ok(kernel_times_open(&times, &device, NULL));
    plan(&p, budget, NULL);
    assert_true(is_loaded);
    assert_true(p.engine.forecast.fits);
    assert_int_equal(p.engine.forecast.context_bytes, 3 * MIB + MIB / 8);
    assert_in_range(p.engine.forecast.budget.needs[TIER_DEVICE], 3 * MIB, kept);
    assert_int_equal(engine_require_fit(&p.engine), OK);
    drop(&p);
    ops.time_calls = NULL;
    is_loaded = false;
}

/* ---- the machine's own memory ---------------------------------------------------------------- */

static int share_memory(void **state)
{
    (void)state;
    ops.memory_is_apart = false;
    return 0;
}

static int keep_memory_apart(void **state)
{
    (void)state;
    ops.memory_is_apart = true;
    return 0;
}

static void set_free_in_group(int64_t n_bytes)
{
    driver_says = (struct device_room){
        .whose = "cgroup /jobs", .total_bytes = 512 * MIB, .free_bytes = n_bytes};
}

/* Bytes of the whole process: arena and all else. */
static int64_t process_needs(void)
{
    struct planned p;
    set_free_in_group(1024 * MIB);
    plan(&p, NULL, NULL);
    int64_t n_bytes =
        p.engine.forecast.budget.needs[TIER_DEVICE] + p.engine.forecast.budget.needs[TIER_HOST];
    drop(&p);
    return n_bytes;
}

static void arena_and_process_share_what_is_free(void **state)
{
    (void)state;
    struct planned p;
    int64_t all = process_needs();
    set_free_in_group(all - MIB / 4);
    plan(&p, NULL, NULL);
    assert_false(p.engine.forecast.fits);
    assert_int_equal(engine_require_fit(&p.engine), ERR_FIT);
    expect_message("does not fit: device memory needs");
    expect_message("of cgroup /jobs's 512.00 MiB are free");
    expect_message("go to what the process holds beside the arena");
    drop(&p);
    set_free_in_group(all + 64 * MIB);
    plan(&p, NULL, NULL);
    assert_true(p.engine.forecast.fits);
    assert_int_equal(engine_require_fit(&p.engine), OK);
    assert_int_equal(engine_require_room(&p.engine), OK);
    drop(&p);
}

static void host_memory_bounds_the_process_beside_its_arena(void **state)
{
    (void)state;
    struct planned p;
    set_free_in_group(1024 * MIB);
    plan(&p, "host_memory=1MiB", NULL);
    assert_int_equal(p.engine.forecast.binding, TIER_HOST);
    assert_int_equal(engine_require_fit(&p.engine), ERR_FIT);
    expect_message("does not fit: host memory needs");
    expect_message("the budget is 1.00 MiB (1048576 bytes)");
    expect_message("raise host_memory");
    drop(&p);
}

static void a_plan_for_another_machine_does_not_run_on_this_one(void **state)
{
    (void)state;
    struct planned p;
    set_free_in_group(MIB);
    plan(&p, "device_memory=1GiB", "host_memory=1GiB");
    assert_int_equal(engine_require_fit(&p.engine), OK);
    assert_int_equal(engine_require_room(&p.engine), ERR_FIT);
    expect_message("raise the limit of cgroup /jobs");
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_little_free_memory_names_the_holder_and_the_change),
        cmocka_unit_test(no_budget_means_what_is_free),
        cmocka_unit_test(a_budget_is_a_plan_and_free_memory_a_condition),
        cmocka_unit_test(what_timing_loads_is_planned_with),
        cmocka_unit_test_setup_teardown(arena_and_process_share_what_is_free, share_memory,
                                        keep_memory_apart),
        cmocka_unit_test_setup_teardown(host_memory_bounds_the_process_beside_its_arena,
                                        share_memory, keep_memory_apart),
        cmocka_unit_test_setup_teardown(a_plan_for_another_machine_does_not_run_on_this_one,
                                        share_memory, keep_memory_apart),
    };
    log_set_level(LOG_WARN);
    return cmocka_run_group_tests(tests, open_device, NULL);
}
