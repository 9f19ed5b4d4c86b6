/* batch_norm_activation.c: a batch norm, the activation behind it and perhaps a scale and a shift
 * by sample in the passes that the norm takes by itself; f32 arithmetic over f32, bf16, f16
 * storage.
 *
 * The gradient makes z = (x - mean) factor + shift again from x. Of u = dy f'(z) it needs two sums
 * for each channel; behind a scale for each channel of each sample, and sum dy. There sum dy f(z),
 * the gradient of the scale, is sum u z, as f is two lines through 0: factor sum u (x - mean) +
 * shift sum u. Sums are taken in bands whose number depends on shapes alone, so the number of
 * threads does not show.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/kernels/activation.h"
#include "device/cpu/kernels/channel_norm.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/channel_norm_support.h"

enum { RUN_ROWS = 64, MOST_BANDS = 64, STRIP = 32 };
enum { SUM_U, SUM_PRODUCT, SUM_DY, SUMS }; /* u, u (x - mean), dy */

struct activated {
    const struct op_call *c;
    int64_t n_samples, n_places, channels, n_bands; /* without a scale all places are one sample */
    float slope;
    bool silu;
    struct norm_vectors v;      /* [channels] */
    const float *scale, *shift; /* forward: [samples, channels], or NULL */
    /* Of gradients. */
    double *sums;             /* [samples, bands, SUMS, channels] */
    float *of_u, *of_x, *add; /* dx = u of_u - (x - mean) of_x - add; of_u by sample too */
};

static bool has_scale(const struct op_call *c)
{
    return c->op == OP_batch_norm_film_grad ||
           (c->op == OP_batch_norm_activation && call_has(c, ACTIVATED_SCALE));
}

static struct activated job_of(const struct op_call *c)
{
    const struct shape *x = &c->in[0].shape;
    bool forward = c->op == OP_batch_norm_activation;
    struct activated j = {.c = c, .n_samples = has_scale(c) ? x->dim[0] : 1};
    j.channels = shape_last(x);
    j.n_places = shape_rows(x) / j.n_samples;
    j.n_bands = MIN((j.n_places + RUN_ROWS - 1) / RUN_ROWS, MOST_BANDS / j.n_samples);
    j.n_bands = MAX(j.n_bands, (int64_t)1);
    j.slope = (float)call_float(c, forward ? ACTIVATED_SLOPE : ACTIVATED_GRAD_SLOPE);
    j.silu = forward                                  ? call_bool(c, ACTIVATED_SILU)
             : c->op == OP_batch_norm_activation_grad ? call_bool(c, ACTIVATED_GRAD_SILU)
                                                      : false;
    return j;
}

static double parameter(const struct op_call *c, int i, int64_t at, double otherwise)
{
    return call_has(c, i) ? ref_get(&c->in[i], at) : otherwise;
}

/* ---- references ------------------------------------------------------------------------------ */

static double f_of(const struct activated *j, double z)
{
    return j->silu ? ref_silu(z) : z > 0.0 ? z : call_float(j->c, ACTIVATED_SLOPE) * z;
}

static void activate_channel(const struct activated *j, int64_t channel)
{
    const struct op_call *c = j->c;
    int64_t n_rows = j->n_samples * j->n_places;
    double sum = 0.0, squares = 0.0;
    for (int64_t r = 0; r < n_rows; r++)
        sum += ref_get(&c->in[0], r * j->channels + channel);
    double mean = sum / (double)n_rows;
    for (int64_t r = 0; r < n_rows; r++) {
        double x = ref_get(&c->in[0], r * j->channels + channel) - mean;
        squares += x * x;
    }
    double rstd = 1.0 / sqrt(squares / (double)n_rows + call_float(c, ACTIVATED_EPSILON));
    double gamma = parameter(c, ACTIVATED_GAMMA, channel, 1.0);
    double beta = parameter(c, ACTIVATED_BETA, channel, 0.0);
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t at = r * j->channels + channel, of = r / j->n_places * j->channels + channel;
        double y = f_of(j, (ref_get(&c->in[0], at) - mean) * rstd * gamma + beta);
        y = y * parameter(c, ACTIVATED_SCALE, of, 1.0) + parameter(c, ACTIVATED_SHIFT, of, 0.0);
        ref_set(&c->out[0], at, y);
    }
    ref_set(&c->out[1], channel, mean);
    ref_set(&c->out[2], channel, rstd);
}

static enum status activated_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct activated j = job_of(c);
    (void)x;
    for (int64_t channel = 0; channel < j.channels; channel++)
        activate_channel(&j, channel);
    return OK;
}

/* What the gradient needs to know of an element. */
struct element {
    double dy, h, z, slope; /* slope: f'(z) */
};

static struct element element_of(const struct activated *j, int64_t at)
{
    const struct op_call *c = j->c;
    int64_t channel = at % j->channels;
    struct element e = {.dy = ref_get(&c->in[ACTIVATED_GRAD_DY], at)};
    e.h = ref_get(&c->in[ACTIVATED_GRAD_X], at) - ref_get(&c->in[ACTIVATED_GRAD_MEAN], channel);
    e.h *= ref_get(&c->in[ACTIVATED_GRAD_RSTD], channel);
    e.z = e.h * parameter(c, ACTIVATED_GRAD_GAMMA, channel, 1.0) +
          parameter(c, ACTIVATED_GRAD_BETA, channel, 0.0);
    e.slope = j->silu ? ref_silu_slope(e.z) : e.z > 0.0 ? 1.0 : call_float(c, ACTIVATED_GRAD_SLOPE);
    return e;
}

/* dx may take the memory of dy or x: a channel's sums come before it. */
static void grad_channel(const struct activated *j, int64_t channel)
{
    const struct op_call *c = j->c;
    double factor = parameter(c, ACTIVATED_GRAD_GAMMA, channel, 1.0) *
                    ref_get(&c->in[ACTIVATED_GRAD_RSTD], channel);
    double dgamma = 0.0, dbeta = 0.0, count = (double)(j->n_samples * j->n_places);
    for (int64_t sample = 0; sample < j->n_samples; sample++) {
        int64_t of = sample * j->channels + channel;
        double dscale = 0.0, dshift = 0.0, scale = parameter(c, ACTIVATED_GRAD_SCALE, of, 1.0);
        for (int64_t p = 0; p < j->n_places; p++) {
            int64_t at = (sample * j->n_places + p) * j->channels + channel;
            struct element e = element_of(j, at);
            dbeta += scale * e.dy * e.slope;
            dgamma += scale * e.dy * e.slope * e.h;
            dscale += e.dy * (e.z > 0.0 ? e.z : e.slope * e.z);
            dshift += e.dy;
        }
        if (has_scale(c)) {
            ref_set(&c->out[3], of, dscale);
            ref_set(&c->out[4], of, dshift);
        }
    }
    for (int64_t r = 0; r < j->n_samples * j->n_places; r++) {
        int64_t at = r * j->channels + channel, of = r / j->n_places * j->channels + channel;
        struct element e = element_of(j, at);
        double dz = parameter(c, ACTIVATED_GRAD_SCALE, of, 1.0) * e.dy * e.slope;
        ref_set(&c->out[0], at, factor * (dz - (dbeta + e.h * dgamma) / count));
    }
    ref_set(&c->out[1], channel, dgamma);
    ref_set(&c->out[2], channel, dbeta);
}

static enum status grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct activated j = job_of(c);
    (void)x;
    for (int64_t channel = 0; channel < j.channels; channel++)
        grad_channel(&j, channel);
    return OK;
}

/* ---- y --------------------------------------------------------------------------------------- */

static struct norm_extent extent_of(const struct activated *j)
{
    return (struct norm_extent){1, j->n_samples * j->n_places, j->channels, 1, j->channels};
}

static int64_t forward_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct activated j = job_of(c);
    struct norm_extent e = extent_of(&j);
    (void)env;
    return channel_norm_workspace(&e) + 2 * j.n_samples * j.channels * (int64_t)sizeof(float);
}

/* Input i as floats at *room, which moves behind them; absent: all `otherwise`. */
static float *floats_of(const struct op_call *c, int i, int64_t n, float otherwise, float **room)
{
    float *to = *room;
    *room += n;
    if (call_has(c, i))
        cpu_load_f32(to, c->in[i].data, c->in[i].dtype, 0, n);
    else
        for (int64_t k = 0; k < n; k++)
            to[k] = otherwise;
    return to;
}

/* n channels of a row; scale NULL: none. */
static void activate_row(const struct activated *j, float *y, const float *x, int64_t channel,
                         const float *scale, const float *add, int64_t n)
{
    const float *mean = j->v.mean + channel, *factor = j->v.factor + channel;
    const float *shift = j->v.shift + channel, slope = j->slope;
    if (j->silu) {
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            y[k] = silu((x[k] - mean[k]) * factor[k] + shift[k]);
    } else if (scale) {
#pragma omp simd
        for (int64_t k = 0; k < n; k++) {
            float z = (x[k] - mean[k]) * factor[k] + shift[k];
            y[k] = (z > 0.0f ? z : slope * z) * scale[k] + add[k];
        }
    } else {
#pragma omp simd
        for (int64_t k = 0; k < n; k++) {
            float z = (x[k] - mean[k]) * factor[k] + shift[k];
            y[k] = z > 0.0f ? z : slope * z;
        }
    }
}

static void activate_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct activated *j = job;
    const struct tensor *in = &j->c->in[0], *out = &j->c->out[0];
    float x_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        int64_t of = row / j->n_places * j->channels;
        for (int64_t channel = 0; channel < j->channels; channel += CPU_BLOCK) {
            int64_t size = block_size(j->channels, channel), at = row * j->channels + channel;
            const float *x = block_read(in, at, size, x_buffer);
            float *y = block_open(out, at, y_buffer);
            activate_row(j, y, x, channel, j->scale ? j->scale + of + channel : NULL,
                         j->scale ? j->shift + of + channel : NULL, size);
            block_close(out, at, y, size);
        }
    }
}

static enum status activated_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    struct activated j = job_of(c);
    struct norm_extent e = extent_of(&j);
    float *room = (float *)(void *)((char *)x->workspace + channel_norm_workspace(&e));
    if (has_scale(c)) {
        j.scale = floats_of(c, ACTIVATED_SCALE, j.n_samples * j.channels, 1.0f, &room);
        j.shift = floats_of(c, ACTIVATED_SHIFT, j.n_samples * j.channels, 0.0f, &room);
    }
    j.v = channel_norm_statistics(x, c, &e, call_float(c, ACTIVATED_EPSILON));
    cpu_loop(x, j.n_samples * j.n_places, j.channels, activate_rows, &j);
    return OK;
}

/* ---- sums of gradients ----------------------------------------------------------------------- */

/* The sums of n rows for STRIP channels, in registers; `step` floats from row to row. */
static void strip_sums(const struct activated *j, int64_t at, int64_t channel, int64_t n,
                       float *restrict sums)
{
    const float *dy = (const float *)j->c->in[ACTIVATED_GRAD_DY].data + at;
    const float *x = (const float *)j->c->in[ACTIVATED_GRAD_X].data + at, slope = j->slope;
    float u_sum[STRIP] = {0}, product[STRIP] = {0}, dy_sum[STRIP] = {0};
    float mean[STRIP], factor[STRIP], shift[STRIP];
    memcpy(mean, j->v.mean + channel, sizeof(mean));
    memcpy(factor, j->v.factor + channel, sizeof(factor));
    memcpy(shift, j->v.shift + channel, sizeof(shift));
    for (int64_t r = 0; r < n; r++, dy += j->channels, x += j->channels) {
#pragma omp simd
        for (int k = 0; k < STRIP; k++) {
            float h = x[k] - mean[k];
            float u = h * factor[k] + shift[k] > 0.0f ? dy[k] : slope * dy[k];
            u_sum[k] += u;
            product[k] += u * h;
            dy_sum[k] += dy[k];
        }
    }
    memcpy(sums + SUM_U * CPU_BLOCK, u_sum, sizeof(u_sum));
    memcpy(sums + SUM_PRODUCT * CPU_BLOCK, product, sizeof(product));
    memcpy(sums + SUM_DY * CPU_BLOCK, dy_sum, sizeof(dy_sum));
}

/* u[k] = dy f'(z), n channels of a row. */
static void slopes_of_row(const struct activated *j, float *restrict u, const float *dy,
                          const float *x, int64_t channel, int64_t n)
{
    const float *mean = j->v.mean + channel, *factor = j->v.factor + channel;
    const float *shift = j->v.shift + channel, slope = j->slope;
    if (j->silu) {
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            u[k] = dy[k] * silu_slope((x[k] - mean[k]) * factor[k] + shift[k]);
    } else {
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            u[k] = (x[k] - mean[k]) * factor[k] + shift[k] > 0.0f ? dy[k] : slope * dy[k];
    }
}

/* sums[q * CPU_BLOCK + k]: of n rows of `size` channels from element `at` on. */
static void run_sums(const struct activated *j, int64_t at, int64_t channel, int64_t n,
                     int64_t size, float *restrict sums)
{
    const struct op_call *c = j->c;
    float dy_buffer[CPU_BLOCK], x_buffer[CPU_BLOCK], u[CPU_BLOCK];
    if (c->in[0].dtype == DTYPE_F32 && size % STRIP == 0 && !j->silu) {
        for (int64_t k = 0; k < size; k += STRIP)
            strip_sums(j, at + k, channel + k, n, sums + k);
        return;
    }
    for (int q = 0; q < SUMS; q++)
        memset(sums + q * CPU_BLOCK, 0, (size_t)size * sizeof(*sums));
    for (int64_t r = 0; r < n; r++, at += j->channels) {
        const float *dy = block_read(&c->in[ACTIVATED_GRAD_DY], at, size, dy_buffer);
        const float *x = block_read(&c->in[ACTIVATED_GRAD_X], at, size, x_buffer);
        const float *mean = j->v.mean + channel;
        slopes_of_row(j, u, dy, x, channel, size);
#pragma omp simd
        for (int64_t k = 0; k < size; k++) {
            sums[SUM_U * CPU_BLOCK + k] += u[k];
            sums[SUM_PRODUCT * CPU_BLOCK + k] += u[k] * (x[k] - mean[k]);
            sums[SUM_DY * CPU_BLOCK + k] += dy[k];
        }
    }
}

/* Item: a band of a sample, some channels. */
static void band_sums(const void *job, int64_t first, int64_t last, int thread)
{
    const struct activated *j = job;
    int64_t n_blocks = block_count(j->channels);
    float sums[SUMS * CPU_BLOCK];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t sample = i / n_blocks / j->n_bands, band = i / n_blocks % j->n_bands;
        int64_t channel = i % n_blocks * CPU_BLOCK, size = block_size(j->channels, channel);
        int64_t row = band * j->n_places / j->n_bands, end = (band + 1) * j->n_places / j->n_bands;
        double *to = j->sums + i / n_blocks * SUMS * j->channels + channel;
        for (int64_t k = 0; k < SUMS * size; k++)
            to[k / size * j->channels + k % size] = 0.0;
        for (; row < end; row += RUN_ROWS) {
            run_sums(j, (sample * j->n_places + row) * j->channels + channel, channel,
                     MIN(end - row, (int64_t)RUN_ROWS), size, sums);
            for (int q = 0; q < SUMS; q++) {
                for (int64_t k = 0; k < size; k++)
                    to[q * j->channels + k] += (double)sums[q * CPU_BLOCK + k];
            }
        }
    }
}

/* ---- what the sums make ---------------------------------------------------------------------- */

/* A sum of a channel of a sample, over its bands. */
static double sample_sum(const struct activated *j, int q, int64_t sample, int64_t channel)
{
    double sum = 0.0;
    for (int64_t band = 0; band < j->n_bands; band++)
        sum += j->sums[((sample * j->n_bands + band) * SUMS + q) * j->channels + channel];
    return sum;
}

/* Item: a channel. */
static void finish_channels(const void *job, int64_t first, int64_t last, int thread)
{
    const struct activated *j = job;
    const struct op_call *c = j->c;
    (void)thread;
    for (int64_t channel = first; channel < last; channel++) {
        double rstd = ref_get(&c->in[ACTIVATED_GRAD_RSTD], channel);
        double factor = (double)j->v.factor[channel], shift = (double)j->v.shift[channel];
        double dbeta = 0.0, dgamma = 0.0, count = (double)(j->n_samples * j->n_places);
        for (int64_t sample = 0; sample < j->n_samples; sample++) {
            int64_t of = sample * j->channels + channel;
            double scale = parameter(c, ACTIVATED_GRAD_SCALE, of, 1.0);
            double sum = sample_sum(j, SUM_U, sample, channel);
            double product = sample_sum(j, SUM_PRODUCT, sample, channel);
            dbeta += scale * sum;
            dgamma += scale * product * rstd;
            j->of_u[of] = (float)(scale * factor);
            if (has_scale(c)) {
                ref_set(&c->out[3], of, factor * product + shift * sum);
                ref_set(&c->out[4], of, sample_sum(j, SUM_DY, sample, channel));
            }
        }
        j->of_x[channel] = (float)(factor * rstd * dgamma / count);
        j->add[channel] = (float)(factor * dbeta / count);
        ref_set(&c->out[1], channel, dgamma);
        ref_set(&c->out[2], channel, dbeta);
    }
}

/* ---- dx -------------------------------------------------------------------------------------- */

static void grad_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct activated *j = job;
    const struct op_call *c = j->c;
    float dy_buffer[CPU_BLOCK], x_buffer[CPU_BLOCK], dx_buffer[CPU_BLOCK], u[CPU_BLOCK];
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        for (int64_t channel = 0; channel < j->channels; channel += CPU_BLOCK) {
            int64_t size = block_size(j->channels, channel), at = row * j->channels + channel;
            const float *of_u = j->of_u + row / j->n_places * j->channels + channel;
            const float *mean = j->v.mean + channel, *of_x = j->of_x + channel;
            const float *add = j->add + channel;
            const float *dy = block_read(&c->in[ACTIVATED_GRAD_DY], at, size, dy_buffer);
            const float *x = block_read(&c->in[ACTIVATED_GRAD_X], at, size, x_buffer);
            float *dx = block_open(&c->out[0], at, dx_buffer);
            slopes_of_row(j, u, dy, x, channel, size);
#pragma omp simd
            for (int64_t k = 0; k < size; k++)
                dx[k] = u[k] * of_u[k] - (x[k] - mean[k]) * of_x[k] - add[k];
            block_close(&c->out[0], at, dx, size);
        }
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

static int64_t grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    enum { VECTORS = 4 }; /* factor, shift, of_x, add */
    struct activated j = job_of(c);
    (void)env;
    return SUMS * j.n_samples * j.n_bands * j.channels * (int64_t)sizeof(double) +
           (VECTORS + j.n_samples) * j.channels * (int64_t)sizeof(float);
}

/* factor as the forward pass has it: z is the same to the bit. */
static void set_vectors(struct activated *j, float *room)
{
    const struct op_call *c = j->c;
    int64_t n = j->channels;
    const float *rstd = c->in[ACTIVATED_GRAD_RSTD].data;
    j->v.mean = c->in[ACTIVATED_GRAD_MEAN].data;
    j->v.shift = floats_of(c, ACTIVATED_GRAD_BETA, n, 0.0f, &room);
    float *factor = floats_of(c, ACTIVATED_GRAD_GAMMA, n, 1.0f, &room);
    for (int64_t k = 0; k < n; k++)
        factor[k] *= rstd[k];
    j->v.factor = factor;
    j->of_x = room;
    j->add = room + n;
    j->of_u = room + 2 * n;
}

static enum status grad_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    struct activated j = job_of(c);
    j.sums = x->workspace;
    set_vectors(&j, (float *)(void *)(j.sums + SUMS * j.n_samples * j.n_bands * j.channels));
    cpu_loop(x, j.n_samples * j.n_bands * block_count(j.channels),
             j.n_places / j.n_bands * MIN(j.channels, (int64_t)CPU_BLOCK), band_sums, &j);
    cpu_loop(x, j.channels, SUMS * j.n_samples * j.n_bands, finish_channels, &j);
    cpu_loop(x, j.n_samples * j.n_places, j.channels, grad_rows, &j);
    return OK;
}

const struct kernel cpu_kernels_batch_norm_activation[] = {
    {"bands", cpu_declines_f64, forward_workspace, activated_bands},
    {"reference", NULL, NULL, activated_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_batch_norm_activation_grad[] = {
    {"bands", cpu_declines_f64, grad_workspace, grad_bands},
    {"reference", NULL, NULL, grad_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_batch_norm_film_grad[] = {
    {"bands", cpu_declines_f64, grad_workspace, grad_bands},
    {"reference", NULL, NULL, grad_reference},
    KERNEL_END,
};
