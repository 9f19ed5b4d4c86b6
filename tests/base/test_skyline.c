/* Heights over a row of places, against an array of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/rng.h"
#include "base/skyline.h"
#include "support/golden.h"

enum { MOST_PLACES = 70, N_CHANGES = 60 };

static int32_t below(struct rng *rng, int32_t n)
{
    return (int32_t)rng_below(rng, (uint32_t)n);
}

static void expect_same(const struct skyline *s, const int64_t *plain, int32_t n, struct rng *rng)
{
    int32_t from = below(rng, n + 1), end = below(rng, n + 1), first = -1, last = -1;
    int64_t height = below(rng, 30) - 10;
    bool is_padded = (n & (n - 1)) != 0; /* with places beyond the row, which are zero */
    int64_t most = is_padded ? 0 : plain[0];
    for (int32_t k = from; k < end; k++) {
        if (plain[k] > height && first < 0)
            first = k;
        if (plain[k] > height)
            last = k;
    }
    for (int32_t k = 0; k < n; k++)
        most = MAX(most, plain[k]);
    assert_int_equal(skyline_first_above(s, from, end, height), first);
    assert_int_equal(skyline_last_above(s, from, end, height), last);
    assert_int_equal(skyline_most(s), most);
}

static void a_skyline_is_an_array(void **state)
{
    struct rng rng = {.key = 7};
    (void)state;
    for (int32_t n = 1; n <= MOST_PLACES; n++) {
        struct skyline s;
        int64_t plain[MOST_PLACES] = {0};
        expect_ok(skyline_init(&s, n));
        for (int i = 0; i < N_CHANGES; i++) {
            int32_t from = below(&rng, n + 1), end = below(&rng, n + 1);
            int64_t by = below(&rng, 12) - 4;
            skyline_raise(&s, from, end, by);
            for (int32_t k = from; k < end; k++)
                plain[k] += by;
            expect_same(&s, plain, n, &rng);
        }
        skyline_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_skyline_is_an_array)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
