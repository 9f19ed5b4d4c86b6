/* `snug plan` for GPUs that are not here, on any machine and without a driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

/* To the byte what an H200 with its libraries planned. */
static void the_arena_is_that_of_the_gpu(void **state)
{
    (void)state;
    json_t *j = plan_json("configs/gpt2-124m.yaml", "h200", "bf16=true");
    assert_int_equal(json_int_at(j, "predicted.arena_bytes"), 2891965952);
    assert_string_equal(json_text_at(j, "predicted.step_ms_source"), "an estimate");
    json_decref(j);
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
                "offload_optimizer=false", "offload_param=false", "host_memory=16GiB");
    expect_exit(&p, 3);
    expect_stderr(&p, "the GeForce RTX 3060's");
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
        cmocka_unit_test(a_faster_gpu_takes_less_time),
        cmocka_unit_test(bf16_is_planned_as_fp16_where_there_is_none_and_said),
        cmocka_unit_test(an_unknown_gpu_is_an_error_that_lists_them),
        cmocka_unit_test(what_does_not_fit_a_gpu_is_refused_with_a_change_that_does),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
