/* Codes of blocks against a search through the table, one number at a time. bitsandbytes' own are
 * in tests/io/test_quantized.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/block_codes.h"
#include "base/half.h"
#include "base/rng.h"

enum { MOST = 5 * CODE4_BLOCK };

/* Numbers of all sizes, none at all, infinity, and both zeros among them. */
static void fill(float *x, int64_t n, uint64_t seed)
{
    static const float odd[] = {0.0f, -0.0f, INFINITY, NAN, 1e-45f};
    for (int64_t i = 0; i < n; i++) {
        struct philox4 r = philox(seed, 1, (uint64_t)i);
        float y;
        rng_normal2(r.v[0], r.v[1], &x[i], &y);
        if (seed % 3 == 0 && r.v[2] % 40 == 0)
            x[i] = odd[r.v[3] % ARRAY_LEN(odd)];
    }
}

/* By how many midpoints of neighbours a number lies above. */
static int rank(const float *sorted, int n, float x)
{
    int at = 0;
    while (at + 1 < n && x > (sorted[at] + sorted[at + 1]) / 2.0f)
        at++;
    return at;
}

static void sort(enum block_code k, float sorted[CODE4_VALUES], uint8_t codes[CODE4_VALUES])
{
    for (int i = 0; i < CODE4_VALUES; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > code4_values(k)[i]; at--) {
            sorted[at] = sorted[at - 1];
            codes[at] = codes[at - 1];
        }
        sorted[at] = code4_values(k)[i];
        codes[at] = (uint8_t)i;
    }
}

static float plain_largest(const float *x, int64_t n)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

static void expect_block(enum block_code k, const float *x, int64_t n, const uint8_t *codes,
                         float scale)
{
    float sorted[CODE4_VALUES], most = plain_largest(x, n), divisor = fmaxf(most, 1e-38f);
    uint8_t by_rank[CODE4_VALUES];
    bool whole = n == CODE4_BLOCK;
    sort(k, sorted, by_rank);
    assert_int_equal(f32_bits(scale), f32_bits(whole ? most : divisor));
    for (int64_t i = 0; i < n; i++) {
        float share = whole ? x[i] * (1.0f / divisor) : x[i] / divisor;
        int have = i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
        assert_int_equal(have, by_rank[rank(sorted, CODE4_VALUES, share)]);
    }
}

static void four_bits_are_the_nearest_of_the_table(void **state)
{
    static const int64_t counts[] = {1, 2, 63, 64, 65, 128, 4 * CODE4_BLOCK + 7, MOST};
    (void)state;
    for (uint64_t seed = 0; seed < 6 * ARRAY_LEN(counts); seed++) {
        enum block_code k = seed % 2 ? CODE_FP4 : CODE_NF4;
        int64_t n = counts[seed / 6];
        float x[MOST], scales[MOST / CODE4_BLOCK];
        uint8_t codes[MOST / 2 + 1];
        fill(x, n, seed);
        codes[(n + 1) / 2] = 0xcd;
        code4_encode(k, x, n, codes, scales);
        for (int64_t b = 0; b * CODE4_BLOCK < n; b++)
            expect_block(k, x + b * CODE4_BLOCK, MIN(n - b * CODE4_BLOCK, (int64_t)CODE4_BLOCK),
                         codes + b * CODE4_BLOCK / 2, scales[b]);
        assert_int_equal(codes[(n + 1) / 2], 0xcd); /* and no more */
    }
}

static void scales_are_the_nearest_of_their_table(void **state)
{
    enum { N = 2 * SCALE_GROUP + 19 };
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        float scales[N], groups[3], table[SCALE_TABLE];
        uint8_t codes[N];
        double sum = 0;
        fill(scales, N, 3 * seed + 1);
        for (int i = 0; i < N; i++) {
            scales[i] = fabsf(scales[i]) * (seed == 3 && i % 50 == 0 ? 1e-20f : 1.0f);
            sum += (double)scales[i];
        }
        scales_begin(scales, N, table);
        assert_true(table[0] == (float)(sum / N));
        scales_encode(table, scales, SCALE_GROUP, codes, groups); /* in two goes */
        scales_encode(table, scales + SCALE_GROUP, N - SCALE_GROUP, codes + SCALE_GROUP,
                      groups + 1);
        for (int i = 0; i < N; i++) {
            float part = scales[i] - table[0], group = groups[i / SCALE_GROUP];
            float share = i < 2 * SCALE_GROUP ? part * (1.0f / group) : part / group;
            assert_int_equal(codes[i], rank(table + 1, SCALE_CODES, share));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_bits_are_the_nearest_of_the_table),
        cmocka_unit_test(scales_are_the_nearest_of_their_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
