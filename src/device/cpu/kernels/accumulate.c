/* accumulate.c: clearing accumulators and adding to them. */
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

static void fill_block(const void *job, int64_t at, int64_t size)
{
    const struct op_call *c = job;
    float value = (float)call_float(c, 0), buffer[CPU_BLOCK];
    float *y = block_open(&c->out[0], at, buffer);
    for (int64_t i = 0; i < size; i++)
        y[i] = value;
    block_close(&c->out[0], at, y, size);
}

static enum status fill_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_each_block(x, shape_elems(&c->out[0].shape), fill_block, c);
    return OK;
}

static const char *fill_declines(const struct op_call *c, const struct kernel_env *env)
{
    return dtype_is_float(c->out[0].dtype) ? cpu_declines_f64(c, env) : "takes floats only";
}

static enum status fill_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, call_float(c, 0));
    return OK;
}

static void accumulate_block(const void *job, int64_t at, int64_t size)
{
    const struct op_call *c = job;
    float acc_buffer[CPU_BLOCK], g_buffer[CPU_BLOCK];
    const float *acc = block_read(&c->in[0], at, size, acc_buffer);
    const float *g = block_read(&c->in[1], at, size, g_buffer);
    float *y = block_open(&c->out[0], at, acc_buffer);
#pragma omp simd
    for (int64_t i = 0; i < size; i++)
        y[i] = acc[i] + g[i];
    block_close(&c->out[0], at, y, size);
}

static enum status accumulate_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_each_block(x, shape_elems(&c->out[0].shape), accumulate_block, c);
    return OK;
}

static enum status accumulate_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, ref_get(&c->in[0], i) + ref_get(&c->in[1], i));
    return OK;
}

const struct kernel cpu_kernels_fill[] = {
    {"blocked", fill_declines, NULL, fill_blocked},
    {"reference", NULL, NULL, fill_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_accumulate[] = {
    {"blocked", cpu_declines_f64, NULL, accumulate_blocked},
    {"reference", NULL, NULL, accumulate_reference},
    KERNEL_END,
};
