/* adafactor.c: Adafactor on the parameter itself, or on its master: mean squares of rows and
 * columns in two passes over the gradient, the length of the step in a third, the step in a fourth.
 *
 * Sums are made by lines (graph/factored.h), each in one order, and so are the sums of them that a
 * tensor has. */
#include <math.h>

#include "device/cpu/kernels/update_call.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/update_support.h"

enum { COLUMNS = 64 }; /* that a thread sums at once */

/* How one tensor steps. */
struct pace {
    float keep, step; /* 1 - rate weight_decay; rate / max(1, rms) */
};

/* What all passes of a call share. */
struct adafactor {
    const struct op_call *c;
    struct factored_layout layout;
    int64_t width;               /* of a row */
    const struct tensor *target; /* the parameter, or its master */
    int64_t n_lines;
    float scale, decay, rate; /* of the gradient; of v; 1 - decay */
    float epsilon;
    double *param_squares, *step_squares; /* of each line */
    struct pace *pace;                    /* of each tensor */
    float *row, *column; /* [rows, inner], [pieces, width]: what elements are multiplied by */
};

static int64_t column_parts(const struct adafactor *a)
{
    return (a->width + COLUMNS - 1) / COLUMNS;
}

static int64_t line_count(const struct factored_layout *l)
{
    return l->n_experts * factored_expert_lines(l);
}

static int64_t adafactor_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct factored_layout l = adafactor_layout(c);
    (void)env;
    int64_t n_factors = l.factored ? factored_all_rows(&l) * l.n_inner +
                                         factored_all_pieces(&l) * factored_width(&l)
                                   : 0;
    return line_count(&l) * 2 * (int64_t)sizeof(double) +
           factored_all_tensors(&l) * (int64_t)sizeof(struct pace) +
           n_factors * (int64_t)sizeof(float);
}

static void adafactor_init(struct adafactor *a, const struct kernel_ctx *x, const struct op_call *c)
{
    double step = ref_get(&c->in[ADAFACTOR_STEP], 0);
    double decay = 1.0 - pow(step, call_float(c, ADAFACTOR_DECAY_RATE));
    *a = (struct adafactor){
        .c = c,
        .layout = adafactor_layout(c),
        .target = &c->in[c->n_in > ADAFACTOR_MASTER ? ADAFACTOR_MASTER : 0],
        .scale = (float)ref_get(&c->in[ADAFACTOR_SCALE], 0),
        .decay = (float)decay,
        .rate = (float)(1.0 - decay),
        .epsilon = (float)call_float(c, ADAFACTOR_EPSILON1),
        .param_squares = x->workspace,
    };
    const struct factored_layout *l = &a->layout;
    a->width = factored_width(l);
    a->n_lines = line_count(l);
    a->step_squares = a->param_squares + a->n_lines;
    a->pace = (void *)(a->step_squares + a->n_lines);
    a->row = (void *)(a->pace + factored_all_tensors(l));
    a->column = a->row + factored_all_rows(l) * l->n_inner;
}

static const float *old_moment(const struct adafactor *a)
{
    return a->c->in[ADAFACTOR_V].data;
}

static float *new_moment(const struct adafactor *a)
{
    return a->c->out[1].data;
}

/* Number `at` of the moment, where squares have this mean. */
static void renew(const struct adafactor *a, int64_t at, float mean)
{
    new_moment(a)[at] = a->decay * old_moment(a)[at] + a->rate * (mean + a->epsilon);
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

/* Of the gradient, sums side by side: n_terms times n elements, `stride` apart, from `at` on. */
static void renew_side_by_side(const struct adafactor *a, int64_t v, int64_t at, int64_t n,
                               int64_t stride, int64_t n_terms)
{
    double sum[COLUMNS] = {0};
    float buffer[COLUMNS];
    for (int64_t t = 0; t < n_terms; t++) {
        const float *g = block_read(&a->c->in[1], at + t * stride, n, buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            sum[i] += (double)((g[i] * a->scale) * (g[i] * a->scale));
    }
    for (int64_t i = 0; i < n; i++)
        renew(a, v + i, (float)(sum[i] / (double)n_terms));
}

/* Elements of a vector have moments of their own. */
static void renew_run(const struct adafactor *a, struct factored_range line)
{
    float buffer[FACTORED_RUN];
    const float *g = block_read(&a->c->in[1], line.first, line.n, buffer);
    for (int64_t i = 0; i < line.n; i++)
        renew(a, line.first + i, (g[i] * a->scale) * (g[i] * a->scale));
}

static void renew_row(const struct adafactor *a, int64_t row)
{
    const struct factored_layout *l = &a->layout;
    int64_t v = factored_place(l, row).row_at, at = row * a->width;
    if (l->n_inner == 1) {
        double sum = sum_of_squares(&a->c->in[1], at, a->width, a->scale);
        renew(a, v, (float)(sum / (double)a->width));
        return;
    }
    for (int64_t i = 0; i < l->n_inner; i += COLUMNS)
        renew_side_by_side(a, v + i, at + i, MIN((int64_t)COLUMNS, l->n_inner - i), l->n_inner,
                           l->n_columns);
}

static void lines_work(const void *job, int64_t first, int64_t last, int thread)
{
    const struct adafactor *a = job;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        struct factored_range line = factored_line(&a->layout, i);
        a->param_squares[i] = sum_of_squares(a->target, line.first, line.n, 1.0f);
        if (a->layout.factored)
            renew_row(a, i);
        else
            renew_run(a, line);
    }
}

/* Columns [first, first + n) of one piece, row by row. */
static void renew_columns(const struct adafactor *a, int64_t piece, int64_t first, int64_t n)
{
    const struct factored_layout *l = &a->layout;
    int64_t row = factored_first_row(l, piece), v = factored_place(l, row).columns_at + first;
    float *factor = a->column + piece * a->width + first;
    renew_side_by_side(a, v, row * a->width + first, n, a->width, factored_piece_rows(l, piece));
    for (int64_t i = 0; i < n; i++)
        factor[i] = 1.0f / sqrtf(new_moment(a)[v + i]);
}

static void columns_work(const void *job, int64_t first, int64_t last, int thread)
{
    const struct adafactor *a = job;
    int64_t n_parts = column_parts(a);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t at = i % n_parts * COLUMNS;
        renew_columns(a, i / n_parts, at, MIN((int64_t)COLUMNS, a->width - at));
    }
}

/* sqrt(mean of the rows' means / a row's), of every matrix of a piece. */
static void row_factors_work(const void *job, int64_t first, int64_t last, int thread)
{
    const struct adafactor *a = job;
    const struct factored_layout *l = &a->layout;
    (void)thread;
    for (int64_t piece = first; piece < last; piece++) {
        int64_t row = factored_first_row(l, piece), n = factored_piece_rows(l, piece);
        const float *moment = new_moment(a) + factored_place(l, row).row_at;
        float *factor = a->row + row * l->n_inner;
        for (int64_t i = 0; i < l->n_inner; i++) {
            double sum = 0.0;
            for (int64_t r = 0; r < n; r++)
                sum += (double)moment[r * l->n_inner + i];
            double mean = sum / (double)n;
            for (int64_t r = 0; r < n; r++)
                factor[r * l->n_inner + i] =
                    (float)(1.0 / sqrt((double)moment[r * l->n_inner + i] / mean));
        }
    }
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Elements [at, at + n) of a row, side by side in its matrices. */
static void directions_inside(const struct adafactor *a, int64_t at, int64_t n,
                              const float *restrict g, const float *restrict column,
                              float *restrict u)
{
    int64_t n_inner = a->layout.n_inner;
    const float *row = a->row + at / a->width * n_inner;
    for (int64_t i = 0; i < n;) {
        int64_t first = (at + i) % n_inner, size = MIN(n_inner - first, n - i);
#pragma omp simd
        for (int64_t k = 0; k < size; k++)
            u[i + k] = g[i + k] * (row[first + k] * a->scale) * column[i + k];
        i += size;
    }
}

/* Elements [at, at + n) of a line before their length is known: u[i] = g / sqrt(moment). */
static void directions(const struct adafactor *a, int64_t at, int64_t n, const float *restrict g,
                       float *restrict u)
{
    if (!a->layout.factored) {
        const float *v = new_moment(a) + at;
        for (int64_t i = 0; i < n; i++)
            u[i] = g[i] * a->scale / sqrtf(v[i]);
        return;
    }
    int64_t line = at / a->width, piece = factored_place(&a->layout, line).piece;
    const float *column = a->column + piece * a->width + at % a->width;
    if (a->layout.n_inner > 1) {
        directions_inside(a, at, n, g, column, u);
        return;
    }
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
        struct factored_range line = factored_line(&a->layout, i);
        a->step_squares[i] = 0.0;
        for (int64_t k = 0; k < line.n; k += CPU_BLOCK) {
            int64_t size = block_size(line.n, k), at = line.first + k;
            directions(a, at, size, block_read(&a->c->in[1], at, size, buffer), u);
            float part = 0.0f;
#pragma omp simd reduction(+ : part)
            for (int64_t e = 0; e < size; e++)
                part += u[e] * u[e];
            a->step_squares[i] += (double)part;
        }
    }
}

static double root_mean(const double *squares, struct factored_range lines, int64_t n_elems)
{
    double sum = 0.0;
    for (int64_t i = 0; i < lines.n; i++)
        sum += squares[lines.first + i];
    return sqrt(sum / (double)n_elems);
}

/* The learning rate of a tensor. */
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

static void find_paces(const struct adafactor *a)
{
    const struct factored_layout *l = &a->layout;
    const struct op_call *c = a->c;
    for (int64_t t = 0; t < factored_all_tensors(l); t++) {
        struct factored_range lines = factored_tensor_lines(l, t);
        int64_t n = factored_tensor_elems(l, t);
        double rate = rate_of(c, root_mean(a->param_squares, lines, n));
        double length = root_mean(a->step_squares, lines, n);
        a->pace[t].keep = (float)(1.0 - rate * call_float(c, ADAFACTOR_WEIGHT_DECAY));
        a->pace[t].step =
            (float)(rate / fmax(1.0, length / call_float(c, ADAFACTOR_CLIP_THRESHOLD)));
    }
}

static void adafactor_block(const void *rule, float *const *block, const float *grad, int64_t at,
                            int64_t n)
{
    const struct adafactor *a = rule;
    float u[CPU_BLOCK], *restrict p = block[0];
    for (int64_t k = 0; k < n;) {
        struct factored_place place = factored_place(&a->layout, (at + k) / a->width);
        int64_t left = a->layout.factored ? a->width - (at + k) % a->width : place.n_left;
        int64_t end = k + MIN(left, n - k);
        const struct pace pace = a->pace[place.tensor];
        directions(a, at + k, end - k, grad + k, u + k);
#pragma omp simd
        for (int64_t i = k; i < end; i++)
            p[i] = p[i] * pace.keep - pace.step * u[i];
        k = end;
    }
}

static enum status adafactor_lines(const struct kernel_ctx *x, const struct op_call *c)
{
    struct adafactor a;
    const struct update_stream moment = {.in = &c->in[ADAFACTOR_V], .out = &c->out[1]};
    adafactor_init(&a, x, c);
    if (update_is_skipped(&c->in[ADAFACTOR_SCALE])) {
        update_copy(&moment, 1);
        return update_call_run(x, c, 0, ADAFACTOR_LR, adafactor_block, &a);
    }
    int64_t line = a.layout.factored ? a.width : FACTORED_RUN;
    cpu_loop(x, a.n_lines, line, lines_work, &a);
    if (a.layout.factored) {
        int64_t n_pieces = factored_all_pieces(&a.layout);
        int64_t n_rows = a.layout.n_rows / a.layout.n_pieces;
        cpu_loop(x, n_pieces * column_parts(&a), n_rows * COLUMNS, columns_work, &a);
        cpu_loop(x, n_pieces, n_rows * a.layout.n_inner, row_factors_work, &a);
    }
    cpu_loop(x, a.n_lines, line, lengths_work, &a);
    find_paces(&a);
    return update_call_run(x, c, 0, ADAFACTOR_LR, adafactor_block, &a);
}

/* ---- the reference --------------------------------------------------------------------------- */

struct plain_pace {
    double params, steps; /* sums of squares */
    double rate, shorten;
};

struct plain_adafactor {
    struct factored_layout layout;
    struct plain_pace *pace; /* of each tensor */
};

static int64_t plain_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct factored_layout l = adafactor_layout(c);
    (void)env;
    return factored_all_tensors(&l) * (int64_t)sizeof(struct plain_pace);
}

static void plain_renew(const struct op_call *c, int64_t v, double mean)
{
    double t = ref_get(&c->in[ADAFACTOR_STEP], 0);
    double decay = 1.0 - pow(t, call_float(c, ADAFACTOR_DECAY_RATE));
    ref_set(&c->out[1], v, decay * ref_get(&c->in[ADAFACTOR_V], v) + (1.0 - decay) * mean);
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

static void plain_moment(const struct op_call *c, const struct factored_layout *l)
{
    int64_t width = factored_width(l);
    for (int64_t row = 0; row < factored_all_rows(l); row++) {
        int64_t v = factored_place(l, row).row_at;
        for (int64_t i = 0; i < l->n_inner && l->factored; i++)
            plain_renew(c, v + i, mean_square(c, row * width + i, l->n_inner, l->n_columns));
        if (!l->factored)
            plain_renew(c, row, mean_square(c, row, 1, 1));
    }
    for (int64_t piece = 0; l->factored && piece < factored_all_pieces(l); piece++) {
        int64_t row = factored_first_row(l, piece), v = factored_place(l, row).columns_at;
        for (int64_t k = 0; k < width; k++)
            plain_renew(c, v + k,
                        mean_square(c, row * width + k, width, factored_piece_rows(l, piece)));
    }
}

static double plain_direction(const struct op_call *c, const struct factored_layout *l, int64_t i)
{
    const struct tensor *v = &c->out[1];
    double g = ref_get(&c->in[ADAFACTOR_SCALE], 0) * ref_get(&c->in[1], i), sum = 0.0;
    if (!l->factored)
        return g / sqrt(ref_get(v, i));
    int64_t width = factored_width(l), inner = i % l->n_inner;
    struct factored_place place = factored_place(l, i / width);
    int64_t first = factored_first_row(l, place.piece), n = factored_piece_rows(l, place.piece);
    for (int64_t r = 0; r < n; r++)
        sum += ref_get(v, factored_place(l, first + r).row_at + inner);
    double row = ref_get(v, place.row_at + inner) / (sum / (double)n);
    double column = ref_get(v, place.columns_at + i % width);
    return g / sqrt(row) / sqrt(column);
}

static struct plain_pace *plain_pace_of(const struct plain_adafactor *a, int64_t i)
{
    return &a->pace[factored_place(&a->layout, i / factored_width(&a->layout)).tensor];
}

static void plain_element(const struct op_call *c, const void *rule, int64_t i, double grad,
                          double *p, double *state)
{
    const struct plain_adafactor *a = rule;
    const struct plain_pace *pace = plain_pace_of(a, i);
    (void)grad;
    (void)state;
    *p -= pace->rate * call_float(c, ADAFACTOR_WEIGHT_DECAY) * *p;
    *p -= pace->rate * pace->shorten * plain_direction(c, &a->layout, i);
}

static void plain_paces(const struct op_call *c, const struct plain_adafactor *a)
{
    const struct tensor *target = &c->in[c->n_in > ADAFACTOR_MASTER ? ADAFACTOR_MASTER : 0];
    double most = call_float(c, ADAFACTOR_CLIP_THRESHOLD);
    int64_t n_tensors = factored_all_tensors(&a->layout);
    for (int64_t t = 0; t < n_tensors; t++)
        a->pace[t] = (struct plain_pace){0};
    for (int64_t i = 0; i < shape_elems(&c->in[0].shape); i++) {
        double u = plain_direction(c, &a->layout, i);
        plain_pace_of(a, i)->params += ref_get(target, i) * ref_get(target, i);
        plain_pace_of(a, i)->steps += u * u;
    }
    for (int64_t t = 0; t < n_tensors; t++) {
        struct plain_pace *pace = &a->pace[t];
        double n = (double)factored_tensor_elems(&a->layout, t);
        pace->rate = rate_of(c, sqrt(pace->params / n));
        pace->shorten = 1.0 / fmax(1.0, sqrt(pace->steps / n) / most);
    }
}

static enum status adafactor_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct plain_adafactor a = {.layout = adafactor_layout(c), .pace = x->workspace};
    const struct update_stream moment = {.in = &c->in[ADAFACTOR_V], .out = &c->out[1]};
    if (update_is_skipped(&c->in[ADAFACTOR_SCALE])) {
        update_copy(&moment, 1);
        return update_call_reference(x, c, 0, ADAFACTOR_LR, plain_element, &a);
    }
    plain_moment(c, &a.layout);
    plain_paces(c, &a);
    return update_call_reference(x, c, 0, ADAFACTOR_LR, plain_element, &a);
}

const struct kernel cpu_kernels_adafactor[] = {
    {"lines", cpu_declines_f64, adafactor_workspace, adafactor_lines},
    {"reference", NULL, plain_workspace, adafactor_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adafactor_master[] = {
    {"lines", cpu_declines_f64, adafactor_workspace, adafactor_lines},
    {"reference", NULL, plain_workspace, adafactor_reference},
    KERNEL_END,
};
