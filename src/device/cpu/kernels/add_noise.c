/* add_noise.c: what is added to an element is defined in src/ops/add_noise.c. */
#include "base/rng.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/dropout_support.h"

static void noise_block(const void *job, int64_t at, int64_t size)
{
    const struct op_call *c = job;
    const int64_t *rng = c->in[1].data;
    uint64_t counter_hi = dropout_counter(rng[1], call_int(c, NOISE_SEED));
    float magnitude = (float)call_float(c, NOISE_MAGNITUDE);
    float noise[CPU_BLOCK], x_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    for (int64_t i = 0; i < CPU_BLOCK / 4; i++) {
        struct philox4 r = philox((uint64_t)rng[0], counter_hi, (uint64_t)(at / 4 + i));
        for (int k = 0; k < 4; k++)
            noise[4 * i + k] = noise_of(r.v[k], magnitude);
    }
    const float *x = block_read(&c->in[0], at, size, x_buffer);
    float *y = block_open(&c->out[0], at, y_buffer);
#pragma omp simd
    for (int64_t i = 0; i < size; i++)
        y[i] = x[i] + noise[i];
    block_close(&c->out[0], at, y, size);
}

static enum status blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_each_block(x, shape_elems(&c->out[0].shape), noise_block, c);
    return OK;
}

static enum status reference(const struct kernel_ctx *x, const struct op_call *c)
{
    const int64_t *rng = c->in[1].data;
    uint64_t counter_hi = ((uint64_t)rng[1] << 20) + (uint64_t)call_int(c, NOISE_SEED);
    double magnitude = call_float(c, NOISE_MAGNITUDE);
    (void)x;
    for (int64_t e = 0; e < shape_elems(&c->out[0].shape); e++) {
        uint32_t bits = philox((uint64_t)rng[0], counter_hi, (uint64_t)e / 4).v[e % 4];
        double u = 2.0 * (double)(bits >> 8) / 16777216.0 - 1.0;
        ref_set(&c->out[0], e, ref_get(&c->in[0], e) + magnitude * u);
    }
    return OK;
}

const struct kernel cpu_kernels_add_noise[] = {
    {"blocked", cpu_declines_f64, NULL, blocked},
    {"reference", NULL, NULL, reference},
    KERNEL_END,
};
