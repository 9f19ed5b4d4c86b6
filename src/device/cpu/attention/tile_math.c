#include "device/cpu/attention/tile_math.h"

#include "device/cpu/attention/attention_tiles.h"
#include "device/cpu/products/amx.h"
#include "device/cpu/products/micro.h"

/* ---- f32 ------------------------------------------------------------------------------------ */

static void product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, const float *b,
                    int64_t b_row, float alpha, int beta, float *c, int64_t c_row)
{
    for (int64_t j = 0; j < n; j += MICRO_COLUMNS) {
        for (int64_t i = 0; i < m; i += MICRO_ROWS)
            micro_tile(k, a + i * a_row, a_row, 1, b + j, b_row, alpha, beta, c + i * c_row + j,
                       c_row, MICRO_ROWS, MICRO_COLUMNS);
    }
}

static void product_transposed(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                               const float *b, int64_t b_row, float *c, int64_t c_row)
{
    for (int64_t j = 0; j < n; j += MICRO_COLUMNS) {
        for (int64_t i = 0; i < m; i += MICRO_ROWS)
            micro_tile(k, a + i, 1, a_row, b + j, b_row, 1.0f, 1, c + i * c_row + j, c_row,
                       MICRO_ROWS, MICRO_COLUMNS);
    }
}

static const struct tile_math f32_math = {
    .rows = MICRO_ROWS,
    .columns = MICRO_COLUMNS,
    .strip = MICRO_ROWS, /* few: the masked half of a tile on the diagonal is left out */
    .product = product,
    .product_transposed = product_transposed,
};

/* ---- bf16 with tile registers --------------------------------------------------------------- */

#if CPU_GEMM_AMX && defined(__AVX512BF16__)

enum { WIDEST = 256 }; /* columns and k of a tile that packed operands have room for */

/* Room for one operand: 32 lines of A, or all of B. */
struct packed_a {
    uint16_t cells[AMX_SIDE * WIDEST];
} __attribute__((aligned(64)));
struct packed_b {
    uint16_t cells[CPU_TILE * WIDEST];
} __attribute__((aligned(64)));

static inline void store_row(uint16_t *to, __m512 row)
{
    _mm512_store_ps((float *)(void *)to, row);
}

/* y rounded and x rounded, in the upper and the lower half. */
static inline __m512i round_both(__m512 x, __m512 y)
{
    return (__m512i)_mm512_cvtne2ps_pbh(y, x);
}

/* 32 rows of A, as A is packed. */
static void pack_rows(const float *a, int64_t a_row, int64_t k, uint16_t *to)
{
    for (int64_t at = 0; at < k; at += AMX_STEP, to += 2 * AMX_CELL) {
        __mmask16 low = avx512_first(k - at), high = avx512_first(k - at - AMX_TILE);
        for (int i = 0; i < AMX_SIDE; i++) {
            const float *from = a + i * a_row + at;
            __m512i row = round_both(_mm512_maskz_loadu_ps(low, from),
                                     _mm512_maskz_loadu_ps(high, from + AMX_TILE));
            store_row(to + i * AMX_STEP, _mm512_castsi512_ps(row));
        }
    }
}

/* r[i] = pairs of rows 2 i and 2 i + 1 of 16 columns of x[k, ...], zero behind k. */
static inline void load_pairs(const float *x, int64_t x_row, int64_t k, __m512 r[AMX_TILE])
{
    const __m512i in_turn =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int i = 0; i < AMX_TILE; i++) {
        int64_t row = 2 * i;
        __m512 even = _mm512_setzero_ps(), odd = even;
        if (row < k)
            even = _mm512_loadu_ps(x + row * x_row);
        if (row + 1 < k)
            odd = _mm512_loadu_ps(x + (row + 1) * x_row);
        r[i] = _mm512_castsi512_ps(_mm512_permutexvar_epi16(in_turn, round_both(even, odd)));
    }
}

/* 32 columns of x[k, ...]: as B is packed, or, with `as_a`, as A is whose transpose x is. */
static void pack_columns(const float *x, int64_t x_row, int64_t k, bool as_a, uint16_t *to)
{
    for (int64_t at = 0; at < k; at += AMX_STEP) {
        for (int t = 0; t < 2; t++, to += AMX_CELL) {
            __m512 r[AMX_TILE];
            load_pairs(x + at * x_row + t * AMX_TILE, x_row, k - at, r);
            if (as_a)
                avx512_transpose(r);
            for (int i = 0; i < AMX_TILE; i++)
                store_row(to + i * AMX_STEP, r[i]);
        }
    }
}

/* Elements of 32 packed lines. */
static int64_t line_elems(int64_t k)
{
    return micro_round_up(k, AMX_STEP) * AMX_SIDE;
}

static void pack_b(const float *b, int64_t b_row, int64_t n, int64_t k, struct packed_b *to)
{
    for (int64_t j = 0; j < n; j += AMX_SIDE)
        pack_columns(b + j, b_row, k, false, to->cells + j / AMX_SIDE * line_elems(k));
}

static void scale_square(struct amx_sums c, float alpha)
{
    for (int i = 0; i < AMX_SIDE; i++) {
        for (int j = 0; j < AMX_SIDE; j++)
            c.at[i * c.row + j] *= alpha;
    }
}

/* 32 rows of C from packed rows of A. */
static void multiply_rows(const struct packed_a *a, const struct packed_b *b, int64_t n, int64_t k,
                          float alpha, int beta, struct amx_sums c)
{
    for (int64_t j = 0; j < n; j += AMX_SIDE) {
        struct amx_sums square = {c.at + j, c.row};
        amx_load_sums(beta ? square : (struct amx_sums){NULL, 0});
        amx_multiply(a->cells, b->cells + j / AMX_SIDE * line_elems(k), k);
        amx_store_sums(square);
        if (alpha != 1.0f)
            scale_square(square, alpha);
    }
}

static void amx_product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                        const float *b, int64_t b_row, float alpha, int beta, float *c,
                        int64_t c_row)
{
    struct packed_a packed;
    struct packed_b all;
    pack_b(b, b_row, n, k, &all);
    for (int64_t i = 0; i < m; i += AMX_SIDE) {
        pack_rows(a + i * a_row, a_row, k, packed.cells);
        multiply_rows(&packed, &all, n, k, alpha, beta, (struct amx_sums){c + i * c_row, c_row});
    }
}

static void amx_product_transposed(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                                   const float *b, int64_t b_row, float *c, int64_t c_row)
{
    struct packed_a packed;
    struct packed_b all;
    pack_b(b, b_row, n, k, &all);
    for (int64_t i = 0; i < m; i += AMX_SIDE) {
        pack_columns(a + i, a_row, k, true, packed.cells);
        multiply_rows(&packed, &all, n, k, 1.0f, 1, (struct amx_sums){c + i * c_row, c_row});
    }
}

static const struct tile_math amx_math = {
    .rows = AMX_SIDE,
    .columns = AMX_SIDE,
    .strip = CPU_TILE,
    .enter = amx_open,
    .leave = amx_close,
    .product = amx_product,
    .product_transposed = amx_product_transposed,
};

const struct tile_math *tile_math_for(bool rounded, int64_t width)
{
    return rounded && width <= WIDEST && cpu_gemm_amx_usable() ? &amx_math : &f32_math;
}

#else

const struct tile_math *tile_math_for(bool rounded, int64_t width)
{
    (void)rounded;
    (void)width;
    return &f32_math;
}

#endif
