/* Rounding by chance: right on average, the same bits however the work is split, and states that
 * keep moving where rounding to nearest would stop them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rounding.h"
#include "device/cpu/cpu_kernels.h"
#include "ops/update_support.h"

enum { N = 4099 };

static float as_float(uint32_t bf16)
{
    return bf16_to_f32((uint16_t)bf16);
}

/* The mean of many roundings of x, in units of the distance of its neighbours in bf16. */
static double mean_error(float x, uint32_t (*share)(uint32_t), int n)
{
    double sum = 0, low = (double)as_float(f32_bits(x) >> 16);
    double gap = fabs((double)as_float((f32_bits(x) >> 16) + 1) - low);
    for (int i = 0; i < n; i++) {
        uint32_t bits = rounding_draw(11, 3, i / 4).v[i % 4];
        sum += (double)as_float(bf16_round_by(f32_bits(x), share(bits)));
    }
    return fabs(sum / n - (double)x) / gap;
}

static void many_roundings_are_right_on_average(void **state)
{
    static const float values[] = {1.0f, 1.001f, 1.0039f, -2.7182818f, 3e-30f, -7e20f, 1.00002f};
    enum { DRAWS = 1 << 18 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        /* One deviation of the mean is at most 1/2 / sqrt(DRAWS) = 0.001; 8 bits add 1/512. */
        assert_true(mean_error(values[i], rounding_param, DRAWS) < 0.004);
        assert_true(mean_error(values[i], rounding_state1, DRAWS) < 0.006);
        assert_true(mean_error(values[i], rounding_state2, DRAWS) < 0.006);
    }
}

static void draws_by_keys_made_before_are_the_same(void **state)
{
    static const int64_t quads[] = {0, 1, 77, INT64_C(0xffffffff), INT64_C(1) << 33};
    static const int64_t steps[] = {0, 1, 100000, -1};
    static const uint64_t seeds[] = {1, UINT64_C(0xffffffff), UINT64_C(0xfedcba9876543210)};
    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(seeds); s++) {
        struct rounding_keys keys = rounding_keys_of(seeds[s]);
        for (size_t i = 0; i < ARRAY_LEN(quads) * ARRAY_LEN(steps); i++) {
            int64_t quad = quads[i % ARRAY_LEN(quads)], step = steps[i / ARRAY_LEN(quads)];
            struct philox4 a = rounding_draw(seeds[s], step, quad);
            struct philox4 b = rounding_draw_by(&keys, step, quad);
            assert_memory_equal(&a, &b, sizeof(a));
        }
    }
}

static void what_bf16_can_hold_stays_as_it_is(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; h++) {
        uint32_t bits = rounding_draw(5, 1, h / 4).v[h % 4];
        uint32_t got = bf16_round_by(h << 16, rounding_param(bits));
        bool is_nan = (h & 0x7fff) > 0x7f80;
        assert_int_equal(got, is_nan ? h | 0x40 : h); /* NaN is made quiet */
        assert_int_equal(bf16_round_by(h << 16, rounding_state1(bits)), got);
        assert_int_equal(bf16_round_by(h << 16, rounding_state2(bits)), got);
    }
}

/* ---- the kernels ----------------------------------------------------------------------------- */

/* AdamW on bf16 parameter, gradient and states. */
struct bench {
    uint16_t p[N], g[N], m[N], v[N];
    float lr, scale;
    int32_t step;
};

static void run(struct bench *b, const char *kernel, int n_threads, int64_t seed)
{
    struct shape all = shape_of(1, (int64_t)N), one = shape_of(1, (int64_t)1);
    struct tensor in[] = {
        {DTYPE_BF16, all, b->p},     {DTYPE_BF16, all, b->g},  {DTYPE_BF16, all, b->m},
        {DTYPE_BF16, all, b->v},     {DTYPE_F32, one, &b->lr}, {DTYPE_I32, one, &b->step},
        {DTYPE_F32, one, &b->scale},
    };
    struct tensor out[] = {in[0], in[2], in[3]};
    struct attr attrs[ADAMW_ATTRS] = {[ADAMW_BETA1] = {.f = 0.9},
                                      [ADAMW_BETA2] = {.f = 0.999},
                                      [ADAMW_EPSILON] = {.f = 1e-8},
                                      [ADAMW_WEIGHT_DECAY] = {.f = 0.01},
                                      [ADAMW_SEED] = {.i = seed}};
    struct op_call c = {
        .op = OP_adamw, .n_in = 7, .n_out = 3, .in = in, .out = out, .attrs = attrs};
    struct kernel_ctx x = {.env = {.n_threads = n_threads}};
    assert_int_equal(team_new(&x.env.team, n_threads), OK);
    for (const struct kernel *k = cpu_kernels(OP_adamw); k->name; k++) {
        if (strcmp(k->name, kernel) == 0)
            assert_int_equal(k->run(&x, &c), OK);
    }
    team_free(x.env.team);
}

static void fill(struct bench *b)
{
    *b = (struct bench){.lr = 1e-3f, .scale = 0.5f, .step = 12};
    for (int i = 0; i < N; i++) {
        struct philox4 r = philox(1, 2, (uint64_t)i);
        b->p[i] = bf16_from_f32(rng_uniform(r.v[0]) - 0.5f);
        b->g[i] = bf16_from_f32(rng_uniform(r.v[1]) - 0.5f);
        b->m[i] = bf16_from_f32(rng_uniform(r.v[2]) - 0.5f);
        b->v[i] = bf16_from_f32(rng_uniform(r.v[3]));
    }
}

static int differences(const uint16_t *a, const uint16_t *b)
{
    int n = 0;
    for (int i = 0; i < N; i++)
        n += a[i] != b[i];
    return n;
}

/* The reference works in f64: an f32 result on the edge may go the other way, rarely. */
static void both_kernels_draw_the_same_bits(void **state)
{
    static struct bench fast, reference, other;
    (void)state;
    fill(&fast);
    fill(&reference);
    fill(&other);
    run(&fast, "blocked", 2, 77);
    run(&reference, "reference", 1, 77);
    run(&other, "blocked", 2, 78);
    assert_true(differences(fast.p, reference.p) <= N / 500);
    assert_true(differences(fast.m, reference.m) <= N / 500);
    assert_true(differences(fast.v, reference.v) <= N / 500);
    assert_true(differences(fast.p, other.p) > N / 50); /* another seed, other draws */
}

static void threads_do_not_change_the_bits(void **state)
{
    static struct bench a, b;
    (void)state;
    fill(&a);
    fill(&b);
    run(&a, "blocked", 1, 77);
    run(&b, "blocked", 3, 77);
    assert_memory_equal(a.p, b.p, sizeof(a.p));
    assert_memory_equal(a.m, b.m, sizeof(a.m));
    assert_memory_equal(a.v, b.v, sizeof(a.v));
}

/* v starts at 1 and the gradient is 0.5: v should fall towards 0.25. Its steps are below half the
 * distance of neighbours, so to nearest it does not move at all. */
static void states_move_where_rounding_to_nearest_leaves_them(void **state)
{
    static struct bench nearest, chance;
    double mean = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        nearest.v[i] = chance.v[i] = bf16_from_f32(1.0f);
        nearest.g[i] = chance.g[i] = bf16_from_f32(0.5f);
    }
    nearest.scale = chance.scale = 1.0f;
    for (int step = 1; step <= 1000; step++) {
        nearest.step = chance.step = step;
        run(&nearest, "blocked", 2, 0);
        run(&chance, "blocked", 2, 9);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(nearest.v[i], bf16_from_f32(1.0f));
        mean += (double)bf16_to_f32(chance.v[i]) / N;
    }
    double exact = 0.25 + 0.75 * pow(0.999, 1000);
    assert_true(fabs(mean - exact) < 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_roundings_are_right_on_average),
        cmocka_unit_test(draws_by_keys_made_before_are_the_same),
        cmocka_unit_test(what_bf16_can_hold_stays_as_it_is),
        cmocka_unit_test(both_kernels_draw_the_same_bits),
        cmocka_unit_test(threads_do_not_change_the_bits),
        cmocka_unit_test(states_move_where_rounding_to_nearest_leaves_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
