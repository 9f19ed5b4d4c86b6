/* pool.c: maxima and averages over windows, and their gradients. */
#include <math.h>
#include <string.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/window_support.h"

/* Where along an axis the window of output o lies: places first .. last - 1 of x, of which the
 * first is element `skipped` of the window. */
struct span {
    int64_t first, last, skipped;
};

static struct span span_of(const struct window *w, int axis, int64_t o)
{
    int64_t from = o * w->stride[axis] - w->pad_before[axis];
    struct span s = {MAX(from, (int64_t)0), MIN(from + w->kernel[axis], w->size[axis]), 0};
    s.skipped = s.first - from;
    return s;
}

/* Outputs first .. last - 1 along an axis have place i in their windows. */
static struct span readers_of(const struct window *w, int axis, int64_t i)
{
    int64_t from = i + w->pad_before[axis] - w->kernel[axis] + 1, to = i + w->pad_before[axis];
    struct span s = {from <= 0 ? 0 : (from + w->stride[axis] - 1) / w->stride[axis],
                     MIN(to / w->stride[axis] + 1, w->out[axis]), 0};
    return s;
}

/* The window of an output, or the readers of a place, along the three axes. */
struct box3 {
    struct span axis[WINDOW_AXES];
};

static struct box3 box_at(const struct window *w, const int64_t size[WINDOW_AXES], int64_t row,
                          struct span (*along)(const struct window *, int, int64_t))
{
    return (struct box3){{along(w, 0, row / (size[1] * size[2]) % size[0]),
                          along(w, 1, row / size[2] % size[1]), along(w, 2, row % size[2])}};
}

/* What an average is divided by. */
static double count_of(const struct op_call *c, const struct window *w, int64_t o)
{
    if (call_bool(c, AVG_POOL_COUNT_PADDING))
        return (double)window_places(w->kernel);
    struct box3 b = box_at(w, w->out, o, span_of);
    double n = 1.0;
    for (int a = 0; a < WINDOW_AXES; a++)
        n *= (double)(b.axis[a].last - b.axis[a].first);
    return n;
}

/* ---- references ------------------------------------------------------------------------------ */

/* Number of (d, h, w) in a box of the given sizes. */
static int64_t number(const int64_t size[WINDOW_AXES], int64_t d, int64_t h, int64_t w)
{
    return (d * size[1] + h) * size[2] + w;
}

#define FOR_BOX(b, d, h, w)                                              \
    for (int64_t d = (b)->axis[0].first; d < (b)->axis[0].last; d++)     \
        for (int64_t h = (b)->axis[1].first; h < (b)->axis[1].last; h++) \
            for (int64_t w = (b)->axis[2].first; w < (b)->axis[2].last; w++)

/* Row `row` of x or y, channel `channel`: as an element of the tensor. */
static int64_t element(const struct op_call *c, int64_t row, int64_t channel)
{
    return row * shape_last(&c->in[0].shape) + channel;
}

/* The number within the window of the place d, h, w of x. */
static int64_t window_index(const struct window *w, const struct box3 *b, int64_t d, int64_t h,
                            int64_t i)
{
    const struct span *a = b->axis;
    return number(w->kernel, d - a[0].first + a[0].skipped, h - a[1].first + a[1].skipped,
                  i - a[2].first + a[2].skipped);
}

static void max_of_window(const struct op_call *c, const struct window *w, int64_t row,
                          int64_t channel)
{
    int64_t n_out = window_places(w->out), sample = row / n_out * window_places(w->size);
    struct box3 b = box_at(w, w->out, row % n_out, span_of);
    double best = -(double)INFINITY;
    int64_t index = -1;
    FOR_BOX(&b, d, h, i)
    {
        double x = ref_get(&c->in[0], element(c, sample + number(w->size, d, h, i), channel));
        if (index < 0 || x > best || (isnan(x) && !isnan(best))) {
            best = x;
            index = window_index(w, &b, d, h, i);
        }
    }
    ref_set(&c->out[0], element(c, row, channel), best);
    ref_set(&c->out[1], element(c, row, channel), (double)index);
}

static void average_of_window(const struct op_call *c, const struct window *w, int64_t row,
                              int64_t channel)
{
    int64_t n_out = window_places(w->out), sample = row / n_out * window_places(w->size);
    struct box3 b = box_at(w, w->out, row % n_out, span_of);
    double sum = 0.0;
    FOR_BOX(&b, d, h, i)
    sum += ref_get(&c->in[0], element(c, sample + number(w->size, d, h, i), channel));
    ref_set(&c->out[0], element(c, row, channel), sum / count_of(c, w, row % n_out));
}

static void grad_of_max(const struct op_call *c, const struct window *w, int64_t row,
                        int64_t channel)
{
    int64_t n_in = window_places(w->size), sample = row / n_in * window_places(w->out);
    struct box3 b = box_at(w, w->size, row % n_in, readers_of);
    double sum = 0.0;
    FOR_BOX(&b, d, h, i)
    {
        int64_t o = number(w->out, d, h, i), at = element(c, sample + o, channel);
        struct box3 own = box_at(w, w->out, o, span_of);
        int64_t r = row % n_in;
        int64_t place = window_index(w, &own, r / (w->size[1] * w->size[2]),
                                     r / w->size[2] % w->size[1], r % w->size[2]);
        if ((int64_t)ref_get(&c->in[1], at) == place)
            sum += ref_get(&c->in[0], at);
    }
    ref_set(&c->out[0], element(c, row, channel), sum);
}

static void grad_of_average(const struct op_call *c, const struct window *w, int64_t row,
                            int64_t channel)
{
    int64_t n_in = window_places(w->size), sample = row / n_in * window_places(w->out);
    struct box3 b = box_at(w, w->size, row % n_in, readers_of);
    double sum = 0.0;
    FOR_BOX(&b, d, h, i)
    {
        int64_t o = number(w->out, d, h, i);
        sum += ref_get(&c->in[0], element(c, sample + o, channel)) / count_of(c, w, o);
    }
    ref_set(&c->out[0], element(c, row, channel), sum);
}

typedef void element_work(const struct op_call *c, const struct window *w, int64_t row,
                          int64_t channel);

static enum status each_element(const struct op_call *c, element_work *work)
{
    struct window w = pool_window(c);
    int64_t n_channels = shape_last(&c->out[0].shape);
    for (int64_t e = 0; e < shape_elems(&c->out[0].shape); e++)
        work(c, &w, e / n_channels, e % n_channels);
    return OK;
}

static enum status max_pool_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    return each_element(c, max_of_window);
}

static enum status max_pool_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    return each_element(c, grad_of_max);
}

static enum status avg_pool_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    return each_element(c, average_of_window);
}

static enum status avg_pool_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    return each_element(c, grad_of_average);
}

/* ---- by rows --------------------------------------------------------------------------------- */

/* A row of the result: its place, and its window or its readers along each axis. */
struct place {
    int64_t sample, at[WINDOW_AXES];
    struct box3 box;
};

/* The span of place i along an axis, from that of a place before it: divisions would take longer
 * than the row. */
typedef struct span next_span(const struct window *w, int axis, int64_t i, struct span before);

static struct span next_window(const struct window *w, int axis, int64_t o, struct span before)
{
    (void)before;
    return span_of(w, axis, o);
}

static struct span next_readers(const struct window *w, int axis, int64_t i, struct span before)
{
    int64_t stride = w->stride[axis], from = i + w->pad_before[axis];
    struct span s = before;
    while (s.first < w->out[axis] && s.first * stride + w->kernel[axis] <= from)
        s.first++;
    while (s.last < w->out[axis] && s.last * stride <= from)
        s.last++;
    return s;
}

/* One row of the result, some channels: elements [channel, channel + size). */
typedef void row_work(const struct op_call *c, const struct window *w, const struct place *p,
                      int64_t channel, int64_t size);

struct row_job {
    const struct op_call *c;
    struct window w;
    const int64_t *size; /* of the result */
    next_span *next;
    row_work *work;
};

static void move_along(const struct row_job *j, struct place *p, int axis)
{
    p->box.axis[axis] = j->next(&j->w, axis, p->at[axis], p->box.axis[axis]);
}

static struct place place_of(const struct row_job *j, int64_t row)
{
    struct place p = {0};
    for (int a = WINDOW_AXES - 1; a >= 0; a--) {
        p.at[a] = row % j->size[a];
        row /= j->size[a];
        move_along(j, &p, a);
    }
    p.sample = row;
    return p;
}

static void step_on(const struct row_job *j, struct place *p)
{
    for (int a = WINDOW_AXES - 1; a >= 0; a--) {
        bool wraps = ++p->at[a] == j->size[a];
        if (wraps) {
            p->at[a] = 0;
            p->box.axis[a] = (struct span){0};
        }
        move_along(j, p, a);
        if (!wraps)
            return;
    }
    p->sample++;
}

static void run_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct row_job *j = job;
    int64_t channels = shape_last(&j->c->out[0].shape);
    struct place p = place_of(j, first);
    (void)thread;
    for (int64_t row = first; row < last; row++, step_on(j, &p)) {
        for (int64_t channel = 0; channel < channels; channel += CPU_BLOCK)
            j->work(j->c, &j->w, &p, channel, block_size(channels, channel));
    }
}

/* Rows of the result are outputs of windows, or places of x with the outputs that read them. */
static enum status each_row(const struct kernel_ctx *x, const struct op_call *c, bool outputs,
                            row_work *work)
{
    struct row_job j = {.c = c, .w = pool_window(c), .work = work};
    j.size = outputs ? j.w.out : j.w.size;
    j.next = outputs ? next_window : next_readers;
    cpu_loop(x, shape_rows(&c->out[0].shape),
             shape_last(&c->out[0].shape) * MIN(window_places(j.w.kernel), (int64_t)CPU_BLOCK),
             run_rows, &j);
    return OK;
}

/* Element of a tensor with places of the given sizes. */
static int64_t element_at(const struct op_call *c, const int64_t size[WINDOW_AXES], int64_t sample,
                          int64_t d, int64_t h, int64_t i)
{
    return (sample * window_places(size) + number(size, d, h, i)) * shape_last(&c->in[0].shape);
}

static int64_t own_element(const struct op_call *c, const int64_t size[WINDOW_AXES],
                           const struct place *p)
{
    return element_at(c, size, p->sample, p->at[0], p->at[1], p->at[2]);
}

static void clear(float *sum, int64_t size)
{
    memset(sum, 0, (size_t)size * sizeof(float));
}

/* Takes x over where it is larger than the best, or the first NaN. */
static void take_larger(float *restrict best, int32_t *restrict index, const float *restrict x,
                        int32_t place, int64_t size)
{
#pragma omp simd
    for (int64_t k = 0; k < size; k++) {
        bool take = !(x[k] <= best[k]) && best[k] == best[k];
        best[k] = take ? x[k] : best[k];
        index[k] = take ? place : index[k];
    }
}

static void max_row(const struct op_call *c, const struct window *w, const struct place *p,
                    int64_t channel, int64_t size)
{
    const struct span *a = p->box.axis;
    int64_t first = element_at(c, w->size, p->sample, a[0].first, a[1].first, a[2].first) + channel;
    int64_t to = own_element(c, w->out, p) + channel;
    float best[CPU_BLOCK], buffer[CPU_BLOCK];
    int32_t index[CPU_BLOCK];
    cpu_load_f32(best, c->in[0].data, c->in[0].dtype, first, size);
    int32_t place = (int32_t)window_index(w, &p->box, a[0].first, a[1].first, a[2].first);
    for (int64_t k = 0; k < size; k++)
        index[k] = place;
    FOR_BOX(&p->box, d, h, i)
    {
        int64_t at = element_at(c, w->size, p->sample, d, h, i) + channel;
        take_larger(best, index, block_read(&c->in[0], at, size, buffer),
                    (int32_t)window_index(w, &p->box, d, h, i), size);
    }
    uint8_t *to_index = (uint8_t *)c->out[1].data + to;
    for (int64_t k = 0; k < size; k++)
        to_index[k] = (uint8_t)index[k];
    cpu_store_f32(c->out[0].data, c->out[0].dtype, to, best, size);
}

static void add_where(float *restrict sum, const float *restrict dy, const uint8_t *restrict index,
                      int64_t place, int64_t size)
{
#pragma omp simd
    for (int64_t k = 0; k < size; k++)
        sum[k] += index[k] == place ? dy[k] : 0.0f;
}

/* The number of place `at` within the window of output (d, h, i). */
static int64_t index_in(const struct window *w, const int64_t at[WINDOW_AXES], int64_t d, int64_t h,
                        int64_t i)
{
    return number(w->kernel, at[0] + w->pad_before[0] - d * w->stride[0],
                  at[1] + w->pad_before[1] - h * w->stride[1],
                  at[2] + w->pad_before[2] - i * w->stride[2]);
}

static void max_grad_row(const struct op_call *c, const struct window *w, const struct place *p,
                         int64_t channel, int64_t size)
{
    float sum[CPU_BLOCK], buffer[CPU_BLOCK];
    clear(sum, size);
    FOR_BOX(&p->box, d, h, i)
    {
        int64_t at = element_at(c, w->out, p->sample, d, h, i) + channel;
        add_where(sum, block_read(&c->in[0], at, size, buffer), (const uint8_t *)c->in[1].data + at,
                  index_in(w, p->at, d, h, i), size);
    }
    cpu_store_f32(c->out[0].data, c->out[0].dtype, own_element(c, w->size, p) + channel, sum, size);
}

static void add_scaled(float *restrict sum, const float *restrict x, float factor, int64_t size)
{
#pragma omp simd
    for (int64_t k = 0; k < size; k++)
        sum[k] += x[k] * factor;
}

/* What the average of output (d, h, i) is divided by. */
static float share_of(const struct op_call *c, const struct window *w, int64_t d, int64_t h,
                      int64_t i)
{
    const struct span own[] = {span_of(w, 0, d), span_of(w, 1, h), span_of(w, 2, i)};
    double n = 1.0;
    if (call_bool(c, AVG_POOL_COUNT_PADDING))
        return (float)(1.0 / (double)window_places(w->kernel));
    for (int a = 0; a < WINDOW_AXES; a++)
        n *= (double)(own[a].last - own[a].first);
    return (float)(1.0 / n);
}

static void average_row(const struct op_call *c, const struct window *w, const struct place *p,
                        int64_t channel, int64_t size)
{
    float sum[CPU_BLOCK], buffer[CPU_BLOCK];
    float factor = share_of(c, w, p->at[0], p->at[1], p->at[2]);
    clear(sum, size);
    FOR_BOX(&p->box, d, h, i)
    {
        int64_t at = element_at(c, w->size, p->sample, d, h, i) + channel;
        add_scaled(sum, block_read(&c->in[0], at, size, buffer), factor, size);
    }
    cpu_store_f32(c->out[0].data, c->out[0].dtype, own_element(c, w->out, p) + channel, sum, size);
}

static void average_grad_row(const struct op_call *c, const struct window *w, const struct place *p,
                             int64_t channel, int64_t size)
{
    float sum[CPU_BLOCK], buffer[CPU_BLOCK];
    clear(sum, size);
    FOR_BOX(&p->box, d, h, i)
    {
        int64_t at = element_at(c, w->out, p->sample, d, h, i) + channel;
        add_scaled(sum, block_read(&c->in[0], at, size, buffer), share_of(c, w, d, h, i), size);
    }
    cpu_store_f32(c->out[0].data, c->out[0].dtype, own_element(c, w->size, p) + channel, sum, size);
}

static enum status max_pool_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    return each_row(x, c, true, max_row);
}

static enum status max_pool_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    return each_row(x, c, false, max_grad_row);
}

static enum status avg_pool_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    return each_row(x, c, true, average_row);
}

static enum status avg_pool_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    return each_row(x, c, false, average_grad_row);
}

const struct kernel cpu_kernels_max_pool[] = {
    {"rows", cpu_declines_f64, NULL, max_pool_rows},
    {"reference", NULL, NULL, max_pool_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_max_pool_grad[] = {
    {"rows", cpu_declines_f64, NULL, max_pool_grad_rows},
    {"reference", NULL, NULL, max_pool_grad_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_avg_pool[] = {
    {"rows", cpu_declines_f64, NULL, avg_pool_rows},
    {"reference", NULL, NULL, avg_pool_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_avg_pool_grad[] = {
    {"rows", cpu_declines_f64, NULL, avg_pool_grad_rows},
    {"reference", NULL, NULL, avg_pool_grad_reference},
    KERNEL_END,
};
