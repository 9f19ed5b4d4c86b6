/* ternary.c: weights and activations rounded as BitNet b1.58 does. Numbers are those of PyTorch in
 * f32: multiplied by the inverse of a scale, rounded to even, divided by it. */
#include "ops/ternary.h"

#include <math.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* ---- weights --------------------------------------------------------------------------------- */

struct matrix {
    const struct op_call *call;
    int64_t first_row, n_columns;
    double *sums; /* of the sizes in each row of the whole */
    float inverse;
};

static void add_sizes(const void *job, int64_t first, int64_t last, int thread)
{
    const struct matrix *m = job;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        double sum = 0.0;
        for (int64_t k = 0; k < m->n_columns; k += CPU_BLOCK) {
            float buffer[CPU_BLOCK], part = 0.0f;
            int64_t n = block_size(m->n_columns, k);
            const float *w = block_read(&m->call->in[0], row * m->n_columns + k, n, buffer);
#pragma omp simd reduction(+ : part)
            for (int64_t i = 0; i < n; i++)
                part += fabsf(w[i]);
            sum += (double)part;
        }
        m->sums[row] = sum;
    }
}

static void round_weights(const void *job, int64_t first, int64_t last, int thread)
{
    const struct matrix *m = job;
    const float inverse = m->inverse, scale = 1.0f / inverse;
    (void)thread;
    for (int64_t row = m->first_row + first; row < m->first_row + last; row++) {
        for (int64_t k = 0; k < m->n_columns; k += CPU_BLOCK) {
            float from[CPU_BLOCK], to[CPU_BLOCK];
            int64_t at = row * m->n_columns + k, n = block_size(m->n_columns, k);
            const float *w = block_read(&m->call->in[0], at, n, from);
            float *y = block_open(&m->call->out[0], at, to);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                float r = rintf(w[i] * inverse);
                r = r < -1.0f ? -1.0f : r; /* what is no number stays so */
                y[i] = (r > 1.0f ? 1.0f : r) * scale;
            }
            block_close(&m->call->out[0], at, y, n);
        }
    }
}

static int64_t weight_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return c->in[0].shape.dim[0] * (int64_t)sizeof(double);
}

/* Rows are added up in their order, whatever the number of threads. */
static enum status weight_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct attr *rows = &c->attrs[TERNARY_ROWS];
    struct matrix m = {.call = c, .n_columns = c->in[0].shape.dim[1], .sums = x->workspace};
    cpu_loop(x, c->in[0].shape.dim[0], m.n_columns, add_sizes, &m);
    for (int i = 0; i < rows->n_ints; i++) {
        double sum = 0.0;
        for (int64_t row = m.first_row; row < m.first_row + rows->ints[i]; row++)
            sum += m.sums[row];
        float mean = (float)(sum / ((double)rows->ints[i] * (double)m.n_columns));
        m.inverse = 1.0f / (mean < TERNARY_LEAST ? TERNARY_LEAST : mean);
        cpu_loop(x, rows->ints[i], m.n_columns, round_weights, &m);
        m.first_row += rows->ints[i];
    }
    return OK;
}

static enum status weight_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct attr *rows = &c->attrs[TERNARY_ROWS];
    int64_t at = 0;
    (void)x;
    for (int i = 0; i < rows->n_ints; i++) {
        int64_t n = rows->ints[i] * c->in[0].shape.dim[1];
        double sum = 0.0;
        for (int64_t k = 0; k < n; k++)
            sum += fabs(ref_get(&c->in[0], at + k));
        double scale = fmax(sum / (double)n, (double)TERNARY_LEAST);
        for (int64_t k = 0; k < n; k++) {
            double r = rint(ref_get(&c->in[0], at + k) / scale);
            ref_set(&c->out[0], at + k, fmin(fmax(r, -1.0), 1.0) * scale);
        }
        at += n;
    }
    return OK;
}

const struct kernel cpu_kernels_ternary_weight[] = {
    {"rows", cpu_declines_f64, weight_workspace, weight_rows},
    {"reference", NULL, NULL, weight_reference},
    KERNEL_END,
};

/* ---- activations ----------------------------------------------------------------------------- */

static float largest(const struct tensor *x, int64_t at, int64_t n_columns)
{
    float most = 0.0f;
    for (int64_t k = 0; k < n_columns; k += CPU_BLOCK) {
        float buffer[CPU_BLOCK];
        int64_t n = block_size(n_columns, k);
        const float *from = block_read(x, at + k, n, buffer);
#pragma omp simd reduction(max : most)
        for (int64_t i = 0; i < n; i++)
            most = fmaxf(most, fabsf(from[i]));
    }
    return most;
}

static void round_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    int64_t n_columns = shape_last(&c->in[0].shape);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        float most = fmaxf(largest(&c->in[0], row * n_columns, n_columns), TERNARY_LEAST);
        const float inverse = INT8_MOST / most;
        for (int64_t k = 0; k < n_columns; k += CPU_BLOCK) {
            float from[CPU_BLOCK], to[CPU_BLOCK];
            int64_t at = row * n_columns + k, n = block_size(n_columns, k);
            const float *x = block_read(&c->in[0], at, n, from);
            float *y = block_open(&c->out[0], at, to);
#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                y[i] = rintf(x[i] * inverse) / inverse;
            block_close(&c->out[0], at, y, n);
        }
    }
}

static enum status int8_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_loop(x, shape_rows(&c->in[0].shape), shape_last(&c->in[0].shape), round_rows, c);
    return OK;
}

static enum status int8_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->in[0].shape);
    (void)x;
    for (int64_t row = 0; row < shape_rows(&c->in[0].shape); row++) {
        double most = (double)TERNARY_LEAST;
        for (int64_t k = 0; k < n; k++)
            most = fmax(most, fabs(ref_get(&c->in[0], row * n + k)));
        double scale = most / (double)INT8_MOST;
        for (int64_t k = 0; k < n; k++)
            ref_set(&c->out[0], row * n + k, rint(ref_get(&c->in[0], row * n + k) / scale) * scale);
    }
    return OK;
}

const struct kernel cpu_kernels_int8_rows[] = {
    {"rows", cpu_declines_f64, NULL, int8_rows},
    {"reference", NULL, NULL, int8_reference},
    KERNEL_END,
};
