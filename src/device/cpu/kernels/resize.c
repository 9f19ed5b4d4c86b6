/* resize.c: other sizes of the spatial axes, by interpolation or by averages of bins. Each axis is
 * a linear map of its own, so an output is a sum over three short lists of places and their shares.
 */
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/window_support.h"

/* The share of place i of an axis of n in output o of `out`. */
typedef double share_fn(const struct op_call *c, int64_t o, int64_t i, int64_t n, int64_t out);

static double bin_share(const struct op_call *c, int64_t o, int64_t i, int64_t n, int64_t out)
{
    (void)c;
    int64_t first = adaptive_first(o, n, out), last = adaptive_last(o, n, out);
    return i >= first && i < last ? 1.0 / (double)(last - first) : 0.0;
}

static double tap_share(const struct op_call *c, int64_t o, int64_t i, int64_t n, int64_t out)
{
    struct resize_tap t = resize_tap_of(o, n, out, call_bool(c, RESIZE_LINEAR));
    return (t.low == i ? 1.0 - t.share : 0.0) + (t.high == i ? t.share : 0.0);
}

/* ---- references ------------------------------------------------------------------------------ */

/* The share of place i of x in output o, all axes together. */
static double share_of(const struct op_call *c, const struct window *w, share_fn *share, int64_t o,
                       int64_t i)
{
    double product = 1.0;
    for (int a = WINDOW_AXES - 1; a >= 0 && product != 0.0; a--) {
        product *= share(c, o % w->out[a], i % w->size[a], w->size[a], w->out[a]);
        o /= w->out[a];
        i /= w->size[a];
    }
    return product;
}

/* Every element of the result is the sum of all of the other side's, by their shares. */
static enum status each_element(const struct op_call *c, share_fn *share, bool is_grad)
{
    struct window w = resize_window(c);
    int64_t n_channels = shape_last(&c->in[0].shape);
    int64_t n_to = window_places(is_grad ? w.size : w.out);
    int64_t n_from = window_places(is_grad ? w.out : w.size);
    for (int64_t e = 0; e < shape_elems(&c->out[0].shape); e++) {
        int64_t channel = e % n_channels, to = e / n_channels % n_to;
        int64_t sample = e / n_channels / n_to;
        double sum = 0.0;
        for (int64_t from = 0; from < n_from; from++) {
            double s = share_of(c, &w, share, is_grad ? from : to, is_grad ? to : from);
            if (s != 0.0)
                sum += s * ref_get(&c->in[0], (sample * n_from + from) * n_channels + channel);
        }
        ref_set(&c->out[0], e, sum);
    }
    return OK;
}

static enum status resize_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    return each_element(c, tap_share, false);
}

static enum status resize_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    return each_element(c, tap_share, true);
}

static enum status adaptive_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    return each_element(c, bin_share, false);
}

static enum status adaptive_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    return each_element(c, bin_share, true);
}

/* ---- by rows --------------------------------------------------------------------------------- */

/* Places first .. last - 1 of the other side of an axis may have a share. */
struct reach {
    int64_t first, last;
};

/* Outputs between the positions of places i - 1 and i + 1, or bins that meet [i, i + 1). */
static struct reach readers_of(int64_t i, int64_t n, int64_t out)
{
    int64_t first = i > 0 ? (i - 1) * out / n - 1 : 0;
    int64_t last = i + 1 < n ? ((i + 2) * out + n - 1) / n + 1 : out;
    return (struct reach){MAX(first, (int64_t)0), MIN(last, out)};
}

/* Places that output o reads: of its bin, or the two beside its position. */
static struct reach places_of(const struct op_call *c, share_fn *share, int64_t o, int64_t n,
                              int64_t out)
{
    if (share == bin_share)
        return (struct reach){adaptive_first(o, n, out), adaptive_last(o, n, out)};
    struct resize_tap t = resize_tap_of(o, n, out, call_bool(c, RESIZE_LINEAR));
    return (struct reach){t.low, t.high + 1};
}

struct row_job {
    const struct op_call *c;
    struct window w;
    share_fn *share;
    bool is_grad;
};

/* What a row of the result reads along an axis, and with which share. */
static struct reach reach_of(const struct row_job *j, int a, int64_t to)
{
    return j->is_grad ? readers_of(to, j->w.size[a], j->w.out[a])
                      : places_of(j->c, j->share, to, j->w.size[a], j->w.out[a]);
}

static double share_along(const struct row_job *j, int a, int64_t to, int64_t from)
{
    return j->share(j->c, j->is_grad ? from : to, j->is_grad ? to : from, j->w.size[a],
                    j->w.out[a]);
}

static void add_scaled(float *restrict sum, const float *restrict x, float factor, int64_t size)
{
#pragma omp simd
    for (int64_t k = 0; k < size; k++)
        sum[k] += x[k] * factor;
}

/* Place `at` of the result: sums of what it reads, some channels from element `channel` of a row.
 */
static void sum_row(const struct row_job *j, int64_t sample, const int64_t at[WINDOW_AXES],
                    int64_t channel, int64_t size, float *sum)
{
    const int64_t *from = j->is_grad ? j->w.out : j->w.size;
    int64_t channels = shape_last(&j->c->in[0].shape);
    struct reach a = reach_of(j, 0, at[0]), b = reach_of(j, 1, at[1]), d = reach_of(j, 2, at[2]);
    float buffer[CPU_BLOCK];
    for (int64_t k = 0; k < size; k++)
        sum[k] = 0.0f;
    for (int64_t x = a.first; x < a.last; x++) {
        double first = share_along(j, 0, at[0], x);
        for (int64_t y = b.first; first != 0.0 && y < b.last; y++) {
            double second = first * share_along(j, 1, at[1], y);
            for (int64_t z = d.first; second != 0.0 && z < d.last; z++) {
                double share = second * share_along(j, 2, at[2], z);
                int64_t row = ((sample * from[0] + x) * from[1] + y) * from[2] + z;
                if (share != 0.0)
                    add_scaled(sum,
                               block_read(&j->c->in[0], row * channels + channel, size, buffer),
                               (float)share, size);
            }
        }
    }
}

static void run_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct row_job *j = job;
    const int64_t *to = j->is_grad ? j->w.size : j->w.out;
    int64_t channels = shape_last(&j->c->in[0].shape);
    float sum[CPU_BLOCK];
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        int64_t at[WINDOW_AXES] = {row / (to[1] * to[2]) % to[0], row / to[2] % to[1], row % to[2]};
        for (int64_t channel = 0; channel < channels; channel += CPU_BLOCK) {
            int64_t size = block_size(channels, channel);
            sum_row(j, row / window_places(to), at, channel, size, sum);
            cpu_store_f32(j->c->out[0].data, j->c->out[0].dtype, row * channels + channel, sum,
                          size);
        }
    }
}

static enum status each_row(const struct kernel_ctx *x, const struct op_call *c, share_fn *share,
                            bool is_grad)
{
    struct row_job j = {c, resize_window(c), share, is_grad};
    int64_t n_in = shape_elems(&c->in[0].shape), n_rows = shape_rows(&c->out[0].shape);
    cpu_loop(x, n_rows, MAX(shape_last(&c->out[0].shape), n_in / n_rows), run_rows, &j);
    return OK;
}

static enum status resize_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    return each_row(x, c, tap_share, false);
}

static enum status resize_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    return each_row(x, c, tap_share, true);
}

static enum status adaptive_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    return each_row(x, c, bin_share, false);
}

static enum status adaptive_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    return each_row(x, c, bin_share, true);
}

const struct kernel cpu_kernels_resize[] = {
    {"rows", cpu_declines_f64, NULL, resize_rows},
    {"reference", NULL, NULL, resize_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_resize_grad[] = {
    {"rows", cpu_declines_f64, NULL, resize_grad_rows},
    {"reference", NULL, NULL, resize_grad_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adaptive_avg_pool[] = {
    {"rows", cpu_declines_f64, NULL, adaptive_rows},
    {"reference", NULL, NULL, adaptive_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adaptive_avg_pool_grad[] = {
    {"rows", cpu_declines_f64, NULL, adaptive_grad_rows},
    {"reference", NULL, NULL, adaptive_grad_reference},
    KERNEL_END,
};
