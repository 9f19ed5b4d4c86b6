/* What the CPU says a kernel takes, and what it gives the operands of a timing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/machine.h"
#include "device/cpu/support/ref.h"
#include "device/device.h"
#include "support/crowd.h"

static struct tensor tensor_new(enum dtype dtype, int64_t rows, int64_t columns)
{
    struct tensor t = {dtype, shape_of(2, rows, columns), NULL};
    t.data = mem_alloc((size_t)tensor_bytes(&t));
    assert_non_null(t.data);
    return t;
}

static void operands_are_noise_or_valid_indices(void **state)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_I64};
    struct device *d = *state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct tensor t = tensor_new(types[i], 3, 1111);
        double least = 1e9, most = -1e9;
        assert_int_equal(d->ops->fill(d, &t, (struct index_rule){.limit = 50}), OK);
        for (int64_t k = 0; k < shape_elems(&t.shape); k++) {
            double x = ref_get(&t, k);
            least = x < least ? x : least;
            most = x > most ? x : most;
        }
        if (dtype_is_float(types[i]))
            assert_true(least >= -0.5 && least < -0.4 && most <= 0.5 && most > 0.4);
        else
            assert_true(least == 0.0 && most == 49.0);
        mem_free(t.data);
    }
}

/* y = x w^T with n x n matrices. */
static struct call_time time_product(struct device *d, int64_t n)
{
    struct tensor in[] = {tensor_new(DTYPE_F32, n, n), tensor_new(DTYPE_F32, n, n)};
    struct tensor out = tensor_new(DTYPE_F32, n, n);
    struct op_call call = {.op = OP_linear, .in = in, .n_in = 2, .out = &out, .n_out = 1};
    const struct kernel *k = d->ops->kernels(OP_linear);
    struct kernel_ctx x = {.env = d->env};
    struct call_time found = {0};
    int64_t n_bytes = k->workspace(&call, &d->env);
    char *workspace = mem_alloc((size_t)n_bytes + 64);
    assert_non_null(workspace);
    x.workspace = workspace + (64 - (uintptr_t)workspace % 64) % 64;
    for (int i = 0; i < 2; i++)
        assert_int_equal(d->ops->fill(d, &in[i], (struct index_rule){0}), OK);
    struct timed_calls t = {.kernel = k, .contexts = &x, .calls = &call, .n = 1};
    assert_int_equal(d->ops->time_calls(d, &t, &found), OK);
    mem_free(workspace);
    mem_free(in[0].data);
    mem_free(in[1].data);
    mem_free(out.data);
    return found;
}

/* 512 times the work, and no clock is so bad. */
static void a_larger_product_takes_longer(void **state)
{
    double little = time_product(*state, 32).seconds, much = time_product(*state, 256).seconds;
    assert_true(little > 0.0);
    assert_true(much > 5.0 * little);
}

/* Three for each processor: whoever else wants one has to wait. */
static void a_timing_among_busy_programs_says_that_it_was_disturbed(void **state)
{
    enum { MOST = 48 };
    struct device *d = *state;
    pid_t others[MOST];
    int n = MIN(3 * usable_processors(), MOST);
    if (n < 3 * usable_processors() || run_delay_s(thread_number()) == 0.0)
        skip(); /* too many processors to keep busy, or a system that does not say */
    crowd_start(others, n);
    struct call_time found = {0};
    for (int i = 0; i < 20 && !found.disturbed; i++)
        found = time_product(d, 512);
    crowd_end(others, n);
    assert_true(found.disturbed);
    assert_true(found.seconds > 0.0);
}

int main(void)
{
    struct device d;
    if (device_open_cpu(&d, 1) != OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(operands_are_noise_or_valid_indices, &d),
        cmocka_unit_test_prestate(a_larger_product_takes_longer, &d),
        cmocka_unit_test_prestate(a_timing_among_busy_programs_says_that_it_was_disturbed, &d),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&d);
    return n_failed;
}
