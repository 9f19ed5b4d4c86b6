/* How CUDA kernels cut grouped products, on the CPU: tiles cover every result of every group once,
 * operands begin where they should, and lanes name what a transposed fragment is made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "device/cuda/declared/grouped_tiles.h"

enum { GROUPS = 9, ROWS = 300, COLUMNS = 75, TILE_ROWS = 32, TILE_COLUMNS = 20 };

static void draw_offsets(int32_t *offsets, struct rng *r, int way)
{
    offsets[0] = 0;
    for (int e = 1; e < GROUPS; e++) {
        int32_t left = ROWS - offsets[e - 1];
        int32_t size = way == 0   ? 0
                       : way == 1 ? left
                                  : (int32_t)rng_below(r, (uint64_t)left / 2 + 1);
        offsets[e] = offsets[e - 1] + size;
    }
    offsets[GROUPS] = ROWS;
}

static void every_result_is_in_one_tile_of_its_group(void **state)
{
    static uint8_t times[GROUPS * ROWS * COLUMNS];
    struct rng r = {.key = 3};
    (void)state;
    for (int way = 0; way < 12; way++) {
        bool by_rows = way % 2 == 0 || way < 2;
        struct grouped_shape s = {GROUPS, by_rows, by_rows ? 0 : 50, COLUMNS, by_rows ? 16 : 0};
        int32_t offsets[GROUPS + 1], starts[GROUPS + 1] = {0};
        draw_offsets(offsets, &r, way);
        memset(times, 0, sizeof(times));
        for (int e = 0; e < GROUPS; e++)
            starts[e + 1] = starts[e] + group_tiles(s, offsets, e, TILE_ROWS, TILE_COLUMNS);
        for (int32_t t = 0; t < starts[GROUPS]; t++) {
            int e = group_of_tile(starts, GROUPS, t);
            assert_true(starts[e] <= t && t < starts[e + 1]);
            struct group own = group_of(s, offsets, e);
            struct tile_place at = tile_place_of(COLUMNS, t - starts[e], TILE_ROWS, TILE_COLUMNS);
            for (int64_t i = at.row; i < at.row + TILE_ROWS && i < own.m; i++) {
                for (int64_t j = at.column; j < at.column + TILE_COLUMNS && j < COLUMNS; j++)
                    times[own.c + i * COLUMNS + j]++;
            }
        }
        int64_t n = (by_rows ? ROWS : GROUPS * s.m) * COLUMNS;
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(times[i], 1);
    }
}

/* Blocks that go through all tiles side by side, in bands: every result once, each block's group
 * found from the one before. */
static void bands_of_tiles_cover_every_result_once(void **state)
{
    enum { BLOCKS = 5 };
    static uint8_t times[GROUPS * ROWS * COLUMNS];
    struct rng r = {.key = 5};
    (void)state;
    for (int way = 0; way < 12; way++) {
        bool by_rows = way % 2 == 0 || way < 2;
        int band = way % 3 + 1;
        struct grouped_shape s = {GROUPS, by_rows, by_rows ? 0 : 150, COLUMNS, by_rows ? 16 : 0};
        int32_t offsets[GROUPS + 1], starts[GROUPS + 1] = {0};
        draw_offsets(offsets, &r, way);
        memset(times, 0, sizeof(times));
        for (int e = 0; e < GROUPS; e++)
            starts[e + 1] = starts[e] + group_tiles(s, offsets, e, TILE_ROWS, TILE_COLUMNS);
        for (int block = 0; block < BLOCKS; block++) {
            int e = 0;
            for (int32_t t = block; t < starts[GROUPS]; t += BLOCKS) {
                e = group_from(starts, e, t);
                assert_int_equal(e, group_of_tile(starts, GROUPS, t));
                struct group own = group_of(s, offsets, e);
                struct tile_place at = tile_place_in_bands(own.m, COLUMNS, t - starts[e], TILE_ROWS,
                                                           TILE_COLUMNS, band);
                assert_true(at.row < own.m && at.column < COLUMNS);
                for (int64_t i = at.row; i < at.row + TILE_ROWS && i < own.m; i++) {
                    for (int64_t j = at.column; j < at.column + TILE_COLUMNS && j < COLUMNS; j++)
                        times[own.c + i * COLUMNS + j]++;
                }
            }
        }
        int64_t n = (by_rows ? ROWS : GROUPS * s.m) * COLUMNS;
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(times[i], 1);
    }
}

static void tiles_go_down_their_band_first(void **state)
{
    static const int64_t places[][2] = {{0, 0}, {32, 0}, {0, 20}, {32, 20}, {64, 0}, {64, 20}};
    (void)state;
    for (int32_t t = 0; t < 6; t++) {
        struct tile_place at = tile_place_in_bands(70, 40, t, 32, 20, 2);
        assert_int_equal(at.row, places[t][0]);
        assert_int_equal(at.column, places[t][1]);
    }
}

static void operands_begin_where_their_group_does(void **state)
{
    static const int32_t offsets[] = {0, 3, 3, 10};
    (void)state;
    struct group by_rows = group_of((struct grouped_shape){3, true, 0, 5, 7}, offsets, 2);
    assert_int_equal(by_rows.m, 7);
    assert_int_equal(by_rows.k, 7);
    assert_int_equal(by_rows.a, 3 * 7);
    assert_int_equal(by_rows.b, 2 * 5 * 7);
    assert_int_equal(by_rows.c, 3 * 5);
    struct group by_terms = group_of((struct grouped_shape){3, false, 4, 5, 0}, offsets, 2);
    assert_int_equal(by_terms.m, 4);
    assert_int_equal(by_terms.k, 7);
    assert_int_equal(by_terms.a, 3 * 4);
    assert_int_equal(by_terms.b, 3 * 5);
    assert_int_equal(by_terms.c, 2 * 4 * 5);
    assert_int_equal(group_of((struct grouped_shape){3, false, 4, 5, 0}, offsets, 1).k, 0);
}

/* ldmatrix.trans: lanes 8 q .. 8 q + 7 name the rows of matrix q; afterwards lane 4 g + t holds its
 * elements (2 t, g) and (2 t + 1, g) in register q. The product wants (row, term) (g, 2 t ..) in
 * register 0, rows + 8 in 1, terms + 8 in 2, both in 3. */
static void lanes_name_the_fragment_that_the_product_wants(void **state)
{
    (void)state;
    for (int case_of = 0; case_of < 16; case_of++) {
        int i = case_of / 4, k = case_of % 4;
        for (int lane = 0; lane < 32; lane++) {
            for (int q = 0; q < 4; q++) {
                int g = lane / 4, t = lane % 4;
                for (int half = 0; half < 2; half++) {
                    int naming = 8 * q + 2 * t + half; /* the lane that names this term */
                    int term = turned_row(naming, k);
                    int row = 8 * turned_chunk(naming, i) + g;
                    assert_int_equal(term, 16 * k + q / 2 * 8 + 2 * t + half);
                    assert_int_equal(row, 16 * i + q % 2 * 8 + g);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_result_is_in_one_tile_of_its_group),
        cmocka_unit_test(bands_of_tiles_cover_every_result_once),
        cmocka_unit_test(tiles_go_down_their_band_first),
        cmocka_unit_test(operands_begin_where_their_group_does),
        cmocka_unit_test(lanes_name_the_fragment_that_the_product_wants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
