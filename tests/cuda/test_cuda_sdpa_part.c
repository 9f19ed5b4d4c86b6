/* Which parts of an attention call cuDNN is given at a time: sizes and shapes of parts, and the
 * choice for shapes of real models with the workspace that their plans ask for on an H200 (two
 * bytes per head and pair of tokens, and what repeating and adding the heads of a group takes).
 * Needs a build with CUDA, but no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/gpu.h"

#ifdef SNUG_HAVE_CUDA

#include "base/compiler.h"
#include "device/cuda/declared/sdpa_part.h"

enum { N_MULTIPROCESSORS = 132 };

static const int64_t MIB = 1 << 20;

static struct sdpa_shape shape(int64_t batch, int64_t n_tokens, int64_t heads, int64_t kv_heads,
                               int64_t head_dim)
{
    return (struct sdpa_shape){.kind = SDPA_GRAD,
                               .dtype = DTYPE_BF16,
                               .batch = batch,
                               .n_tokens = n_tokens,
                               .heads = heads,
                               .kv_heads = kv_heads,
                               .head_dim = head_dim,
                               .row_heads = heads,
                               .row_kv_heads = kv_heads,
                               .causal = true,
                               .scale = 0.125f};
}

static void parts_divide_a_call_from_one_head_to_all_of_it(void **state)
{
    (void)state;
    const struct sdpa_shape s = shape(6, 128, 12, 4, 64);
    static const int64_t sizes[] = {1, 2, 4, 8, 12, 24, 0};
    int64_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        assert_int_equal(sdpa_part_previous(&s, sizes[i]), i + 1 < ARRAY_LEN(sizes) ? n : 0);
        n = sdpa_part_next(&s, n);
        assert_int_equal(n, sizes[i]);
    }
    assert_int_equal(sdpa_part_whole(&s), 24);
}

static void a_part_is_whole_rows_or_heads_of_one_row(void **state)
{
    (void)state;
    const struct sdpa_shape s = shape(6, 128, 12, 4, 64);
    for (int64_t n = sdpa_part_next(&s, 0); n > 0; n = sdpa_part_next(&s, n)) {
        struct sdpa_shape p = sdpa_part_shape(&s, n);
        assert_int_equal(p.batch * p.kv_heads, n);
        assert_int_equal(p.heads, 3 * p.kv_heads);
        assert_true(p.batch == 1 || p.kv_heads == 4);
        assert_int_equal(s.batch % p.batch, 0);
        assert_int_equal(s.kv_heads % p.kv_heads, 0);
        assert_int_equal(p.row_heads, 12);
        assert_int_equal(p.row_kv_heads, 4);
    }
}

/* lse of a later part would not be aligned. */
static void odd_numbers_of_tokens_are_not_divided(void **state)
{
    (void)state;
    const struct sdpa_shape s = shape(6, 130, 12, 4, 64);
    assert_int_equal(sdpa_part_next(&s, 0), 24);
    assert_int_equal(sdpa_part_next(&s, 24), 0);
    assert_int_equal(sdpa_part_previous(&s, 24), 0);
}

struct choice {
    int64_t batch, n_tokens, heads, kv_heads, head_dim;
    int64_t mib; /* of the whole call's plan */
    int64_t part_batch, part_heads;
};

/* On a GPU of 20 GiB. */
static const struct choice choices[] = {
    {32, 1024, 12, 12, 64, 769, 8, 12},  /* GPT-2 124M */
    {4, 2048, 32, 32, 128, 1025, 1, 32}, /* Llama 7B */
    {16, 1024, 28, 4, 128, 1121, 4, 28}, /* Qwen 2.5 7B */
    {8, 2048, 32, 4, 64, 2178, 1, 32},   /* Llama 1.1B: a row is more than the activations */
    {8, 2048, 32, 4, 64, 2306, 1, 32},   /* the same with keys and values repeated */
    {8, 1024, 25, 25, 64, 401, 4, 25},   /* GPT-2 1558M */
    {4, 1024, 12, 12, 64, 96, 4, 12},    /* small: at once */
    {32, 1024, 12, 12, 64, 0, 32, 12},   /* no workspace: at once */
    {1, 4096, 32, 32, 128, 1025, 1, 8},  /* one long row: its heads */
    {1, 8192, 32, 32, 128, 4097, 1, 4},  /* more than is fair, to fill the GPU */
    {1, 65536, 8, 8, 64, 1 << 20, 1, 0}, /* even one head wants too much */
};
/* On one of 144 GiB. */
static const struct choice large_choices[] = {
    {32, 1024, 12, 12, 64, 769, 32, 12},
    {8, 2048, 32, 4, 64, 2178, 8, 32},
    {8, 4096, 32, 32, 128, 8200, 2, 32},
};

static void check_choices(const struct choice *list, size_t n_choices, int64_t gib)
{
    const struct sdpa_machine machine = {N_MULTIPROCESSORS, gib << 30};
    for (size_t i = 0; i < n_choices; i++) {
        const struct choice *c = &list[i];
        struct sdpa_shape s = shape(c->batch, c->n_tokens, c->heads, c->kv_heads, c->head_dim);
        int64_t n = sdpa_part_choose(&s, c->mib * MIB, &machine);
        struct sdpa_shape p = sdpa_part_shape(&s, n);
        if (p.heads != c->part_heads || (n > 0 && p.batch != c->part_batch))
            print_error("choice %zu: B%lld H%lld\n", i, (long long)p.batch, (long long)p.heads);
        assert_int_equal(p.heads, c->part_heads);
        assert_int_equal(n > 0 ? p.batch : 1, c->part_batch);
        assert_true(c->mib * MIB / sdpa_part_whole(&s) * n <= sdpa_part_most_bytes(&s, &machine));
    }
}

static void the_part_is_the_largest_with_a_fair_workspace(void **state)
{
    (void)state;
    check_choices(choices, ARRAY_LEN(choices), 20);
    check_choices(large_choices, ARRAY_LEN(large_choices), 144);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_divide_a_call_from_one_head_to_all_of_it),
        cmocka_unit_test(a_part_is_whole_rows_or_heads_of_one_row),
        cmocka_unit_test(odd_numbers_of_tokens_are_not_divided),
        cmocka_unit_test(the_part_is_the_largest_with_a_fair_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    print_message("skipped: built without CUDA\n");
    return GPU_SKIPPED;
}

#endif
