#include "device/cpu/kernels/channel_norm.h"

#include <math.h>
#include <string.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

enum { RUN_ROWS = 64, MOST_BANDS = 64, VECTORS = 4, STRIP = 32 };

/* Two sums for each channel of a band of a sample's places: mean and sum of squares about it, or
 * sums of dy and of dy (x - mean). */
struct band_sums {
    double *first, *second; /* [samples, bands, channels] */
};

struct norm_job {
    const struct op_call *c;
    struct norm_extent e;
    int64_t n_bands;
    struct band_sums sums;
    float *vector[VECTORS]; /* [samples, channels] each */
    double epsilon;
};

/* ---- workspace ------------------------------------------------------------------------------- */

static int64_t band_count(const struct norm_extent *e)
{
    int64_t n = (e->n_places + RUN_ROWS - 1) / RUN_ROWS;
    return MAX(MIN(n, MOST_BANDS / e->n_samples), (int64_t)1);
}

int64_t channel_norm_workspace(const struct norm_extent *e)
{
    int64_t n_sums = 2 * e->n_samples * band_count(e) * e->channels;
    int64_t n_vectors = VECTORS * e->n_samples * e->channels;
    return n_sums * (int64_t)sizeof(double) + n_vectors * (int64_t)sizeof(float);
}

static struct norm_job job_of(const struct kernel_ctx *x, const struct op_call *c,
                              const struct norm_extent *e)
{
    struct norm_job j = {.c = c, .e = *e, .n_bands = band_count(e)};
    int64_t n_sums = e->n_samples * j.n_bands * e->channels;
    j.sums.first = x->workspace;
    j.sums.second = j.sums.first + n_sums;
    float *vectors = (float *)(void *)(j.sums.second + n_sums);
    for (int i = 0; i < VECTORS; i++)
        j.vector[i] = vectors + i * e->n_samples * e->channels;
    return j;
}

/* Rows of a band: those of x from `first` on, n of them. */
struct band {
    int64_t first, n, sample, at; /* at: of its sums */
};

static struct band band_at(const struct norm_job *j, int64_t i)
{
    int64_t sample = i / j->n_bands, k = i % j->n_bands, n = j->e.n_places;
    int64_t from = k * n / j->n_bands, to = (k + 1) * n / j->n_bands;
    return (struct band){sample * n + from, to - from, sample, i * j->e.channels};
}

static float parameter(const struct op_call *c, int i, int64_t channel, float otherwise)
{
    return call_has(c, i) ? (float)ref_get(&c->in[i], channel) : otherwise;
}

/* ---- moments --------------------------------------------------------------------------------- */

/* The same sums as below for STRIP channels, in registers: *mean and *squares of n rows of floats,
 * `step` apart. */
static void strip_moments(const float *x, int64_t step, int64_t n, float *restrict mean,
                          float *restrict squares)
{
    float sum[STRIP] = {0}, square[STRIP] = {0};
    for (int64_t r = 0; r < n; r++) {
#pragma omp simd
        for (int k = 0; k < STRIP; k++)
            sum[k] += x[r * step + k];
    }
    for (int k = 0; k < STRIP; k++)
        sum[k] /= (float)n;
    for (int64_t r = 0; r < n; r++) {
#pragma omp simd
        for (int k = 0; k < STRIP; k++)
            square[k] += (x[r * step + k] - sum[k]) * (x[r * step + k] - sum[k]);
    }
    memcpy(mean, sum, sizeof(sum));
    memcpy(squares, square, sizeof(square));
}

/* Mean and squares of n rows of `size` channels from element `at` on. */
static void run_moments(const struct norm_job *j, int64_t at, int64_t n, int64_t size,
                        float *restrict mean, float *restrict squares)
{
    float buffer[CPU_BLOCK];
    if (j->c->in[0].dtype == DTYPE_F32 && size % STRIP == 0) {
        const float *x = (const float *)j->c->in[0].data + at;
        for (int64_t k = 0; k < size; k += STRIP)
            strip_moments(x + k, j->e.channels, n, mean + k, squares + k);
        return;
    }
    for (int64_t k = 0; k < size; k++)
        mean[k] = squares[k] = 0.0f;
    for (int64_t r = 0; r < n; r++) {
        const float *x = block_read(&j->c->in[0], at + r * j->e.channels, size, buffer);
#pragma omp simd
        for (int64_t k = 0; k < size; k++)
            mean[k] += x[k];
    }
    for (int64_t k = 0; k < size; k++)
        mean[k] /= (float)n;
    for (int64_t r = 0; r < n; r++) {
        const float *x = block_read(&j->c->in[0], at + r * j->e.channels, size, buffer);
#pragma omp simd
        for (int64_t k = 0; k < size; k++)
            squares[k] += (x[k] - mean[k]) * (x[k] - mean[k]);
    }
}

/* Merges moments of n elements into those of `before`. */
static void merge(double *mean, double *squares, double before, double other_mean,
                  double other_squares, double n)
{
    double delta = other_mean - *mean, share = n / (before + n);
    *mean += delta * share;
    *squares += other_squares + delta * delta * before * share;
}

/* Item: a band, some channels. */
static void band_moments(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm_job *j = job;
    int64_t n_blocks = block_count(j->e.channels);
    float mean[CPU_BLOCK], squares[CPU_BLOCK];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        struct band b = band_at(j, i / n_blocks);
        int64_t channel = i % n_blocks * CPU_BLOCK, size = block_size(j->e.channels, channel);
        double *to_mean = j->sums.first + b.at + channel;
        double *to_squares = j->sums.second + b.at + channel;
        for (int64_t k = 0; k < size; k++)
            to_mean[k] = to_squares[k] = 0.0;
        for (int64_t r = 0; r < b.n; r += RUN_ROWS) {
            int64_t n = MIN(b.n - r, (int64_t)RUN_ROWS);
            run_moments(j, (b.first + r) * j->e.channels + channel, n, size, mean, squares);
            for (int64_t k = 0; k < size; k++)
                merge(to_mean + k, to_squares + k, (double)r, (double)mean[k], (double)squares[k],
                      (double)n);
        }
    }
}

/* Item: a group of a sample: its statistics, and what x is to be turned into y by. */
static void finish_groups(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm_job *j = job;
    const struct norm_extent *e = &j->e;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t sample = i / e->groups, channel = i % e->groups * e->width;
        double mean = 0.0, squares = 0.0, n = 0.0;
        for (int64_t k = 0; k < j->n_bands * e->width; k++) {
            struct band b = band_at(j, sample * j->n_bands + k / e->width);
            int64_t at = b.at + channel + k % e->width;
            merge(&mean, &squares, n, j->sums.first[at], j->sums.second[at], (double)b.n);
            n += (double)b.n;
        }
        double rstd = 1.0 / sqrt(squares / n + j->epsilon);
        ref_set(&j->c->out[1], i, mean);
        ref_set(&j->c->out[2], i, rstd);
        for (int64_t k = channel; k < channel + e->width; k++) {
            int64_t at = sample * e->channels + k;
            j->vector[0][at] = (float)mean;
            j->vector[1][at] = (float)rstd * parameter(j->c, 1, k, 1.0f);
            j->vector[2][at] = parameter(j->c, 2, k, 0.0f);
        }
    }
}

/* ---- y --------------------------------------------------------------------------------------- */

struct apply_job {
    const struct tensor *from, *to;
    const struct norm_extent *e;
    const struct norm_vectors *v;
};

static void apply_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct apply_job *a = job;
    int64_t channels = a->e->channels;
    float x_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        for (int64_t channel = 0; channel < channels; channel += CPU_BLOCK) {
            int64_t size = block_size(channels, channel), at = row * channels + channel;
            int64_t of = row / a->e->n_places * channels + channel;
            const float *mean = a->v->mean + of, *factor = a->v->factor + of;
            const float *shift = a->v->shift + of;
            const float *x = block_read(a->from, at, size, x_buffer);
            float *y = block_open(a->to, at, y_buffer);
#pragma omp simd
            for (int64_t k = 0; k < size; k++)
                y[k] = (x[k] - mean[k]) * factor[k] + shift[k];
            block_close(a->to, at, y, size);
        }
    }
}

void channel_norm_apply(const struct kernel_ctx *x, const struct tensor *from,
                        const struct tensor *to, const struct norm_extent *e,
                        const struct norm_vectors *v)
{
    struct apply_job a = {from, to, e, v};
    cpu_loop(x, e->n_samples * e->n_places, e->channels, apply_rows, &a);
}

struct norm_vectors channel_norm_statistics(const struct kernel_ctx *x, const struct op_call *c,
                                            const struct norm_extent *e, double epsilon)
{
    struct norm_job j = job_of(x, c, e);
    j.epsilon = epsilon;
    cpu_loop(x, e->n_samples * j.n_bands * block_count(e->channels),
             e->n_places / j.n_bands * MIN(e->channels, (int64_t)CPU_BLOCK), band_moments, &j);
    cpu_loop(x, e->n_samples * e->groups, j.n_bands * e->width, finish_groups, &j);
    return (struct norm_vectors){j.vector[0], j.vector[1], j.vector[2]};
}

void channel_norm(const struct kernel_ctx *x, const struct op_call *c, const struct norm_extent *e,
                  double epsilon)
{
    struct norm_vectors v = channel_norm_statistics(x, c, e, epsilon);
    channel_norm_apply(x, &c->in[0], &c->out[0], e, &v);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* A statistic of the group that a channel of a sample belongs to. */
static double statistic(const struct norm_job *j, int i, int64_t sample, int64_t channel)
{
    return ref_get(&j->c->in[i], sample * j->e.groups + channel / j->e.width);
}

/* The same sums as below for STRIP channels, in registers. */
static void strip_products(const float *dy, const float *x, int64_t step, int64_t n,
                           const float *restrict mean, float *restrict sums,
                           float *restrict products)
{
    float sum[STRIP] = {0}, product[STRIP] = {0}, middle[STRIP];
    memcpy(middle, mean, sizeof(middle));
    for (int64_t r = 0; r < n; r++) {
#pragma omp simd
        for (int k = 0; k < STRIP; k++) {
            sum[k] += dy[r * step + k];
            product[k] += dy[r * step + k] * (x[r * step + k] - middle[k]);
        }
    }
    memcpy(sums, sum, sizeof(sum));
    memcpy(products, product, sizeof(product));
}

/* sums += dy, products += dy (x - mean), over n rows. */
static void run_products(const struct norm_job *j, int64_t at, int64_t n, int64_t size,
                         const float *restrict mean, float *restrict sums, float *restrict products)
{
    float dy_buffer[CPU_BLOCK], x_buffer[CPU_BLOCK];
    bool in_place = j->c->in[0].dtype == DTYPE_F32 && j->c->in[1].dtype == DTYPE_F32;
    if (in_place && size % STRIP == 0) {
        const float *of_dy = (const float *)j->c->in[0].data + at;
        const float *of_x = (const float *)j->c->in[1].data + at;
        for (int64_t k = 0; k < size; k += STRIP)
            strip_products(of_dy + k, of_x + k, j->e.channels, n, mean + k, sums + k, products + k);
        return;
    }
    for (int64_t k = 0; k < size; k++)
        sums[k] = products[k] = 0.0f;
    for (int64_t r = 0; r < n; r++, at += j->e.channels) {
        const float *dy = block_read(&j->c->in[0], at, size, dy_buffer);
        const float *x = block_read(&j->c->in[1], at, size, x_buffer);
#pragma omp simd
        for (int64_t k = 0; k < size; k++) {
            sums[k] += dy[k];
            products[k] += dy[k] * (x[k] - mean[k]);
        }
    }
}

static void band_products(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm_job *j = job;
    int64_t n_blocks = block_count(j->e.channels);
    float mean[CPU_BLOCK], sums[CPU_BLOCK], products[CPU_BLOCK];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        struct band b = band_at(j, i / n_blocks);
        int64_t channel = i % n_blocks * CPU_BLOCK, size = block_size(j->e.channels, channel);
        double *to_sums = j->sums.first + b.at + channel;
        double *to_products = j->sums.second + b.at + channel;
        for (int64_t k = 0; k < size; k++) {
            to_sums[k] = to_products[k] = 0.0;
            mean[k] = (float)statistic(j, 3, b.sample, channel + k);
        }
        for (int64_t r = 0; r < b.n; r += RUN_ROWS) {
            run_products(j, (b.first + r) * j->e.channels + channel,
                         MIN(b.n - r, (int64_t)RUN_ROWS), size, mean, sums, products);
            for (int64_t k = 0; k < size; k++) {
                to_sums[k] += (double)sums[k];
                to_products[k] += (double)products[k];
            }
        }
    }
}

/* Adds the bands up into the first of each sample. Item: a channel of a sample. */
static void add_bands(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm_job *j = job;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t channels = j->e.channels;
        int64_t at = i / channels * j->n_bands * channels + i % channels;
        for (int64_t b = 1; b < j->n_bands; b++) {
            j->sums.first[at] += j->sums.first[at + b * channels];
            j->sums.second[at] += j->sums.second[at + b * channels];
        }
    }
}

/* Item: a group of a sample: dx = dy k1 - (x - mean) k2 - k3. */
static void finish_grad_groups(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm_job *j = job;
    const struct norm_extent *e = &j->e;
    double n = (double)(e->n_places * e->width);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t sample = i / e->groups, channel = i % e->groups * e->width;
        int64_t at = sample * j->n_bands * e->channels;
        double mean = ref_get(&j->c->in[3], i), rstd = ref_get(&j->c->in[4], i);
        double sum = 0.0, product = 0.0;
        for (int64_t k = channel; k < channel + e->width; k++) {
            double gamma = (double)parameter(j->c, 2, k, 1.0f);
            sum += gamma * j->sums.first[at + k];
            product += gamma * rstd * j->sums.second[at + k];
        }
        for (int64_t k = channel; k < channel + e->width; k++) {
            int64_t to = sample * e->channels + k;
            j->vector[0][to] = (float)mean;
            j->vector[1][to] = (float)(rstd * (double)parameter(j->c, 2, k, 1.0f));
            j->vector[2][to] = (float)(rstd * rstd * product / n);
            j->vector[3][to] = (float)(rstd * sum / n);
        }
    }
}

static void grad_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm_job *j = job;
    const struct tensor *out = &j->c->out[0];
    int64_t channels = j->e.channels;
    float dy_buffer[CPU_BLOCK], x_buffer[CPU_BLOCK], dx_buffer[CPU_BLOCK];
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        for (int64_t channel = 0; channel < channels; channel += CPU_BLOCK) {
            int64_t size = block_size(channels, channel), at = row * channels + channel;
            int64_t of = row / j->e.n_places * channels + channel;
            const float *mean = j->vector[0] + of, *k1 = j->vector[1] + of;
            const float *k2 = j->vector[2] + of, *k3 = j->vector[3] + of;
            const float *dy = block_read(&j->c->in[0], at, size, dy_buffer);
            const float *x = block_read(&j->c->in[1], at, size, x_buffer);
            float *dx = block_open(out, at, dx_buffer);
#pragma omp simd
            for (int64_t k = 0; k < size; k++)
                dx[k] = dy[k] * k1[k] - (x[k] - mean[k]) * k2[k] - k3[k];
            block_close(out, at, dx, size);
        }
    }
}

static void write_parameters(const struct norm_job *j)
{
    const struct norm_extent *e = &j->e;
    for (int64_t channel = 0; channel < e->channels; channel++) {
        double dgamma = 0.0, dbeta = 0.0;
        for (int64_t sample = 0; sample < e->n_samples; sample++) {
            int64_t at = sample * j->n_bands * e->channels + channel;
            dgamma += j->sums.second[at] * statistic(j, 4, sample, channel);
            dbeta += j->sums.first[at];
        }
        ref_set(&j->c->out[1], channel, dgamma);
        ref_set(&j->c->out[2], channel, dbeta);
    }
}

void channel_norm_grad(const struct kernel_ctx *x, const struct op_call *c,
                       const struct norm_extent *e)
{
    struct norm_job j = job_of(x, c, e);
    cpu_loop(x, e->n_samples * j.n_bands * block_count(e->channels),
             e->n_places / j.n_bands * MIN(e->channels, (int64_t)CPU_BLOCK), band_products, &j);
    cpu_loop(x, e->n_samples * e->channels, j.n_bands, add_bands, &j);
    cpu_loop(x, e->n_samples * e->groups, e->width, finish_grad_groups, &j);
    write_parameters(&j);
    cpu_loop(x, e->n_samples * e->n_places, e->channels, grad_rows, &j);
}
