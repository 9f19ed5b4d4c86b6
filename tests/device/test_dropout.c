/* Dropout: the share that is kept, and that the mask is a pure function of (rng, seed, element). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu_kernels.h"

enum { N = 40003 };

struct fixture {
    float x[N], y[N], other[N];
    int64_t rng[2];
};

static struct fixture *new_fixture(void)
{
    struct fixture *f = test_malloc(sizeof(*f));
    for (int i = 0; i < N; i++)
        f->x[i] = 1.0f + (float)(i % 7);
    f->rng[0] = INT64_C(0x1234567890abcdef);
    f->rng[1] = 17;
    return f;
}

/* Runs kernel `name` over x of the given shape into y. */
static void drop_shaped(struct fixture *f, const char *name, const struct attr *attrs,
                        int n_threads, struct shape shape, const float *x, float *y)
{
    const struct tensor in[] = {{DTYPE_F32, shape, (void *)(uintptr_t)x},
                                {DTYPE_I64, shape_of(1, (int64_t)2), f->rng}};
    struct tensor out = {DTYPE_F32, shape, y};
    const struct op_call call = {
        .op = OP_dropout, .n_in = 2, .n_out = 1, .in = in, .out = &out, .attrs = attrs};
    float workspace[1024] __attribute__((aligned(64)));
    struct kernel_ctx ctx = {.env = {.n_threads = n_threads}, .workspace = workspace};
    const struct kernel *k = cpu_kernels(OP_dropout);
    while (strcmp(k->name, name) != 0)
        k++;
    assert_int_equal(team_new(&ctx.env.team, n_threads), OK);
    assert_int_equal(k->run(&ctx, &call), OK);
    team_free(ctx.env.team);
}

static void drop(struct fixture *f, const char *name, double p, int64_t seed, int n_threads,
                 const float *x, float *y)
{
    const struct attr attrs[] = {{.f = p}, {.i = seed}, {.i = 0}};
    drop_shaped(f, name, attrs, n_threads, shape_of(1, (int64_t)N), x, y);
}

static int count_kept(const float *y)
{
    int n = 0;
    for (int i = 0; i < N; i++)
        n += y[i] != 0.0f;
    return n;
}

static int count_same_choice(const float *a, const float *b)
{
    int n = 0;
    for (int i = 0; i < N; i++)
        n += (a[i] != 0.0f) == (b[i] != 0.0f);
    return n;
}

static void keeps_the_share_it_says_and_scales_it(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    static const double ps[] = {0.0, 0.1, 0.5, 0.9};
    for (size_t k = 0; k < ARRAY_LEN(ps); k++) {
        double p = ps[k];
        drop(f, "blocked", p, 3, 2, f->x, f->y);
        double sigma = sqrt(N * p * (1.0 - p));
        assert_true(fabs(count_kept(f->y) - N * (1.0 - p)) <= 4.0 * sigma);
        for (int i = 0; i < N; i++) {
            double want = (double)f->x[i] / (1.0 - p);
            assert_true(f->y[i] == 0.0f || fabs((double)f->y[i] - want) < 1e-6 * want);
        }
    }
    test_free(f);
}

static void p_zero_is_the_identity(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    drop(f, "blocked", 0.0, 3, 2, f->x, f->y);
    assert_memory_equal(f->x, f->y, sizeof(f->x));
    test_free(f);
}

static void mask_depends_on_nothing_but_rng_seed_and_element(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    drop(f, "blocked", 0.3, 3, 2, f->x, f->y);
    drop(f, "blocked", 0.3, 3, 1, f->x, f->other); /* another thread count */
    assert_memory_equal(f->y, f->other, sizeof(f->y));
    drop(f, "reference", 0.3, 3, 1, f->x, f->other);
    assert_int_equal(count_same_choice(f->y, f->other), N);
    for (int i = 0; i < N; i++)
        f->other[i] = -2.0f;
    drop(f, "blocked", 0.3, 3, 2, f->other, f->other); /* other values, in place */
    assert_int_equal(count_same_choice(f->y, f->other), N);
    test_free(f);
}

/* Two independent masks agree on a share p^2 + (1 - p)^2 of the elements. */
static void mask_changes_with_key_step_and_seed(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    const double p = 0.5, share = p * p + (1.0 - p) * (1.0 - p);
    const double sigma = sqrt(N * share * (1.0 - share));
    drop(f, "blocked", p, 3, 2, f->x, f->y);
    drop(f, "blocked", p, 4, 2, f->x, f->other);
    assert_true(fabs(count_same_choice(f->y, f->other) - N * share) < 4.0 * sigma);
    f->rng[1]++;
    drop(f, "blocked", p, 3, 2, f->x, f->other);
    assert_true(fabs(count_same_choice(f->y, f->other) - N * share) < 4.0 * sigma);
    f->rng[1]--;
    f->rng[0]++;
    drop(f, "blocked", p, 3, 2, f->x, f->other);
    assert_true(fabs(count_same_choice(f->y, f->other) - N * share) < 4.0 * sigma);
    test_free(f);
}

static void dropped_infinities_are_zero(void **state)
{
    (void)state;
    struct fixture *f = new_fixture();
    for (int i = 0; i < N; i++)
        f->x[i] = INFINITY;
    drop(f, "blocked", 0.5, 3, 2, f->x, f->y);
    for (int i = 0; i < N; i++)
        assert_true(f->y[i] == 0.0f || f->y[i] == INFINITY);
    test_free(f);
}

/* Every place of a sample's channel shares the choice, and channels have choices of their own. */
static void whole_channels_are_kept_or_dropped(void **state)
{
    (void)state;
    enum { SAMPLES = 20, PLACES = 40, CHANNELS = 50 };
    struct fixture *f = new_fixture();
    struct shape shape = shape_of(3, (int64_t)SAMPLES, (int64_t)PLACES, (int64_t)CHANNELS);
    const struct attr attrs[] = {{.f = 0.5}, {.i = 3}, {.i = 1}};
    int n_kept = 0;
    drop_shaped(f, "channels", attrs, 2, shape, f->x, f->y);
    for (int i = 0; i < SAMPLES * PLACES * CHANNELS; i++) {
        int first = i / (PLACES * CHANNELS) * PLACES * CHANNELS + i % CHANNELS;
        assert_int_equal(f->y[i] != 0.0f, f->y[first] != 0.0f);
        assert_true(f->y[i] == 0.0f || f->y[i] == 2.0f * f->x[i]);
        n_kept += i == first && f->y[i] != 0.0f;
    }
    assert_true(abs(n_kept - SAMPLES * CHANNELS / 2) < 4 * 16); /* four times sqrt(1000) / 2 */
    test_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_share_it_says_and_scales_it),
        cmocka_unit_test(p_zero_is_the_identity),
        cmocka_unit_test(mask_depends_on_nothing_but_rng_seed_and_element),
        cmocka_unit_test(mask_changes_with_key_step_and_seed),
        cmocka_unit_test(dropped_infinities_are_zero),
        cmocka_unit_test(whole_channels_are_kept_or_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
