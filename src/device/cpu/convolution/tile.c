#include "base/sanitizer.h"
#define LANES_STEP UNSANITIZED LANES_INLINE
#include "device/cpu/convolution/tile.h"

/* ---- windows with weights -------------------------------------------------------------------- */

/* Up to LANES elements of the windows of n pixels. */
LANES_STEP const float *multiply_line(lanes sum[TILE_PIXELS][TILE_VECTORS],
                                      const float *const *pixel, int64_t offset, int64_t length,
                                      const float *weights, int n, int vectors)
{
    for (int64_t k = 0; k < length; k++, weights += vectors * LANES) {
        lanes w[TILE_VECTORS];
        UNROLL for (int v = 0; v < vectors; v++)
        {
            w[v] = lanes_load(weights + v * LANES);
        }
        UNROLL for (int i = 0; i < n; i++)
        {
            lanes x = lanes_all(pixel[i][offset + k]);
            UNROLL for (int v = 0; v < vectors; v++)
            {
                sum[i][v] = lanes_fma(x, w[v], sum[i][v]);
            }
        }
    }
    return weights;
}

/* What windows_of touches. */
static inline void windows_expect(const struct tile_panel *p, const float *const *pixel,
                                  const float *sums, int n, int vectors)
{
    int64_t length = 0;
    for (int s = 0; SNUG_ASAN && s < p->n; s++) {
        const struct tile_stretch *t = &p->stretch[s];
        for (int i = 0; i < n; i++)
            sanitizer_expect(pixel[i] + t->offset, (size_t)t->length * sizeof(float));
        length += t->length;
    }
    sanitizer_expect(p->weights, (size_t)(length * vectors * LANES) * sizeof(float));
    sanitizer_expect(sums, (size_t)(n * vectors * LANES) * sizeof(float));
}

LANES_STEP void windows_of(const struct tile_panel *p, const float *const *pixel, float *sums,
                           int n, int vectors)
{
    lanes sum[TILE_PIXELS][TILE_VECTORS];
    const float *from[TILE_PIXELS], *weights = p->weights;
    UNROLL for (int i = 0; i < n; i++)
    {
        from[i] = pixel[i];
        UNROLL for (int k = 0; k < vectors; k++)
        {
            sum[i][k] = p->first ? lanes_all(0.0f) : lanes_load(sums + (i * vectors + k) * LANES);
        }
    }
    for (int s = 0; s < p->n; s++) {
        const struct tile_stretch *t = &p->stretch[s];
        for (int64_t k = 0; k < t->length; k += LANES) {
            UNROLL for (int i = 0; i < n; i++) /* what the next pixels read is on its way */
            {
                lanes_prefetch(from[i], t->offset + k + n * p->ahead_step);
            }
            weights = multiply_line(sum, from, t->offset + k, MIN(t->length - k, (int64_t)LANES),
                                    weights, n, vectors);
        }
    }
    UNROLL for (int i = 0; i < n; i++)
    {
        UNROLL for (int k = 0; k < vectors; k++)
        {
            lanes_store(sums + (i * vectors + k) * LANES, sum[i][k]);
        }
    }
}

typedef void windows_fn(const struct tile_panel *p, const float *const *pixel, float *sums);

#define WINDOWS(n, vectors)                                                                 \
    static UNSANITIZED void windows_##n##_##vectors(const struct tile_panel *p,             \
                                                    const float *const *pixel, float *sums) \
    {                                                                                       \
        windows_expect(p, pixel, sums, n, vectors);                                         \
        windows_of(p, pixel, sums, n, vectors);                                             \
    }

WINDOWS(1, 1)
WINDOWS(2, 1)
WINDOWS(4, 1)
WINDOWS(6, 1)
#if CPU_GEMM_AVX512
WINDOWS(14, 1)
WINDOWS(1, 2)
WINDOWS(2, 2)
WINDOWS(4, 2)
WINDOWS(7, 2)
WINDOWS(14, 2)
WINDOWS(1, 3)
WINDOWS(2, 3)
WINDOWS(4, 3)
WINDOWS(9, 3)
WINDOWS(1, 4)
WINDOWS(2, 4)
WINDOWS(4, 4)
WINDOWS(6, 4)
#endif

/* The tile of the most pixels, up to n, that there is for so many vectors. */
struct windows_tile {
    int n;
    windows_fn *run;
};

static struct windows_tile windows_tile(int n, int vectors)
{
    static const struct windows_tile tiles[TILE_VECTORS][5] = {
#if CPU_GEMM_AVX512
        {{14, windows_14_1},
         {6, windows_6_1},
         {4, windows_4_1},
         {2, windows_2_1},
         {1, windows_1_1}},
        {{14, windows_14_2},
         {7, windows_7_2},
         {4, windows_4_2},
         {2, windows_2_2},
         {1, windows_1_2}},
        {{9, windows_9_3}, {4, windows_4_3}, {2, windows_2_3}, {1, windows_1_3}},
        {{6, windows_6_4}, {4, windows_4_4}, {2, windows_2_4}, {1, windows_1_4}},
#else
        {{6, windows_6_1}, {4, windows_4_1}, {2, windows_2_1}, {1, windows_1_1}},
#endif
    };
    const struct windows_tile *t = tiles[vectors - 1];
    while (t->n > n)
        t++;
    return *t;
}

void tile_windows(const struct tile_panel *panel, const float *const *pixel, int n_pixels,
                  int vectors, float *sums)
{
    while (n_pixels > 0) {
        struct windows_tile t = windows_tile(n_pixels, vectors);
        t.run(panel, pixel, sums);
        pixel += t.n;
        sums += t.n * vectors * LANES;
        n_pixels -= t.n;
    }
}

/* ---- results with windows -------------------------------------------------------------------- */

/* What results_of touches. */
static inline void results_expect(const struct pass_view *v, const struct pass_block *b,
                                  int64_t offset, const float *result, const float *sums, int n,
                                  int vectors)
{
    if (!SNUG_ASAN || b->n_rows == 0 || b->n_columns == 0)
        return;
    for (int64_t r = 0; r < b->n_rows; r++)
        sanitizer_expect(v->data + offset + r * v->row_step,
                         (size_t)((b->n_columns - 1) * v->column_step + n) * sizeof(float));
    sanitizer_expect(result, (size_t)(b->n_rows * b->n_columns * vectors * LANES) * sizeof(float));
    sanitizer_expect(sums, (size_t)(n * vectors * LANES) * sizeof(float));
}

LANES_STEP void results_of(const struct pass_view *v, const struct pass_block *b, int64_t offset,
                           const float *result, float *sums, int n, int vectors)
{
    lanes sum[TILE_PIXELS][TILE_VECTORS];
    UNROLL for (int i = 0; i < n; i++)
    {
        UNROLL for (int k = 0; k < vectors; k++)
        {
            sum[i][k] = lanes_load(sums + (i * vectors + k) * LANES);
        }
    }
    for (int64_t r = 0; r < b->n_rows; r++) {
        const float *x = v->data + offset + r * v->row_step;
        for (int64_t c = 0; c < b->n_columns; c++) {
            lanes y[TILE_VECTORS];
            UNROLL for (int k = 0; k < vectors; k++)
            {
                y[k] = lanes_load(result + k * LANES);
            }
            UNROLL for (int i = 0; i < n; i++)
            {
                lanes one = lanes_all(x[i]);
                UNROLL for (int k = 0; k < vectors; k++)
                {
                    sum[i][k] = lanes_fma(one, y[k], sum[i][k]);
                }
            }
            x += v->column_step;
            result += vectors * LANES;
        }
    }
    UNROLL for (int i = 0; i < n; i++)
    {
        UNROLL for (int k = 0; k < vectors; k++)
        {
            lanes_store(sums + (i * vectors + k) * LANES, sum[i][k]);
        }
    }
}

typedef void results_fn(const struct pass_view *v, const struct pass_block *b, int64_t offset,
                        const float *result, float *sums);

#define RESULTS(n, vectors)                                                                     \
    static UNSANITIZED void results_##n##_##vectors(const struct pass_view *v,                  \
                                                    const struct pass_block *b, int64_t offset, \
                                                    const float *result, float *sums)           \
    {                                                                                           \
        results_expect(v, b, offset, result, sums, n, vectors);                                 \
        results_of(v, b, offset, result, sums, n, vectors);                                     \
    }

RESULTS(1, 1)
RESULTS(2, 1)
RESULTS(4, 1)
RESULTS(6, 1)
#if CPU_GEMM_AVX512
RESULTS(14, 1)
RESULTS(1, 2)
RESULTS(2, 2)
RESULTS(4, 2)
RESULTS(7, 2)
RESULTS(14, 2)
RESULTS(1, 3)
RESULTS(2, 3)
RESULTS(4, 3)
RESULTS(9, 3)
RESULTS(1, 4)
RESULTS(2, 4)
RESULTS(4, 4)
RESULTS(6, 4)
#endif

struct results_tile {
    int n;
    results_fn *run;
};

static struct results_tile results_tile(int n, int vectors)
{
    static const struct results_tile tiles[TILE_VECTORS][5] = {
#if CPU_GEMM_AVX512
        {{14, results_14_1},
         {6, results_6_1},
         {4, results_4_1},
         {2, results_2_1},
         {1, results_1_1}},
        {{14, results_14_2},
         {7, results_7_2},
         {4, results_4_2},
         {2, results_2_2},
         {1, results_1_2}},
        {{9, results_9_3}, {4, results_4_3}, {2, results_2_3}, {1, results_1_3}},
        {{6, results_6_4}, {4, results_4_4}, {2, results_2_4}, {1, results_1_4}},
#else
        {{6, results_6_1}, {4, results_4_1}, {2, results_2_1}, {1, results_1_1}},
#endif
    };
    const struct results_tile *t = tiles[vectors - 1];
    while (t->n > n)
        t++;
    return *t;
}

void tile_results(const struct pass_view *v, const struct pass_block *b, int64_t offset, int n,
                  const float *result, int vectors, float *sums)
{
    while (n > 0) {
        struct results_tile t = results_tile(n, vectors);
        t.run(v, b, offset, result, sums);
        offset += t.n;
        sums += t.n * vectors * LANES;
        n -= t.n;
    }
}
