/* Rotary embedding far from the first position and attention over a cache on the GPU: every kernel
 * against the CPU's reference, twice, since the bits must agree. Exits 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/gpu.h"

#ifdef SNUG_HAVE_CUDA

#include "base/alloc.h"
#include "device/cpu/support/ref.h"
#include "device/cuda/cuda_kernels.h"
#include "support/attention_calls.h"

static void rotary_equals_the_reference_far_from_the_beginning(void **state)
{
    struct host_call h = {0};
    const struct attention_case s = {2, 37, 6, 2, 64, 0, true, 0.0, 0.0, 0.0};
    attention_attrs(&h, &s);
    h.attrs[3].i = 1;   /* inverse */
    h.attrs[4].f = 1.5; /* scale */
    h.in[0] = host_random(DTYPE_F32, shape_of(3, s.batch, s.tokens, (int64_t)640), 9);
    h.in[1] = host_tensor(DTYPE_F32, shape_of(1, s.head_dim / 2));
    h.in[2] = host_tensor(DTYPE_I32, shape_of(1, s.tokens));
    for (int64_t i = 0; i < s.head_dim / 2; i++)
        ref_set(&h.in[1], i, pow(500000.0, -2.0 * (double)i / (double)s.head_dim));
    for (int64_t i = 0; i < s.tokens; i++)
        ((int32_t *)h.in[2].data)[i] = (int32_t)(130000 - 17 * i);
    h.out[0] = host_tensor(DTYPE_F32, h.in[0].shape);
    host_call_bind(&h, OP_rotary, 3, 1);
    struct tensor wide;
    host_widen(&wide, h.out, 1);
    struct op_call reference = h.call;
    reference.out = &wide;
    host_run_reference(&reference);
    assert_int_equal(
        device_call_check_kernels(*state, cuda_kernels(h.call.op), &h.call, &wide, 1e-6, "rotary"),
        0);
    mem_free(wide.data);
    host_call_release(&h);
}

static void cached_attention_equals_the_reference(void **state)
{
    struct host_call h = {0};
    const struct attention_case s = {2, 3, 6, 2, 64, 0, true, 0.0, 0.0, 0.0};
    attention_attrs(&h, &s);
    h.attrs[3].i = 150; /* window */
    h.attrs[4].f = 0.0; /* scale */
    h.attrs[5].f = 1.5; /* softcap */
    h.in[0] = host_random(DTYPE_F32, shape_of(3, s.batch, s.tokens, (int64_t)640), 10);
    h.in[1] = host_random(
        DTYPE_F32, shape_of(5, (int64_t)2, s.batch, (int64_t)300, s.kv_heads, s.head_dim), 11);
    h.in[2] = host_tensor(DTYPE_I32, shape_of(1, (int64_t)1));
    *(int32_t *)h.in[2].data = 290;
    h.out[0] = host_tensor(DTYPE_F32, shape_of(3, s.batch, s.tokens, s.heads * s.head_dim));
    h.out[1] = host_tensor(DTYPE_F32, h.in[1].shape);
    host_call_bind(&h, OP_attention_cached, 3, 2);
    host_run_reference(&h.call);
    struct tensor want[2] = {h.out[0], h.out[1]};
    assert_int_equal(
        device_call_check_kernels(*state, cuda_kernels(h.call.op), &h.call, want, 1e-5, "cached"),
        0);
    host_call_release(&h);
}

int main(void)
{
    struct device d;
    if (!gpu_open(&d))
        return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(rotary_equals_the_reference_far_from_the_beginning, &d),
        cmocka_unit_test_prestate(cached_attention_equals_the_reference, &d),
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
