/* gemm.c: blocked matrix products around the tile of micro.h.
 *
 * The threads form a grid over C; each computes its rectangle alone:
 *
 *     for each block of C columns (BLOCK_COLUMNS)        C columns
 *       for each block of k (BLOCK_DEPTH)              +-----+-----+
 *         pack B's block: panels of MICRO_COLUMNS      |  0  |  1  |   threads
 *         for each block of C rows (BLOCK_ROWS)        +-----+-----+
 *           pack A's block: panels of MICRO_ROWS       |  2  |  3  |
 *             for each panel of B, each panel of A:    +-----+-----+
 *               one register tile
 *
 * A panel of B stays in the first-level cache while the panels of A pass by; A's block stays in the
 * second level. When C is stored in 16 bits, sums over blocks of k are held in f32 beside it.
 *
 * Builds for AVX-512 use gemm_avx512.c instead, and gemm_amx.c where both matrices are bf16
 * and the processor has tile registers, except for products with a few rows.
 */
#include "device/cpu/products/gemm.h"

#include <cblas.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/gemm_amx.h"
#include "device/cpu/products/gemm_avx512.h"
#include "device/cpu/products/micro.h"

enum {
    BLOCK_ROWS = 20 * MICRO_ROWS,
    BLOCK_COLUMNS = 1024,
    BLOCK_DEPTH = 256,
    FEW_ROWS = 8, /* below this, products by rows of B beat packing it */
};

/* The part of one thread: a rectangle of C, and its slice of the workspace. */
struct part {
    int64_t row, n_rows, column, n_columns;
    float *a, *b, *c;
};

struct cpu_matrix cpu_matrix_of(const struct tensor *t, int64_t first, int64_t row)
{
    struct cpu_matrix a = {
        .data = t->data, .dtype = t->dtype, .first = first, .row = row, .column = 1};
    return a;
}

struct cpu_matrix cpu_matrix_transposed(struct cpu_matrix a)
{
    int64_t row = a.row;
    a.row = a.column;
    a.column = row;
    return a;
}

static int64_t align_floats(int64_t n)
{
    return micro_round_up(n, 16);
}

static int64_t a_floats(int64_t m, int64_t k)
{
    return align_floats(MIN(micro_round_up(m, MICRO_ROWS), BLOCK_ROWS) * MIN(k, BLOCK_DEPTH));
}

static int64_t b_floats(int64_t n, int64_t k)
{
    return align_floats(MIN(micro_round_up(n, MICRO_COLUMNS), BLOCK_COLUMNS) * MIN(k, BLOCK_DEPTH));
}

static int64_t c_floats(int64_t m, int64_t n)
{
    return align_floats(MIN(m, BLOCK_ROWS) * MIN(n, BLOCK_COLUMNS));
}

static int64_t thread_floats(int64_t m, int64_t n, int64_t k)
{
    /* A few rows of A and one of B; also for larger m, since a smaller product may follow in the
     * same workspace. */
    int64_t few = align_floats(k) * (MIN(m, FEW_ROWS - 1) + 1);
    if (CPU_GEMM_AVX512)
        return few;
    return MAX(a_floats(m, k) + b_floats(n, k) + c_floats(m, n), few);
}

int64_t cpu_gemm_workspace(const struct kernel_env *env, int64_t m, int64_t n, int64_t k)
{
    int64_t n_bytes = env->n_threads * thread_floats(m, n, k) * (int64_t)sizeof(float);
    n_bytes = MAX(n_bytes, cpu_gemm_amx_workspace(env->n_threads, m, n, k));
    return MAX(n_bytes, cpu_gemm_avx512_workspace(env->n_threads, m, n, k));
}

static ALWAYS_INLINE float get(const struct cpu_matrix *a, int64_t at)
{
    switch (a->dtype) {
    case DTYPE_BF16:
        return bf16_to_f32(((const uint16_t *)a->data)[at]);
    case DTYPE_F16:
        return f16_to_f32(((const uint16_t *)a->data)[at]);
    default:
        return ((const float *)a->data)[at];
    }
}

/* n <= MICRO_SQUARE elements as floats, zero behind them. */
static UNSANITIZED ALWAYS_INLINE void load_line(float *restrict dst, const struct cpu_matrix *src,
                                                int64_t at, int64_t n)
{
    if (n == MICRO_SQUARE && src->dtype == DTYPE_F32) {
        const float *from = (const float *)src->data + at;
        for (int i = 0; i < MICRO_SQUARE; i++)
            dst[i] = from[i];
        return;
    }
    for (int64_t i = 0; i < MICRO_SQUARE; i++)
        dst[i] = i < n ? get(src, at + i) : 0.0f;
}

/* What transpose touches. */
static inline void transpose_expect(const float *dst, int64_t width, int64_t n_write,
                                    const struct cpu_matrix *src, int64_t first, int64_t stride,
                                    int64_t n, int64_t n_p)
{
    if (!SNUG_ASAN)
        return;
    int64_t n_bytes = dtype_size(src->dtype);
    for (int64_t i = 0; i < MIN(n, MICRO_SQUARE); i++)
        sanitizer_expect((const char *)src->data + (first + i * stride) * n_bytes,
                         (size_t)(n_p * n_bytes));
    for (int64_t p = 0; p < n_p; p++)
        sanitizer_expect(dst + p * width, (size_t)n_write * sizeof(float));
}

/* dst[p * width + i] = line i's element p, for n <= MICRO_SQUARE lines that lie `stride` apart,
 * each contiguous in p, and n_p <= MICRO_SQUARE elements of each; lines n .. n_write - 1 become
 * zero. */
static inline UNSANITIZED void transpose(float *restrict dst, int64_t width, int64_t n_write,
                                         const struct cpu_matrix *src, int64_t first,
                                         int64_t stride, int64_t n, int64_t n_p)
{
    float a[MICRO_SQUARE * MICRO_SQUARE];
    transpose_expect(dst, width, n_write, src, first, stride, n, n_p);
    for (int64_t i = 0; i < MICRO_SQUARE; i++)
        load_line(a + i * MICRO_SQUARE, src, first + i * stride, i < n ? n_p : 0);
    micro_transpose(a);
    for (int64_t p = 0; p < n_p; p++) {
        for (int64_t i = 0; i < n_write; i++)
            dst[p * width + i] = a[p * MICRO_SQUARE + i];
    }
}

/* dst[p * width + i] = line i's element p, for n lines contiguous in p; zero behind them. */
static inline void pack_across(float *restrict dst, int64_t width, const struct cpu_matrix *src,
                               int64_t first, int64_t stride, int64_t n, int64_t depth)
{
    for (int64_t p = 0; p < depth; p += MICRO_SQUARE) {
        for (int64_t i = 0; i < width; i += MICRO_SQUARE)
            transpose(dst + p * width + i, width, MIN(width - i, MICRO_SQUARE), src,
                      first + i * stride + p, stride, n - i, MIN(depth - p, MICRO_SQUARE));
    }
}

/* dst[p * width + i] = element i of line p, for lines that lie `stride` apart. */
static inline void pack_along(float *restrict dst, int64_t width, const struct cpu_matrix *src,
                              int64_t first, int64_t stride, int64_t n, int64_t depth)
{
    bool whole = n == width && src->dtype == DTYPE_F32;
    for (int64_t p = 0; p < depth; p++) {
        int64_t at = first + p * stride;
        if (whole) {
            const float *from = (const float *)src->data + at;
            for (int64_t i = 0; i < width; i++)
                dst[p * width + i] = from[i];
            continue;
        }
        for (int64_t i = 0; i < width; i++)
            dst[p * width + i] = i < n ? get(src, at + i) : 0.0f;
    }
}

/* Panels of `width` lines of a matrix whose panel axis has stride `across` and whose k axis has
 * stride `along`; one of the two is 1. */
static inline void pack(float *dst, int64_t width, const struct cpu_matrix *src, int64_t first,
                        int64_t across, int64_t along, int64_t n, int64_t depth)
{
    for (int64_t i = 0; i < n; i += width) {
        int64_t lines = MIN(n - i, width);
        if (along == 1)
            pack_across(dst, width, src, first + i * across, across, lines, depth);
        else
            pack_along(dst, width, src, first + i, along, lines, depth);
        dst += width * depth;
    }
}

/* c[m, n] = (add ? c : 0) + packed A packed B. */
static void multiply_block(const float *a, const float *b, int64_t m, int64_t n, int64_t depth,
                           bool add, float *c, int64_t c_row)
{
    for (int64_t j = 0; j < n; j += MICRO_COLUMNS) {
        for (int64_t i = 0; i < m; i += MICRO_ROWS)
            micro_tile(depth, a + i * depth, 1, MICRO_ROWS, b + j * depth, MICRO_COLUMNS, 1.0f, add,
                       c + i * c_row + j, c_row, MIN(m - i, MICRO_ROWS), MIN(n - j, MICRO_COLUMNS));
    }
}

/* Writes what rows i .. i + m and columns j .. j + n of the product are added to into c, which may
 * be C itself; false: there is nothing to add to. */
static bool begin_block(const struct cpu_gemm *g, int64_t i, int64_t m, int64_t j, int64_t n,
                        float *c, int64_t c_row)
{
    const void *base = cpu_gemm_base(g);
    bool there = base == g->c && g->c_dtype == DTYPE_F32;
    for (int64_t r = 0; base && !there && r < m; r++)
        cpu_load_f32(c + r * c_row, base, g->c_dtype, g->c_first + (i + r) * g->c_row + j, n);
    for (int64_t r = 0; g->bias && r < m; r++) {
        float *restrict row = c + r * c_row;
        const float *restrict bias = g->bias + j;
        if (!base)
            memcpy(row, bias, (size_t)n * sizeof(float));
        for (int64_t k = 0; base && k < n; k++)
            row[k] += bias[k];
    }
    return base || g->bias;
}

static void pack_a(const struct cpu_gemm *g, const struct part *t, int64_t i, int64_t m, int64_t p,
                   int64_t depth)
{
    pack(t->a, MICRO_ROWS, &g->a, g->a.first + i * g->a.row + p * g->a.column, g->a.row,
         g->a.column, m, depth);
}

static void pack_b(const struct cpu_gemm *g, const struct part *t, int64_t j, int64_t n, int64_t p,
                   int64_t depth)
{
    pack(t->b, MICRO_COLUMNS, &g->b, g->b.first + j * g->b.column + p * g->b.row, g->b.column,
         g->b.row, n, depth);
}

/* C in f32: blocks of k are added into C itself. */
static void run_f32(const struct cpu_gemm *g, const struct part *t)
{
    float *c = (float *)g->c + g->c_first;
    for (int64_t j = t->column; j < t->column + t->n_columns; j += BLOCK_COLUMNS) {
        int64_t n = MIN(t->column + t->n_columns - j, BLOCK_COLUMNS);
        for (int64_t p = 0; p < g->k; p += BLOCK_DEPTH) {
            int64_t depth = MIN(g->k - p, BLOCK_DEPTH);
            pack_b(g, t, j, n, p, depth);
            for (int64_t i = t->row; i < t->row + t->n_rows; i += BLOCK_ROWS) {
                int64_t m = MIN(t->row + t->n_rows - i, BLOCK_ROWS);
                float *block = c + i * g->c_row + j;
                bool add = p > 0 || begin_block(g, i, m, j, n, block, g->c_row);
                pack_a(g, t, i, m, p, depth);
                multiply_block(t->a, t->b, m, n, depth, add, block, g->c_row);
            }
        }
    }
}

/* C in 16 bits: one block of C at a time is finished in f32, then stored. */
static void run_half(const struct cpu_gemm *g, const struct part *t)
{
    for (int64_t j = t->column; j < t->column + t->n_columns; j += BLOCK_COLUMNS) {
        int64_t n = MIN(t->column + t->n_columns - j, BLOCK_COLUMNS);
        for (int64_t i = t->row; i < t->row + t->n_rows; i += BLOCK_ROWS) {
            int64_t m = MIN(t->row + t->n_rows - i, BLOCK_ROWS);
            bool add = begin_block(g, i, m, j, n, t->c, n);
            for (int64_t p = 0; p < g->k; p += BLOCK_DEPTH) {
                int64_t depth = MIN(g->k - p, BLOCK_DEPTH);
                pack_b(g, t, j, n, p, depth);
                pack_a(g, t, i, m, p, depth);
                multiply_block(t->a, t->b, m, n, depth, add || p > 0, t->c, n);
            }
            for (int64_t r = 0; r < m; r++)
                cpu_store_f32(g->c, g->c_dtype, g->c_first + (i + r) * g->c_row + j, t->c + r * n,
                              n);
        }
    }
}

static float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* A few rows against a B that is contiguous along k (generation's products with weights): bound by
 * reading B once, so B is not packed. */
static void run_few_rows(const struct cpu_gemm *g, const struct part *t)
{
    const void *base = cpu_gemm_base(g);
    int64_t stride = align_floats(g->k);
    float *line = t->a, *rows = t->a + stride;
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t p = 0; p < g->k; p++)
            rows[i * stride + p] = get(&g->a, g->a.first + i * g->a.row + p * g->a.column);
    }
    for (int64_t j = t->column; j < t->column + t->n_columns; j++) {
        int64_t at = g->b.first + j * g->b.column;
        const float *b = (const float *)g->b.data + at;
        if (g->b.dtype != DTYPE_F32) {
            cpu_load_f32(line, g->b.data, g->b.dtype, at, g->k);
            b = line;
        }
        for (int64_t i = 0; i < g->m; i++) {
            int64_t to = g->c_first + i * g->c_row + j;
            float y = dot(rows + i * stride, b, g->k), old = 0.0f;
            if (base)
                cpu_load_f32(&old, base, g->c_dtype, to, 1);
            if (g->bias)
                y += g->bias[j];
            y += old;
            cpu_store_f32(g->c, g->c_dtype, to, &y, 1);
        }
    }
}

/* How many thread rows the grid has: the divisor of n_threads with the least packing per thread. */
static int grid_rows(int n_threads, int64_t m, int64_t n)
{
    int best = 1;
    double least = 0.0;
    for (int rows = 1; rows <= n_threads; rows++) {
        if (n_threads % rows != 0)
            continue;
        /* Whole tiles per thread: what counts is the thread with the most. */
        double tile_rows = (double)micro_round_up((m + rows - 1) / rows, MICRO_ROWS);
        int columns = MAX(n_threads / rows, 1);
        double tile_columns = (double)micro_round_up((n + columns - 1) / columns, MICRO_COLUMNS);
        double cost = tile_rows * tile_columns / 26.0 + tile_rows + tile_columns;
        if (rows == 1 || cost < least) {
            best = rows;
            least = cost;
        }
    }
    return best;
}

/* Slice i of `parts` of [0, n), in whole tiles. */
static void slice(int64_t n, int64_t tile, int i, int parts, int64_t *first, int64_t *count)
{
    int64_t tiles = (n + tile - 1) / tile;
    int64_t from = tiles * i / parts * tile, to = tiles * (i + 1) / parts * tile;
    *first = MIN(from, n);
    *count = MIN(to, n) - *first;
}

/* The BLAS knows vector instructions that this build was not allowed to use. It runs on the thread
 * that calls it: threads of its own would get in the way of ours. */
static void run_blas(const struct cpu_gemm *g, const struct part *t)
{
    if (t->n_rows == 0 || t->n_columns == 0)
        return;
    float *c = (float *)g->c + g->c_first + t->row * g->c_row + t->column;
    bool add = begin_block(g, t->row, t->n_rows, t->column, t->n_columns, c, g->c_row);
    bool ta = g->a.column != 1, tb = g->b.column != 1;
    /* A matrix of one row may have any stride from row to row; BLAS wants no less than its width.
     */
    int64_t a_stride = MAX(ta ? g->a.column : g->a.row, ta ? g->m : g->k);
    int64_t b_stride = MAX(tb ? g->b.column : g->b.row, tb ? g->k : g->n);
    const float *a = (const float *)g->a.data + g->a.first + t->row * g->a.row;
    const float *b = (const float *)g->b.data + g->b.first + t->column * g->b.column;
    openblas_set_num_threads(1);
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                (int)t->n_rows, (int)t->n_columns, (int)g->k, 1.0f, a, (int)a_stride, b,
                (int)b_stride, add ? 1.0f : 0.0f, c, (int)g->c_row);
}

typedef void part_fn(const struct cpu_gemm *g, const struct part *t);

/* A product cut into a grid of parts, one for each thread. */
struct grid {
    const struct cpu_gemm *g;
    part_fn *run;
    float *workspace;
    int rows, columns;
};

static void run_parts(const void *job, int64_t first, int64_t last, int thread)
{
    const struct grid *d = job;
    const struct cpu_gemm *g = d->g;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        struct part t = {.a = d->workspace + i * thread_floats(g->m, g->n, g->k)};
        t.b = t.a + a_floats(g->m, g->k);
        t.c = t.b + b_floats(g->n, g->k);
        slice(g->m, MICRO_ROWS, (int)i / d->columns, d->rows, &t.row, &t.n_rows);
        slice(g->n, MICRO_COLUMNS, (int)i % d->columns, d->columns, &t.column, &t.n_columns);
        d->run(g, &t);
    }
}

static bool is_of_blas(const struct cpu_gemm *g)
{
    return !MICRO_IS_FAST && g->c_dtype == DTYPE_F32 && g->a.dtype == DTYPE_F32 &&
           g->b.dtype == DTYPE_F32;
}

/* A BLAS may choose by the number of rows, and so do we where B is contiguous along k. */
bool cpu_gemm_is_by_rows(const struct cpu_gemm *g)
{
    return !is_of_blas(g) && g->b.row != 1;
}

/* What makes a part of a product that the blocked kernels do not take. */
static part_fn *part_function(const struct cpu_gemm *g, bool few)
{
    if (is_of_blas(g))
        return run_blas;
    if (few)
        return run_few_rows;
    return g->c_dtype == DTYPE_F32 ? run_f32 : run_half;
}

void cpu_gemm(const struct kernel_env *env, void *workspace, const struct cpu_gemm *g)
{
    const struct kernel_env alone = {.n_threads = 1};
    if ((double)g->m * (double)g->n * (double)g->k < 1e5)
        env = &alone;
    bool few = g->m < FEW_ROWS && g->b.row == 1;
    bool bf16 = g->a.dtype == DTYPE_BF16 && g->b.dtype == DTYPE_BF16;
    if (CPU_GEMM_AMX && bf16 && !few && cpu_gemm_amx_usable()) {
        cpu_gemm_amx(env, workspace, g);
        return;
    }
    if (CPU_GEMM_AVX512 && !few) {
        cpu_gemm_avx512(env, workspace, g);
        return;
    }
    struct grid d = {.g = g, .run = part_function(g, few), .workspace = workspace};
    d.rows = few ? 1 : grid_rows(env->n_threads, g->m, g->n);
    d.columns = env->n_threads / d.rows;
    team_run(env->team, env->n_threads, 1, run_parts, &d);
}
