/* film.c: x gamma + beta by sample and channel, and its gradient: f32 arithmetic over f32, bf16,
 * f16 storage. Sums over a sample's places are taken in bands whose number depends on shapes alone,
 * so the number of threads does not show. */
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

enum { RUN_ROWS = 64, MOST_BANDS = 64 };

struct film_job {
    const struct op_call *c;
    int64_t n_samples, n_places, channels, n_bands;
    double *products, *sums; /* of dy x and of dy: [samples, bands, channels] */
};

static struct film_job job_of(const struct op_call *c)
{
    const struct shape *x = &c->in[0].shape;
    struct film_job j = {.c = c, .n_samples = x->dim[0], .channels = shape_last(x)};
    j.n_places = shape_rows(x) / j.n_samples;
    int64_t n = (j.n_places + RUN_ROWS - 1) / RUN_ROWS;
    j.n_bands = MAX(MIN(n, MOST_BANDS / j.n_samples), (int64_t)1);
    return j;
}

/* ---- references ------------------------------------------------------------------------------ */

static enum status film_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct film_job j = job_of(c);
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->in[0].shape); i++) {
        int64_t of = i / (j.n_places * j.channels) * j.channels + i % j.channels;
        double beta = call_has(c, 2) ? ref_get(&c->in[2], of) : 0.0;
        ref_set(&c->out[0], i, ref_get(&c->in[0], i) * ref_get(&c->in[1], of) + beta);
    }
    return OK;
}

/* dx may take the memory of dy or x: a channel's sums come before it. */
static enum status film_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct film_job j = job_of(c);
    (void)x;
    for (int64_t i = 0; i < j.n_samples * j.channels; i++) {
        int64_t first = i / j.channels * j.n_places * j.channels + i % j.channels;
        double product = 0.0, sum = 0.0, gamma = ref_get(&c->in[2], i);
        for (int64_t p = 0; p < j.n_places; p++) {
            double dy = ref_get(&c->in[0], first + p * j.channels);
            product += dy * ref_get(&c->in[1], first + p * j.channels);
            sum += dy;
        }
        for (int64_t p = 0; p < j.n_places; p++)
            ref_set(&c->out[0], first + p * j.channels,
                    ref_get(&c->in[0], first + p * j.channels) * gamma);
        ref_set(&c->out[1], i, product);
        ref_set(&c->out[2], i, sum);
    }
    return OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* out 0 = in 0 times input `gamma` plus input `beta`, where there is one. */
struct rows_job {
    struct film_job film;
    int gamma, beta;
};

static void film_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct rows_job *r = job;
    const struct op_call *c = r->film.c;
    int64_t channels = r->film.channels;
    float x_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK], gamma_buffer[CPU_BLOCK],
        beta_buffer[CPU_BLOCK] = {0};
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        for (int64_t channel = 0; channel < channels; channel += CPU_BLOCK) {
            int64_t size = block_size(channels, channel), at = row * channels + channel;
            int64_t of = row / r->film.n_places * channels + channel;
            const float *gamma = block_read(&c->in[r->gamma], of, size, gamma_buffer);
            const float *beta = beta_buffer;
            if (r->beta > 0)
                beta = block_read(&c->in[r->beta], of, size, beta_buffer);
            const float *x = block_read(&c->in[0], at, size, x_buffer);
            float *y = block_open(&c->out[0], at, y_buffer);
#pragma omp simd
            for (int64_t k = 0; k < size; k++)
                y[k] = x[k] * gamma[k] + beta[k];
            block_close(&c->out[0], at, y, size);
        }
    }
}

static enum status film_by_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct rows_job r = {job_of(c), 1, call_has(c, 2) ? 2 : 0};
    cpu_loop(x, r.film.n_samples * r.film.n_places, r.film.channels, film_rows, &r);
    return OK;
}

/* ---- gradient -------------------------------------------------------------------------------- */

static int64_t grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct film_job j = job_of(c);
    (void)env;
    return 2 * j.n_samples * j.n_bands * j.channels * (int64_t)sizeof(double);
}

/* products += dy x, sums += dy, over n rows of `size` channels from element `at` on. */
static void add_run(const struct film_job *j, int64_t at, int64_t n, int64_t size, double *products,
                    double *sums)
{
    float dy_buffer[CPU_BLOCK], x_buffer[CPU_BLOCK], product[CPU_BLOCK] = {0}, sum[CPU_BLOCK] = {0};
    for (int64_t r = 0; r < n; r++, at += j->channels) {
        const float *dy = block_read(&j->c->in[0], at, size, dy_buffer);
        const float *x = block_read(&j->c->in[1], at, size, x_buffer);
#pragma omp simd
        for (int64_t k = 0; k < size; k++) {
            product[k] += dy[k] * x[k];
            sum[k] += dy[k];
        }
    }
    for (int64_t k = 0; k < size; k++) {
        products[k] += (double)product[k];
        sums[k] += (double)sum[k];
    }
}

/* Item: a band of a sample, some channels. */
static void band_sums(const void *job, int64_t first, int64_t last, int thread)
{
    const struct film_job *j = job;
    int64_t n_blocks = block_count(j->channels);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t sample = i / n_blocks / j->n_bands, band = i / n_blocks % j->n_bands;
        int64_t channel = i % n_blocks * CPU_BLOCK, size = block_size(j->channels, channel);
        int64_t row = band * j->n_places / j->n_bands, end = (band + 1) * j->n_places / j->n_bands;
        double *products = j->products + i / n_blocks * j->channels + channel;
        double *sums = j->sums + i / n_blocks * j->channels + channel;
        for (int64_t k = 0; k < size; k++)
            products[k] = sums[k] = 0.0;
        for (; row < end; row += RUN_ROWS)
            add_run(j, (sample * j->n_places + row) * j->channels + channel,
                    MIN(end - row, (int64_t)RUN_ROWS), size, products, sums);
    }
}

/* Item: a channel of a sample. */
static void add_bands(const void *job, int64_t first, int64_t last, int thread)
{
    const struct film_job *j = job;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t at = i / j->channels * j->n_bands * j->channels + i % j->channels;
        double product = 0.0, sum = 0.0;
        for (int64_t b = 0; b < j->n_bands; b++) {
            product += j->products[at + b * j->channels];
            sum += j->sums[at + b * j->channels];
        }
        ref_set(&j->c->out[1], i, product);
        ref_set(&j->c->out[2], i, sum);
    }
}

/* dx may take the memory of dy or x: it comes last. */
static enum status film_grad_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    struct film_job j = job_of(c);
    struct rows_job r = {j, 2, 0};
    j.products = x->workspace;
    j.sums = j.products + j.n_samples * j.n_bands * j.channels;
    cpu_loop(x, j.n_samples * j.n_bands * block_count(j.channels),
             j.n_places / j.n_bands * MIN(j.channels, (int64_t)CPU_BLOCK), band_sums, &j);
    cpu_loop(x, j.n_samples * j.channels, j.n_bands, add_bands, &j);
    cpu_loop(x, j.n_samples * j.n_places, j.channels, film_rows, &r);
    return OK;
}

const struct kernel cpu_kernels_film[] = {
    {"rows", cpu_declines_f64, NULL, film_by_rows},
    {"reference", NULL, NULL, film_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_film_grad[] = {
    {"bands", cpu_declines_f64, grad_workspace, film_grad_bands},
    {"reference", NULL, NULL, film_grad_reference},
    KERNEL_END,
};
