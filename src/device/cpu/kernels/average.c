/* average.c: averages of weights over the steps. */
#include "device/cpu/kernels/update.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* ---- ema ------------------------------------------------------------------------------------- */

static void ema_block(const void *job, int64_t at, int64_t n)
{
    const struct op_call *c = job;
    float buffer[CPU_BLOCK];
    const float *p = block_read(&c->in[1], at, n, buffer), *old = (const float *)c->in[0].data + at;
    float *y = (float *)c->out[0].data + at;
    const float keep = (float)call_float(c, 0), rate = (float)(1.0 - call_float(c, 0));
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = keep * old[i] + rate * p[i];
}

static enum status ema_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_each_block(x, shape_elems(&c->out[0].shape), ema_block, c);
    return OK;
}

static enum status ema_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    double keep = call_float(c, 0);
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, keep * ref_get(&c->in[0], i) + (1.0 - keep) * ref_get(&c->in[1], i));
    return OK;
}

const struct kernel cpu_kernels_ema[] = {
    {"blocked", cpu_declines_f64, NULL, ema_blocked},
    {"reference", NULL, NULL, ema_reference},
    KERNEL_END,
};

/* ---- lookahead, with a master or without ----------------------------------------------------- */

enum { SLOW = 1, STEP, MASTER };

static bool stands_still(const struct op_call *c)
{
    return (int64_t)ref_get(&c->in[STEP], 0) % call_int(c, 0) != 0;
}

static void copy_through(const struct op_call *c)
{
    const struct update_stream parts[] = {
        {.in = &c->in[0], .out = &c->out[0]},
        {.in = &c->in[SLOW], .out = &c->out[1]},
        {.in = &c->in[c->n_in - 1], .out = &c->out[c->n_out - 1]},
    };
    update_copy(parts, c->n_in > MASTER ? 3 : 2);
}

static void lookahead_block(const void *job, int64_t at, int64_t n)
{
    const struct op_call *c = job;
    float buffer[CPU_BLOCK];
    bool master = c->n_in > MASTER;
    const float *fast = block_read(&c->in[master ? MASTER : 0], at, n, buffer);
    const float *old = (const float *)c->in[SLOW].data + at, rate = (float)call_float(c, 1);
    float *slow = (float *)c->out[1].data + at;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        slow[i] = old[i] + rate * (fast[i] - old[i]);
    cpu_store_f32(c->out[0].data, c->out[0].dtype, at, slow, n);
    if (master)
        cpu_store_f32(c->out[2].data, c->out[2].dtype, at, slow, n);
}

static enum status lookahead_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    if (stands_still(c))
        copy_through(c);
    else
        cpu_each_block(x, shape_elems(&c->out[0].shape), lookahead_block, c);
    return OK;
}

static enum status lookahead_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    bool master = c->n_in > MASTER;
    (void)x;
    if (stands_still(c)) {
        copy_through(c);
        return OK;
    }
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double fast = ref_get(&c->in[master ? MASTER : 0], i), slow = ref_get(&c->in[SLOW], i);
        ref_set(&c->out[1], i, slow + call_float(c, 1) * (fast - slow));
        ref_set(&c->out[0], i, ref_get(&c->out[1], i));
        if (master)
            ref_set(&c->out[2], i, ref_get(&c->out[1], i));
    }
    return OK;
}

const struct kernel cpu_kernels_lookahead[] = {
    {"blocked", cpu_declines_f64, NULL, lookahead_blocked},
    {"reference", NULL, NULL, lookahead_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_lookahead_master[] = {
    {"blocked", cpu_declines_f64, NULL, lookahead_blocked},
    {"reference", NULL, NULL, lookahead_reference},
    KERNEL_END,
};
