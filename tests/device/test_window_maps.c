/* Pools and resizes as the CUDA kernels map them, without a GPU (device/cuda/declared/
 * window_maps.h): along an axis every output reads the places that the ops say, with their shares,
 * every place finds the outputs that read it, and 32 bits do for all sizes that they are used for.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/cuda/declared/window_maps.h"
#include "ops/window_support.h"

/* The functions of a map, of both kinds of numbers. */
struct map {
    struct reach_32 (*reads_32)(const struct window_axis_32 *a, int32_t o);
    struct reach_32 (*readers_32)(const struct window_axis_32 *a, int32_t i);
    float (*share_32)(const struct window_axis_32 *a, int32_t o, int32_t i);
    struct reach_64 (*reads_64)(const struct window_axis_64 *a, int64_t o);
    struct reach_64 (*readers_64)(const struct window_axis_64 *a, int64_t i);
    float (*share_64)(const struct window_axis_64 *a, int64_t o, int64_t i);
};

#define MAP(name)                                                                                \
    {                                                                                            \
        name##_reads_32, name##_readers_32, name##_share_32, name##_reads_64, name##_readers_64, \
            name##_share_64                                                                      \
    }

static const struct map windows = MAP(window), taps = MAP(tap), bins = MAP(bin);

static struct window_axis_32 narrow(const struct window_axis_64 *a)
{
    return (struct window_axis_32){(int32_t)a->size,   (int32_t)a->out, (int32_t)a->kernel,
                                   (int32_t)a->stride, (int32_t)a->pad, a->flag};
}

/* ---- what the ops say ------------------------------------------------------------------------ */

typedef double share_fn(const struct window_axis_64 *a, int64_t o, int64_t i);

static double window_says(const struct window_axis_64 *a, int64_t o, int64_t i)
{
    int64_t from = o * a->stride - a->pad, n = 0;
    for (int64_t k = from; k < from + a->kernel; k++)
        n += k >= 0 && k < a->size;
    if (i < from || i >= from + a->kernel)
        return 0.0;
    return 1.0 / (double)(a->flag ? a->kernel : n);
}

static double tap_says(const struct window_axis_64 *a, int64_t o, int64_t i)
{
    struct resize_tap t = resize_tap_of(o, a->size, a->out, a->flag);
    return (t.low == i ? 1.0 - t.share : 0.0) + (t.high == i ? t.share : 0.0);
}

static double bin_says(const struct window_axis_64 *a, int64_t o, int64_t i)
{
    int64_t first = adaptive_first(o, a->size, a->out), last = adaptive_last(o, a->size, a->out);
    return i >= first && i < last ? 1.0 / (double)(last - first) : 0.0;
}

/* ---- small axes, every pair ------------------------------------------------------------------ */

/* The share of place i in output o as each side finds it. */
static void check_pair(const struct map *m, const struct window_axis_64 *a, int64_t o, int64_t i,
                       double want)
{
    const struct window_axis_32 b = narrow(a);
    struct reach_64 reads = m->reads_64(a, o), readers = m->readers_64(a, i);
    struct reach_32 reads_32 = m->reads_32(&b, (int32_t)o);
    struct reach_32 readers_32 = m->readers_32(&b, (int32_t)i);
    double share = (double)m->share_64(a, o, i);
    assert_true(reads.first >= 0 && reads.last <= a->size);
    assert_true(readers.first >= 0 && readers.last <= a->out);
    assert_true(fabs((i >= reads.first && i < reads.last ? share : 0.0) - want) < 1e-6);
    assert_true(fabs((o >= readers.first && o < readers.last ? share : 0.0) - want) < 1e-6);
    assert_int_equal(reads_32.first, reads.first);
    assert_int_equal(reads_32.last, reads.last);
    assert_int_equal(readers_32.first, readers.first);
    assert_int_equal(readers_32.last, readers.last);
    assert_true(m->share_32(&b, (int32_t)o, (int32_t)i) == m->share_64(a, o, i));
}

static void check_axis(const struct map *m, const struct window_axis_64 *a, share_fn *says)
{
    for (int64_t o = 0; o < a->out; o++) {
        for (int64_t i = 0; i < a->size; i++)
            check_pair(m, a, o, i, says(a, o, i));
    }
}

static void resized_axes_read_and_are_read_by_the_same_shares(void **state)
{
    (void)state;
    for (int64_t size = 1; size < 16; size++) {
        for (int64_t out = 1; out < 20; out++) {
            struct window_axis_64 a = {.size = size, .out = out};
            check_axis(&bins, &a, bin_says);
            check_axis(&taps, &a, tap_says);
            a.flag = true;
            check_axis(&taps, &a, tap_says);
        }
    }
}

static void pooled_axes_read_and_are_read_by_the_same_shares(void **state)
{
    (void)state;
    for (int64_t size = 1; size < 9; size++) {
        for (int64_t kernel = 1; kernel < 6; kernel++) {
            for (int64_t stride = 1; stride < 5; stride++) {
                for (int64_t pads = 0; pads < 2 * kernel * kernel; pads++) {
                    int64_t before = pads / 2 / kernel, after = pads / 2 % kernel;
                    int64_t left = size + before + after - kernel;
                    struct window_axis_64 a = {.size = size,
                                               .out = left / stride + 1,
                                               .kernel = kernel,
                                               .stride = stride,
                                               .pad = before,
                                               .flag = pads % 2 == 1};
                    if (left >= 0)
                        check_axis(&windows, &a, window_says);
                }
            }
        }
    }
}

/* ---- the largest axes of 32 bits ------------------------------------------------------------- */

static void the_largest_small_axes_fit_32_bits(void **state)
{
    (void)state;
    enum { MOST = WINDOW_SMALL - 1 };
    static const int64_t sizes[] = {1, 2, 8191, MOST - 1, MOST};
    for (int s = 0; s < 5; s++) {
        for (int t = 0; t < 5; t++) {
            struct window_axis_64 a = {.size = sizes[s], .out = sizes[t], .flag = true};
            const int64_t o[2] = {0, a.out - 1}, i[2] = {0, a.size - 1};
            for (int k = 0; k < 4; k++) {
                check_pair(&taps, &a, o[k / 2], i[k % 2], tap_says(&a, o[k / 2], i[k % 2]));
                check_pair(&bins, &a, o[k / 2], i[k % 2], bin_says(&a, o[k / 2], i[k % 2]));
            }
        }
    }
    struct window_axis_64 w = {
        .size = MOST, .out = 1, .kernel = MOST, .stride = MOST, .flag = true};
    check_pair(&windows, &w, 0, MOST - 1, window_says(&w, 0, MOST - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resized_axes_read_and_are_read_by_the_same_shares),
        cmocka_unit_test(pooled_axes_read_and_are_read_by_the_same_shares),
        cmocka_unit_test(the_largest_small_axes_fit_32_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
