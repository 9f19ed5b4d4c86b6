/* One engine under training, evaluation and generation: the same budgets, the same weights, arenas
 * as predicted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/model_open.h"
#include "support/apart_device.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/training.h"
#include "task/language.h"

enum { LENGTH = 16 };

static struct device device;

static int open_device(void **state)
{
    (void)state;
    expect_ok(device_open_cpu(&device, 1));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    return 0;
}

/* What each command asks an engine for. */
static const struct command {
    const char *name;
    struct stage_request stages[2];
    int n_stages;
} commands[] = {
    {"train", {{STAGE_TRAIN, 2, LENGTH, 1, 0, 0, false}}, 1},
    {"train and evaluate",
     {{STAGE_TRAIN, 2, LENGTH, 2, 0, 0, false}, {STAGE_EVAL, 5, LENGTH, 1, 0, 0, false}},
     2},
    {"evaluate", {{STAGE_EVAL, 3, LENGTH, 1, 0, 0, false}}, 1},
    {"generate",
     {{STAGE_PREFILL, 1, 4, 1, LENGTH, 0, false}, {STAGE_DECODE, 1, 1, 1, LENGTH, 0, false}},
     2},
    {"train and write",
     {{STAGE_TRAIN, 2, LENGTH, 1, 0, 0, false}, {STAGE_DECODE, 1, 1, 1, LENGTH, 0, true}},
     2},
};

struct opened {
    struct config *config;
    struct model *model;
    char *folder;
    struct engine engine;
};

static const struct reserve scratch_memory = {.name = "scratch", .n_bytes = 12345};

/* Everything stays on the device, and is computed once. */
#define HELD                                                                                  \
    "gradient_checkpointing=false", "activation_offloading=false", "offload_optimizer=false", \
        "offload_param=false"

static void plan_with(struct opened *x, const struct command *c, struct device *d,
                      const char *const *overrides, size_t n_overrides)
{
    struct settings typed;
    expect_ok(config_load(&x->config, NULL, overrides, n_overrides));
    expect_ok(config_resolve(x->config, 1));
    expect_ok(open_model(x->config, NULL, &x->model, &x->folder));
    expect_ok(settings_from_config(&typed, x->config, d));
    engine_init(&x->engine, &typed, language_task(x->model), d);
    x->engine.config = x->config;
    expect_ok(engine_plan(&x->engine, &(struct engine_request){.stages = c->stages,
                                                               .n_stages = c->n_stages,
                                                               .reserves = &scratch_memory,
                                                               .n_reserves = 1}));
}

static void plan(struct opened *x, const struct command *c, struct device *d, const char *setting)
{
    const char *overrides[] = {"model_name_or_path=tests/golden/qwen3", "max_seq_length=16",
                               "device=cpu", setting ? setting : "seed=1"};
    plan_with(x, c, d, overrides, ARRAY_LEN(overrides));
}

static void plan_held(struct opened *x, const struct command *c, const char *setting)
{
    const char *overrides[] = {"model_name_or_path=tests/golden/qwen3", "max_seq_length=16",
                               "device=cpu", HELD, setting};
    plan_with(x, c, &device, overrides, ARRAY_LEN(overrides));
}

static void drop(struct opened *x)
{
    engine_close(&x->engine);
    model_free(x->model);
    mem_free(x->folder);
    config_free(x->config);
}

/* ---- budgets --------------------------------------------------------------------------------- */

static void every_command_is_held_to_the_budget_of_each_tier(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        struct opened x;
        char setting[64], message[128];
        for (int t = TIER_DEVICE; t <= TIER_HOST; t++) {
            (void)snprintf(setting, sizeof(setting), "%s_memory=20KiB", tier_name((enum tier)t));
            plan(&x, &commands[i], &device, setting);
            print_message("%s with %s\n", commands[i].name, setting);
            assert_false(x.engine.forecast.fits);
            assert_int_equal(x.engine.forecast.binding, t);
            assert_int_equal(engine_require_fit(&x.engine), ERR_FIT);
            (void)snprintf(message, sizeof(message), "%s_memory", tier_name((enum tier)t));
            expect_message("does not fit");
            expect_message("the budget is 20.00 KiB (20480 bytes)");
            expect_message(message);
            drop(&x);
        }
        plan(&x, &commands[i], &device, NULL);
        assert_true(x.engine.forecast.fits);
        expect_ok(engine_require_fit(&x.engine));
        expect_ok(engine_require_room(&x.engine));
        drop(&x);
    }
}

static void a_budget_that_is_met_to_the_byte_fits(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        struct opened x;
        char setting[64];
        plan_held(&x, &commands[i], "seed=1");
        int64_t needs = x.engine.forecast.budget.needs[TIER_DEVICE];
        drop(&x);
        assert_true(needs > 0);
        for (int less = 0; less <= 1; less++) {
            (void)snprintf(setting, sizeof(setting), "device_memory=%lld",
                           (long long)(needs - less));
            plan_held(&x, &commands[i], setting);
            assert_int_equal(engine_require_fit(&x.engine), less ? ERR_FIT : OK);
            drop(&x);
            plan(&x, &commands[i], &device, setting); /* what is not held makes room */
            expect_ok(engine_require_fit(&x.engine));
            assert_true(x.engine.forecast.arena_bytes <= needs - less);
            drop(&x);
        }
    }
}

/* ---- memory and weights ---------------------------------------------------------------------- */

static void run_everything(struct engine *e)
{
    static const char *const sections[] = {"step", "begin", "micro", "last", "forward"};
    for (int i = 0; i < e->work.n_stages; i++) {
        const struct stage *s = &e->work.stages[i];
        for (size_t k = 0; k < ARRAY_LEN(sections); k++) {
            if (program_section(s->program, sections[k]))
                expect_ok(engine_run(e, s, sections[k]));
        }
    }
}

static void every_command_uses_the_memory_that_was_predicted(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        struct opened x;
        int64_t n_bytes;
        plan(&x, &commands[i], &device, NULL);
        expect_ok(engine_start(&x.engine, x.folder));
        assert_non_null(engine_reserve(&x.engine, "scratch", &n_bytes));
        assert_int_equal(n_bytes, scratch_memory.n_bytes);
        assert_null(engine_reserve(&x.engine, "nothing", &n_bytes));
        run_everything(&x.engine);
        for (int t = 0; t < TIER_COUNT; t++)
            assert_int_equal(executor_high_water(x.engine.executor, (enum tier)t),
                             x.engine.work.n_bytes[t]);
        drop(&x);
    }
}

/* Whatever format training keeps a parameter in, a program that writes reads it so. */
static void every_model_writes_beside_training(void **state)
{
    const struct command *c = &commands[ARRAY_LEN(commands) - 1];
    (void)state;
    for (const char *const *name = golden_names; *name; name++) {
        struct opened x;
        char folder[96];
        (void)snprintf(folder, sizeof(folder), "model_name_or_path=tests/golden/%s", *name);
        const char *overrides[] = {folder, "max_seq_length=16", "device=cpu", HELD, "bf16=true"};
        plan_with(&x, c, &device, overrides, ARRAY_LEN(overrides));
        assert_non_null(engine_stage(&x.engine, STAGE_DECODE));
        drop(&x);
    }
}

/* All parameters folded into a number, read as files are written. */
static uint64_t weights_digest(const struct engine *e)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < e->n_params; i++) {
        struct tensor t;
        expect_ok(stage_fetch(e->stage, &e->param_tensors[i], &t));
        const unsigned char *bytes = t.data;
        for (int64_t k = 0; k < tensor_bytes(&t); k++)
            h = (h ^ bytes[k]) * 1099511628211u;
    }
    return h;
}

static uint64_t weights_after_start(const struct command *c, struct device *d, bool from_folder)
{
    struct opened x;
    plan(&x, c, d, "bf16=false");
    expect_ok(engine_start(&x.engine, from_folder ? x.folder : NULL));
    uint64_t digest = weights_digest(&x.engine);
    drop(&x);
    return digest;
}

static void every_command_loads_the_same_weights(void **state)
{
    (void)state;
    uint64_t loaded = weights_after_start(&commands[0], &device, true);
    uint64_t drawn = weights_after_start(&commands[0], &device, false);
    assert_true(loaded != drawn);
    for (size_t i = 1; i < ARRAY_LEN(commands); i++) {
        assert_true(weights_after_start(&commands[i], &device, true) == loaded);
        assert_true(weights_after_start(&commands[i], &device, false) == drawn);
    }
}

/* As on a GPU: the host follows no address of the device. */
static void weights_reach_a_device_whose_memory_is_apart(void **state)
{
    struct device apart;
    (void)state;
    uint64_t loaded = weights_after_start(&commands[0], &device, true);
    expect_ok(device_open_cpu(&apart, 1));
    apart_device_make(&apart);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        assert_true(weights_after_start(&commands[i], &apart, true) == loaded);
    device_close(&apart);
}

/* Their home is the host: it reads them where they are. */
static void weights_at_home_on_the_host_are_the_same(void **state)
{
    struct device apart;
    struct training t;
    uint64_t digests[2];
    (void)state;
    expect_ok(device_open_cpu(&apart, 1));
    apart_device_make(&apart);
    for (int host = 0; host <= 1; host++) {
        training_init(
            &t, &(struct training_options){
                    .golden = "llama", .batch = 1, .seq_len = 8, .bf16 = true, .device = &apart});
        for (int role = 0; host && role < 3; role++)
            plan_set_home(&t.stage->plan, t.stage->graph,
                          (enum role[]){ROLE_PARAMETER, ROLE_STATE, ROLE_MASTER}[role], TIER_HOST);
        training_emit(&t);
        training_start(&t);
        digests[host] = weights_digest(&t.engine);
        training_release(&t);
    }
    assert_true(digests[0] == digests[1]);
    device_close(&apart);
}

/* ---- forecast -------------------------------------------------------------------------------- */

static void only_training_has_useful_flops_of_a_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        struct opened x;
        bool trains = commands[i].stages[0].purpose == STAGE_TRAIN;
        plan(&x, &commands[i], &device, NULL);
        assert_true(trains ? x.engine.forecast.step_flops > 1e3
                           : x.engine.forecast.step_flops == 0);
        drop(&x);
    }
}

/* As on a GPU: what the device holds is its arena and what its driver takes, and the process is
 * apart. */
static void memory_that_is_apart_is_counted_apart(void **state)
{
    struct device apart;
    (void)state;
    expect_ok(device_open_cpu(&apart, 1));
    apart_device_make(&apart);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        struct opened x;
        plan(&x, &commands[i], &apart, NULL);
        const struct forecast *f = &x.engine.forecast;
        assert_true(f->arena_bytes > 0);
        assert_int_equal(f->process_bytes, f->arena_bytes + f->context_bytes);
        assert_true(f->resident_bytes >= f->host_bytes + f->beside_bytes);
        drop(&x);
    }
    device_close(&apart);
}

/* ---- what is left ---------------------------------------------------------------------------- */

static void a_closed_engine_has_given_all_memory_back(void **state)
{
    const char *overrides[] = {"model_name_or_path=tests/golden/qwen3", "max_seq_length=16",
                               "device=cpu", "num_threads=1"};
    struct config *cfg;
    (void)state;
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    for (int time = 0; time < 2; time++) { /* what is made once for all engines is there by then */
        struct engine e;
        int64_t before = mem_live();
        expect_ok(engine_open(&e, cfg, &(struct engine_options){.untimed = true}));
        assert_true(mem_live() > before);
        engine_close(&e);
        if (time > 0)
            assert_int_equal(mem_live(), before);
    }
    config_free(cfg);
}

/* ---- timing ---------------------------------------------------------------------------------- */

static void no_kernel_is_timed_unless_a_forecast_wants_it(void **state)
{
    const char *overrides[] = {"model_name_or_path=tests/golden/qwen3", "max_seq_length=16",
                               "device=cpu", "num_threads=1"};
    struct config *cfg;
    (void)state;
    expect_ok(config_load(&cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(cfg, 1));
    for (int untimed = 0; untimed <= 1; untimed++) {
        struct engine e;
        expect_ok(engine_open(&e, cfg, &(struct engine_options){.untimed = untimed}));
        expect_ok(
            engine_plan(&e, &(struct engine_request){.stages = commands[0].stages, .n_stages = 1}));
        assert_true(e.forecast.n_calls > 0);
        assert_int_equal(e.forecast.n_by_rate == e.forecast.n_calls, untimed);
        engine_close(&e);
    }
    config_free(cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_is_held_to_the_budget_of_each_tier),
        cmocka_unit_test(a_budget_that_is_met_to_the_byte_fits),
        cmocka_unit_test(every_command_uses_the_memory_that_was_predicted),
        cmocka_unit_test(every_model_writes_beside_training),
        cmocka_unit_test(every_command_loads_the_same_weights),
        cmocka_unit_test(weights_reach_a_device_whose_memory_is_apart),
        cmocka_unit_test(only_training_has_useful_flops_of_a_step),
        cmocka_unit_test(memory_that_is_apart_is_counted_apart),
        cmocka_unit_test(weights_at_home_on_the_host_are_the_same),
        cmocka_unit_test(a_closed_engine_has_given_all_memory_back),
        cmocka_unit_test(no_kernel_is_timed_unless_a_forecast_wants_it),
    };
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, open_device, close_device);
}
