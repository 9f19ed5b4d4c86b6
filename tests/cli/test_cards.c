/* `snug plan` for GPUs that are not here, on any machine and without a driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/sanitizer.h"
#include "support/process.h"

static struct scratch scratch;

static json_t *plan_json(const char *config, const char *gpu, const char *setting)
{
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, "--gpu", gpu, setting, "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    process_release(&p);
    return j;
}

static void a_gpu_that_is_not_here_is_planned_for(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-124m.yaml", "--gpu", "rtx4090", "bf16=true");
    expect_exit(&p, 0);
    expect_stderr(&p, "GeForce RTX 4090");
    expect_stderr(&p, "compute capability 8.9");
    expect_stderr(&p, "(estimated for GeForce RTX 4090");
    expect_stderr(&p, "host memory is");
    process_release(&p);
}

/* To the byte what an H200 with its libraries planned: where all is settled that goes by times. */
static void the_arena_is_that_of_the_gpu(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-124m.yaml", "--gpu", "h200", "bf16=true",
                "gradient_checkpointing=false", "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    process_release(&p);
    assert_int_equal(json_int_at(j, "predicted.arena_bytes"), 2891965952);
    assert_string_equal(json_text_at(j, "predicted.step_ms_source"), "an estimate");
    json_decref(j);
}

/* Weights, states and gradients of 8.5 billion parameters are 47.8 GiB; the gradients need not be.
 */
static void wide_layers_fit_without_their_gradients_and_nothing_leaves(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/wide_autoencoder.yaml", "--gpu", "h200",
                "device_memory=33GiB", "host_memory=16GiB", "per_device_train_batch_size=5");
    expect_exit(&p, 0);
    expect_stderr(&p, "to fit the budgets: large gradients made in slices, never whole\n");
    process_release(&p);
}

static int64_t gradient_bytes_in(const char *budget)
{
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/wide_autoencoder.yaml", "--gpu", "h200", budget,
                "host_memory=16GiB", "per_device_train_batch_size=5", "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    int64_t n_bytes = json_int_at(j, "breakdown.gradients");
    json_decref(j);
    process_release(&p);
    return n_bytes;
}

static void slices_of_gradients_are_as_large_as_fits(void **state)
{
    (void)state;
    int64_t tight = gradient_bytes_in("device_memory=32.4GiB");
    int64_t wide = gradient_bytes_in("device_memory=33GiB");
    assert_in_range(tight, (int64_t)64 << 20, (int64_t)150 << 20);
    assert_in_range(wide, 3 * tight, (int64_t)600 << 20);
}

static void a_faster_gpu_takes_less_time(void **state)
{
    (void)state;
    json_t *slow = plan_json("configs/gpt2-124m.yaml", "l4", "bf16=true");
    json_t *fast = plan_json("configs/gpt2-124m.yaml", "h200", "bf16=true");
    assert_true(json_number_at(fast, "predicted.tokens_per_s") >
                3 * json_number_at(slow, "predicted.tokens_per_s"));
    json_decref(slow);
    json_decref(fast);
}

static void bf16_is_planned_as_fp16_where_there_is_none_and_said(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-124m.yaml", "--gpu", "t4", "bf16=true",
                "gradient_dtype=bf16");
    expect_exit(&p, 0);
    expect_stderr(&p, "f16 with f32 masters and loss scaling");
    expect_stderr(&p, "bf16 is planned as fp16 with loss scaling: Tesla T4");
    process_release(&p);
}

static void a_gpu_has_no_more_than_it_has(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-1558m.yaml", "--gpu", "rtx3060",
                "device_memory=16GiB", "host_memory=64GiB", "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "device_memory is more than the GeForce RTX 3060 has");
    json_t *j = expect_json(&p);
    int64_t needs = json_int_at(j, "predicted.device_bytes");
    assert_in_range(needs, (int64_t)11 << 30, (int64_t)11900 << 20);
    json_decref(j);
    process_release(&p);

    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-1558m.yaml", "--gpu", "rtx3060",
                "host_memory=64GiB", "--sweep", "device_memory=11GiB..16GiB/2");
    expect_exit(&p, 0);
    expect_stderr(&p, "it has 11.62 GiB: larger budgets are planned for that");
    process_release(&p);

    PROCESS_RUN(&p, &scratch, "plan", "configs/wide_autoencoder.yaml", "--gpu", "rtx3060",
                "device_memory=33GiB");
    expect_exit(&p, 3);
    expect_stderr(&p, "but only 11.62 GiB");
    expect_stderr(&p, "take a GPU that has more, or choose a smaller model");
    process_release(&p);
}

static void an_unknown_gpu_is_an_error_that_lists_them(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-124m.yaml", "--gpu", "rtx9000");
    expect_exit(&p, 2);
    expect_stderr(&p, "'rtx9000'");
    expect_stderr(&p, "a100-80");
    process_release(&p);
}

static void what_does_not_fit_a_gpu_is_refused_with_a_change_that_does(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-1558m.yaml", "--gpu", "rtx3060",
                "model.n_layer=4", "model.n_embd=4096", "model.n_head=32", "model.n_inner=16384",
                "offload_optimizer=false", "offload_param=false", "host_memory=16GiB");
    expect_exit(&p, 3);
    expect_stderr(&p, "the GeForce RTX 3060's");
    process_release(&p);
}

/* What a refusal says of the device; 0: it fits. */
static long long refused_needs(const char *device_memory, const char *disk)
{
    struct process p;
    char folder[SCRATCH_PATH + 32];
    long long n_bytes = 0;
    (void)snprintf(folder, sizeof(folder), "offload_folder=%s", scratch.folder);
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-124m.yaml", "--gpu", "rtx4090", "bf16=true",
                "model.vocab_size=512", "host_memory=200MiB", device_memory, folder, disk);
    const char *at = strstr(p.err, "device memory needs ");
    expect_exit(&p, at ? 3 : 0);
    if (at)
        assert_int_equal(sscanf(at, "device memory needs %*s %*s (%lld bytes)", &n_bytes), 1);
    process_release(&p);
    return n_bytes;
}

static void a_disk_with_room_for_a_part_lessens_what_is_needed(void **state)
{
    (void)state;
    char budget[64];
    if (SNUG_ASAN)
        skip(); /* the search for what is needed is search/test_least's */
    long long without = refused_needs("device_memory=400MiB", "disk_memory=1MiB");
    long long needs = refused_needs("device_memory=400MiB", "disk_memory=500MiB");
    assert_in_range(needs, 1, without - without / 8);
    (void)snprintf(budget, sizeof(budget), "device_memory=%lld", needs);
    assert_int_equal(refused_needs(budget, "disk_memory=500MiB"), 0);
}

static void every_gpu_has_a_line_with_the_plan_that_would_run_there(void **state)
{
    (void)state;
    char config[SCRATCH_PATH];
    struct process p;
    write_tiny_config(&scratch, "all.yaml", "", config);
    PROCESS_RUN(&p, &scratch, "plan", config, "--gpu", "all", "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "rtx4090");
    expect_stderr(&p, "all on the device");
    json_t *j = expect_json(&p);
    const json_t *rows = json_at(j, "gpus");
    assert_true(json_array_size(rows) >= 28);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        assert_true(json_bool_at(row, "fits"));
        assert_true(json_number_at(row, "tokens_per_s") > 0);
        assert_true(json_int_at(row, "device_bytes") < json_int_at(row, "device_memory"));
    }
    json_decref(j);
    process_release(&p);
}

static void what_fits_no_gpu_says_what_each_lacks(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-350m.yaml", "--gpu", "all", "model.n_layer=2",
                "device_memory=100MiB", "offload_param=false", "offload_optimizer=false");
    expect_exit(&p, 3);
    expect_stderr(&p, "does not fit, lacks");
    expect_stderr(&p, "of device memory");
    process_release(&p);
}

/* More memory never makes a plan slower. */
static void a_sweep_is_a_curve_that_grows(void **state)
{
    (void)state;
    char svg[SCRATCH_PATH], *text;
    size_t n_bytes;
    double before = 0;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-124m.yaml", "--gpu", "rtx3060", "bf16=true",
                "model.n_layer=2", "--sweep", "device_memory=600MiB..2GiB/4", "--svg",
                scratch_path(&scratch, "sweep.svg", svg), "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    const json_t *plans = json_at(j, "plans");
    assert_int_equal(json_array_size(plans), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *plan = json_array_get(plans, i);
        double rate = json_bool_at(plan, "fits") ? json_number_at(plan, "tokens_per_s") : 0;
        assert_true(rate >= 0.99 * before);
        before = rate;
    }
    assert_true(before > 0);
    assert_int_equal(file_read(svg, &text, &n_bytes), OK);
    assert_non_null(strstr(text, "<svg"));
    assert_non_null(strstr(text, "all on the device"));
    assert_non_null(strstr(text, "</svg>"));
    mem_free(text);
    json_decref(j);
    process_release(&p);
}

/* It is drawn and told all the same, and says where to ask for what would fit. */
static void a_sweep_in_which_nothing_fits_is_3(void **state)
{
    struct process p;
    char svg[SCRATCH_PATH];
    (void)state;
    PROCESS_RUN(&p, &scratch, "plan", "configs/demo.yaml", "--gpu", "t4", "--sweep",
                "device_memory=1MiB..4MiB/2", "--svg", scratch_path(&scratch, "none.svg", svg),
                "--json");
    expect_exit(&p, 3);
    expect_stderr(&p, "snug plan with device_memory=4MiB names settings");
    expect_stderr(&p, "host_memory=64GiB plans for another");
    json_t *j = expect_json(&p);
    assert_int_equal(json_array_size(json_at(j, "plans")), 2);
    json_decref(j);
    process_release(&p);
    assert_true(file_exists(svg));
}

/* The ends are those that were asked for, in whatever unit. */
static void a_sweep_goes_from_end_to_end(void **state)
{
    (void)state;
    static const struct {
        const char *range;
        int64_t budgets[3];
    } cases[] = {{"device_memory=100KiB..2.5MiB/3", {100 << 10, 1361920, 2621440}},
                 {"device_memory=1.5GiB..4000000001B/3", {1610612736, 2804940800, 4000000001}},
                 {"device_memory=1000000B..1000003B/3", {1000000, 1000001, 1000003}}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct process p;
        PROCESS_RUN(&p, &scratch, "plan", "configs/mlp.yaml", "--json", "--sweep", cases[i].range);
        expect_exit(&p, 0);
        json_t *root = expect_json(&p);
        const json_t *plans = json_object_get(root, "plans");
        assert_int_equal(json_array_size(plans), 3);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(json_int_at(json_array_get(plans, k), "device_memory"),
                             cases[i].budgets[k]);
        json_decref(root);
        process_release(&p);
    }
}

static void ranges_that_are_none_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *range, *reason;
    } cases[] = {{"4GiB..24GiB", "must be a range"},
                 {"device_memory=4GiB", "must be a range"},
                 {"device_memory=24GiB..4GiB", "must grow"},
                 {"learning_rate=1..2", "device_memory or host_memory"},
                 {"device_memory=4GiB..24GiB/1", "2 to 101"},
                 {"device_memory=4GiB..24GiB/x", "must be a range"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct process p;
        PROCESS_RUN(&p, &scratch, "plan", "configs/demo.yaml", "--sweep", cases[i].range);
        expect_exit(&p, 2);
        expect_stderr(&p, cases[i].reason);
        process_release(&p);
    }
}

static void measured_rates_are_kept_and_shown_with_their_age(void **state)
{
    (void)state;
    const struct process_options o = {.variable = "XDG_CACHE_HOME", .setting = scratch.folder};
    struct process p;
    process_run(&p, &scratch, &o, (const char *const[]){"env", NULL});
    expect_exit(&p, 0);
    assert_non_null(strstr(p.out, "nothing yet (snug env --measure)"));
    process_release(&p);
    process_run(&p, &scratch, &o, (const char *const[]){"env", "--measure", NULL});
    expect_exit(&p, 0);
    assert_non_null(strstr(p.out, "product 1024 x 1024 x 1024, f32"));
    assert_non_null(strstr(p.out, "disk, read"));
    process_release(&p);
    process_run(&p, &scratch, &o, (const char *const[]){"env", "--json", NULL});
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    const json_t *first = json_array_get(json_at(j, "measured"), 0);
    assert_true(json_array_size(json_at(first, "rates")) >= 10);
    json_decref(j);
    process_release(&p);
}

static int open_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_that_is_not_here_is_planned_for),
        cmocka_unit_test(the_arena_is_that_of_the_gpu),
        cmocka_unit_test(wide_layers_fit_without_their_gradients_and_nothing_leaves),
        cmocka_unit_test(slices_of_gradients_are_as_large_as_fits),
        cmocka_unit_test(a_faster_gpu_takes_less_time),
        cmocka_unit_test(bf16_is_planned_as_fp16_where_there_is_none_and_said),
        cmocka_unit_test(a_gpu_has_no_more_than_it_has),
        cmocka_unit_test(an_unknown_gpu_is_an_error_that_lists_them),
        cmocka_unit_test(what_does_not_fit_a_gpu_is_refused_with_a_change_that_does),
        cmocka_unit_test(a_disk_with_room_for_a_part_lessens_what_is_needed),
        cmocka_unit_test(every_gpu_has_a_line_with_the_plan_that_would_run_there),
        cmocka_unit_test(what_fits_no_gpu_says_what_each_lacks),
        cmocka_unit_test(a_sweep_is_a_curve_that_grows),
        cmocka_unit_test(a_sweep_in_which_nothing_fits_is_3),
        cmocka_unit_test(a_sweep_goes_from_end_to_end),
        cmocka_unit_test(ranges_that_are_none_are_refused),
        cmocka_unit_test(measured_rates_are_kept_and_shown_with_their_age),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
