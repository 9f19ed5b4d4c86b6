/* The 8-bit map: its numbers, and that every number gets the code of the nearest. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/dynamic_map.h"
#include "base/half.h"
#include "base/rng.h"

static uint32_t code_of(const struct dynamic_map *m, bool is_signed, float x)
{
    uint32_t bits = f32_bits(x), rank = dynamic_rank(m->cell[dynamic_cell(bits)], bits);
    return is_signed ? dynamic_signed(rank, bits) : rank;
}

/* By looking at all of them. Of two that are equally near, either will do. */
static bool is_nearest(const struct dynamic_map *m, uint32_t code, float x)
{
    double distance = fabs((double)x - (double)m->value[code]);
    for (int i = 0; i < DYNAMIC_CODES; i++) {
        /* borders are rounded to f32, as bitsandbytes rounds them */
        double other = fabs((double)x - (double)m->value[i]);
        if (other < distance - 3e-7 * fabs((double)x))
            return false;
    }
    return true;
}

static void expect_nearest(const struct dynamic_map *m, bool is_signed, float x)
{
    uint32_t code = code_of(m, is_signed, x);
    bool kept_sign =
        is_signed && x < 0 && code == DYNAMIC_ZERO - 1 && x > 0.5f * m->value[DYNAMIC_ZERO - 1];
    assert_true(code < DYNAMIC_CODES);
    if (!kept_sign && !is_nearest(m, code, x))
        fail_msg("%s map: %.9g is coded as %u, %.9g", is_signed ? "signed" : "unsigned", (double)x,
                 (unsigned)code, (double)m->value[code]);
}

/* ---- the numbers ----------------------------------------------------------------------------- */

static void numbers_rise_from_end_to_end(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed <= 1; is_signed++) {
        struct dynamic_map m = dynamic_map_make(is_signed);
        for (int i = 1; i < DYNAMIC_CODES; i++)
            assert_true(m.value[i - 1] < m.value[i]);
        assert_true(m.value[DYNAMIC_CODES - 1] == 1.0f);
        assert_true(m.value[is_signed ? DYNAMIC_ZERO : 0] == 0.0f);
    }
}

static void the_smallest_and_largest_are_those_of_bitsandbytes(void **state)
{
    (void)state;
    struct dynamic_map m = dynamic_map_make(true), v = dynamic_map_make(false);
    assert_true(m.value[0] == -0.992968738f);
    assert_true(m.value[DYNAMIC_ZERO + 1] == 5.5e-7f);
    assert_true(m.value[DYNAMIC_ZERO - 1] == -5.5e-7f);
    assert_true(v.value[1] == 3.25e-7f);
    assert_true(v.value[DYNAMIC_CODES - 2] == 0.996484399f);
}

/* ---- codes ----------------------------------------------------------------------------------- */

static void every_number_of_the_map_is_its_own_code(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed <= 1; is_signed++) {
        struct dynamic_map m = dynamic_map_make(is_signed);
        for (uint32_t i = 0; i < DYNAMIC_CODES; i++)
            assert_int_equal(code_of(&m, is_signed, m.value[i]), i);
    }
}

/* No cell holds two borders: otherwise the table would be off by one from some cell on. */
static void numbers_beside_every_border_get_the_nearest(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed <= 1; is_signed++) {
        struct dynamic_map m = dynamic_map_make(is_signed);
        for (int i = 1; i < DYNAMIC_CODES; i++) {
            float border = 0.5f * (m.value[i - 1] + m.value[i]);
            expect_nearest(&m, is_signed, nextafterf(border, 2.0f));
            expect_nearest(&m, is_signed, nextafterf(border, -2.0f));
            expect_nearest(&m, is_signed, border);
        }
    }
}

static void numbers_of_every_size_get_the_nearest(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed <= 1; is_signed++) {
        struct dynamic_map m = dynamic_map_make(is_signed);
        for (uint64_t i = 0; i < 20000; i++) {
            struct philox4 r = philox(5, (uint64_t)is_signed, i);
            float x = rng_uniform(r.v[0]) * powf(10.0f, -9.0f * rng_uniform(r.v[1]));
            expect_nearest(&m, is_signed, is_signed && r.v[2] % 2 ? -x : x);
        }
    }
}

static void ends_and_what_is_beyond_them_have_codes(void **state)
{
    struct dynamic_map m = dynamic_map_make(true), v = dynamic_map_make(false);
    (void)state;
    assert_int_equal(code_of(&m, true, 0.0f), DYNAMIC_ZERO);
    assert_int_equal(code_of(&v, false, 0.0f), 0);
    assert_int_equal(code_of(&m, true, -1.0f), 0);
    assert_int_equal(code_of(&m, true, nextafterf(1.0f, 2.0f)), DYNAMIC_CODES - 1);
    assert_int_equal(code_of(&v, false, nextafterf(1.0f, 2.0f)), DYNAMIC_CODES - 1);
    assert_true(code_of(&m, true, (float)NAN) < DYNAMIC_CODES);
    assert_true(code_of(&v, false, (float)INFINITY) < DYNAMIC_CODES);
}

static void a_small_negative_number_keeps_its_sign(void **state)
{
    struct dynamic_map m = dynamic_map_make(true);
    (void)state;
    assert_int_equal(code_of(&m, true, -1e-9f), DYNAMIC_ZERO - 1);
    assert_int_equal(code_of(&m, true, 1e-9f), DYNAMIC_ZERO);
}

static void the_inverse_of_a_scale_is_always_finite(void **state)
{
    (void)state;
    assert_true(dynamic_inverse(4.0f) == 0.25f);
    assert_true(dynamic_inverse(0.0f) == 0.0f);
    assert_true(dynamic_inverse(1e-40f) == 0.0f);
    assert_true(isfinite(dynamic_inverse(1.1754944e-38f)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_rise_from_end_to_end),
        cmocka_unit_test(the_smallest_and_largest_are_those_of_bitsandbytes),
        cmocka_unit_test(every_number_of_the_map_is_its_own_code),
        cmocka_unit_test(numbers_beside_every_border_get_the_nearest),
        cmocka_unit_test(numbers_of_every_size_get_the_nearest),
        cmocka_unit_test(ends_and_what_is_beyond_them_have_codes),
        cmocka_unit_test(a_small_negative_number_keeps_its_sign),
        cmocka_unit_test(the_inverse_of_a_scale_is_always_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
