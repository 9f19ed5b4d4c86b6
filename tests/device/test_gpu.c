/* One clear line for each reason why a GPU cannot be used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "support/scratch.h"

static const struct gpu_facts t4 = {.built = true,
                                    .architectures = "80-real 90",
                                    .driver_cuda = 12020,
                                    .runtime_cuda = 13000,
                                    .n_gpus = 1,
                                    .index = 3,
                                    .name = "Tesla T4",
                                    .major = 7,
                                    .minor = 5};

static void every_problem_is_one_line_with_its_fix(void **state)
{
    (void)state;
    static const struct {
        enum gpu_problem problem;
        const char *reason, *fix;
    } cases[] = {
        {GPU_NOT_BUILT, "this build has no CUDA", "-DSNUG_CUDA=ON"},
        {GPU_NO_DRIVER, "no NVIDIA driver", "device: cpu"},
        {GPU_OLD_DRIVER, "knows CUDA 12.2, this build needs 13.0", "update the driver"},
        {GPU_BROKEN_DRIVER, "driver does not work", "reboot"},
        {GPU_NONE, "no NVIDIA GPU", "device: cpu"},
        {GPU_NO_SUCH_INDEX, "there is no GPU 3", "this machine has 1"},
        {GPU_NO_CODE, "no code for Tesla T4 (compute capability 7.5), only for 80-real 90",
         "-DSNUG_CUDA_ARCHITECTURES=75"},
        {GPU_NO_PTX, "cannot compile its PTX", "-DSNUG_CUDA_ARCHITECTURES=75"},
        {GPU_TAKEN, "Tesla T4 is in exclusive use", "end it"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(cases[i].problem, i);
        assert_int_equal(gpu_refuse(cases[i].problem, &t4), ERR_UNSUPPORTED);
        expect_message(cases[i].reason);
        expect_message(cases[i].fix);
        assert_null(strchr(status_message(), '\n'));
    }
    assert_int_equal(status_exit_code(ERR_UNSUPPORTED), 2);
}

static void a_machine_without_a_gpu_says_so_when_one_is_opened(void **state)
{
    (void)state;
    struct device d;
    struct gpu_facts f;
    gpu_look(&f, 0);
    if (f.n_gpus > 0) {
        (void)fprintf(stderr, "skipped: there is a GPU\n");
        skip();
    }
    assert_int_equal(device_open_cuda(&d, 0), ERR_UNSUPPORTED);
    expect_message(f.built ? "no NVIDIA" : "this build has no CUDA");
    assert_int_equal(device_count_cuda(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_problem_is_one_line_with_its_fix),
        cmocka_unit_test(a_machine_without_a_gpu_says_so_when_one_is_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
