/* expert_rows.c: rows of tokens brought into the order of their experts, and back. Both ways every
 * row that is written is gathered by one thread, so that sums have one order. */
#include <string.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/expert_support.h"

/* ---- references ----------------------------------------------------------------------------- */

static enum status dispatch_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const int32_t *order = c->in[1].data;
    int64_t n_columns = c->in[0].shape.dim[1], slots = c->out[0].shape.dim[0];
    slots /= c->in[0].shape.dim[0];
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        int64_t slot = order[i / n_columns];
        double weight = call_has(c, 3) ? ref_get(&c->in[3], slot) : 1.0;
        ref_set(&c->out[0], i,
                weight * ref_get(&c->in[0], slot / slots * n_columns + i % n_columns));
    }
    return OK;
}

static enum status combine_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const int32_t *place = c->in[2].data;
    int64_t n_columns = c->in[0].shape.dim[1], slots = call_int(c, COMBINE_SLOTS);
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        int64_t token = i / n_columns;
        double sum = 0.0;
        for (int64_t slot = token * slots; slot < (token + 1) * slots; slot++)
            sum += (call_has(c, 3) ? ref_get(&c->in[3], slot) : 1.0) *
                   ref_get(&c->in[0], place[slot] * n_columns + i % n_columns);
        ref_set(&c->out[0], i, sum);
    }
    return OK;
}

static enum status weights_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const int32_t *place = c->in[3].data;
    int64_t n_columns = c->in[0].shape.dim[1], slots = c->out[0].shape.dim[1];
    for (int64_t slot = 0; slot < shape_elems(&c->out[0].shape); slot++) {
        double sum = 0.0;
        for (int64_t k = 0; k < n_columns; k++)
            sum += ref_get(&c->in[0], slot / slots * n_columns + k) *
                   ref_get(&c->in[1], place[slot] * n_columns + k);
        ref_set(&c->out[0], slot, sum);
    }
    return OK;
}

/* ---- dispatch ------------------------------------------------------------------------------- */

/* The weight of a slot; 1 without weights. Weights are f32 wherever the fast kernels run. */
static float slot_weight(const struct op_call *c, int64_t slot)
{
    return call_has(c, 3) ? ((const float *)c->in[3].data)[slot] : 1.0f;
}

static void scale_row(const struct op_call *c, int64_t from, int64_t to, float weight)
{
    int64_t n_columns = c->in[0].shape.dim[1];
    for (int64_t column = 0; column < n_columns; column += CPU_BLOCK) {
        float in[CPU_BLOCK], out[CPU_BLOCK];
        int64_t n = block_size(n_columns, column), at = to * n_columns + column;
        const float *x = block_read(&c->in[0], from * n_columns + column, n, in);
        float *y = block_open(&c->out[0], at, out);
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = weight * x[i];
        block_close(&c->out[0], at, y, n);
    }
}

static void dispatch_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    const int32_t *order = c->in[1].data;
    int64_t slots = c->out[0].shape.dim[0] / c->in[0].shape.dim[0];
    int64_t row_bytes = c->in[0].shape.dim[1] * dtype_size(c->in[0].dtype);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        int64_t from = order[row] / slots;
        if (call_has(c, 3))
            scale_row(c, from, row, slot_weight(c, order[row]));
        else
            memcpy((char *)c->out[0].data + row * row_bytes,
                   (const char *)c->in[0].data + from * row_bytes, (size_t)row_bytes);
    }
}

static enum status dispatch_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_loop(x, c->out[0].shape.dim[0], c->out[0].shape.dim[1], dispatch_some, c);
    return OK;
}

/* ---- combine -------------------------------------------------------------------------------- */

static void combine_token(const struct op_call *c, int64_t token)
{
    const int32_t *place = c->in[2].data;
    int64_t n_columns = c->in[0].shape.dim[1], slots = call_int(c, COMBINE_SLOTS);
    for (int64_t column = 0; column < n_columns; column += CPU_BLOCK) {
        float sum[CPU_BLOCK], buffer[CPU_BLOCK];
        int64_t n = block_size(n_columns, column);
        memset(sum, 0, (size_t)n * sizeof(float));
        for (int64_t slot = token * slots; slot < (token + 1) * slots; slot++) {
            float weight = slot_weight(c, slot);
            const float *x = block_read(&c->in[0], place[slot] * n_columns + column, n, buffer);
#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                sum[i] += weight * x[i];
        }
        cpu_store_f32(c->out[0].data, c->out[0].dtype, token * n_columns + column, sum, n);
    }
}

static void combine_some(const void *job, int64_t first, int64_t last, int thread)
{
    (void)thread;
    for (int64_t token = first; token < last; token++)
        combine_token(job, token);
}

static enum status combine_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_columns = c->in[0].shape.dim[1], slots = call_int(c, COMBINE_SLOTS);
    cpu_loop(x, c->out[0].shape.dim[0], n_columns * slots, combine_some, c);
    return OK;
}

/* ---- gradient of weights -------------------------------------------------------------------- */

static float row_dot(const struct op_call *c, int64_t token, int64_t row)
{
    int64_t n_columns = c->in[0].shape.dim[1];
    float total = 0.0f;
    for (int64_t column = 0; column < n_columns; column += CPU_BLOCK) {
        float a[CPU_BLOCK], b[CPU_BLOCK], sum = 0.0f;
        int64_t n = block_size(n_columns, column);
        const float *dy = block_read(&c->in[0], token * n_columns + column, n, a);
        const float *x = block_read(&c->in[1], row * n_columns + column, n, b);
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++)
            sum += dy[i] * x[i];
        total += sum;
    }
    return total;
}

static void weights_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    const int32_t *place = c->in[3].data;
    int64_t slots = c->out[0].shape.dim[1];
    (void)thread;
    for (int64_t slot = first; slot < last; slot++)
        ((float *)c->out[0].data)[slot] = row_dot(c, slot / slots, place[slot]);
}

static enum status weights_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_loop(x, shape_elems(&c->out[0].shape), c->in[0].shape.dim[1], weights_some, c);
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_dispatch[] = {
    {"rows", cpu_declines_f64, NULL, dispatch_rows},
    {"reference", NULL, NULL, dispatch_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_combine[] = {
    {"rows", cpu_declines_f64, NULL, combine_rows},
    {"reference", NULL, NULL, combine_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_combine_grad_weights[] = {
    {"rows", cpu_declines_f64, NULL, weights_rows},
    {"reference", NULL, NULL, weights_reference},
    KERNEL_END,
};
