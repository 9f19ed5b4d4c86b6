/* Numbers of 24 bits in two parts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "base/split.h"

static float number(uint64_t i)
{
    return f32_from_bits(philox(5, 1, i).v[0]);
}

static float joined(uint32_t split)
{
    return f32_from_bits(split_join(split >> 8, split & 0xffu));
}

/* The upper part is the nearest bf16 of what both make, which is the nearest of 24 bits. */
static void both_parts_are_the_nearest(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        float x = number(i);
        if (!isfinite(x) || fabsf(x) > 3e38f)
            continue;
        uint32_t split = split_nearest(f32_bits(x));
        float y = joined(split), upper = bf16_to_f32((uint16_t)(split >> 8));
        double ulp = fabs((double)f32_from_bits(f32_bits(y) + 256) - (double)y);
        assert_true(fabs((double)y - (double)x) <= 0.5 * ulp);
        assert_true(fabs((double)upper - (double)y) <= 128 * ulp);
        assert_true(split_nearest(f32_bits(y)) == split);
    }
}

static void a_bf16_lacks_nothing(void **state)
{
    (void)state;
    for (uint32_t upper = 0; upper <= 0xffff; upper++) {
        uint32_t bits = split_join(upper, SPLIT_NOTHING);
        assert_true(bits == upper << 16);
        if ((upper & 0x7fffu) <= 0x7f80u) /* no NaN */
            assert_true(split_nearest(bits) == (upper << 8 | SPLIT_NOTHING));
    }
}

static void what_is_no_number_stays_none(void **state)
{
    const uint32_t bits[] = {0x7fc00000u, 0x7f800001u, 0xffffffffu, 0xff8000ffu};
    (void)state;
    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
        assert_true(isnan(joined(split_by(bits[i], 255))));
        assert_true(isnan(bf16_to_f32((uint16_t)(split_nearest(bits[i]) >> 8))));
    }
    assert_true(isinf(joined(split_nearest(0x7f800000u))));
}

/* By chance, a number is right on average. */
static void chance_keeps_the_mean(void **state)
{
    const float x = 1.0f + 0x1.4p-17f;
    double sum = 0;
    (void)state;
    for (uint32_t parts = 0; parts < 256; parts++)
        sum += (double)joined(split_by(f32_bits(x), parts));
    assert_true(fabs(sum / 256 - (double)x) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_parts_are_the_nearest),
        cmocka_unit_test(a_bf16_lacks_nothing),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(chance_keeps_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
