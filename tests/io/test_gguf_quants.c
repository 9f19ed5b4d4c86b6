/* GGUF's number formats: the same bytes as other writers where the format leaves no choice, and as
 * small an error where it does. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "io/gguf_types.h"
#include "io/safetensors.h"
#include "support/gguf_file.h"
#include "support/golden.h"

static struct st_reader *open_golden(void)
{
    struct st_reader *r;
    expect_ok(st_reader_open_file(&r, SNUG_SOURCE_DIR "/tests/golden/gguf/quants.safetensors"));
    return r;
}

static const struct st_tensor *get(struct st_reader *r, const char *name)
{
    const struct st_tensor *t;
    expect_ok(st_reader_get(r, name, &t));
    return t;
}

static float *floats(const struct st_tensor *t)
{
    float *x = mem_alloc((size_t)t->n_bytes);
    assert_non_null(x);
    memcpy(x, t->data, (size_t)t->n_bytes);
    return x;
}

static uint8_t *encoded(enum gguf_type type, const float *x, int64_t n, int64_t *n_bytes)
{
    *n_bytes = n / gguf_types[type].elems * gguf_types[type].bytes;
    uint8_t *out = mem_alloc((size_t)*n_bytes);
    assert_non_null(out);
    gguf_encode(type, x, n, out);
    return out;
}

static void blocks_of_32_have_the_bytes_of_other_writers(void **state)
{
    static const enum gguf_type types[] = {GGUF_Q8_0, GGUF_Q4_0};
    struct st_reader *r = open_golden();
    const struct st_tensor *t = get(r, "x");
    float *x = floats(t);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const struct st_tensor *due = get(r, gguf_types[types[i]].name);
        int64_t n_bytes;
        uint8_t *bytes = encoded(types[i], x, t->n_elems, &n_bytes);
        assert_int_equal(n_bytes, due->n_bytes);
        assert_memory_equal(bytes, due->data, (size_t)n_bytes);
        mem_free(bytes);
    }
    mem_free(x);
    st_reader_close(r);
}

static void the_tests_decode_as_other_readers_do(void **state)
{
    static const enum gguf_type types[] = {GGUF_Q8_0, GGUF_Q4_0, GGUF_Q4_K, GGUF_Q5_K, GGUF_Q6_K};
    struct st_reader *r = open_golden();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "%s.decoded", gguf_types[types[i]].name);
        const struct st_tensor *due = get(r, name);
        float *x = mem_alloc((size_t)due->n_bytes);
        assert_non_null(x);
        gguf_read_decode(gguf_types[types[i]].id, get(r, gguf_types[types[i]].name)->data,
                         due->n_elems, x);
        assert_memory_equal(x, due->data, (size_t)due->n_bytes);
        mem_free(x);
    }
    st_reader_close(r);
}

static double error_of(enum gguf_type type, const float *x, int64_t n)
{
    int64_t n_bytes;
    uint8_t *bytes = encoded(type, x, n, &n_bytes);
    float *back = mem_alloc((size_t)n * sizeof(float));
    double squares = 0;
    assert_non_null(back);
    gguf_read_decode(gguf_types[type].id, bytes, n, back);
    for (int64_t i = 0; i < n; i++)
        squares += pow((double)back[i] - (double)x[i], 2);
    mem_free(bytes);
    mem_free(back);
    return sqrt(squares / (double)n);
}

static void blocks_of_256_err_no_more_than_llama_cpp(void **state)
{
    static const enum gguf_type types[] = {GGUF_Q4_K, GGUF_Q5_K, GGUF_Q6_K};
    struct st_reader *r = open_golden();
    const struct st_tensor *t = get(r, "x");
    float *x = floats(t);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        double due = strtod(st_reader_metadata(r, gguf_types[types[i]].name), NULL);
        double error = error_of(types[i], x, t->n_elems);
        print_message("%s: rmse %.3g, llama.cpp %.3g\n", gguf_types[types[i]].name, error, due);
        assert_true(error <= 1.01 * due);
    }
    mem_free(x);
    st_reader_close(r);
}

static void odd_blocks_decode_to_finite_numbers_near_them(void **state)
{
    float x[256];
    (void)state;
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < 256; i++)
            x[i] = k == 0   ? 0
                   : k == 1 ? 1e-42f * (float)(i - 128)
                   : k == 2 ? 3e-38f
                   : k == 3 ? (i == 17 ? 400000.0f : 0)
                            : -2.5f;
        for (int type = GGUF_Q8_0; type < GGUF_TYPE_COUNT; type++) {
            /* The scale of ternary blocks is their largest number: no more than f16 holds. */
            double most = k == 3 ? (type == GGUF_TQ2_0 ? 21000 : 4000) : k == 4 ? 0.02 : 1e-6;
            assert_true(error_of((enum gguf_type)type, x, 256) <= most);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_32_have_the_bytes_of_other_writers),
        cmocka_unit_test(the_tests_decode_as_other_readers_do),
        cmocka_unit_test(blocks_of_256_err_no_more_than_llama_cpp),
        cmocka_unit_test(odd_blocks_decode_to_finite_numbers_near_them),
    };
    return cmocka_run_group_tests_name("gguf_quants", tests, NULL, NULL);
}
