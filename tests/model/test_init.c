/* Random initialisation: its statistics, and that an element depends on nothing but seed, name and
 * number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/rng.h"
#include "model/init.h"
#include "support/golden.h"

enum { N = 100001 };

static const struct model_param weight = {
    .name = "layers.0.qkv.weight", .init = INIT_NORMAL, .std = 0.02};

static float *drawn(const struct model_param *p, uint64_t seed, int n_threads)
{
    float *x = mem_alloc(N * sizeof(*x));
    assert_non_null(x);
    struct team *team;
    expect_ok(team_new(&team, n_threads));
    expect_ok(init_param(p, seed, DTYPE_F32, 0, N, x, team));
    team_free(team);
    return x;
}

static void draws_are_normal_with_the_asked_deviation(void **state)
{
    (void)state;
    float *x = drawn(&weight, 42, 2);
    double sum = 0, squares = 0, fourth = 0, neighbours = 0;
    int n_beyond = 0;
    for (int i = 0; i < N; i++) {
        double z = (double)x[i] / 0.02;
        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
        neighbours += i ? z * (double)x[i - 1] / 0.02 : 0;
        n_beyond += fabs(z) > 1.959964;
    }
    /* standard errors at N = 1e5: 0.003, 0.0045, 0.031, 0.003, 0.0007 */
    assert_true(fabs(sum / N) < 0.015);
    assert_true(fabs(squares / N - 1) < 0.02);
    assert_true(fabs(fourth / N - 3) < 0.15);
    assert_true(fabs(neighbours / N) < 0.015);
    assert_true(fabs((double)n_beyond / N - 0.05) < 0.0035);
    mem_free(x);
}

static void threads_and_pieces_do_not_change_the_draws(void **state)
{
    (void)state;
    float *one = drawn(&weight, 7, 1), *two = drawn(&weight, 7, 2);
    assert_memory_equal(one, two, N * sizeof(*one));
    for (int64_t first = 0; first < N;) { /* pieces of odd lengths */
        int64_t n = MIN((int64_t)997, N - first);
        float part[997];
        expect_ok(init_param(&weight, 7, DTYPE_F32, first, n, part, NULL));
        assert_memory_equal(part, one + first, (size_t)n * sizeof(float));
        first += n;
    }
    mem_free(one);
    mem_free(two);
}

/* Wichura's AS 241 as it stands in the paper, one word at a time. */
static float plain_draw(uint32_t w)
{
    uint32_t t = w & 0x80000000u ? ~w : w;
    float p = ((float)t + 0.5f) * (1.0f / 4294967296.0f), q = 0.5f - p, x;
    if (p >= 0.075f) {
        float r = 0.180625f - q * q;
        float a = ((59.109374720f * r + 159.29113202f) * r + 50.434271938f) * r + 3.3871327179f;
        float b = ((67.187563600f * r + 78.757757664f) * r + 17.895169469f) * r + 1.0f;
        x = q * a / b;
    } else {
        float r = sqrtf(-logf(p)) - 1.6f;
        float a = ((0.17023821103f * r + 1.3067284816f) * r + 2.7568153900f) * r + 1.4234372777f;
        x = a / ((0.12021132975f * r + 0.73700164250f) * r + 1.0f);
    }
    return w & 0x80000000u ? x : -x;
}

static void draws_are_bit_for_bit_those_of_the_plain_formula(void **state)
{
    (void)state;
    enum { MANY = 1 << 21, AT_ONCE = 1 << 14 };
    static float x[AT_ONCE];
    uint64_t stream = hash_text(weight.name);
    for (int64_t first = 0; first < MANY; first += AT_ONCE) {
        expect_ok(init_param(&weight, 11, DTYPE_F32, first, AT_ONCE, x, NULL));
        for (int64_t i = 0; i < AT_ONCE; i++) {
            uint32_t w = philox(11, stream, (uint64_t)(first + i) / 4).v[i % 4];
            float due = 0.02f * plain_draw(w);
            if (f32_bits(x[i]) != f32_bits(due))
                fail_msg("draw %lld is %a, not %a", (long long)(first + i), (double)x[i],
                         (double)due);
        }
    }
}

static void another_seed_or_name_gives_other_draws(void **state)
{
    (void)state;
    struct model_param other = weight;
    other.name = "layers.1.qkv.weight";
    float *a = drawn(&weight, 1, 1), *b = drawn(&weight, 2, 1), *c = drawn(&other, 1, 1);
    double ab = 0, ac = 0;
    for (int i = 0; i < N; i++) {
        ab += (double)a[i] * (double)b[i] / 0.0004;
        ac += (double)a[i] * (double)c[i] / 0.0004;
    }
    assert_true(fabs(ab / N) < 0.015);
    assert_true(fabs(ac / N) < 0.015);
    mem_free(a);
    mem_free(b);
    mem_free(c);
}

static void narrow_dtypes_hold_the_same_draws_rounded(void **state)
{
    (void)state;
    enum { FEW = 1001 };
    float x[FEW];
    double d[FEW];
    uint16_t b[FEW], h[FEW];
    expect_ok(init_param(&weight, 3, DTYPE_F32, 0, FEW, x, NULL));
    expect_ok(init_param(&weight, 3, DTYPE_F64, 0, FEW, d, NULL));
    expect_ok(init_param(&weight, 3, DTYPE_BF16, 0, FEW, b, NULL));
    expect_ok(init_param(&weight, 3, DTYPE_F16, 0, FEW, h, NULL));
    for (int i = 0; i < FEW; i++) {
        assert_true(d[i] == (double)x[i]);
        assert_int_equal(b[i], bf16_from_f32(x[i]));
        assert_int_equal(h[i], f16_from_f32(x[i]));
    }
    int32_t wrong[4];
    assert_int_equal(init_param(&weight, 3, DTYPE_I32, 0, 4, wrong, NULL), ERR_SHAPE);
}

static void ones_and_zeros_are_exact(void **state)
{
    (void)state;
    struct model_param p = {.name = "norm.weight", .init = INIT_ONE};
    float x[7];
    expect_ok(init_param(&p, 3, DTYPE_F32, 2, 7, x, NULL));
    for (int i = 0; i < 7; i++)
        assert_true(x[i] == 1.0f);
    p.init = INIT_ZERO;
    expect_ok(init_param(&p, 3, DTYPE_F32, 2, 7, x, NULL));
    for (int i = 0; i < 7; i++)
        assert_true(x[i] == 0.0f);
}

static void architectures_ask_for_their_papers_deviations(void **state)
{
    (void)state;
    struct model_request r = {.purpose = MODEL_TRAIN, .batch = 1, .seq_len = 8, .dtype = DTYPE_F32};
    for (int i = 0; golden_names[i]; i++) {
        struct golden g;
        golden_open(&g, golden_names[i], "config.json", &r);
        bool is_gpt2 = strcmp(golden_names[i], "gpt2") == 0;
        bool from_zero = strncmp(golden_names[i], "gemma", 5) == 0; /* norms are 1 + weight */
        for (int k = 0; k < g.built.n_params; k++) {
            const struct model_param *p = &g.built.params[k];
            bool matrix = p->shape.rank == (p->n_experts ? 3 : 2);
            bool bias = strstr(p->name, ".bias") != NULL;
            bool residual = strstr(p->name, ".out.") || strstr(p->name, ".down.");
            assert_int_equal(p->decay, matrix);
            assert_int_equal(p->init, matrix              ? INIT_NORMAL
                                      : bias || from_zero ? INIT_ZERO
                                                          : INIT_ONE);
            if (matrix)
                assert_true(p->std == (is_gpt2 && residual ? 0.01 : 0.02)); /* 0.02 / sqrt(4) */
        }
        golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_normal_with_the_asked_deviation),
        cmocka_unit_test(threads_and_pieces_do_not_change_the_draws),
        cmocka_unit_test(draws_are_bit_for_bit_those_of_the_plain_formula),
        cmocka_unit_test(another_seed_or_name_gives_other_draws),
        cmocka_unit_test(narrow_dtypes_hold_the_same_draws_rounded),
        cmocka_unit_test(ones_and_zeros_are_exact),
        cmocka_unit_test(architectures_ask_for_their_papers_deviations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
