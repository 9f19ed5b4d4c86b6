/* Matrix products across the edges of every block, in every layout and storage, against sums in
 * double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/rng.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/support/ref.h"

struct product {
    int64_t m, n, k;
    bool a_across, b_across; /* stored transposed */
    enum dtype a, b, c;
    bool add, bias;
    int n_threads;
    bool residual;
};

static struct tensor tensor_new(enum dtype dtype, int64_t n, uint64_t seed)
{
    struct tensor t = {dtype, shape_of(1, n), NULL};
    t.data = mem_alloc((size_t)tensor_bytes(&t));
    assert_non_null(t.data);
    for (int64_t i = 0; i < n; i++)
        ref_set(&t, i, (double)rng_uniform(philox(seed, 0, (uint64_t)i).v[0]) - 0.5);
    return t;
}

/* Runs p; returns C, to be freed, in f32 or 16 bits. Nothing behind the workspace is touched. */
static struct tensor run(const struct product *p, const struct tensor *a, const struct tensor *b,
                         const float *bias)
{
    struct kernel_env env = {.n_threads = p->n_threads};
    assert_int_equal(team_new(&env.team, p->n_threads), OK);
    struct tensor c = tensor_new(p->c, p->m * p->n, 3), residual = tensor_new(p->c, p->m * p->n, 5);
    int64_t n_bytes = cpu_gemm_workspace(&env, p->m, p->n, p->k);
    char *memory = mem_alloc((size_t)n_bytes + 128), *workspace;
    assert_non_null(memory);
    workspace = memory + (64 - (uintptr_t)memory % 64) % 64;
    memset(workspace, 0xff, (size_t)n_bytes + 1);
    struct cpu_gemm g = {
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a = cpu_matrix_of(a, 0, p->a_across ? p->m : p->k),
        .b = cpu_matrix_of(b, 0, p->b_across ? p->k : p->n),
        .c = c.data,
        .c_dtype = p->c,
        .c_row = p->n,
        .add = p->add,
        .residual = p->residual ? residual.data : NULL,
        .bias = p->bias ? bias : NULL,
    };
    if (p->a_across)
        g.a = cpu_matrix_transposed(g.a);
    if (p->b_across)
        g.b = cpu_matrix_transposed(g.b);
    cpu_gemm(&env, workspace, &g);
    team_free(env.team);
    assert_int_equal((unsigned char)workspace[n_bytes], 0xff);
    mem_free(memory);
    mem_free(residual.data);
    return c;
}

static void compare(const struct product *p, const struct tensor *a, const struct tensor *b,
                    const float *bias, const struct tensor *c)
{
    struct tensor old = tensor_new(p->c, p->m * p->n, p->add ? 3 : 5);
    double tolerance = p->c == DTYPE_F32 ? 1e-5 : 1e-2;
    for (int64_t at = 0; at < p->m * p->n; at += 1 + at / 7) {
        int64_t i = at / p->n, j = at % p->n;
        double want = p->add || p->residual ? ref_get(&old, at) : 0.0;
        want += p->bias ? (double)bias[j] : 0.0;
        for (int64_t e = 0; e < p->k; e++)
            want += ref_get(a, p->a_across ? e * p->m + i : i * p->k + e) *
                    ref_get(b, p->b_across ? j * p->k + e : e * p->n + j);
        double x = ref_get(c, at);
        if (!(fabs(x - want) <= tolerance * (1.0 + fabs(want))))
            fail_msg("[%lld, %lld, %lld] at %lld: %.9g, want %.9g", (long long)p->m,
                     (long long)p->n, (long long)p->k, (long long)at, x, want);
    }
    mem_free(old.data);
}

static void check(struct product p)
{
    struct tensor a = tensor_new(p.a, p.m * p.k, 1), b = tensor_new(p.b, p.k * p.n, 2);
    struct tensor bias = tensor_new(DTYPE_F32, p.n, 4);
    struct tensor c = run(&p, &a, &b, bias.data);
    compare(&p, &a, &b, bias.data, &c);
    mem_free(a.data);
    mem_free(b.data);
    mem_free(bias.data);
    mem_free(c.data);
}

static void check_blocks(enum dtype type)
{
    const int64_t sizes[][3] = {{1, 1, 1},      {13, 33, 17},   {12, 32, 256}, {241, 40, 257},
                                {30, 1030, 9},  {500, 70, 530}, {7, 100, 300}, {9, 2100, 20},
                                {525, 49, 777}, {24, 96, 1600}, {1060, 64, 40}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (int layout = 0; layout < 4; layout++) {
            struct product p = {
                sizes[i][0], sizes[i][1], sizes[i][2], layout & 1, layout & 2,       type,
                type,        DTYPE_F32,   false,       false,      1 + (int)(i % 3), false};
            check(p);
            p.add = true;
            check(p);
            p.add = false;
            p.bias = true;
            check(p);
            p.residual = true;
            check(p);
            p.bias = false;
            check(p);
        }
    }
}

static void blocks_meet_without_gap_or_overlap(void **state)
{
    (void)state;
    check_blocks(DTYPE_F32);
}

/* They have blocks of their own where the processor has tile registers. */
static void blocks_of_bf16_meet_without_gap_or_overlap(void **state)
{
    (void)state;
    check_blocks(DTYPE_BF16);
}

static void storage_may_be_any_mix_of_16_and_32_bits(void **state)
{
    (void)state;
    const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int mix = 0; mix < 27; mix++) {
        struct product p = {250,
                            45,
                            300,
                            mix % 2 == 1,
                            mix % 3 == 1,
                            types[mix % 3],
                            types[mix / 3 % 3],
                            types[mix / 9],
                            mix % 4 == 1,
                            mix % 4 == 2,
                            2,
                            false};
        check(p);
        p.m = 5; /* the path for few rows */
        check(p);
        p.residual = !p.add;
        check(p);
        p.m = 250;
        check(p);
    }
}

static void check_rounding(enum dtype type)
{
    struct product p = {18,         1030,       1700,  false, true, type,
                        DTYPE_BF16, DTYPE_BF16, false, true,  2,    false};
    check(p);
    p.c = DTYPE_F32;
    struct tensor a = tensor_new(p.a, p.m * p.k, 1), b = tensor_new(p.b, p.k * p.n, 2);
    struct tensor bias = tensor_new(DTYPE_F32, p.n, 4);
    struct tensor whole = run(&p, &a, &b, bias.data);
    p.c = DTYPE_BF16;
    struct tensor half = run(&p, &a, &b, bias.data);
    for (int64_t at = 0; at < p.m * p.n; at++) {
        uint16_t want = bf16_from_f32(((const float *)whole.data)[at]);
        assert_int_equal(((const uint16_t *)half.data)[at], want);
    }
    mem_free(a.data);
    mem_free(b.data);
    mem_free(bias.data);
    mem_free(whole.data);
    mem_free(half.data);
}

/* A C in 16 bits is finished in f32 over blocks of k and of columns before it is rounded. */
static void a_16_bit_result_is_rounded_once(void **state)
{
    (void)state;
    check_rounding(DTYPE_F32);
    check_rounding(DTYPE_BF16);
}

static void check_threads(enum dtype type)
{
    struct product p = {100, 200, 300, false, true, type, type, DTYPE_F32, false, false, 1, false};
    struct tensor a = tensor_new(p.a, p.m * p.k, 1), b = tensor_new(p.b, p.k * p.n, 2);
    struct tensor one = run(&p, &a, &b, NULL);
    for (p.n_threads = 2; p.n_threads <= 6; p.n_threads++) {
        struct tensor more = run(&p, &a, &b, NULL);
        assert_memory_equal(one.data, more.data, (size_t)tensor_bytes(&one));
        mem_free(more.data);
    }
    mem_free(a.data);
    mem_free(b.data);
    mem_free(one.data);
}

static void the_number_of_threads_does_not_show_in_the_result(void **state)
{
    (void)state;
    check_threads(DTYPE_F32);
    check_threads(DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_meet_without_gap_or_overlap),
        cmocka_unit_test(blocks_of_bf16_meet_without_gap_or_overlap),
        cmocka_unit_test(storage_may_be_any_mix_of_16_and_32_bits),
        cmocka_unit_test(a_16_bit_result_is_rounded_once),
        cmocka_unit_test(the_number_of_threads_does_not_show_in_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
