/* The largest and smallest numbers a config can hold: taken as they are, or refused; never cut off.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "io/config_internal.h"
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
        if (!is_number(key))
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_number_of_any_key_ends_badly),
        TEST(a_run_that_is_too_long_to_count_is_refused),
        TEST(numbers_that_32_bits_cannot_hold_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
