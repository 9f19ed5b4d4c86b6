/* Codes and scales against bitsandbytes': tests/golden/quantized.safetensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/half.h"
#include "io/coded_matrix.h"
#include "support/golden.h"

enum { ROWS = 34, COLUMNS = 512, N = ROWS * COLUMNS, TAIL = 2048 };

static struct st_reader *reader;

static const struct st_tensor *tensor(const char *kind, const char *suffix)
{
    char name[64];
    const struct st_tensor *t;
    (void)snprintf(name, sizeof(name), "%s%s", kind, suffix);
    expect_ok(st_reader_get(reader, name, &t));
    return t;
}

static void expect_bytes(const char *kind, const char *suffix, const void *have)
{
    const struct st_tensor *t = tensor(kind, suffix);
    if (memcmp(t->data, have, (size_t)t->n_bytes) != 0)
        fail_msg("%s%s is not bitsandbytes'", kind, suffix);
}

static enum status read_golden(void *user, int i_piece, int64_t first, int64_t n, float *x)
{
    const uint8_t *data = tensor("x", "")->data;
    (void)user;
    (void)i_piece;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, data + 2 * (first + i), sizeof(h));
        x[i] = bf16_to_f32(h);
    }
    return OK;
}

static void check(const char *kind, struct quantization q)
{
    static float x[N];
    struct quant_layout l = {.q = q, .n_columns = COLUMNS, .n_pieces = 1, .rows = {ROWS}};
    struct coded_matrix m;
    expect_ok(coded_matrix_init(&m, &l));
    expect_ok(coded_matrix_fill(&m, 0, read_golden, NULL, NULL));
    expect_bytes(kind, ".codes", m.data.codes);
    expect_bytes(kind, ".absmax", m.data.absmax);
    if (q.nested) {
        expect_bytes(kind, ".nested_absmax", m.data.groups);
        expect_bytes(kind, ".nested_quant_map", m.data.tables + 1);
        expect_bytes(kind, ".offset", m.data.tables);
    }
    coded_matrix_decode(&m, x, NULL);
    expect_bytes(kind, ".numbers", x + N - TAIL);
    coded_matrix_release(&m);
}

static void codes_and_numbers_are_bit_for_bit_those_of_bitsandbytes(void **state)
{
    char path[600];
    (void)state;
    (void)snprintf(path, sizeof(path), "%s/tests/golden/quantized.safetensors", SNUG_SOURCE_DIR);
    expect_ok(st_reader_open_file(&reader, path));
    check("nf4", (struct quantization){CODE_NF4, false});
    check("fp4", (struct quantization){CODE_FP4, false});
    check("nf4_nested", (struct quantization){CODE_NF4, true});
    check("fp4_nested", (struct quantization){CODE_FP4, true});
    check("int8", (struct quantization){CODE_INT8, false});
    st_reader_close(reader);
}

/* A piece is coded as it would be alone, whatever it is stacked with. */
static enum status ramp(void *user, int i_piece, int64_t first, int64_t n, float *x)
{
    (void)user;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i_piece + 1) * (float)((first + i) * 37 % 101 - 50);
    return OK;
}

static void pieces_are_coded_by_themselves(void **state)
{
    struct quant_layout both = {
        .q = {CODE_NF4, true}, .n_columns = 10, .n_pieces = 2, .rows = {7, 13}};
    struct quant_layout one = {.q = {CODE_NF4, true}, .n_columns = 10, .n_pieces = 1, .rows = {7}};
    float stacked[200], alone[70];
    struct coded_matrix m;
    (void)state;
    expect_ok(coded_matrix_init(&m, &both));
    expect_ok(coded_matrix_fill(&m, 0, ramp, NULL, NULL));
    expect_ok(coded_matrix_fill(&m, 1, ramp, NULL, NULL));
    coded_matrix_decode(&m, stacked, NULL);
    coded_matrix_release(&m);
    expect_ok(coded_matrix_init(&m, &one));
    expect_ok(coded_matrix_fill(&m, 0, ramp, NULL, NULL));
    coded_matrix_decode(&m, alone, NULL);
    coded_matrix_release(&m);
    assert_memory_equal(stacked, alone, sizeof(alone));
    for (int i = 0; i < 200; i++) {
        float x;
        expect_ok(ramp(NULL, i >= 70, i >= 70 ? i - 70 : i, 1, &x));
        assert_true(stacked[i] - x < 20.0f && x - stacked[i] < 20.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_and_numbers_are_bit_for_bit_those_of_bitsandbytes),
        cmocka_unit_test(pieces_are_coded_by_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
