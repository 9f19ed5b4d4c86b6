/* gemm_amx.c: packed products of bf16 matrices with tile registers (amx.h), in squares of
 * 32 x 32 and with the loops of gemm_blocks.h. Sums go on from block to block of k through
 * memory unrounded: how k is cut does not show.
 */
#include "device/cpu/products/gemm_amx.h"

#if CPU_GEMM_AMX

#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/amx.h"
#include "device/cpu/products/gemm_blocks.h"
#include "device/cpu/products/micro.h"

enum { AHEAD = 4 }; /* steps of k that prefetches run ahead of packing */

/* ---- permission ----------------------------------------------------------------------------- */

/* A process asks Linux for the tiles before it uses them: they make each thread's state larger. */
bool cpu_gemm_amx_usable(void)
{
    enum { UNASKED, REFUSED, GRANTED, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    static atomic_int answer = UNASKED;
    if (atomic_load(&answer) == UNASKED) {
        bool granted = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
        atomic_store(&answer, granted ? GRANTED : REFUSED);
    }
    return atomic_load(&answer) == GRANTED;
}

/* ---- packing -------------------------------------------------------------------------------- */

/* 32 lines of an operand: rows of A or columns of B. */
struct lines {
    const uint16_t *data;  /* of line 0 at the block's first k */
    int64_t across, along; /* elements from line to line, and from k to k; one of them is 1 */
    int64_t n;             /* lines there are, AMX_SIDE or fewer; the rest are taken as zeros */
    int64_t depth;
};

static inline __mmask32 first_of_32(int64_t n)
{
    return n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << MAX(n, 0)) - 1u;
}

/* r[i] = pairs (k, k + 1), (k + 2, k + 3), ... of line i. */
static inline void load_across(const struct lines *s, int64_t k, __m512 r[AMX_SIDE])
{
    __mmask32 keep = first_of_32(s->depth - k);
    UNROLL_32 for (int i = 0; i < AMX_SIDE; i++)
    {
        const uint16_t *from = s->data + MIN(i, s->n - 1) * s->across + k;
        _mm_prefetch((const char *)(from + AHEAD * AMX_STEP), _MM_HINT_T0);
        r[i] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(i < s->n ? keep : 0, from));
    }
}

/* r[i] = pair (k + 2 i, k + 2 i + 1) of lines 0 to 15, r[16 + i] that of lines 16 to 31. */
static inline void load_along(const struct lines *s, int64_t k, __m512 r[AMX_SIDE])
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __mmask32 keep = first_of_32(s->n);
    UNROLL for (int i = 0; i < AMX_TILE; i++)
    {
        int64_t at = k + 2 * i, left = s->depth - at;
        const uint16_t *from = s->data + MIN(at, s->depth - 1) * s->along;
        const uint16_t *next = s->data + MIN(at + 1, s->depth - 1) * s->along;
        _mm_prefetch((const char *)(from + AMX_STEP * s->along), _MM_HINT_T0);
        _mm_prefetch((const char *)(next + AMX_STEP * s->along), _MM_HINT_T0);
        __m512i x = _mm512_maskz_loadu_epi16(left > 0 ? keep : 0, from);
        __m512i y = _mm512_maskz_loadu_epi16(left > 1 ? keep : 0, next);
        /* In each quarter of a register: lines 0 to 3, and 4 to 7, of the quarter's eight. */
        __m512i front = _mm512_unpacklo_epi16(x, y), back = _mm512_unpackhi_epi16(x, y);
        r[i] = _mm512_castsi512_ps(_mm512_permutex2var_epi64(front, low, back));
        r[AMX_TILE + i] = _mm512_castsi512_ps(_mm512_permutex2var_epi64(front, high, back));
    }
}

/* Two tiles per step of k, one for each 16 lines. Rows of the tiles are lines (as A wants it) or
 * pairs of k (as B does). */
static void pack(const struct lines *s, bool rows_are_lines, uint16_t *to)
{
    bool across = s->along == 1;
    for (int64_t k = 0; k < s->depth; k += AMX_STEP, to += 2 * AMX_CELL) {
        __m512 r[AMX_SIDE];
        if (across)
            load_across(s, k, r);
        else
            load_along(s, k, r);
        if (across != rows_are_lines) {
            avx512_transpose(r);
            avx512_transpose(r + AMX_TILE);
        }
        UNROLL_32 for (int i = 0; i < AMX_SIDE; i++)
        {
            _mm512_store_ps((float *)(void *)(to + i * AMX_STEP), r[i]);
        }
    }
}

/* ---- a block -------------------------------------------------------------------------------- */

static int64_t steps(int64_t depth)
{
    return micro_round_up(depth, AMX_STEP);
}

/* 32 rows of A from row i of the block. */
static void pack_a(const struct gemm_block *s, int64_t i)
{
    const struct cpu_matrix *a = &s->g->a;
    struct lines from = {
        .data = (const uint16_t *)a->data + a->first + (s->i + i) * a->row + s->k * a->column,
        .across = a->row,
        .along = a->column,
        .n = MIN(s->m - i, AMX_SIDE),
        .depth = s->depth,
    };
    pack(&from, true, (uint16_t *)s->a + i * steps(s->depth));
}

/* The sliver of B from column j of the block. */
static void pack_b(const struct gemm_block *s, int64_t j, uint16_t *sliver)
{
    const struct cpu_matrix *b = &s->g->b;
    struct lines from = {
        .data = (const uint16_t *)b->data + b->first + (s->j + j) * b->column + s->k * b->row,
        .across = b->column,
        .along = b->row,
        .n = MIN(s->n - j, AMX_SIDE),
        .depth = s->depth,
    };
    pack(&from, false, sliver);
}

/* A square of the block, m x n of AMX_SIDE x AMX_SIDE there, from row i and column j; `square` is
 * memory for one that is not summed in place. */
struct place {
    int64_t i, m, j, n;
    float *square;
};

/* What the product is added to at the first block of k, gathered in the square; false: nothing. */
static bool gather_base(const struct gemm_block *s, const struct place *p)
{
    const struct cpu_gemm *g = s->g;
    const void *base = cpu_gemm_base(g);
    int64_t first = g->c_first + (s->i + p->i) * g->c_row + s->j + p->j;
    if (!base && !g->bias)
        return false;
    for (int v = 0; v < 2; v++) {
        __mmask16 keep = avx512_first(p->n - v * AMX_TILE);
        __m512 bias = _mm512_setzero_ps();
        if (g->bias)
            bias = _mm512_maskz_loadu_ps(keep, g->bias + s->j + p->j + v * AMX_TILE);
        for (int64_t r = 0; r < p->m; r++) {
            __m512 x = bias;
            if (base)
                x = _mm512_add_ps(
                    avx512_load(base, g->c_dtype, first + r * g->c_row + v * AMX_TILE, keep), x);
            _mm512_store_ps(p->square + r * AMX_SIDE + v * AMX_TILE, x);
        }
    }
    return true;
}

/* The square into a C of 16 bits. */
static void round_square(const struct cpu_gemm *g, int64_t first, const struct place *p)
{
    if (g->c_dtype != DTYPE_BF16) {
        for (int64_t r = 0; r < p->m; r++)
            cpu_store_f32(g->c, g->c_dtype, first + r * g->c_row, p->square + r * AMX_SIDE, p->n);
        return;
    }
    __mmask16 keep[2] = {avx512_first(p->n), avx512_first(p->n - AMX_TILE)};
    for (int64_t r = 0; r < p->m; r++) {
        uint16_t *to = (uint16_t *)g->c + first + r * g->c_row;
        const float *from = p->square + r * AMX_SIDE;
        _mm256_mask_storeu_epi16(to, keep[0], avx512_bf16(_mm512_load_ps(from)));
        _mm256_mask_storeu_epi16(to + AMX_TILE, keep[1],
                                 avx512_bf16(_mm512_load_ps(from + AMX_TILE)));
    }
}

static void copy_square(struct amx_sums to, struct amx_sums from, int64_t m, int64_t n)
{
    for (int64_t r = 0; r < m; r++)
        memcpy(to.at + r * to.row, from.at + r * from.row, (size_t)n * sizeof(float));
}

static void multiply_square(const struct gemm_block *s, const uint16_t *a, const uint16_t *b,
                            const struct place *p)
{
    const struct cpu_gemm *g = s->g;
    bool f32 = g->c_dtype == DTYPE_F32, whole = p->m == AMX_SIDE && p->n == AMX_SIDE;
    int64_t first = g->c_first + (s->i + p->i) * g->c_row + s->j + p->j;
    struct amx_sums none = {NULL, 0}, square = {p->square, AMX_SIDE};
    struct amx_sums held;
    held.at = gemm_block_sums(s, p->i, p->j, &held.row);
    if (s->first) {
        amx_load_sums(gather_base(s, p) ? square : none);
    } else if (whole) {
        amx_load_sums(held);
    } else {
        copy_square(square, held, p->m, p->n);
        amx_load_sums(square);
    }
    amx_multiply(a, b, s->depth);
    if (whole && (f32 || !s->last)) {
        amx_store_sums(held);
        return;
    }
    amx_store_sums(square);
    if (f32 || !s->last) {
        copy_square(held, square, p->m, p->n);
        return;
    }
    round_square(g, first, p);
}

/* Rows i .. i_end of the sliver of columns from j. */
static void multiply_sliver(const struct gemm_block *s, int64_t i, int64_t i_end, int64_t j,
                            void *sliver)
{
    float square[AMX_SIDE * AMX_SIDE] __attribute__((aligned(64))) = {0};
    pack_b(s, j, sliver);
    for (; i < i_end; i += AMX_SIDE) {
        struct place p = {.i = i,
                          .m = MIN(s->m - i, AMX_SIDE),
                          .j = j,
                          .n = MIN(s->n - j, AMX_SIDE),
                          .square = square};
        multiply_square(s, (const uint16_t *)s->a + i * steps(s->depth), sliver, &p);
    }
}

static const struct gemm_tiling tiling = {
    .rows = AMX_SIDE,
    .columns = AMX_SIDE,
    .step = AMX_STEP,
    .element_bytes = sizeof(uint16_t),
    .block_rows = 1024,
    .block_depth = 768,
    .part_rows = 512,
    .part_columns = 31 * AMX_SIDE,
    .least_rows = 4 * AMX_SIDE,
    .enter = amx_open,
    .leave = amx_close,
    .pack_a = pack_a,
    .multiply = multiply_sliver,
};

int64_t cpu_gemm_amx_workspace(int n_threads, int64_t m, int64_t n, int64_t k)
{
    return gemm_blocks_workspace(&tiling, n_threads, m, n, k);
}

void cpu_gemm_amx(const struct kernel_env *env, void *workspace, const struct cpu_gemm *g)
{
    gemm_blocks_run(&tiling, env, workspace, g);
}

#else

bool cpu_gemm_amx_usable(void)
{
    return false;
}

int64_t cpu_gemm_amx_workspace(int n_threads, int64_t m, int64_t n, int64_t k)
{
    (void)n_threads, (void)m, (void)n, (void)k;
    return 0;
}

void cpu_gemm_amx(const struct kernel_env *env, void *workspace, const struct cpu_gemm *g)
{
    (void)env, (void)workspace, (void)g;
}

#endif
