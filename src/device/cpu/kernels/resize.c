/* resize.c: other sizes of the spatial axes, by interpolation or by averages of bins. Each axis is
 * a linear map of its own, so an output is a sum over three short lists of places and their shares.
 */
#include "device/cpu/cpu_kernels.h"
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

const struct kernel cpu_kernels_resize[] = {
    {"reference", NULL, NULL, resize_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_resize_grad[] = {
    {"reference", NULL, NULL, resize_grad_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adaptive_avg_pool[] = {
    {"reference", NULL, NULL, adaptive_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adaptive_avg_pool_grad[] = {
    {"reference", NULL, NULL, adaptive_grad_reference},
    KERNEL_END,
};
