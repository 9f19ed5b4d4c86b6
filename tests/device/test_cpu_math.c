/* The vectorisable functions of math.h against libm in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/half.h"
#include "device/cpu/support/math.h"

/* Distance of a from exact, in units of the last place of an f32 near exact. */
static double error_ulp(float a, double exact)
{
    double size = fabs(exact);
    double unit = size < 1.17549435e-38 ? ldexp(1.0, -149) : ldexp(1.0, ilogb(size) - 23);
    return fabs((double)a - exact) / unit;
}

static int same_kind(float a, double exact)
{
    if (isnan(exact))
        return isnan(a);
    if (isinf((float)exact))
        return a == (float)exact;
    return isfinite(a);
}

/* Bit patterns of every sign and exponent, with a step that is prime to the mantissa: denormals,
 * infinities and NaN are among them. Returns the largest error over inputs in [low, high]. */
static double worst_error(float (*fast)(float), double (*exact)(double), float low, float high)
{
    double worst = 0.0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4099) {
        float x = f32_from_bits((uint32_t)bits);
        double want = exact((double)x);
        float got = fast(x);
        if (!same_kind(got, want)) {
            print_error("at %.9g: %.9g instead of %.17g\n", (double)x, (double)got, want);
            return HUGE_VAL;
        }
        if (!isfinite(want) || isinf((float)want) || x < low || x > high)
            continue;
        worst = fmax(worst, error_ulp(got, want));
    }
    return worst;
}

/* Evenly over [low, high], where bit patterns are sparse. */
static double worst_between(float (*fast)(float), double (*exact)(double), double low, double high)
{
    double worst = 0.0;
    enum { N = 1000003 };
    for (int i = 0; i < N; i++) {
        float x = (float)(low + (high - low) * i / N);
        worst = fmax(worst, error_ulp(fast(x), exact((double)x)));
    }
    return worst;
}

static double exact_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double exact_normal_cdf(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static double exact_erfcx(double x)
{
    return exp(x * x) * erfc(x);
}

static float normal_cdf(float x)
{
    return cpu_normal_cdf(x);
}

static float exp_of(float x)
{
    return cpu_expf(x);
}

static float log_of(float x)
{
    return cpu_logf(x);
}

static float tanh_of(float x)
{
    return cpu_tanhf(x);
}

static float erf_of(float x)
{
    return cpu_erff(x);
}

static float sigmoid_of(float x)
{
    return cpu_sigmoidf(x);
}

static float erfcx_of(float x)
{
    return cpu_erfcxf(x);
}

static void exp_is_within_two_units_everywhere(void **state)
{
    (void)state;
    assert_true(worst_error(exp_of, exp, -INFINITY, INFINITY) < 2.0);
    assert_true(worst_between(exp_of, exp, -104.0, 88.7) < 2.0);
}

static void log_is_within_two_units_everywhere(void **state)
{
    (void)state;
    assert_true(worst_error(log_of, log, -INFINITY, INFINITY) < 2.0);
    assert_true(worst_between(log_of, log, 0.5, 2.0) < 2.0);
}

static void tanh_and_erf_are_within_two_units_everywhere(void **state)
{
    (void)state;
    assert_true(worst_error(tanh_of, tanh, -INFINITY, INFINITY) < 2.0);
    assert_true(worst_between(tanh_of, tanh, -10.0, 10.0) < 2.0);
    assert_true(worst_error(erf_of, erf, -INFINITY, INFINITY) < 2.0);
    assert_true(worst_between(erf_of, erf, -5.0, 5.0) < 2.0);
}

static void sigmoid_is_within_three_units_everywhere(void **state)
{
    (void)state;
    assert_true(worst_error(sigmoid_of, exact_sigmoid, -INFINITY, INFINITY) < 3.0);
    assert_true(worst_between(sigmoid_of, exact_sigmoid, -90.0, 20.0) < 3.0);
}

/* 32 units are 2e-6 relative: the lower tail keeps its digits instead of cancelling. */
static void normal_tail_keeps_relative_accuracy(void **state)
{
    (void)state;
    assert_true(worst_error(normal_cdf, exact_normal_cdf, -6.0f, INFINITY) < 32.0);
    assert_true(worst_between(normal_cdf, exact_normal_cdf, -6.0, 6.0) < 32.0);
    assert_true(worst_between(normal_cdf, exact_normal_cdf, -12.0, -6.0) < 100.0);
    assert_true(worst_between(erfcx_of, exact_erfcx, 0.0, 20.0) < 8.0);
}

static void limits_are_exact(void **state)
{
    (void)state;
    assert_true(cpu_expf(-INFINITY) == 0.0f && cpu_expf(INFINITY) == INFINITY);
    assert_true(cpu_expf(0.0f) == 1.0f && cpu_expf(-200.0f) == 0.0f && cpu_expf(89.0f) == INFINITY);
    assert_true(cpu_expf(-100.0f) > 0.0f); /* a denormal */
    assert_true(cpu_logf(1.0f) == 0.0f && cpu_logf(0.0f) == -INFINITY);
    assert_true(cpu_logf(INFINITY) == INFINITY && isnan(cpu_logf(-1.0f)));
    assert_true(cpu_tanhf(INFINITY) == 1.0f && cpu_tanhf(-INFINITY) == -1.0f);
    assert_true(cpu_erff(INFINITY) == 1.0f && cpu_erff(-INFINITY) == -1.0f);
    assert_true(cpu_sigmoidf(INFINITY) == 1.0f && cpu_sigmoidf(-INFINITY) == 0.0f);
    assert_true(cpu_normal_cdf(INFINITY) == 1.0f && cpu_normal_cdf(-INFINITY) == 0.0f);
    assert_true(isnan(cpu_expf(NAN)) && isnan(cpu_logf(NAN)) && isnan(cpu_tanhf(NAN)));
    assert_true(isnan(cpu_erff(NAN)) && isnan(cpu_sigmoidf(NAN)) && isnan(cpu_normal_cdf(-NAN)));
}

static void max_of_finds_the_largest_at_any_place(void **state)
{
    (void)state;
    float x[67] = {0};
    assert_true(cpu_max_of(x, 0) == -INFINITY);
    for (int n = 1; n <= 67; n++) {
        for (int at = 0; at < n; at++) {
            for (int i = 0; i < n; i++)
                x[i] = -3.0f - (float)i;
            x[at] = at % 2 ? 0.5f : -2.5f;
            assert_true(cpu_max_of(x, n) == x[at]);
        }
    }
    float infinite[] = {-INFINITY, -INFINITY};
    assert_true(cpu_max_of(infinite, 2) == -INFINITY);
    float mixed[] = {-1e-40f, INFINITY, 3e38f};
    assert_true(cpu_max_of(mixed, 3) == INFINITY && cpu_max_of(mixed, 1) == -1e-40f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_units_everywhere),
        cmocka_unit_test(log_is_within_two_units_everywhere),
        cmocka_unit_test(tanh_and_erf_are_within_two_units_everywhere),
        cmocka_unit_test(sigmoid_is_within_three_units_everywhere),
        cmocka_unit_test(normal_tail_keeps_relative_accuracy),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(max_of_finds_the_largest_at_any_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
