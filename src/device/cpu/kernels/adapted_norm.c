/* adapted_norm.c: the lengths of the rows of w + scale b a, without that matrix. */
#include "ops/adapted_norm.h"

#include <math.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* ---- rows: blocks of a row in f32, their squares summed in double -----------------------------
 */

/* row[0 .. size) += factor times elements [at, ..) of a */
static void add_scaled(float *row, const struct tensor *a, int64_t at, int64_t size, float factor)
{
    float buffer[CPU_BLOCK];
    const float *from = block_read(a, at, size, buffer);
#pragma omp simd
    for (int64_t k = 0; k < size; k++)
        row[k] += factor * from[k];
}

static double length_of(const struct op_call *c, int64_t n)
{
    int64_t n_columns = c->in[1].shape.dim[1], rank = c->in[1].shape.dim[0];
    int64_t at = (call_int(c, ADAPTED_NORM_FIRST) + n) * n_columns;
    float scale = (float)call_float(c, ADAPTED_NORM_SCALE);
    double sum = 0.0;
    for (int64_t first = 0; first < n_columns; first += CPU_BLOCK) {
        float row[CPU_BLOCK], part = 0.0f;
        int64_t size = block_size(n_columns, first);
        cpu_load_f32(row, c->in[0].data, c->in[0].dtype, at + first, size);
        for (int64_t r = 0; r < rank; r++) {
            float factor = scale * (float)ref_get(&c->in[2], n * rank + r);
            add_scaled(row, &c->in[1], r * n_columns + first, size, factor);
        }
#pragma omp simd reduction(+ : part)
        for (int64_t k = 0; k < size; k++)
            part += row[k] * row[k];
        sum += (double)part;
    }
    return sqrt(sum);
}

static void lengths_of_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    (void)thread;
    for (int64_t n = first; n < last; n++)
        ref_set(&c->out[0], n, length_of(c, n));
}

static enum status rows(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct shape *a = &c->in[1].shape;
    cpu_loop(x, c->out[0].shape.dim[0], a->dim[1] * (a->dim[0] + 1), lengths_of_rows, c);
    return OK;
}

/* ---- reference --------------------------------------------------------------------------------
 */

static enum status reference(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_columns = c->in[1].shape.dim[1], rank = c->in[1].shape.dim[0];
    (void)x;
    for (int64_t n = 0; n < c->out[0].shape.dim[0]; n++) {
        double sum = 0.0;
        for (int64_t k = 0; k < n_columns; k++) {
            double more = 0.0;
            for (int64_t r = 0; r < rank; r++)
                more += ref_get(&c->in[2], n * rank + r) * ref_get(&c->in[1], r * n_columns + k);
            int64_t row = call_int(c, ADAPTED_NORM_FIRST) + n;
            double v =
                ref_get(&c->in[0], row * n_columns + k) + call_float(c, ADAPTED_NORM_SCALE) * more;
            sum += v * v;
        }
        ref_set(&c->out[0], n, sqrt(sum));
    }
    return OK;
}

const struct kernel cpu_kernels_adapted_norm[] = {
    {"rows", cpu_declines_f64, NULL, rows},
    {"reference", NULL, NULL, reference},
    KERNEL_END,
};
