/* What the driver reports for a process is its arena and the context constant; the constant is
 * measured once and kept. Skipped without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/file.h"
#include "base/machine.h"
#include "device/device.h"
#include "support/gpu.h"
#include "support/process.h"

static struct scratch scratch;

/* Its JSON object; the caller drops it. */
static json_t *run(const char *command, const char *setting, double *seconds)
{
    char out[SCRATCH_PATH], folder[SCRATCH_PATH + 16];
    const struct process_options o = {.variable = "XDG_CACHE_HOME", .setting = scratch.folder};
    struct process p;
    (void)snprintf(folder, sizeof(folder), "output_dir=%s", scratch_path(&scratch, "out", out));
    const char *const args[] = {command,       "configs/gpt2-124m.yaml",
                                "device=cuda", "per_device_train_batch_size=8",
                                "max_steps=6", "overwrite_output_dir=true",
                                setting,       folder,
                                "--json",      NULL};
    double start = now_s();
    process_run(&p, &scratch, &o, args);
    *seconds = now_s() - start;
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    process_release(&p);
    return j;
}

static void expect_prediction(const json_t *j, const char *setting)
{
    int64_t predicted = json_int_at(j, "predicted.device_bytes");
    int64_t measured = json_int_at(j, "measured.device_bytes");
    double error = (double)measured / (double)predicted - 1.0;
    print_message("%s: predicted %lld, measured %lld (%+.2f %%), context %lld\n", setting,
                  (long long)predicted, (long long)measured, 100.0 * error,
                  (long long)json_int_at(j, "breakdown.context"));
    assert_int_equal(json_int_at(j, "predicted.arena_bytes"),
                     json_int_at(j, "measured.arena_bytes"));
    if (!(fabs(error) < 0.02))
        fail_msg("%s: the process holds %lld bytes, predicted were %lld (%+.2f %%)", setting,
                 (long long)measured, (long long)predicted, 100.0 * error);
}

static void a_process_holds_its_arena_and_the_context_constant(void **state)
{
    (void)state;
    static const char *const settings[] = {"bf16=true", "bf16=false"};
    double seconds;
    int64_t context = 0;
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        json_t *j = run("train", settings[i], &seconds);
        expect_prediction(j, settings[i]);
        /* The second process reads what the first one kept. */
        if (context > 0)
            assert_int_equal(json_int_at(j, "breakdown.context"), context);
        char path[SCRATCH_PATH];
        if (file_exists(scratch_path(&scratch, "snug/devices", path)))
            context = json_int_at(j, "breakdown.context");
        json_decref(j);
    }
    if (context == 0)
        print_message("nothing was kept: somebody else uses the GPU\n");
}

static void a_second_plan_measures_nothing(void **state)
{
    (void)state;
    double cold, warm, best = 1e30;
    json_decref(run("plan", "bf16=true", &cold));
    for (int i = 0; i < 3; i++) {
        json_decref(run("plan", "bf16=true", &warm));
        best = fmin(best, warm);
    }
    print_message("plan: %.2f s cold, %.2f s warm\n", cold, best);
    assert_true(best < 3.0); /* most of it is the driver making a context */
}

/* Everything that is ever loaded was loaded when the context was measured. */
static void opening_again_holds_no_more(void **state)
{
    (void)state;
    struct device d;
    int64_t n_bytes[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(device_open_cuda(&d, 0), OK);
        n_bytes[i] = d.ops->context_bytes(&d);
        device_close(&d);
    }
    print_message("context %lld, %lld, %lld bytes\n", (long long)n_bytes[0], (long long)n_bytes[1],
                  (long long)n_bytes[2]);
    assert_true(n_bytes[0] > 0);
    assert_true(llabs(n_bytes[2] - n_bytes[0]) <= 32 << 20);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_process_holds_its_arena_and_the_context_constant),
        TEST(a_second_plan_measures_nothing),
        TEST(opening_again_holds_no_more),
    };
    if (device_count_cuda() == 0) {
        (void)fprintf(stderr, "skipped: no GPU\n");
        return GPU_SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
