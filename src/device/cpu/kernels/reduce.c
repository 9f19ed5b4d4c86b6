/* reduce.c: sum, mean, max, column sums.
 *
 * Reduced axes next to each other make x a box [n_outer, length, n_inner] of which `length` goes.
 * Sums have two levels: short runs in f32, the runs' sums in f64; so the error does not grow with
 * the length. How x is cut depends on its shape only, never on the thread count.
 */
#include <math.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "device/cpu/support/ref.h"
#include "device/geometry.h"

/* ---- n_inner = 1: sums along rows ------------------------------------------------------------ */

enum { CHUNK = 16 * CPU_BLOCK };

static int64_t chunk_count(const struct box *box)
{
    return (box->length + CHUNK - 1) / CHUNK;
}

/* Sum of elements [at, at + n): blocks in f32 with as many partial sums as a vector has lanes. */
static double sum_chunk(const struct tensor *x, int64_t at, int64_t n)
{
    float buffer[CPU_BLOCK];
    double sum = 0.0;
    for (int64_t i = 0; i < n; i += CPU_BLOCK) {
        int64_t size = block_size(n, i);
        const float *block = block_read(x, at + i, size, buffer);
        float part = 0.0f;
#pragma omp simd reduction(+ : part)
        for (int64_t k = 0; k < size; k++)
            part += block[k];
        sum += (double)part;
    }
    return sum;
}

struct sums {
    const struct op_call *c;
    const struct box *box;
    double *partial, factor;
    const struct tensor *add; /* NULL: nothing */
};

/* partial is [n_outer, n_chunks] */
static void sum_chunks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct sums *s = job;
    int64_t n_chunks = chunk_count(s->box);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t row = i / n_chunks, at = i % n_chunks * CHUNK;
        int64_t n = MIN((int64_t)CHUNK, s->box->length - at);
        s->partial[i] = sum_chunk(&s->c->in[0], row * s->box->length + at, n);
    }
}

static void sum_along_rows(const struct kernel_ctx *x, const struct op_call *c,
                           const struct box *box, double factor)
{
    int64_t n_chunks = chunk_count(box);
    double *partial = x->workspace;
    struct sums s = {.c = c, .box = box, .partial = partial};
    cpu_loop(x, box->n_outer * n_chunks, MIN(box->length, (int64_t)CHUNK), sum_chunks, &s);
    for (int64_t row = 0; row < box->n_outer; row++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n_chunks; i++)
            sum += partial[row * n_chunks + i];
        ref_set(&c->out[0], row, sum * factor);
    }
}

/* ---- n_inner > 1: sums down columns ---------------------------------------------------------- */

enum { RUN_ROWS = 128, MAX_BANDS = 64 };

/* Rows are cut into bands, one task each, so that one tall matrix keeps all threads busy. */
static int64_t band_count(const struct box *box)
{
    int64_t n = (box->length + RUN_ROWS - 1) / RUN_ROWS;
    return box->n_outer >= MAX_BANDS ? 1 : MIN(n, (int64_t)MAX_BANDS);
}

static int64_t column_workspace(const struct box *box)
{
    return box->n_outer * band_count(box) * box->n_inner * (int64_t)sizeof(double);
}

/* acc[k] += the rows from element `at` on, n_inner apart; four at a time halves the traffic on acc
 * and makes the sum pairwise. */
static void add_rows(float *restrict acc, const struct tensor *x, int64_t at, int64_t n_inner,
                     int64_t n_rows, int64_t size)
{
    float buffer[4][CPU_BLOCK];
    int64_t r = 0;
    for (; r + 4 <= n_rows; r += 4) {
        const float *a = block_read(x, at + r * n_inner, size, buffer[0]);
        const float *b = block_read(x, at + (r + 1) * n_inner, size, buffer[1]);
        const float *d = block_read(x, at + (r + 2) * n_inner, size, buffer[2]);
        const float *e = block_read(x, at + (r + 3) * n_inner, size, buffer[3]);
#pragma omp simd
        for (int64_t k = 0; k < size; k++)
            acc[k] += (a[k] + b[k]) + (d[k] + e[k]);
    }
    for (; r < n_rows; r++) {
        const float *a = block_read(x, at + r * n_inner, size, buffer[0]);
#pragma omp simd
        for (int64_t k = 0; k < size; k++)
            acc[k] += a[k];
    }
}

/* total[k] = sum over rows [first, last) of the `size` columns from element `at` on. */
static void sum_band(double *restrict total, const struct tensor *x, int64_t at, int64_t n_inner,
                     int64_t n_rows, int64_t size)
{
    float acc[CPU_BLOCK];
    for (int64_t k = 0; k < size; k++)
        total[k] = 0.0;
    for (int64_t r = 0; r < n_rows; r += RUN_ROWS) {
        for (int64_t k = 0; k < size; k++)
            acc[k] = 0.0f;
        add_rows(acc, x, at + r * n_inner, n_inner, MIN((int64_t)RUN_ROWS, n_rows - r), size);
#pragma omp simd
        for (int64_t k = 0; k < size; k++)
            total[k] += (double)acc[k];
    }
}

static int64_t band_rows(const struct box *box)
{
    return (box->length + band_count(box) - 1) / band_count(box);
}

/* partial is [n_outer, n_bands, n_inner] */
static void sum_bands(const void *job, int64_t first, int64_t last, int thread)
{
    const struct sums *s = job;
    const struct box *box = s->box;
    int64_t n_bands = band_count(box), n_inner = box->n_inner, n_blocks = block_count(n_inner);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t i_band = i / n_blocks, column = i % n_blocks * CPU_BLOCK;
        int64_t outer = i_band / n_bands, row = i_band % n_bands * band_rows(box);
        int64_t n_rows = MIN(band_rows(box), box->length - row);
        sum_band(s->partial + i_band * n_inner + column, &s->c->in[0],
                 (outer * box->length + row) * n_inner + column, n_inner, MAX(n_rows, (int64_t)0),
                 block_size(n_inner, column));
    }
}

static void add_bands(const void *job, int64_t first, int64_t last, int thread)
{
    const struct sums *s = job;
    int64_t n_bands = band_count(s->box), n_inner = s->box->n_inner;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        const double *from = s->partial + i / n_inner * n_bands * n_inner + i % n_inner;
        double sum = 0.0;
        for (int64_t band = 0; band < n_bands; band++)
            sum += from[band * n_inner];
        ref_set(&s->c->out[0], i, sum * s->factor + (s->add ? ref_get(s->add, i) : 0.0));
    }
}

/* out = factor * column sums (+ add). add may be out itself. */
static void sum_down_columns(const struct kernel_ctx *x, const struct op_call *c,
                             const struct box *box, double factor, const struct tensor *add)
{
    int64_t n_bands = band_count(box), n_inner = box->n_inner;
    struct sums s = {c, box, x->workspace, factor, add};
    cpu_loop(x, box->n_outer * n_bands * block_count(n_inner),
             band_rows(box) * MIN(n_inner, (int64_t)CPU_BLOCK), sum_bands, &s);
    cpu_loop(x, box->n_outer * n_inner, n_bands, add_bands, &s);
}

/* ---- sum, mean, sum_rows --------------------------------------------------------------------- */

static const char *sum_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct box box;
    if (!sum_box(c, &box))
        return "takes reduced axes next to each other only";
    return cpu_declines_f64(c, env);
}

static int64_t sum_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    struct box box;
    sum_box(c, &box);
    if (box.n_inner == 1)
        return box.n_outer * chunk_count(&box) * (int64_t)sizeof(double);
    return column_workspace(&box);
}

static void sum_scaled(const struct kernel_ctx *x, const struct op_call *c, bool mean)
{
    struct box box;
    sum_box(c, &box);
    double factor = mean ? 1.0 / (double)box.length : 1.0;
    if (box.n_inner == 1)
        sum_along_rows(x, c, &box, factor);
    else
        sum_down_columns(x, c, &box, factor, NULL);
}

static enum status sum_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    sum_scaled(x, c, false);
    return OK;
}

static enum status mean_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    sum_scaled(x, c, true);
    return OK;
}

static int64_t sum_rows_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    struct box box = box_of(&c->in[0].shape, 0, 0);
    return column_workspace(&box);
}

static enum status sum_rows_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    struct box box = box_of(&c->in[0].shape, 0, 0);
    sum_down_columns(x, c, &box, 1.0, call_has(c, 1) ? &c->in[1] : NULL);
    return OK;
}

/* ---- max ------------------------------------------------------------------------------------- */

static struct box max_box(const struct op_call *c, const struct tensor *x)
{
    int axis = call_int(c, 0) == -1 ? x->shape.rank - 1 : (int)call_int(c, 0);
    return box_of(&x->shape, axis, axis);
}

/* A NaN anywhere makes the maximum NaN. */
static float max_along_row(const struct tensor *x, int64_t at, int64_t n)
{
    float buffer[CPU_BLOCK];
    float best = -INFINITY;
    int n_nan = 0;
    for (int64_t i = 0; i < n; i += CPU_BLOCK) {
        int64_t size = block_size(n, i);
        const float *block = block_read(x, at + i, size, buffer);
        best = fmaxf(best, cpu_max_of(block, size));
#pragma omp simd reduction(+ : n_nan)
        for (int64_t k = 0; k < size; k++)
            n_nan += block[k] != block[k];
    }
    return n_nan > 0 ? NAN : best;
}

static void max_down_columns(float *restrict best, const struct tensor *x, int64_t at,
                             const struct box *box, int64_t size)
{
    float buffer[CPU_BLOCK];
    for (int64_t k = 0; k < size; k++)
        best[k] = -INFINITY;
    for (int64_t j = 0; j < box->length; j++) {
        const float *row = block_read(x, at + j * box->n_inner, size, buffer);
#pragma omp simd
        for (int64_t k = 0; k < size; k++)
            best[k] = ((row[k] <= best[k]) | (best[k] != best[k])) ? best[k] : row[k];
    }
}

static void max_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    struct box box = max_box(c, &c->in[0]);
    int64_t n_blocks = block_count(box.n_inner);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        float best[CPU_BLOCK];
        int64_t outer = i / n_blocks, column = i % n_blocks * CPU_BLOCK;
        int64_t at = outer * box.length * box.n_inner + column;
        int64_t size = block_size(box.n_inner, column);
        if (box.n_inner == 1)
            best[0] = max_along_row(&c->in[0], at, box.length);
        else
            max_down_columns(best, &c->in[0], at, &box, size);
        cpu_store_f32(c->out[0].data, c->out[0].dtype, outer * box.n_inner + column, best, size);
    }
}

static enum status max_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    struct box box = max_box(c, &c->in[0]);
    cpu_loop(x, box.n_outer * block_count(box.n_inner),
             box.length * MIN(box.n_inner, (int64_t)CPU_BLOCK), max_some, c);
    return OK;
}

/* ---- reference ------------------------------------------------------------------------------- */

static bool is_reduced(const struct op_call *c, int axis)
{
    const struct attr *axes = &c->attrs[0];
    for (int i = 0; i < axes->n_ints; i++) {
        if (axes->ints[i] == axis)
            return true;
    }
    return axes->n_ints == 0;
}

/* Element of x for the i-th index over its reduced (or its other) axes, the rest of the index 0. */
static int64_t spread(const struct op_call *c, bool reduced, int64_t i)
{
    const struct shape *x = &c->in[0].shape;
    int64_t element = 0;
    for (int a = x->rank - 1; a >= 0; a--) {
        if (is_reduced(c, a) != reduced)
            continue;
        element += i % x->dim[a] * shape_inner(x, a + 1);
        i /= x->dim[a];
    }
    return element;
}

static void sum_reference_scaled(const struct op_call *c, double factor)
{
    int64_t n_out = shape_elems(&c->out[0].shape);
    int64_t n_each = shape_elems(&c->in[0].shape) / n_out;
    for (int64_t o = 0; o < n_out; o++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n_each; i++)
            sum += ref_get(&c->in[0], spread(c, false, o) + spread(c, true, i));
        ref_set(&c->out[0], o, sum * factor);
    }
}

static enum status sum_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    sum_reference_scaled(c, 1.0);
    return OK;
}

static enum status mean_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    sum_reference_scaled(c, (double)shape_elems(&c->out[0].shape) /
                                (double)shape_elems(&c->in[0].shape));
    return OK;
}

static enum status sum_rows_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n_rows = c->in[0].shape.dim[0], n_columns = c->in[0].shape.dim[1];
    for (int64_t k = 0; k < n_columns; k++) {
        double sum = call_has(c, 1) ? ref_get(&c->in[1], k) : 0.0;
        for (int64_t r = 0; r < n_rows; r++)
            sum += ref_get(&c->in[0], r * n_columns + k);
        ref_set(&c->out[0], k, sum);
    }
    return OK;
}

static enum status max_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct box box = max_box(c, &c->in[0]);
    for (int64_t o = 0; o < box.n_outer * box.n_inner; o++) {
        int64_t at = o / box.n_inner * box.length * box.n_inner + o % box.n_inner;
        double best = ref_get(&c->in[0], at);
        for (int64_t j = 1; j < box.length; j++) {
            double v = ref_get(&c->in[0], at + j * box.n_inner);
            if (isnan(v) || v > best)
                best = v;
        }
        ref_set(&c->out[0], o, best);
    }
    return OK;
}

static void max_grad_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    struct box box = max_box(c, &c->in[1]);
    (void)thread;
    for (int64_t o = first; o < last; o++) {
        int64_t at = o / box.n_inner * box.length * box.n_inner + o % box.n_inner;
        double best = ref_get(&c->in[2], o);
        bool found = false;
        for (int64_t j = 0; j < box.length; j++) {
            int64_t i = at + j * box.n_inner;
            double v = ref_get(&c->in[1], i);
            bool here = !found && (v == best || (isnan(v) && isnan(best)));
            found = found || here;
            ref_set(&c->out[0], i, here ? ref_get(&c->in[0], o) : 0.0);
        }
    }
}

static enum status max_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct box box = max_box(c, &c->in[1]);
    cpu_loop(x, box.n_outer * box.n_inner, box.length, max_grad_some, c);
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_sum[] = {
    {"blocked", sum_declines, sum_workspace, sum_blocked},
    {"reference", NULL, NULL, sum_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_mean[] = {
    {"blocked", sum_declines, sum_workspace, mean_blocked},
    {"reference", NULL, NULL, mean_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_max[] = {
    {"blocked", cpu_declines_f64, NULL, max_blocked},
    {"reference", NULL, NULL, max_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_max_grad[] = {
    {"reference", NULL, NULL, max_grad_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_sum_rows[] = {
    {"blocked", cpu_declines_f64, sum_rows_workspace, sum_rows_blocked},
    {"reference", NULL, NULL, sum_rows_reference},
    KERNEL_END,
};
