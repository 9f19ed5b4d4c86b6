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
    double p = call_float(c, DROPOUT_P);
    return (struct draw){
        .key = (uint64_t)rng[0],
        .counter_hi = dropout_counter(rng[1], call_int(c, DROPOUT_SEED)),
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

static void multiply_block(const struct op_call *c, int64_t at, int64_t size,
                           const float *restrict multiplier)
{
    float a_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    const float *a = block_read(&c->in[0], at, size, a_buffer);
    float *y = block_open(&c->out[0], at, y_buffer);
#pragma omp simd
    for (int64_t i = 0; i < size; i++) /* a dropped infinity is 0, not NaN */
        y[i] = multiplier[i] == 0.0f ? 0.0f : a[i] * multiplier[i];
    block_close(&c->out[0], at, y, size);
}

static void dropout_block(const void *job, int64_t at, int64_t size)
{
    const struct op_call *c = job;
    struct draw draw = draw_of(c);
    float multiplier[CPU_BLOCK];
    draw_block(multiplier, &draw, at);
    multiply_block(c, at, size, multiplier);
}

static const char *blocked_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (call_bool(c, DROPOUT_CHANNELS))
        return "draws for each element";
    return cpu_declines_f64(c, env);
}

static enum status dropout_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_each_block(x, shape_elems(&c->out[0].shape), dropout_block, c);
    return OK;
}

/* ---- whole channels -------------------------------------------------------------------------- */

static const char *channels_declines(const struct op_call *c, const struct kernel_env *env)
{
    if (!call_bool(c, DROPOUT_CHANNELS))
        return "draws for each channel of a sample";
    return cpu_declines_f64(c, env);
}

/* Channels of all samples, in whole draws. */
static int64_t draw_count(const struct op_call *c)
{
    const struct shape *x = &c->in[0].shape;
    return block_count(x->dim[0] * shape_last(x)) * CPU_BLOCK;
}

static int64_t channels_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return draw_count(c) * (int64_t)sizeof(float);
}

struct channels_job {
    const struct op_call *c;
    const float *multiplier; /* [samples, channels] */
};

static void channels_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct channels_job *j = job;
    const struct shape *x = &j->c->in[0].shape;
    int64_t channels = shape_last(x), n_places = shape_rows(x) / MAX(x->dim[0], (int64_t)1);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        for (int64_t k = 0; k < channels; k += CPU_BLOCK)
            multiply_block(j->c, row * channels + k, block_size(channels, k),
                           j->multiplier + row / n_places * channels + k);
    }
}

static enum status dropout_channels(const struct kernel_ctx *x, const struct op_call *c)
{
    struct draw draw = draw_of(c);
    float *multiplier = x->workspace;
    for (int64_t at = 0; at < draw_count(c); at += CPU_BLOCK)
        draw_block(multiplier + at, &draw, at);
    struct channels_job j = {c, multiplier};
    cpu_loop(x, shape_rows(&c->in[0].shape), shape_last(&c->in[0].shape), channels_rows, &j);
    return OK;
}

/* ---- reference ------------------------------------------------------------------------------- */

/* The draw of element e. */
static int64_t draw_number(const struct op_call *c, int64_t e)
{
    const struct shape *x = &c->in[0].shape;
    if (!call_bool(c, DROPOUT_CHANNELS))
        return e;
    int64_t channels = shape_last(x);
    return e / (shape_elems(x) / x->dim[0]) * channels + e % channels;
}

static enum status dropout_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const int64_t *rng = c->in[1].data;
    double p = call_float(c, DROPOUT_P);
    uint64_t counter_hi = ((uint64_t)rng[1] << 20) + (uint64_t)call_int(c, DROPOUT_SEED);
    for (int64_t e = 0; e < shape_elems(&c->out[0].shape); e++) {
        int64_t i = draw_number(c, e);
        uint32_t bits = philox((uint64_t)rng[0], counter_hi, (uint64_t)i / 4).v[i % 4];
        bool kept = rng_uniform(bits) >= (float)p;
        ref_set(&c->out[0], e, kept ? ref_get(&c->in[0], e) / (1.0 - p) : 0.0);
    }
    return OK;
}

const struct kernel cpu_kernels_dropout[] = {
    {"blocked", blocked_declines, NULL, dropout_blocked},
    {"channels", channels_declines, channels_workspace, dropout_channels},
    {"reference", NULL, NULL, dropout_reference},
    KERNEL_END,
};
