/* A run of many steps holds what a run of few does: logs, histories and checkpoints come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/process.h"

/* Bytes the process holds after so many steps, with eight checkpoints on the way. */
static int64_t held_after(const struct scratch *s, const char *config, int n_steps)
{
    char max_steps[32], save_steps[32];
    struct process p;
    (void)snprintf(max_steps, sizeof(max_steps), "max_steps=%d", n_steps);
    (void)snprintf(save_steps, sizeof(save_steps), "save_steps=%d", n_steps / 8);
    PROCESS_RUN(&p, s, "train", config, max_steps, save_steps, "save_total_limit=1",
                "logging_steps=1", "--json");
    expect_exit(&p, 0);
    json_t *result = expect_json(&p);
    int64_t held = json_int_at(result, "measured.device_bytes");
    json_decref(result);
    process_release(&p);
    return held;
}

static void memory_does_not_grow_with_the_steps(void **state)
{
    /* In both the log history has been full (train/history.h), and is as long when it is saved. */
    enum { FEW = 2400, MANY = 4800, PER_STEP = 16 /* its loss and its time, for --json */ };
    struct scratch s;
    char config[SCRATCH_PATH];
    (void)state;
    if (SNUG_ASAN)
        skip(); /* AddressSanitizer keeps what is freed */
    scratch_init(&s);
    write_tiny_config(&s, "long.yaml", "", config);
    int64_t few = held_after(&s, config, FEW), many = held_after(&s, config, MANY);
    print_message("%d steps: %lld bytes, %d steps: %lld\n", FEW, (long long)few, MANY,
                  (long long)many);
    assert_true(many - few < (MANY - FEW) * PER_STEP + (1 << 20));
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_does_not_grow_with_the_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
