/* Attention and its gradient on the GPU: every kernel that takes a call against the CPU's reference
 * in double, over shapes where nothing is a multiple of anything and those of real models; twice,
 * since the bits must agree. Exits 77 without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/gpu.h"

#ifdef SNUG_HAVE_CUDA

#include "device/cuda/cuda_kernels.h"
#include "support/attention_calls.h"

static const struct attention_case cases[] = {
    {1, 1, 1, 1, 8, 0, true, 0.0, 0.0, 0.0},    /* one token */
    {2, 33, 3, 3, 5, 0, true, 0.0, 0.0, 0.0},   /* an odd head */
    {1, 67, 2, 1, 9, 0, true, 0.7, 0.0, 0.0},   /* a scale of its own */
    {2, 130, 4, 2, 64, 0, true, 0.0, 0.0, 0.0}, /* two more than two tiles of keys; grouped heads */
    {1, 128, 2, 2, 64, 0, true, 0.0, 0.0, 0.0}, /* exact tiles */
    {1, 257, 3, 1, 64, 70, true, 0.0, 0.0, 0.0}, /* window larger than a tile */
    {2, 200, 2, 2, 64, 3, true, 0.0, 0.0, 0.0},  /* window smaller than a tile */
    {1, 150, 2, 2, 64, 0, false, 0.0, 0.0, 0.0}, /* not causal */
    {1, 129, 8, 2, 128, 0, true, 0.0, 0.0,
     0.0}, /* one more than a tile of queries; groups of four */
    {1, 256, 2, 1, 128, 0, true, 0.0, 0.0, 0.0},   /* what cuDNN likes best */
    {2, 190, 2, 2, 128, 100, true, 0.0, 0.0, 0.0}, /* window */
    {1, 100, 1, 1, 128, 0, false, 0.2, 0.0, 0.0},  /* not causal */
    {1, 75, 2, 1, 128, 1, true, 0.0, 0.0, 0.0},    /* a query sees itself only */
    {2, 128, 16, 2, 64, 0, true, 0.0, 0.0, 0.0},   /* groups of eight, as in Llama 1.1B */
    {2, 256, 7, 1, 128, 0, true, 0.0, 0.0, 0.0},   /* groups of seven, as in Qwen 2.5 7B */
    {1, 99, 2, 1, 80, 0, true, 0.0, 0.0, 0.0},     /* a head between the fast sizes */
    {1, 140, 2, 1, 96, 33, true, 0.0, 0.0, 0.0},   /* another */
    {1, 70, 2, 1, 200, 0, true, 0.0, 0.0, 0.0},    /* longer heads */
    {2, 77, 4, 2, 256, 0, true, 0.0, 0.0, 0.0},    /* the longest of tiles */
    {1, 40, 1, 1, 300, 0, true, 0.0, 0.0, 0.0},    /* too long for tiles */
    /* With dropout: each kernel, each way a tile can lie over the squares of draws. */
    {1, 1, 1, 1, 8, 0, true, 0.0, 0.5, 0.0},
    {2, 33, 3, 3, 5, 0, true, 0.0, 0.5, 0.0},
    {2, 130, 4, 2, 64, 0, true, 0.0, 0.1, 0.0},
    {1, 257, 3, 1, 64, 70, true, 0.0, 0.2, 0.0},
    {2, 200, 2, 2, 64, 3, true, 0.0, 0.3, 0.0},
    {1, 150, 2, 2, 64, 0, false, 0.0, 0.1, 0.0},
    {1, 129, 8, 2, 128, 0, true, 0.0, 0.1, 0.0},
    {2, 190, 2, 2, 128, 100, true, 0.0, 0.3, 0.0},
    {1, 100, 1, 1, 128, 0, false, 0.2, 0.9, 0.0},
    {2, 256, 7, 1, 128, 0, true, 0.0, 0.1, 0.0},
    {1, 140, 2, 1, 96, 33, true, 0.0, 0.25, 0.0},
    {1, 70, 2, 1, 200, 45, true, 0.0, 0.4, 0.0},
    {1, 40, 1, 1, 300, 21, true, 0.0, 0.4, 0.0},
    /* With a cap on scores, which spread to about three. */
    {2, 33, 3, 3, 5, 0, true, 2.0, 0.0, 1.5},
    {2, 130, 4, 2, 64, 0, true, 0.3, 0.0, 2.0},
    {1, 257, 3, 1, 64, 70, true, 0.3, 0.0, 1.0},
    {1, 129, 8, 2, 128, 0, true, 0.2, 0.0, 2.0},
    {1, 100, 1, 1, 128, 0, false, 0.2, 0.0, 50.0},
    {1, 140, 2, 1, 96, 33, true, 0.3, 0.0, 2.0},
    {1, 90, 4, 2, 256, 40, true, 0.2, 0.0, 2.0},
    {1, 40, 1, 1, 300, 21, true, 0.2, 0.0, 2.0},
    {2, 130, 4, 2, 64, 0, true, 0.3, 0.1, 2.0},
    {1, 70, 2, 1, 200, 45, true, 0.2, 0.4, 1.0},
};

/* Forward and backward of one shape; returns how many kernels were wrong. */
static int check_case(struct device *d, const struct attention_case *s, enum dtype dtype,
                      int sample)
{
    struct attention_calls t;
    double limit = attention_limit(dtype);
    attention_calls_open_packed(&t, s, dtype, sample);
    int n_bad = device_call_check_kernels(d, cuda_kernels(OP_attention), &t.forward.call, t.want,
                                          limit, t.label);
    n_bad += device_call_check_kernels(d, cuda_kernels(OP_attention_grad), &t.backward.call,
                                       &t.want_grad, limit, t.label);
    attention_calls_close(&t);
    return n_bad;
}

static void attention_and_its_gradient_equal_the_reference(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    int n_bad = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t k = 0; k < ARRAY_LEN(dtypes); k++)
            n_bad += check_case(*state, &cases[i], dtypes[k], 0);
    }
    assert_int_equal(n_bad, 0);
}

/* Samples that share rows: shorter and longer than tiles, in every kernel. */
static void samples_that_share_rows_see_themselves_only(void **state)
{
    static const struct attention_case packed[] = {
        {2, 67, 2, 1, 9, 0, true, 0.0, 0.0, 0.0},    {2, 330, 4, 2, 64, 0, true, 0.0, 0.0, 0.0},
        {1, 257, 3, 1, 64, 30, true, 0.0, 0.0, 0.0}, {2, 300, 8, 2, 128, 0, true, 0.0, 0.0, 0.0},
        {1, 256, 2, 2, 128, 0, true, 0.0, 0.0, 0.0}, {1, 200, 2, 1, 64, 0, true, 0.0, 0.2, 0.0},
        {1, 200, 2, 1, 128, 0, true, 0.2, 0.0, 2.0}, {1, 150, 2, 1, 200, 0, true, 0.0, 0.0, 0.0},
        {1, 60, 1, 1, 300, 0, true, 0.0, 0.0, 0.0},
    };
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const int samples[] = {5, 40, 1000};
    int n_bad = 0;
    for (size_t i = 0; i < ARRAY_LEN(packed); i++) {
        for (size_t k = 0; k < ARRAY_LEN(dtypes); k++)
            n_bad += check_case(*state, &packed[i], dtypes[k], samples[(i + k) % 3]);
    }
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    struct device d;
    if (!gpu_open(&d))
        return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(attention_and_its_gradient_equal_the_reference, &d),
        cmocka_unit_test_prestate(samples_that_share_rows_see_themselves_only, &d),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&d);
    return n_failed;
}

#else

int main(void)
{
    print_message("skipped: built without CUDA\n");
    return GPU_SKIPPED;
}

#endif
