/* Products of tiles, in f32 and (where the processor has tile registers) in bf16, against sums in
 * double of what the operands are rounded to. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/half.h"
#include "base/rng.h"
#include "device/cpu/attention/attention_tiles.h"

enum { WIDE = 256 }; /* the widest that bf16 has room for */

static float a[CPU_TILE * WIDE], b[WIDE * WIDE], c[CPU_TILE * WIDE], before[CPU_TILE * WIDE];

static void fill(float *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = rng_uniform(philox(seed, 0, (uint64_t)i).v[0]) - 0.5f;
}

static double rounded(float x, bool bf16)
{
    return (double)(bf16 ? bf16_to_f32(bf16_from_f32(x)) : x);
}

struct sizes {
    int64_t m, n, k;
};

static void check(const struct tile_math *math, struct sizes s, bool bf16, bool transposed,
                  int beta)
{
    int64_t a_row = transposed ? CPU_TILE : WIDE;
    float alpha = beta ? 1.0f : 0.25f;
    fill(a, ARRAY_LEN(a), 1);
    fill(b, ARRAY_LEN(b), 2);
    fill(c, ARRAY_LEN(c), 3);
    fill(before, ARRAY_LEN(before), 3);
    if (math->enter)
        math->enter();
    if (transposed)
        math->product_transposed(s.m, s.n, s.k, a, a_row, b, WIDE, c, WIDE);
    else
        math->product(s.m, s.n, s.k, a, a_row, b, WIDE, alpha, beta, c, WIDE);
    if (math->leave)
        math->leave();
    for (int64_t i = 0; i < CPU_TILE; i++) {
        for (int64_t j = 0; j < WIDE; j++) {
            double want = 0.0, old = (double)before[i * WIDE + j], got = (double)c[i * WIDE + j];
            for (int64_t p = 0; p < s.k; p++)
                want += rounded(transposed ? a[p * a_row + i] : a[i * a_row + p], bf16) *
                        rounded(b[p * WIDE + j], bf16);
            want = (double)alpha * want + (beta ? old : 0.0);
            bool inside = i < s.m && j < s.n;
            bool outside =
                i >= micro_round_up(s.m, math->rows) || j >= micro_round_up(s.n, math->columns);
            if ((inside && fabs(got - want) > 1e-5 * (1.0 + fabs(want))) || (outside && got != old))
                fail_msg("[%d, %d, %d]%s at %d, %d: %.9g, want %.9g", (int)s.m, (int)s.n, (int)s.k,
                         transposed ? " transposed" : "", (int)i, (int)j, got,
                         outside ? old : want);
        }
    }
}

static void check_all(bool bf16)
{
    static const struct sizes sizes[] = {{1, 1, 1},     {12, 32, 64},  {96, 96, 64}, {33, 65, 17},
                                         {96, 256, 96}, {64, 96, 256}, {5, 40, 31},  {96, 64, 95}};
    const struct tile_math *math = tile_math_for(bf16, WIDE);
    bool rounds = math != tile_math_for(false, WIDE); /* else this processor has f32 alone */
    assert_true(CPU_TILE % math->rows == 0 && CPU_TILE % math->columns == 0);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        check(math, sizes[i], rounds, false, 0);
        check(math, sizes[i], rounds, false, 1);
        if (sizes[i].k <= CPU_TILE)
            check(math, sizes[i], rounds, true, 1);
    }
}

static void f32_products_are_sums(void **state)
{
    (void)state;
    check_all(false);
}

static void bf16_products_are_sums_of_what_was_rounded(void **state)
{
    (void)state;
    check_all(true);
}

static void wider_tiles_are_f32(void **state)
{
    (void)state;
    assert_ptr_equal(tile_math_for(true, 2 * WIDE), tile_math_for(false, 2 * WIDE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_products_are_sums),
        cmocka_unit_test(bf16_products_are_sums_of_what_was_rounded),
        cmocka_unit_test(wider_tiles_are_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
