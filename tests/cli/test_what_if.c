/* snug plan --what-if: what binds a plan that fits, and what would make it faster. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/process.h"

static struct scratch scratch;
static char config[SCRATCH_PATH];

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml",
                      "report_to: none\n"
                      "max_steps: 1\n"
                      "datasets: [{type: synthetic}]\n",
                      config);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void without_need_nothing_is_of_use(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, "--what-if");
    expect_exit(&p, 0);
    expect_stderr(&p, "arithmetic binds: everything is kept on the device");
    process_release(&p);
}

static void under_a_budget_more_memory_is_planned(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, "model.hidden_size=256", "device_memory=6MiB",
                "--what-if");
    expect_exit(&p, 0);
    static const char *const parts[] = {"binds: ", "of a step computes something again",
                                        "waits for copies", "device_memory=1030MiB",
                                        "optim=adamw_8bit"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        expect_stderr(&p, parts[i]);
    assert_null(strstr(p.err, "without limit")); /* a GiB more is as good */
    process_release(&p);
}

static void all_memory_is_named_where_a_gib_more_is_not_as_good(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/gpt2-124m.yaml", "bf16=true", "model.n_layer=4",
                "per_device_train_batch_size=32", "device_memory=1800MiB", "--gpu", "h200",
                "--what-if");
    expect_exit(&p, 0);
    expect_stderr(&p, "device_memory=2824MiB: ");
    expect_stderr(&p, "device_memory without limit: ");
    process_release(&p);
}

static void a_plan_that_does_not_fit_gets_its_refusal(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, "device_memory=16KiB", "--what-if");
    expect_exit(&p, 3);
    assert_null(strstr(p.err, "what would change it"));
    process_release(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_need_nothing_is_of_use),
        TEST(under_a_budget_more_memory_is_planned),
        TEST(all_memory_is_named_where_a_gib_more_is_not_as_good),
        TEST(a_plan_that_does_not_fit_gets_its_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
