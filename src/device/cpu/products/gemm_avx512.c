/* gemm_avx512.c: packed matrix products with AVX-512.
 *
 * C is computed in tiles of TILE_ROWS x TILE_COLUMNS = 8 x 48: 24 sums, 3 registers of B and one
 * broadcast of A, so 24 multiply-adds for 11 loads. Both operands are first packed, so that a tile
 * reads them front to back; the loops are those of gemm_blocks.h:
 *
 *     packed A   [tile][k][8]   1.5 MiB
 *     packed B   [k][48]
 *
 * Partial tiles are padded with zeros in the packed copies and masked when they are stored.
 */
#include "device/cpu/products/gemm_avx512.h"

#if CPU_GEMM_AVX512

#include "base/sanitizer.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/avx512.h"
#include "device/cpu/products/gemm_blocks.h"
#include "device/cpu/products/micro.h"

enum {
    LANES = AVX512_LANES,
    VECTORS = 3,
    TILE_ROWS = 8,
    TILE_COLUMNS = VECTORS * LANES,
    PAIR_ROWS = 2 * TILE_ROWS, /* A is packed two tiles at a time: one vector, one cache line */
    BLOCK_ROWS = 512,
    BLOCK_DEPTH = 768,
    AHEAD_A = 16, /* steps of k that prefetches run ahead */
    AHEAD_LINES = 12,
};

/* ---- packing -------------------------------------------------------------------------------- */

static ALWAYS_INLINE void prefetch(const void *data, enum dtype dtype, int64_t at)
{
    const char *line = (const char *)data + at * (dtype == DTYPE_F32 ? 4 : 2);
    _mm_prefetch(line, _MM_HINT_T0);
}

/* 16 lines of an operand: rows of A or columns of B. */
struct lines {
    const void *data;
    int64_t first;         /* element of line 0 at the block's first k */
    int64_t across, along; /* elements from line to line, and from k to k; one of them is 1 */
    int64_t n;             /* lines there are, 16 or fewer; the rest are taken as zeros */
    int64_t depth;
};

/* Where 16 packed lines go: 8 lines from low + k * step, the other 8 from high + k * step. */
struct packed {
    float *low, *high;
    int64_t step;
};

static inline void store(const struct packed *to, int64_t k, __m512 x)
{
    _mm256_store_ps(to->low + k * to->step, _mm512_castps512_ps256(x));
    _mm256_store_ps(to->high + k * to->step, _mm512_extractf32x8_ps(x, 1));
}

static inline void pack_across(const struct packed *to, const struct lines *s, enum dtype dtype)
{
    int64_t last = MAX(s->n - 1, 0);
    for (int64_t k = 0; k < s->depth; k += LANES) {
        __mmask16 keep = avx512_first(s->depth - k);
        __m512 r[LANES];
        UNROLL for (int i = 0; i < LANES; i++)
        {
            int64_t at = s->first + MIN(i, last) * s->across + k;
            prefetch(s->data, dtype, at + 4 * LANES);
            r[i] = avx512_load(s->data, dtype, at, i < s->n ? keep : avx512_first(0));
        }
        avx512_transpose(r);
        if (s->depth - k >= LANES) {
            UNROLL for (int i = 0; i < LANES; i++)
            {
                store(to, k + i, r[i]);
            }
            continue;
        }
        for (int i = 0; i < s->depth - k; i++)
            store(to, k + i, r[i]);
    }
}

static inline void pack_along(const struct packed *to, const struct lines *s, enum dtype dtype)
{
    __mmask16 keep = avx512_first(s->n);
    for (int64_t k = 0; k < s->depth; k++) {
        int64_t at = s->first + k * s->along;
        prefetch(s->data, dtype, at + AHEAD_LINES * s->along);
        store(to, k, avx512_load(s->data, dtype, at, keep));
    }
}

static inline void pack_as(const struct packed *to, const struct lines *s, enum dtype dtype)
{
    if (s->along == 1)
        pack_across(to, s, dtype);
    else
        pack_along(to, s, dtype);
}

/* One copy of the loops for each storage. */
static void pack(const struct packed *to, const struct lines *s, enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        pack_as(to, s, DTYPE_F32);
    else if (dtype == DTYPE_BF16)
        pack_as(to, s, DTYPE_BF16);
    else
        pack_as(to, s, DTYPE_F16);
}

/* ---- one tile ------------------------------------------------------------------------------- */

struct tile {
    int64_t m, n; /* at most TILE_ROWS and TILE_COLUMNS */
    float *c;
    int64_t c_row;
    const float *start; /* what the sums are added to, C itself perhaps; NULL: nothing */
    int64_t start_row;
    const float *bias; /* the same for each row; NULL: none */
};

/* What multiply_tile touches. */
static inline void expect_tile(const float *a, const float *b, int64_t depth, const struct tile *t)
{
    if (!SNUG_ASAN)
        return;
    size_t n_row = (size_t)t->n * sizeof(float);
    sanitizer_expect(a, (size_t)(depth * TILE_ROWS) * sizeof(float));
    sanitizer_expect(b, (size_t)(depth * TILE_COLUMNS) * sizeof(float));
    for (int64_t i = 0; i < t->m; i++) {
        sanitizer_expect(t->c + i * t->c_row, n_row);
        if (t->start)
            sanitizer_expect(t->start + i * t->start_row, n_row);
    }
    if (t->bias)
        sanitizer_expect(t->bias, n_row);
}

static ALWAYS_INLINE void store_whole(const struct tile *t, __m512 sum[TILE_ROWS][VECTORS])
{
    UNROLL for (int i = 0; i < TILE_ROWS; i++)
    {
        UNROLL for (int v = 0; v < VECTORS; v++)
        {
            __m512 y = sum[i][v];
            if (t->bias)
                y = _mm512_add_ps(_mm512_loadu_ps(t->bias + LANES * v), y);
            if (t->start)
                y = _mm512_add_ps(_mm512_loadu_ps(t->start + i * t->start_row + LANES * v), y);
            _mm512_storeu_ps(t->c + i * t->c_row + LANES * v, y);
        }
    }
}

static ALWAYS_INLINE void store_part(const struct tile *t, __m512 sum[TILE_ROWS][VECTORS])
{
    UNROLL for (int i = 0; i < TILE_ROWS; i++)
    {
        UNROLL for (int v = 0; v < VECTORS; v++)
        {
            __mmask16 keep = avx512_first(i < t->m ? t->n - LANES * v : 0);
            int64_t at = MIN(LANES * v, t->n - 1), row = MIN(i, t->m - 1);
            __m512 y = sum[i][v];
            if (t->bias)
                y = _mm512_add_ps(_mm512_maskz_loadu_ps(keep, t->bias + at), y);
            if (t->start)
                y = _mm512_add_ps(_mm512_maskz_loadu_ps(keep, t->start + row * t->start_row + at),
                                  y);
            _mm512_mask_storeu_ps(t->c + row * t->c_row + at, keep, y);
        }
    }
}

static UNSANITIZED void multiply_tile(const float *a, const float *b, int64_t depth,
                                      const struct tile *t)
{
    __m512 sum[TILE_ROWS][VECTORS];
    UNROLL for (int i = 0; i < TILE_ROWS; i++)
    {
        UNROLL for (int v = 0; v < VECTORS; v++)
        {
            /* The tile of C is on its way while the products are summed, and what is added. */
            int64_t row = MIN(i, t->m - 1), column = MIN(LANES * v, t->n - 1);
            prefetch(t->c, DTYPE_F32, row * t->c_row + column);
            if (t->start)
                prefetch(t->start, DTYPE_F32, row * t->start_row + column);
            sum[i][v] = _mm512_setzero_ps();
        }
    }
    UNROLL_4 for (int64_t k = 0; k < depth; k++, a += TILE_ROWS, b += TILE_COLUMNS)
    {
        __m512 row[VECTORS];
        prefetch(a, DTYPE_F32, AHEAD_A * TILE_ROWS);
        UNROLL for (int v = 0; v < VECTORS; v++)
        {
            row[v] = _mm512_load_ps(b + LANES * v);
        }
        UNROLL for (int i = 0; i < TILE_ROWS; i++)
        {
            __m512 x = _mm512_set1_ps(a[i]);
            UNROLL for (int v = 0; v < VECTORS; v++)
            {
                sum[i][v] = _mm512_fmadd_ps(x, row[v], sum[i][v]);
            }
        }
    }
    if (t->m == TILE_ROWS && t->n == TILE_COLUMNS)
        store_whole(t, sum);
    else
        store_part(t, sum);
}

/* ---- a block -------------------------------------------------------------------------------- */

/* Two tiles of A from row i of the block. */
static void pack_a(const struct gemm_block *s, int64_t i)
{
    const struct cpu_matrix *a = &s->g->a;
    struct lines from = {
        .data = a->data,
        .first = a->first + (s->i + i) * a->row + s->k * a->column,
        .across = a->row,
        .along = a->column,
        .n = MIN(s->m - i, LANES),
        .depth = s->depth,
    };
    struct packed to = {.low = (float *)s->a + i * s->depth, .step = TILE_ROWS};
    to.high = to.low + TILE_ROWS * s->depth;
    pack(&to, &from, a->dtype);
}

/* The sliver of B from column j of the block. */
static void pack_b(const struct gemm_block *s, int64_t j, float *sliver)
{
    const struct cpu_matrix *b = &s->g->b;
    for (int v = 0; v < VECTORS; v++) {
        int64_t column = j + v * LANES;
        struct lines from = {
            .data = b->data,
            .first = b->first + (s->j + MIN(column, s->n - 1)) * b->column + s->k * b->row,
            .across = b->column,
            .along = b->row,
            .n = MAX(MIN(s->n - column, LANES), 0),
            .depth = s->depth,
        };
        struct packed to = {.low = sliver + v * LANES, .step = TILE_COLUMNS};
        to.high = to.low + TILE_ROWS;
        pack(&to, &from, b->dtype);
    }
}

static void multiply_f32(const struct gemm_block *s, const float *a, const float *b, int64_t i,
                         int64_t j, struct tile *t)
{
    const struct cpu_gemm *g = s->g;
    int64_t first = g->c_first + (s->i + i) * g->c_row + s->j + j;
    const float *base = s->first ? cpu_gemm_base(g) : g->c;
    t->c = gemm_block_sums(s, i, j, &t->c_row);
    t->start_row = t->c_row;
    t->start = base ? base + first : NULL;
    t->bias = s->first && g->bias ? g->bias + s->j + j : NULL;
    expect_tile(a, b, s->depth, t);
    multiply_tile(a, b, s->depth, t);
}

/* C in 16 bits: the first block of k starts from what is to be added, the last one rounds into C.
 */
static void multiply_half(const struct gemm_block *s, const float *a, const float *b, int64_t i,
                          int64_t j, struct tile *t)
{
    const struct cpu_gemm *g = s->g;
    const void *base = cpu_gemm_base(g);
    float c[TILE_ROWS * TILE_COLUMNS];
    int64_t first = g->c_first + (s->i + i) * g->c_row + s->j + j;
    int64_t sums_row;
    float *sums = gemm_block_sums(s, i, j, &sums_row);
    t->c = s->last ? c : sums;
    t->c_row = s->last ? TILE_COLUMNS : sums_row;
    t->bias = s->first && g->bias ? g->bias + s->j + j : NULL;
    if (!s->first) {
        t->start = sums;
        t->start_row = sums_row;
    } else if (base) {
        for (int64_t r = 0; r < t->m; r++)
            cpu_load_f32(c + r * TILE_COLUMNS, base, g->c_dtype, first + r * g->c_row, t->n);
        t->start = c;
        t->start_row = TILE_COLUMNS;
    }
    expect_tile(a, b, s->depth, t);
    multiply_tile(a, b, s->depth, t);
    for (int64_t r = 0; s->last && r < t->m; r++)
        cpu_store_f32(g->c, g->c_dtype, first + r * g->c_row, c + r * TILE_COLUMNS, t->n);
}

/* Rows i .. i_end of the sliver of columns from j. */
static void multiply_sliver(const struct gemm_block *s, int64_t i, int64_t i_end, int64_t j,
                            void *sliver)
{
    pack_b(s, j, sliver);
    for (; i < i_end; i += TILE_ROWS) {
        struct tile t = {.m = MIN(s->m - i, TILE_ROWS), .n = MIN(s->n - j, TILE_COLUMNS)};
        const float *a = (const float *)s->a + i * s->depth;
        if (s->g->c_dtype == DTYPE_F32)
            multiply_f32(s, a, sliver, i, j, &t);
        else
            multiply_half(s, a, sliver, i, j, &t);
    }
}

static const struct gemm_tiling tiling = {
    .rows = PAIR_ROWS,
    .columns = TILE_COLUMNS,
    .step = LANES,
    .element_bytes = sizeof(float),
    .block_rows = BLOCK_ROWS,
    .block_depth = BLOCK_DEPTH,
    .part_rows = BLOCK_ROWS,
    .part_columns = 21 * TILE_COLUMNS,
    .least_rows = 8 * TILE_ROWS,
    .pack_a = pack_a,
    .multiply = multiply_sliver,
};

int64_t cpu_gemm_avx512_workspace(int n_threads, int64_t m, int64_t n, int64_t k)
{
    return gemm_blocks_workspace(&tiling, n_threads, m, n, k);
}

void cpu_gemm_avx512(const struct kernel_env *env, void *workspace, const struct cpu_gemm *g)
{
    gemm_blocks_run(&tiling, env, workspace, g);
}

#else

int64_t cpu_gemm_avx512_workspace(int n_threads, int64_t m, int64_t n, int64_t k)
{
    (void)n_threads, (void)m, (void)n, (void)k;
    return 0;
}

void cpu_gemm_avx512(const struct kernel_env *env, void *workspace, const struct cpu_gemm *g)
{
    (void)env, (void)workspace, (void)g;
}

#endif
