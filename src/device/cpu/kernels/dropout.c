/* dropout.c: which element is kept is defined in src/ops/dropout.c; both kernels draw the same. */
#include "base/rng.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/dropout_support.h"

struct draw {
    uint64_t key, counter_hi;
    float p, factor;
};

static struct draw draw_of(const struct op_call *c)
{
    const int64_t *rng = c->in[1].data;
    double p = call_float(c, 0);
    return (struct draw){
        .key = (uint64_t)rng[0],
        .counter_hi = dropout_counter(rng[1], call_int(c, 1)),
        .p = (float)p,
        .factor = (float)(1.0 / (1.0 - p)),
    };
}

/* What elements [at, at + CPU_BLOCK) are multiplied by: 1 / (1 - p), or 0. at is a multiple of 4.
 */
static void draw_block(float *restrict multiplier, const struct draw *draw, int64_t at)
{
    const struct draw d = *draw;
    for (int64_t i = 0; i < CPU_BLOCK / 4; i++) {
        struct philox4 r = philox(d.key, d.counter_hi, (uint64_t)(at / 4 + i));
        multiplier[4 * i] = rng_uniform(r.v[0]) >= d.p ? d.factor : 0.0f;
        multiplier[4 * i + 1] = rng_uniform(r.v[1]) >= d.p ? d.factor : 0.0f;
        multiplier[4 * i + 2] = rng_uniform(r.v[2]) >= d.p ? d.factor : 0.0f;
        multiplier[4 * i + 3] = rng_uniform(r.v[3]) >= d.p ? d.factor : 0.0f;
    }
}

static void dropout_block(const void *job, int64_t at, int64_t size)
{
    const struct op_call *c = job;
    struct draw draw = draw_of(c);
    float a_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK], multiplier[CPU_BLOCK];
    const float *a = block_read(&c->in[0], at, size, a_buffer);
    float *y = block_open(&c->out[0], at, y_buffer);
    draw_block(multiplier, &draw, at);
#pragma omp simd
    for (int64_t i = 0; i < size; i++) /* a dropped infinity is 0, not NaN */
        y[i] = multiplier[i] == 0.0f ? 0.0f : a[i] * multiplier[i];
    block_close(&c->out[0], at, y, size);
}

static enum status dropout_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_each_block(x, shape_elems(&c->out[0].shape), dropout_block, c);
    return OK;
}

static enum status dropout_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const int64_t *rng = c->in[1].data;
    double p = call_float(c, 0);
    uint64_t counter_hi = ((uint64_t)rng[1] << 20) + (uint64_t)call_int(c, 1);
    for (int64_t e = 0; e < shape_elems(&c->out[0].shape); e++) {
        uint32_t bits = philox((uint64_t)rng[0], counter_hi, (uint64_t)e / 4).v[e % 4];
        bool kept = rng_uniform(bits) >= (float)p;
        ref_set(&c->out[0], e, kept ? ref_get(&c->in[0], e) / (1.0 - p) : 0.0);
    }
    return OK;
}

const struct kernel cpu_kernels_dropout[] = {
    {"blocked", cpu_declines_f64, NULL, dropout_blocked},
    {"reference", NULL, NULL, dropout_reference},
    KERNEL_END,
};
