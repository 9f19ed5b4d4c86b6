#include "device/cpu/kernels/update_factors.h"

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* Elements of one row of the gradient, from column `column` on. */
static void row_part(const struct update_factors *f, int64_t row, int64_t column, int64_t n,
                     float *restrict g)
{
    const int64_t n_rows = shape_last(&f->dy->shape), n_columns = shape_last(&f->x->shape);
    float buffer[CPU_BLOCK];
    for (int64_t i = 0; i < n; i++)
        g[i] = 0.0f;
    for (int64_t term = 0; term < shape_rows(&f->dy->shape); term++) {
        const float *restrict x = block_read(f->x, term * n_columns + column, n, buffer);
        float dy;
        cpu_load_f32(&dy, f->dy->data, f->dy->dtype, term * n_rows + row, 1);
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            g[i] += dy * x[i];
    }
}

static void round_to(enum dtype dtype, float *g, int64_t n)
{
    uint16_t rounded[CPU_BLOCK];
    if (dtype == DTYPE_F32)
        return;
    cpu_store_f32(rounded, dtype, 0, g, n);
    cpu_load_f32(g, rounded, dtype, 0, n);
}

void update_factors_block(const struct update_factors *f, int64_t at, int64_t n, float *g)
{
    const int64_t n_columns = shape_last(&f->x->shape);
    for (int64_t done = 0; done < n;) {
        int64_t column = (at + done) % n_columns, size = MIN(n_columns - column, n - done);
        row_part(f, (at + done) / n_columns, column, size, g + done);
        done += size;
    }
    round_to(f->dtype, g, n);
}

double update_factors_get(const struct update_factors *f, int64_t at)
{
    const int64_t n_rows = shape_last(&f->dy->shape), n_columns = shape_last(&f->x->shape);
    double sum = 0.0, stored;
    for (int64_t term = 0; term < shape_rows(&f->dy->shape); term++)
        sum += ref_get(f->dy, term * n_rows + at / n_columns) *
               ref_get(f->x, term * n_columns + at % n_columns);
    const struct tensor one = {
        .data = &stored, .dtype = f->dtype, .shape = shape_of(1, (int64_t)1)};
    ref_set(&one, 0, sum);
    return ref_get(&one, 0);
}
