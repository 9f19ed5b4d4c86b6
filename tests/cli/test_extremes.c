/* The largest and smallest numbers a config can hold: taken as they are, or refused; never cut off.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "config/config_internal.h"
#include "support/process.h"

static char config[SCRATCH_PATH];
static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml",
                      "datasets:\n  - type: synthetic\n    n_tokens: 9000\nreport_to: none\n"
                      "device_memory: 64MiB\n",
                      config);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static bool is_number(const struct config_key *key)
{
    return key->type == TYPE_INT || key->type == TYPE_AUTO_INT || key->type == TYPE_FLOAT ||
           key->type == TYPE_BYTES || key->type == TYPE_DURATION;
}

/* A plan, a refusal of the config or one for want of memory, and the key named in a refusal. */
static void no_number_of_any_key_ends_badly(void **state)
{
    static const char *const values[] = {"9223372036854775807", "4294967297", "2147483648", "1e308",
                                         "1e-45"};
    (void)state;
    for (size_t i = 0; i < n_config_keys * ARRAY_LEN(values); i++) {
        const struct config_key *key = &config_keys[i / ARRAY_LEN(values)];
        const char *value = values[i % ARRAY_LEN(values)];
        char setting[128];
        struct process p;
        if (!is_number(key) || (SNUG_ASAN && i % 3 != 0)) /* 3 and 5: every value, of some keys */
            continue;
        (void)snprintf(setting, sizeof(setting), "%s=%s", key->name, value);
        PROCESS_RUN(&p, &scratch, "plan", config, "lr_scheduler_type=cosine", setting, "-q",
                    "--json");
        if (p.exit_code != 0 && p.exit_code != 2 && p.exit_code != 3)
            fail_msg("%s: exit code %d, signal %d: %s", setting, p.exit_code, p.signal, p.err);
        if (p.exit_code == 2)
            expect_stderr(&p, key->name);
        process_release(&p);
    }
}

static void expect_refused(const char *setting, const char *said)
{
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, setting, "--json");
    expect_exit(&p, 2);
    expect_stderr(&p, said);
    process_release(&p);
}

static void a_run_that_is_too_long_to_count_is_refused(void **state)
{
    (void)state;
    expect_refused("num_train_epochs=1e308", "num_train_epochs 1e+308 over ");
    expect_refused("num_train_epochs=1e9", "are the most: lower it, or set max_steps");
    expect_refused("max_steps=1000000001", "it must be at least -1 and at most 1000000000");
    expect_refused("warmup_steps=1e300", "it must be at least 0 and at most 1000000000");
}

static void numbers_that_32_bits_cannot_hold_are_refused(void **state)
{
    (void)state;
    expect_refused("learning_rate=1e39", "learning_rate: \"1e39\" is out of range");
    expect_refused("adam_epsilon=1e-50", "adam_epsilon: \"1e-50\" is out of range");
    expect_refused("max_grad_norm=1e300", "max_grad_norm");
}

static double children_s(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &u), 0);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Kernels are timed on some of the memory and for some of the time that a step would take. Time on
 * processors is counted, so that other programs do not show. */
static void plans_of_large_models_and_batches_answer_within_seconds(void **state)
{
    static const char *const cases[][2] = {
        {"configs/gpt2-1558m.yaml", "seed=1"},
        {"configs/llama-7b.yaml", "seed=1"},
        {"configs/demo.yaml", "per_device_train_batch_size=100000"},
        {"configs/demo.yaml", "gradient_accumulation_steps=1000000"},
        {"configs/demo.yaml", "model.num_hidden_layers=300"},
    };
    (void)state;
    if (SNUG_ASAN) /* sanitizers make their own time and memory */
        skip();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct process p;
        struct rusage u;
        double before = children_s();
        PROCESS_RUN(&p, &scratch, "plan", cases[i][0], cases[i][1], "device=cpu", "-q", "--json");
        if (p.exit_code != 3) /* it does not fit into this machine */
            expect_exit(&p, 0);
        double seconds = children_s() - before;
        assert_int_equal(getrusage(RUSAGE_CHILDREN, &u), 0);
        if (seconds > 20 || u.ru_maxrss > 700 << 10)
            fail_msg("%s %s: %.1f s on processors, %ld KiB", cases[i][0], cases[i][1], seconds,
                     u.ru_maxrss);
        process_release(&p);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_number_of_any_key_ends_badly),
        TEST(a_run_that_is_too_long_to_count_is_refused),
        TEST(numbers_that_32_bits_cannot_hold_are_refused),
        TEST(plans_of_large_models_and_batches_answer_within_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
