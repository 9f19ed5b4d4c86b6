/* The foundation: status, pools, text, numbers, half precision, random numbers. Files are in
 * test_file.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/host_memory.h"
#include "base/json.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/str.h"
#include "base/vec.h"

/* ---- status ---------------------------------------------------------------------------------- */

static enum status deep_failure(void)
{
    return FAIL(ERR_SHAPE, "axis %d", 7);
}

static enum status passed_on(int *released)
{
    enum status status = OK;
    TRY_GOTO(deep_failure(), out);
    status = ERR_FAILED;
out:
    ++*released;
    return status;
}

static void failures_carry_code_message_and_place(void **state)
{
    (void)state;
    int released = 0;
    assert_int_equal(passed_on(&released), ERR_SHAPE);
    assert_int_equal(released, 1);
    assert_string_equal(status_message(), "axis 7");
    assert_non_null(strstr(status_place(), "test_base.c:"));
    assert_int_equal(status_prefix(ERR_DATA, "file %s", "a"), ERR_DATA);
    assert_string_equal(status_message(), "file a: axis 7");
}

static void long_messages_are_cut_not_overrun(void **state)
{
    (void)state;
    char text[20000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    (void)FAIL(ERR_FAILED, "%s", text);
    size_t n = strlen(status_message());
    assert_true(n > 1000 && n < sizeof(text));
    (void)status_prefix(ERR_FAILED, "prefix");
    assert_int_equal(strncmp(status_message(), "prefix: xxx", 11), 0);
    (void)status_prefix(ERR_FAILED, "%s", text);
    assert_true(strlen(status_message()) < sizeof(text));
}

static void every_status_has_name_meaning_and_exit_code(void **state)
{
    (void)state;
    for (int i = 0; i < STATUS_COUNT; i++) {
        assert_true(status_name((enum status)i)[0] != '\0');
        assert_true(status_meaning((enum status)i)[0] != '\0');
        assert_int_equal(status_exit_code((enum status)i) == 0, i == OK);
    }
    assert_string_equal(status_name(ERR_FIT), "ERR_FIT");
    assert_int_equal(status_exit_code(ERR_USAGE), 2);
    assert_int_equal(status_exit_code(ERR_FIT), 3);
    assert_int_equal(status_exit_code(ERR_DEVICE_MEMORY), 4);
    assert_int_equal(status_exit_code(ERR_CHECKPOINT), 5);
    assert_int_equal(status_exit_code(ERR_INTERRUPTED), 130);
    assert_int_equal(status_exit_code(ERR_TERMINATED), 143);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void allocations_are_counted_and_can_be_made_to_fail(void **state)
{
    (void)state;
    int64_t live = mem_live();
    void *a = mem_alloc(0), *b = mem_calloc(3, 5);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(mem_live(), live + 2);
    mem_fail_after(2, 0);
    void *c = mem_alloc(1), *d = mem_alloc(1), *e = mem_alloc(1);
    assert_non_null(c);
    assert_null(d);
    assert_non_null(e);
    mem_fail_after(1, 1);
    assert_null(mem_alloc(1));
    assert_null(mem_strdup("x"));
    assert_null(mem_realloc(a, 100)); /* a is still there */
    mem_fail_after(0, 0);
    a = mem_realloc(a, 100);
    assert_non_null(a);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(e);
    mem_free(NULL);
    assert_int_equal(mem_live(), live);
    int64_t *array;
    assert_int_equal(mem_try_array(&array, SIZE_MAX / 2, 16), ERR_MEMORY);
    assert_null(array);
}

static void take_and_free(size_t n_bytes)
{
    char *p = mem_alloc(n_bytes);
    assert_non_null(p);
    memset(p, 1, n_bytes);
    mem_free(p);
}

static void freed_memory_is_held_until_the_last_end(void **state)
{
    (void)state;
    const int64_t large = 64 << 20, most_of_it = 48 << 20;
    if (SNUG_ASAN) /* its heap keeps what it likes */
        skip();
    int64_t before = process_resident();
    mem_hold_begin();
    mem_hold_begin();
    take_and_free((size_t)large);
    assert_true(process_resident() - before > most_of_it);
    mem_hold_end();
    take_and_free((size_t)large);
    assert_true(process_resident() - before > most_of_it);
    mem_hold_end();
    assert_true(process_resident() - before < large - most_of_it);
    take_and_free((size_t)large);
    assert_true(process_resident() - before < large - most_of_it);
}

static void pools_hand_out_zeroed_aligned_memory(void **state)
{
    (void)state;
    int64_t live = mem_live();
    struct pool p;
    pool_init(&p);
    unsigned char *last = NULL;
    for (size_t n = 1; n < 3000; n += 7) {
        unsigned char *at = pool_alloc(&p, n);
        assert_non_null(at);
        assert_int_equal((uintptr_t)at % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(at[i], 0);
        memset(at, 0xAB, n); /* must not show in later ones */
        assert_true(at != last);
        last = at;
    }
    assert_non_null(pool_alloc(&p, 1 << 20)); /* larger than a chunk */
    assert_string_equal(pool_printf(&p, "%d-%s", 4, "x"), "4-x");
    assert_string_equal(pool_strndup(&p, "abcdef", 3), "abc");
    assert_int_equal(pool_status(&p), OK);
    pool_release(&p);
    assert_int_equal(mem_live(), live);
}

static void a_pool_that_ran_out_stays_failed(void **state)
{
    (void)state;
    struct pool p;
    void *at;
    pool_init(&p);
    mem_fail_after(1, 0);
    assert_null(pool_alloc(&p, 10));
    mem_fail_after(0, 0);
    assert_null(pool_strdup(&p, "x")); /* sticky, although memory is back */
    assert_int_equal(pool_try(&p, &at, 1), ERR_MEMORY);
    assert_int_equal(pool_status(&p), ERR_MEMORY);
    pool_release(&p);
    assert_non_null(pool_strdup(&p, "x"));
    pool_release(&p);
}

static void vectors_grow_and_keep_their_elements(void **state)
{
    (void)state;
    VEC(int) v = {0};
    for (int i = 0; i < 1000; i++)
        assert_int_equal(vec_push(&v, i * 3), OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(v.items[i], i * 3);
    while (v.n < v.capacity)
        assert_int_equal(vec_push(&v, 1), OK);
    mem_fail_after(1, 0);
    assert_int_equal(vec_push(&v, 5), ERR_MEMORY);
    mem_fail_after(0, 0);
    assert_int_equal(v.items[999], 2997);
    vec_release(&v);
    assert_int_equal(v.n, 0);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void strings_build_up_and_failures_stick(void **state)
{
    (void)state;
    struct str s = {0};
    assert_string_equal(str_text(&s), "");
    str_add(&s, "a");
    str_addf(&s, "%d%s", 12, "b");
    str_add_n(&s, "cdef", 2);
    assert_string_equal(str_text(&s), "a12bcd");
    assert_int_equal(s.n, 6);
    for (int i = 0; i < 1000; i++)
        str_add(&s, "0123456789");
    assert_int_equal(s.n, 10006);
    str_clear(&s);
    assert_string_equal(str_text(&s), "");
    str_add(&s, "x");
    char *taken = str_take(&s);
    assert_string_equal(taken, "x");
    assert_null(s.text);
    mem_free(taken);
    mem_fail_after(1, 0);
    str_add(&s, "lost");
    mem_fail_after(0, 0);
    str_add(&s, "also lost");
    assert_int_equal(str_status(&s), ERR_MEMORY);
    assert_string_equal(str_text(&s), "");
    str_release(&s);
    assert_int_equal(str_status(&s), OK);
}

static void near_misses_are_suggested(void **state)
{
    (void)state;
    static const char *const keys[] = {"learning_rate", "batch_size", "max_steps", "seed"};
    assert_string_equal(suggest("lerning_rate", keys, 4), "learning_rate");
    assert_string_equal(suggest("Learning-Rate", keys, 4), "learning_rate");
    assert_string_equal(suggest("bacth_size", keys, 4), "batch_size");
    assert_string_equal(suggest("sede", keys, 4), "seed");
    assert_null(suggest("optimizer", keys, 4));
    assert_null(suggest("sad", keys, 4)); /* two letters of three are another word */
    assert_null(suggest("anything", keys, 0));
    char longest[300];
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    const char *const wide[] = {longest};
    assert_ptr_equal(suggest(longest, wide, 1), longest);
}

static void sizes_are_read_as_people_write_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {
        {"4096", 4096},
        {"16GiB", 17179869184},
        {"16G", 17179869184},
        {"16 gib", 17179869184},
        {"13.3 GB", 13300000000},
        {"512M", 536870912},
        {"1e9", 1000000000},
        {".5k", 512},
        {"1.5KiB", 1536},
        {"2TB", 2000000000000},
        {"1 T", 1099511627776},
        {"0", 0},
        {"7b", 7},
        {"1MB", 1000000},
        {"3kb", 3000},
    };
    static const char *const bad[] = {"",     "G",   "-1",    "1 GX", "1GiBs", "nan",
                                      "1e30", "inf", "1..2G", " 1G",  "twelve"};
    int64_t n;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(parse_bytes(good[i].text, &n));
        assert_int_equal(n, good[i].bytes);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (parse_bytes(bad[i], &n))
            fail_msg("'%s' was read as %lld bytes", bad[i], (long long)n);
    }
}

static void integers_are_read_whole_or_not_at_all(void **state)
{
    (void)state;
    int64_t n;
    assert_true(parse_int("1_000", &n) && n == 1000);
    assert_true(parse_int("5e8", &n) && n == 500000000);
    assert_true(parse_int("-12", &n) && n == -12);
    assert_true(parse_int("2.0", &n) && n == 2);
    assert_true(parse_int("9223372036854775807", &n) && n == INT64_MAX);
    static const char *const bad[] = {"", "1.5", "12x", "9223372036854775808", "1e19", "nan", "_"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (parse_int(bad[i], &n))
            fail_msg("'%s' was read as %lld", bad[i], (long long)n);
    }
    double x;
    assert_true(parse_double(" 1e-3 ", &x) && x == 1e-3);
    assert_false(parse_double("nan", &x) || parse_double("inf", &x) || parse_double("1,5", &x) ||
                 parse_double("", &x) || parse_double("-inf", &x) || parse_double("1e999", &x));
    int yes;
    assert_true(parse_bool("yes", &yes) && yes);
    assert_true(parse_bool("off", &yes) && !yes);
    assert_false(parse_bool("maybe", &yes));
}

static void numbers_are_written_for_people(void **state)
{
    (void)state;
    char out[BYTES_TEXT];
    assert_string_equal(format_bytes(out, 512), "512 B");
    assert_string_equal(format_bytes(out, 1536), "1.50 KiB");
    assert_string_equal(format_bytes(out, (int64_t)16 << 30), "16.00 GiB");
    assert_string_equal(format_bytes(out, INT64_MAX), "8388608.00 TiB");
    assert_string_equal(format_count(out, 1234567), "1,234,567");
    assert_string_equal(format_count(out, -123), "-123");
    assert_string_equal(format_count(out, -1234), "-1,234");
    assert_string_equal(format_count(out, INT64_MIN), "-9,223,372,036,854,775,808");
    assert_string_equal(format_rate(out, 1234.5), "1,235");
    assert_string_equal(format_rate(out, 0.476), "0.48");
    assert_string_equal(format_rate(out, 1e300), "9,000,000,000,000,000,000");
    assert_string_equal(format_duration(out, 0), "0 ms");
    assert_string_equal(format_duration(out, 0.00136), "1.4 ms");
    assert_string_equal(format_duration(out, 0.85), "850 ms");
    assert_string_equal(format_duration(out, 12.34), "12.3 s");
    assert_string_equal(format_duration(out, 245), "4m05s");
    assert_string_equal(format_duration(out, 4320), "1h12m");
    assert_true(str_starts_with("prefix", "pre") && !str_starts_with("pre", "prefix"));
    assert_true(str_ends_with("a.txt", ".txt") && !str_ends_with("txt", "a.txt"));
}

/* ---- half precision ------------------------------------------------------------------------- */

/* A 16-bit float's value by its definition: sign, exponent, fraction. */
static double slow_value(uint16_t bits, int n_fraction)
{
    int n_exponent = 15 - n_fraction, bias = (1 << (n_exponent - 1)) - 1;
    int exponent = bits >> n_fraction & ((1 << n_exponent) - 1);
    double fraction = (double)(bits & ((1 << n_fraction) - 1)) / (double)(1 << n_fraction);
    double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == (1 << n_exponent) - 1)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias);
    return sign * ldexp(1.0 + fraction, exponent - bias);
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void every_half_widens_exactly_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float f = f16_to_f32(h), b = bf16_to_f32(h);
        if (!same((double)f, slow_value(h, 10)) || !same((double)b, slow_value(h, 7)))
            fail_msg("bits %04x widen to %g (f16) and %g (bf16)", i, (double)f, (double)b);
        if (isnan(f))
            assert_true(isnan(f16_to_f32(f16_from_f32(f))));
        else
            assert_int_equal(f16_from_f32(f), h);
        if (isnan(b))
            assert_true(isnan(bf16_to_f32(bf16_from_f32(b))));
        else
            assert_int_equal(bf16_from_f32(b), h);
    }
}

/* Nearest by search: of the two neighbours the nearer, of equally near ones the even. */
static uint16_t slow_round(double x, int n_fraction)
{
    uint16_t infinity = (uint16_t)(0x7fff >> n_fraction << n_fraction);
    uint16_t low = 0, high = infinity; /* value(low) <= |x| < value(high) */
    double size = fabs(x), above;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (slow_value(middle, n_fraction) <= size)
            low = middle;
        else
            high = middle;
    }
    double below = slow_value(low, n_fraction);
    above = slow_value(high, n_fraction);
    if (high == infinity) /* as if the exponent went on */
        above = below + (below - slow_value((uint16_t)(low - 1), n_fraction));
    double to_low = size - below, to_high = above - size;
    uint16_t nearest = to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high;
    return (uint16_t)(nearest | (signbit(x) ? 0x8000 : 0));
}

static void expect_rounding(float f)
{
    uint16_t h = f16_from_f32(f), b = bf16_from_f32(f);
    if (h != slow_round((double)f, 10) || b != slow_round((double)f, 7))
        fail_msg("%a rounds to %04x (f16, want %04x) and %04x (bf16, want %04x)", (double)f, h,
                 slow_round((double)f, 10), b, slow_round((double)f, 7));
}

static void floats_round_to_the_nearest_half_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        /* Around every f16 and bf16 value and every midpoint between two. */
        float around[4] = {f16_to_f32((uint16_t)i), 0, bf16_to_f32((uint16_t)i),
                           f32_from_bits(i << 16 | 0x8000)};
        float next = f16_to_f32((uint16_t)(i + 1));
        around[1] = isfinite(around[0]) && isfinite(next) ? 0.5f * (around[0] + next) : 65520.0f;
        for (int k = 0; k < 4; k++) {
            if (!isfinite(around[k]))
                continue;
            expect_rounding(around[k]);
            expect_rounding(nextafterf(around[k], INFINITY) < INFINITY
                                ? nextafterf(around[k], INFINITY)
                                : around[k]);
            expect_rounding(nextafterf(around[k], -INFINITY) > -INFINITY
                                ? nextafterf(around[k], -INFINITY)
                                : around[k]);
        }
    }
    assert_int_equal(f16_from_f32(INFINITY), 0x7c00);
    assert_int_equal(bf16_from_f32(-INFINITY), 0xff80);
    for (uint32_t payload = 1; payload < 1u << 23; payload = payload * 3 + 1) {
        assert_true(isnan(f16_to_f32(f16_from_f32(f32_from_bits(0x7f800000u | payload)))));
        assert_true(isnan(bf16_to_f32(bf16_from_f32(f32_from_bits(0xff800000u | payload)))));
    }
}

/* ---- random numbers -------------------------------------------------------------------------- */

static void expect_philox(struct philox4 got, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t want[4] = {a, b, c, d};
    assert_memory_equal(got.v, want, sizeof(want));
}

/* The known answers published with the generator (Random123, philox4x32 with 10 rounds). */
static void philox_gives_the_published_numbers(void **state)
{
    (void)state;
    expect_philox(philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
    expect_philox(philox(UINT64_MAX, UINT64_MAX, UINT64_MAX), 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
                  0x6d5451fd);
    expect_philox(philox(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u), 0xd16cfe09,
                  0x94fdcceb, 0x5001e420, 0x24126ea1);
}

static void many_words_are_those_of_one_counter_after_the_other(void **state)
{
    (void)state;
    enum { MOST = 77 };
    static const uint64_t lows[] = {0, 0xfffffff0u, UINT64_MAX - 40};
    static const int64_t counts[] = {0, 1, 31, 32, 33, 64, MOST};
    for (size_t k = 0; k < ARRAY_LEN(lows) * ARRAY_LEN(counts); k++) {
        uint64_t lo = lows[k % ARRAY_LEN(lows)];
        int64_t n = counts[k / ARRAY_LEN(lows)];
        uint32_t words[4 * MOST + 1];
        words[4 * n] = 0xabcdu;
        philox_fill(0x299f31d0a4093822u, 0x0370734413198a2eu, lo, n, words);
        for (int64_t i = 0; i < n; i++) {
            struct philox4 due = philox(0x299f31d0a4093822u, 0x0370734413198a2eu, lo + (uint64_t)i);
            assert_memory_equal(words + 4 * i, due.v, sizeof(due.v));
        }
        assert_int_equal(words[4 * n], 0xabcdu); /* and no more */
    }
}

static void draws_have_the_right_ranges_and_moments(void **state)
{
    (void)state;
    struct rng r = {.key = 1, .stream = 2};
    assert_true(rng_uniform(0) == 0.0f);
    assert_true(rng_uniform(UINT32_MAX) < 1.0f);
    double sum = 0, squares = 0;
    enum { N = 100000 };
    for (int i = 0; i < N / 2; i++) {
        float x, y;
        rng_normal2(rng_next(&r), rng_next(&r), &x, &y);
        sum += (double)x + (double)y;
        squares += (double)x * (double)x + (double)y * (double)y;
    }
    assert_true(fabs(sum / N) < 0.02);
    assert_true(fabs(squares / N - 1.0) < 0.02);
    float x, y;
    rng_normal2(0, 0, &x, &y); /* the far end is finite */
    assert_true(isfinite(x) && isfinite(y));
    int seen[7] = {0};
    for (int i = 0; i < 7000; i++)
        seen[rng_below(&r, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_true(seen[i] > 850 && seen[i] < 1150);
    for (int i = 0; i < 1000; i++) {
        double u = rng_double(&r);
        assert_true(u >= 0.0 && u < 1.0);
    }
}

static void a_generator_resumes_from_its_three_numbers(void **state)
{
    (void)state;
    struct rng a = {.key = 9, .stream = 1};
    for (int i = 0; i < 5; i++)
        (void)rng_next(&a);
    struct rng b = {.key = a.key, .stream = a.stream, .n_drawn = a.n_drawn};
    for (int i = 0; i < 20; i++)
        assert_int_equal(rng_next(&a), rng_next(&b));
    struct rng other = {.key = 9, .stream = 2};
    assert_int_not_equal(rng_next(&other), rng_next(&(struct rng){.key = 9, .stream = 1}));
}

/* Jansson calls a string that it has no memory for a syntax error. */
static void json_without_memory_is_not_bad_json(void **state)
{
    (void)state;
    static const char text[] = "{\"name\": \"a string\", \"list\": [1, 2.5, {\"x\": \"y\"}]}";
    json_malloc_t before_alloc;
    json_free_t before_free;
    json_get_alloc_funcs(&before_alloc, &before_free);
    json_set_alloc_funcs(mem_alloc, mem_free);
    enum status status = ERR_MEMORY;
    int n = 0;
    while (status == ERR_MEMORY) {
        json_t *root;
        mem_fail_after(++n, 1);
        status = json_read_text(&root, text, sizeof(text) - 1, "test", ERR_DATA);
        mem_fail_after(0, 0);
        json_decref(root);
    }
    json_set_alloc_funcs(before_alloc, before_free);
    assert_int_equal(status, OK);
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_carry_code_message_and_place),
        cmocka_unit_test(long_messages_are_cut_not_overrun),
        cmocka_unit_test(every_status_has_name_meaning_and_exit_code),
        cmocka_unit_test(allocations_are_counted_and_can_be_made_to_fail),
        cmocka_unit_test(freed_memory_is_held_until_the_last_end),
        cmocka_unit_test(pools_hand_out_zeroed_aligned_memory),
        cmocka_unit_test(a_pool_that_ran_out_stays_failed),
        cmocka_unit_test(vectors_grow_and_keep_their_elements),
        cmocka_unit_test(strings_build_up_and_failures_stick),
        cmocka_unit_test(near_misses_are_suggested),
        cmocka_unit_test(sizes_are_read_as_people_write_them),
        cmocka_unit_test(integers_are_read_whole_or_not_at_all),
        cmocka_unit_test(numbers_are_written_for_people),
        cmocka_unit_test(every_half_widens_exactly_and_comes_back),
        cmocka_unit_test(floats_round_to_the_nearest_half_ties_to_even),
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(many_words_are_those_of_one_counter_after_the_other),
        cmocka_unit_test(draws_have_the_right_ranges_and_moments),
        cmocka_unit_test(a_generator_resumes_from_its_three_numbers),
        cmocka_unit_test(json_without_memory_is_not_bad_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
