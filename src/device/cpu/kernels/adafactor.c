/* adafactor.c: Adafactor on the parameter itself, or on its master: mean squares of rows and
 * columns in two passes over the gradient, the length of the step in a third, the step in a fourth.
 *
 * Sums are made by lines: the rows of matrices, or runs of CPU_BLOCK elements of a vector; each in
 * one order, and so are the sums of them. */
#include <math.h>

#include "device/cpu/kernels/update_call.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/update_support.h"

enum { COLUMNS = 64 }; /* that a thread sums at once */

static int64_t column_parts(const struct adafactor_dims *d)
{
    return (d->n_columns + COLUMNS - 1) / COLUMNS;
}

/* What all passes of a call share. */
struct adafactor {
    const struct op_call *c;
    struct adafactor_dims dims;
    const struct tensor *target; /* the parameter, or its master */
    int64_t n_lines, line;       /* of so many elements; the last one of a vector may have fewer */
    float scale, decay, rate;    /* of the gradient; of v; 1 - decay */
    float epsilon;
    double *param_squares, *step_squares; /* of each line */
    float *row, *column;                  /* what elements of each are multiplied by */
    float keep, step;                     /* 1 - rate weight_decay; rate / max(1, rms) */
};

static void lines_of(const struct op_call *c, int64_t *n_lines, int64_t *line)
{
    struct adafactor_dims d = adafactor_dims_of(c);
    *line = d.factored ? d.n_columns : CPU_BLOCK;
    *n_lines = d.factored ? d.n_matrices * d.n_rows : block_count(d.n_columns);
}

static int64_t adafactor_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct adafactor_dims d = adafactor_dims_of(c);
    int64_t n_lines, line;
    (void)env;
    lines_of(c, &n_lines, &line);
    int64_t n_factors = d.factored ? d.n_matrices * (d.n_rows + d.n_columns) : 0;
    return n_lines * 2 * (int64_t)sizeof(double) + n_factors * (int64_t)sizeof(float);
}

static void adafactor_init(struct adafactor *a, const struct kernel_ctx *x, const struct op_call *c)
{
    double step = ref_get(&c->in[ADAFACTOR_STEP], 0);
    double decay = 1.0 - pow(step, call_float(c, ADAFACTOR_DECAY_RATE));
    *a = (struct adafactor){
        .c = c,
        .dims = adafactor_dims_of(c),
        .target = &c->in[c->n_in > ADAFACTOR_MASTER ? ADAFACTOR_MASTER : 0],
        .scale = (float)ref_get(&c->in[ADAFACTOR_SCALE], 0),
        .decay = (float)decay,
        .rate = (float)(1.0 - decay),
        .epsilon = (float)call_float(c, ADAFACTOR_EPSILON1),
        .param_squares = x->workspace,
    };
    lines_of(c, &a->n_lines, &a->line);
    a->step_squares = a->param_squares + a->n_lines;
    a->row = (void *)(a->step_squares + a->n_lines);
    a->column = a->row + a->dims.n_matrices * a->dims.n_rows;
}

/* The moment of matrix i: rows, then columns. */
static const float *old_moment(const struct adafactor *a, int64_t i)
{
    return (const float *)a->c->in[ADAFACTOR_V].data + i * (a->dims.n_rows + a->dims.n_columns);
}

static float *new_moment(const struct adafactor *a, int64_t i)
{
    return (float *)a->c->out[1].data + i * (a->dims.n_rows + a->dims.n_columns);
}

static int64_t line_size(const struct adafactor *a, int64_t i)
{
    return MIN(a->line, shape_elems(&a->c->in[0].shape) - i * a->line);
}

/* ---- the moment ------------------------------------------------------------------------------ */

static double sum_of_squares(const struct tensor *t, int64_t at, int64_t n, float factor)
{
    float buffer[CPU_BLOCK];
    double sum = 0.0;
    for (int64_t k = 0; k < n; k += CPU_BLOCK) {
        int64_t size = block_size(n, k);
        const float *x = block_read(t, at + k, size, buffer);
        float part = 0.0f;
#pragma omp simd reduction(+ : part)
        for (int64_t i = 0; i < size; i++)
            part += (x[i] * factor) * (x[i] * factor);
        sum += (double)part;
    }
    return sum;
}

/* Elements of a vector have moments of their own. */
static void moment_of_run(const struct adafactor *a, int64_t at, int64_t n)
{
    float buffer[CPU_BLOCK];
    const float *g = block_read(&a->c->in[1], at, n, buffer), *old = old_moment(a, 0) + at;
    float *v = new_moment(a, 0) + at;
    for (int64_t i = 0; i < n; i++)
        v[i] = a->decay * old[i] + a->rate * ((g[i] * a->scale) * (g[i] * a->scale) + a->epsilon);
}

static void lines_work(const void *job, int64_t first, int64_t last, int thread)
{
    const struct adafactor *a = job;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t n = line_size(a, i), at = i * a->line;
        a->param_squares[i] = sum_of_squares(a->target, at, n, 1.0f);
        if (!a->dims.factored) {
            moment_of_run(a, at, n);
            continue;
        }
        int64_t matrix = i / a->dims.n_rows, row = i % a->dims.n_rows;
        float mean = (float)(sum_of_squares(&a->c->in[1], at, n, a->scale) / (double)n);
        new_moment(a, matrix)[row] =
            a->decay * old_moment(a, matrix)[row] + a->rate * (mean + a->epsilon);
    }
}

/* Columns [first, first + n) of one matrix, row by row. */
static void sum_columns(const struct adafactor *a, int64_t matrix, int64_t first, int64_t n)
{
    const struct adafactor_dims *d = &a->dims;
    double sum[COLUMNS] = {0};
    float buffer[COLUMNS];
    for (int64_t r = 0; r < d->n_rows; r++) {
        int64_t at = (matrix * d->n_rows + r) * d->n_columns + first;
        const float *g = block_read(&a->c->in[1], at, n, buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            sum[i] += (double)((g[i] * a->scale) * (g[i] * a->scale));
    }
    const float *old = old_moment(a, matrix) + d->n_rows + first;
    float *v = new_moment(a, matrix) + d->n_rows + first;
    for (int64_t i = 0; i < n; i++) {
        float mean = (float)(sum[i] / (double)d->n_rows);
        v[i] = a->decay * old[i] + a->rate * (mean + a->epsilon);
        a->column[matrix * d->n_columns + first + i] = 1.0f / sqrtf(v[i]);
    }
}

static void columns_work(const void *job, int64_t first, int64_t last, int thread)
{
    const struct adafactor *a = job;
    int64_t n_parts = column_parts(&a->dims);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t at = i % n_parts * COLUMNS;
        sum_columns(a, i / n_parts, at, MIN((int64_t)COLUMNS, a->dims.n_columns - at));
    }
}

/* sqrt(mean of the rows' means / a row's). */
static void find_row_factors(const struct adafactor *a)
{
    for (int64_t m = 0; m < a->dims.n_matrices; m++) {
        const float *row = new_moment(a, m);
        double sum = 0.0;
        for (int64_t r = 0; r < a->dims.n_rows; r++)
            sum += (double)row[r];
        double mean = sum / (double)a->dims.n_rows;
        for (int64_t r = 0; r < a->dims.n_rows; r++)
            a->row[m * a->dims.n_rows + r] = (float)(1.0 / sqrt((double)row[r] / mean));
    }
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Elements [at, at + n) of a line before their length is known: u[i] = g / sqrt(moment). */
static void directions(const struct adafactor *a, int64_t at, int64_t n, const float *restrict g,
                       float *restrict u)
{
    if (!a->dims.factored) {
        const float *v = new_moment(a, 0) + at;
        for (int64_t i = 0; i < n; i++)
            u[i] = g[i] * a->scale / sqrtf(v[i]);
        return;
    }
    int64_t line = at / a->dims.n_columns;
    const float *column =
        a->column + line / a->dims.n_rows * a->dims.n_columns + at % a->dims.n_columns;
    const float row = a->row[line] * a->scale;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        u[i] = g[i] * row * column[i];
}

static void lengths_work(const void *job, int64_t first, int64_t last, int thread)
{
    const struct adafactor *a = job;
    float buffer[CPU_BLOCK], u[CPU_BLOCK];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t n = line_size(a, i);
        a->step_squares[i] = 0.0;
        for (int64_t k = 0; k < n; k += CPU_BLOCK) {
            int64_t size = block_size(n, k), at = i * a->line + k;
            directions(a, at, size, block_read(&a->c->in[1], at, size, buffer), u);
            float part = 0.0f;
#pragma omp simd reduction(+ : part)
            for (int64_t e = 0; e < size; e++)
                part += u[e] * u[e];
            a->step_squares[i] += (double)part;
        }
    }
}

static double root_mean(const double *squares, int64_t n_lines, int64_t n_elems)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n_lines; i++)
        sum += squares[i];
    return sqrt(sum / (double)n_elems);
}

/* The learning rate of this tensor. */
static double rate_of(const struct op_call *c, double param_rms)
{
    double step = ref_get(&c->in[ADAFACTOR_STEP], 0), rate = ref_get(&c->in[ADAFACTOR_LR], 0);
    if (call_bool(c, ADAFACTOR_RELATIVE_STEP)) {
        double most = call_bool(c, ADAFACTOR_WARMUP_INIT) ? 1e-6 * step : 1e-2;
        rate = fmin(most, 1.0 / sqrt(step));
    }
    if (call_bool(c, ADAFACTOR_SCALE_PARAMETER))
        rate *= fmax(call_float(c, ADAFACTOR_EPSILON2), param_rms);
    return rate;
}

static void adafactor_block(const void *rule, float *const *block, const float *grad, int64_t at,
                            int64_t n)
{
    const struct adafactor *a = rule;
    float u[CPU_BLOCK], *restrict p = block[0];
    for (int64_t k = 0; k < n;) {
        int64_t left = a->line - (at + k) % a->line, size = MIN(left, n - k);
        directions(a, at + k, size, grad + k, u + k);
        k += size;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] = p[i] * a->keep - a->step * u[i];
}

static enum status adafactor_lines(const struct kernel_ctx *x, const struct op_call *c)
{
    struct adafactor a;
    int64_t n = shape_elems(&c->in[0].shape);
    const struct update_stream moment = {.in = &c->in[ADAFACTOR_V], .out = &c->out[1]};
    adafactor_init(&a, x, c);
    if (update_is_skipped(&c->in[ADAFACTOR_SCALE])) {
        update_copy(&moment, 1);
        return update_call_run(x, c, 0, ADAFACTOR_LR, adafactor_block, &a);
    }
    cpu_loop(x, a.n_lines, a.line, lines_work, &a);
    if (a.dims.factored) {
        int64_t n_parts = a.dims.n_matrices * column_parts(&a.dims);
        cpu_loop(x, n_parts, a.dims.n_rows * COLUMNS, columns_work, &a);
        find_row_factors(&a);
    }
    cpu_loop(x, a.n_lines, a.line, lengths_work, &a);
    double rate = rate_of(c, root_mean(a.param_squares, a.n_lines, n));
    double length = root_mean(a.step_squares, a.n_lines, n);
    a.keep = (float)(1.0 - rate * call_float(c, ADAFACTOR_WEIGHT_DECAY));
    a.step = (float)(rate / fmax(1.0, length / call_float(c, ADAFACTOR_CLIP_THRESHOLD)));
    return update_call_run(x, c, 0, ADAFACTOR_LR, adafactor_block, &a);
}

/* ---- the reference --------------------------------------------------------------------------- */

struct plain_adafactor {
    struct adafactor_dims dims;
    double row_mean, rate, shorten;
};

static int64_t moment_index(const struct adafactor_dims *d, int64_t matrix, int64_t k)
{
    return matrix * (d->n_rows + d->n_columns) + k;
}

/* Mean of squares of n elements of the gradient from `at` on, `stride` apart. */
static double mean_square(const struct op_call *c, int64_t at, int64_t stride, int64_t n)
{
    double scale = ref_get(&c->in[ADAFACTOR_SCALE], 0), sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double g = scale * ref_get(&c->in[1], at + i * stride);
        sum += g * g + call_float(c, ADAFACTOR_EPSILON1);
    }
    return sum / (double)n;
}

static void plain_moment(const struct op_call *c, const struct adafactor_dims *d)
{
    double t = ref_get(&c->in[ADAFACTOR_STEP], 0);
    double decay = 1.0 - pow(t, call_float(c, ADAFACTOR_DECAY_RATE));
    int64_t per = d->factored ? d->n_rows + d->n_columns : d->n_columns;
    for (int64_t i = 0; i < d->n_matrices * per; i++) {
        int64_t m = i / per, k = i % per, at = m * d->n_rows * d->n_columns;
        double mean = !d->factored    ? mean_square(c, k, 1, 1)
                      : k < d->n_rows ? mean_square(c, at + k * d->n_columns, 1, d->n_columns)
                                      : mean_square(c, at + k - d->n_rows, d->n_columns, d->n_rows);
        ref_set(&c->out[1], i, decay * ref_get(&c->in[ADAFACTOR_V], i) + (1.0 - decay) * mean);
    }
}

static double plain_direction(const struct op_call *c, const struct adafactor_dims *d, int64_t i)
{
    const struct tensor *v = &c->out[1];
    double g = ref_get(&c->in[ADAFACTOR_SCALE], 0) * ref_get(&c->in[1], i), sum = 0.0;
    if (!d->factored)
        return g / sqrt(ref_get(v, i));
    int64_t line = i / d->n_columns, m = line / d->n_rows;
    for (int64_t r = 0; r < d->n_rows; r++)
        sum += ref_get(v, moment_index(d, m, r));
    double row = ref_get(v, moment_index(d, m, line % d->n_rows)) / (sum / (double)d->n_rows);
    double column = ref_get(v, moment_index(d, m, d->n_rows + i % d->n_columns));
    return g / sqrt(row) / sqrt(column);
}

static void plain_element(const struct op_call *c, const void *rule, int64_t i, double grad,
                          double *p, double *state)
{
    const struct plain_adafactor *a = rule;
    (void)grad;
    (void)state;
    *p -= a->rate * call_float(c, ADAFACTOR_WEIGHT_DECAY) * *p;
    *p -= a->rate * a->shorten * plain_direction(c, &a->dims, i);
}

static enum status adafactor_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct plain_adafactor a = {.dims = adafactor_dims_of(c)};
    const struct tensor *target = &c->in[c->n_in > ADAFACTOR_MASTER ? ADAFACTOR_MASTER : 0];
    const struct update_stream moment = {.in = &c->in[ADAFACTOR_V], .out = &c->out[1]};
    double params = 0.0, steps = 0.0;
    int64_t n = shape_elems(&c->in[0].shape);
    if (update_is_skipped(&c->in[ADAFACTOR_SCALE])) {
        update_copy(&moment, 1);
        return update_call_reference(x, c, 0, ADAFACTOR_LR, plain_element, &a);
    }
    plain_moment(c, &a.dims);
    for (int64_t i = 0; i < n; i++) {
        double u = plain_direction(c, &a.dims, i);
        params += ref_get(target, i) * ref_get(target, i);
        steps += u * u;
    }
    a.rate = rate_of(c, sqrt(params / (double)n));
    a.shorten = 1.0 / fmax(1.0, sqrt(steps / (double)n) / call_float(c, ADAFACTOR_CLIP_THRESHOLD));
    return update_call_reference(x, c, 0, ADAFACTOR_LR, plain_element, &a);
}

const struct kernel cpu_kernels_adafactor[] = {
    {"lines", cpu_declines_f64, adafactor_workspace, adafactor_lines},
    {"reference", NULL, NULL, adafactor_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adafactor_master[] = {
    {"lines", cpu_declines_f64, adafactor_workspace, adafactor_lines},
    {"reference", NULL, NULL, adafactor_reference},
    KERNEL_END,
};
