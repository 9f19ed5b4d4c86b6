/* snug budget: a run that is at work gets more memory or less, and says what came of it. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/process.h"

static char config[SCRATCH_PATH], out[SCRATCH_PATH];
static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml",
                      "datasets:\n  - type: synthetic\n    n_tokens: 9000\n"
                      "save_steps: 20\nsave_total_limit: 1\nreport_to: none\n",
                      config);
    scratch_path(&scratch, "out", out);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void start(struct process *p)
{
    char path[SCRATCH_PATH];
    process_start(p, &scratch, NULL,
                  (const char *const[]){"train", config, "max_steps=1000000", NULL});
    wait_for_file(p, scratch_path(&scratch, "out/checkpoint-20", path));
}

static void ask(const char *setting, int exit_code, const char *says)
{
    static struct scratch own; /* its output is not the run's */
    struct process p;
    scratch_init(&own);
    PROCESS_RUN(&p, &own, "budget", out, setting);
    expect_exit(&p, exit_code);
    if (!strstr(exit_code ? p.err : p.out, says))
        fail_msg("%s: no \"%s\" in: %s%s", setting, says, p.out, p.err);
    process_release(&p);
    scratch_release(&own);
}

static void a_run_takes_another_budget(void **state)
{
    struct process p;
    char path[SCRATCH_PATH], *text;
    size_t n;
    (void)state;
    start(&p);
    ask("device_memory=400KiB", 0, "per step planned; changed over in");
    ask("device_memory=20KiB", 3, "does not fit: device memory needs");
    ask("device_memory=auto", 0, "per step planned; changed over in");
    ask("learning_rate=1", 2, "is no budget");
    ask("device_memory=much", 2, "expected a size such as 9GiB");
    assert_int_equal(kill(p.pid, SIGINT), 0);
    process_wait(&p);
    expect_exit(&p, 130);
    expect_stderr(&p, "device_memory=20KiB is refused, and the run goes on as it was");
    process_release(&p);
    assert_int_equal(file_read(scratch_path(&scratch, "out/metrics.jsonl", path), &text, &n), OK);
    assert_non_null(
        strstr(text, "\"wanted\":\"device_memory=400KiB\",\"why\":null,\"changed\":true"));
    assert_non_null(
        strstr(text, "\"wanted\":\"device_memory=20KiB\",\"why\":null,\"changed\":false"));
    mem_free(text);
}

static void without_a_run_there_is_nobody_to_ask(void **state)
{
    (void)state;
    ask("device_memory=9GiB", 2, "no run is at work in this folder");
    assert_false(file_exists("out/BUDGET"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_takes_another_budget),
        cmocka_unit_test(without_a_run_there_is_nobody_to_ask),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
