/* Formats: what numbers consist of, and which a parameter gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "precision/precision.h"

static const struct value matrix = {.dtype = DTYPE_BF16, .shape = {2, {64, 64}}};
static const struct value small = {.dtype = DTYPE_BF16, .shape = {2, {64, 63}}};
static const struct value wide = {.dtype = DTYPE_F32, .shape = {1, {64}}};

/* ---- formats --------------------------------------------------------------------------------- */

static void a_plain_format_is_one_tensor_of_its_dtype(void **state)
{
    const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_F16};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
        struct format_part part[FORMAT_PARTS];
        enum format f = format_of_dtype(dtypes[i]);
        assert_string_equal(format_name(f), dtype_name(dtypes[i]));
        assert_int_equal(format_parts(f, &small.shape, part), 1);
        assert_string_equal(part[0].suffix, "");
        assert_int_equal(part[0].dtype, dtypes[i]);
        assert_true(shape_equal(&part[0].shape, &small.shape));
        assert_int_equal(format_size(f, 1000), 1000 * dtype_size(dtypes[i]));
    }
    assert_int_equal(format_of_dtype(DTYPE_I32), FORMAT_NONE);
    assert_int_equal(format_size(FORMAT_NONE, 1000), 0);
}

/* 2.03 bytes for both moments of a parameter. */
static void a_block_wise_format_is_codes_and_a_scale_for_every_256(void **state)
{
    struct format_part part[FORMAT_PARTS];
    (void)state;
    assert_int_equal(format_parts(FORMAT_BLOCK8, &small.shape, part), 2);
    assert_string_equal(part[0].suffix, "");
    assert_int_equal(part[0].dtype, DTYPE_U8);
    assert_true(shape_equal(&part[0].shape, &small.shape));
    assert_string_equal(part[1].suffix, "absmax");
    assert_int_equal(part[1].dtype, DTYPE_F32);
    assert_int_equal(shape_elems(&part[1].shape), (64 * 63 + 255) / 256);
    assert_int_equal(format_size(FORMAT_BLOCK8, 256000), 256000 + 4 * 1000);
    assert_int_equal(format_size(FORMAT_BLOCK8, 257), 257 + 4 * 2);
    assert_int_equal(format_of_dtype(DTYPE_U8), FORMAT_NONE);
}

static void factored_is_rows_and_columns_of_every_tensor_that_a_parameter_holds(void **state)
{
    const struct shape matrices = shape_of(3, INT64_C(2), INT64_C(5), INT64_C(7));
    const struct shape vectors = shape_of(2, INT64_C(2), INT64_C(5));
    const struct param_tensors held = {.n_experts = 2, .n_pieces = 2, .rows = {2, 3}};
    struct format_part part[FORMAT_PARTS];
    (void)state;
    assert_int_equal(format_parts(FORMAT_FACTORED, &matrices, part), 1);
    assert_int_equal(shape_elems(&part[0].shape), 2 * (5 + 7));
    assert_int_equal(format_parts_stacked(FORMAT_FACTORED, &matrices, &held, part), 1);
    assert_int_equal(shape_elems(&part[0].shape), 2 * (5 + 2 * 7));
    assert_int_equal(format_parts_stacked(FORMAT_FACTORED, &vectors, &held, part), 1);
    assert_true(shape_equal(&part[0].shape, &vectors));
    assert_int_equal(format_parts_stacked(FORMAT_F32, &matrices, &held, part), 1);
    assert_true(shape_equal(&part[0].shape, &matrices));
}

/* ---- roles ----------------------------------------------------------------------------------- */

static void a_16_bit_parameter_has_a_master_and_an_f32_one_is_its_own(void **state)
{
    struct precision p = precision_bf16();
    (void)state;
    struct param_role role = precision_role(&p, &matrix, false);
    assert_true(role.trained);
    assert_int_equal(role.storage, FORMAT_BF16);
    assert_int_equal(role.master, FORMAT_F32);
    assert_int_equal(role.states, FORMAT_F32);
    role = precision_role(&p, &wide, false);
    assert_int_equal(role.storage, FORMAT_F32);
    assert_int_equal(role.master, FORMAT_NONE);
    p.masters = false;
    assert_int_equal(precision_role(&p, &matrix, false).master, FORMAT_NONE);
}

static void tensors_below_4096_elements_keep_their_states_in_f32(void **state)
{
    struct precision p = precision_bf16();
    (void)state;
    p.states = FORMAT_BLOCK8;
    assert_int_equal(precision_role(&p, &matrix, false).states, FORMAT_BLOCK8);
    assert_int_equal(precision_role(&p, &small, false).states, FORMAT_F32);
    p.states = FORMAT_BF16; /* which is no block-wise one */
    assert_int_equal(precision_role(&p, &small, false).states, FORMAT_BF16);
}

static void a_frozen_parameter_is_one_copy_and_nothing_else(void **state)
{
    const struct precision p = precision_bf16();
    (void)state;
    struct param_role role = precision_role(&p, &matrix, true);
    assert_false(role.trained);
    assert_int_equal(role.storage, FORMAT_BF16);
    assert_int_equal(role.master, FORMAT_NONE);
    assert_int_equal(role.states, FORMAT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_format_is_one_tensor_of_its_dtype),
        cmocka_unit_test(a_block_wise_format_is_codes_and_a_scale_for_every_256),
        cmocka_unit_test(factored_is_rows_and_columns_of_every_tensor_that_a_parameter_holds),
        cmocka_unit_test(tensors_below_4096_elements_keep_their_states_in_f32),
        cmocka_unit_test(a_16_bit_parameter_has_a_master_and_an_f32_one_is_its_own),
        cmocka_unit_test(a_frozen_parameter_is_one_copy_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
