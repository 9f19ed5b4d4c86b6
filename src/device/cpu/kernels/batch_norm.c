/* batch_norm.c: norms by channel over all other axes, and running averages of their statistics. */
#include <math.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/kernels/channel_norm.h"
#include "device/cpu/support/ref.h"
#include "ops/channel_norm_support.h"

static double parameter(const struct op_call *c, int i, int64_t channel, double otherwise)
{
    return call_has(c, i) ? ref_get(&c->in[i], channel) : otherwise;
}

/* ---- references ------------------------------------------------------------------------------ */

static void normalise_channel(const struct op_call *c, int64_t channel)
{
    int64_t n_rows = shape_rows(&c->in[0].shape), n_channels = shape_last(&c->in[0].shape);
    double sum = 0.0, squares = 0.0;
    for (int64_t r = 0; r < n_rows; r++)
        sum += ref_get(&c->in[0], r * n_channels + channel);
    double mean = sum / (double)n_rows;
    for (int64_t r = 0; r < n_rows; r++) {
        double x = ref_get(&c->in[0], r * n_channels + channel) - mean;
        squares += x * x;
    }
    double rstd = 1.0 / sqrt(squares / (double)n_rows + call_float(c, 0));
    double gamma = parameter(c, 1, channel, 1.0), beta = parameter(c, 2, channel, 0.0);
    for (int64_t r = 0; r < n_rows; r++) {
        double x = ref_get(&c->in[0], r * n_channels + channel);
        ref_set(&c->out[0], r * n_channels + channel, (x - mean) * rstd * gamma + beta);
    }
    ref_set(&c->out[1], channel, mean);
    ref_set(&c->out[2], channel, rstd);
}

static enum status batch_norm_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t channel = 0; channel < shape_last(&c->in[0].shape); channel++)
        normalise_channel(c, channel);
    return OK;
}

static void grad_channel(const struct op_call *c, int64_t channel)
{
    int64_t n_rows = shape_rows(&c->in[0].shape), n_channels = shape_last(&c->in[0].shape);
    double gamma = parameter(c, 2, channel, 1.0);
    double mean = ref_get(&c->in[3], channel), rstd = ref_get(&c->in[4], channel);
    double dbeta = 0.0, dgamma = 0.0;
    for (int64_t at = channel; at < n_rows * n_channels; at += n_channels) {
        double dy = ref_get(&c->in[0], at);
        dbeta += dy;
        dgamma += dy * (ref_get(&c->in[1], at) - mean) * rstd;
    }
    for (int64_t at = channel; at < n_rows * n_channels; at += n_channels) {
        double h = (ref_get(&c->in[1], at) - mean) * rstd;
        double share = (dbeta + h * dgamma) / (double)n_rows;
        ref_set(&c->out[0], at, gamma * rstd * (ref_get(&c->in[0], at) - share));
    }
    ref_set(&c->out[1], channel, dgamma);
    ref_set(&c->out[2], channel, dbeta);
}

static enum status batch_norm_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t channel = 0; channel < shape_last(&c->in[0].shape); channel++)
        grad_channel(c, channel);
    return OK;
}

static enum status inference_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n_channels = shape_last(&c->in[0].shape);
    for (int64_t e = 0; e < shape_elems(&c->in[0].shape); e++) {
        int64_t channel = e % n_channels;
        double rstd = 1.0 / sqrt(ref_get(&c->in[4], channel) + call_float(c, 0));
        double h = (ref_get(&c->in[0], e) - parameter(c, 3, channel, 0.0)) * rstd;
        ref_set(&c->out[0], e, h * parameter(c, 1, channel, 1.0) + parameter(c, 2, channel, 0.0));
    }
    return OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* One sample of all places, a group for each channel. */
static struct norm_extent extent_of(const struct op_call *c)
{
    int64_t channels = shape_last(&c->in[0].shape);
    return (struct norm_extent){1, shape_rows(&c->in[0].shape), channels, 1, channels};
}

static int64_t workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct norm_extent e = extent_of(c);
    (void)env;
    return channel_norm_workspace(&e);
}

static enum status batch_norm_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm_extent e = extent_of(c);
    channel_norm(x, c, &e, call_float(c, 0));
    return OK;
}

static enum status batch_norm_grad_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm_extent e = extent_of(c);
    channel_norm_grad(x, c, &e);
    return OK;
}

static int64_t inference_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return 3 * shape_last(&c->in[0].shape) * (int64_t)sizeof(float);
}

static enum status inference_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm_extent e = extent_of(c);
    float *mean = x->workspace, *factor = mean + e.channels, *shift = factor + e.channels;
    for (int64_t i = 0; i < e.channels; i++) {
        double rstd = 1.0 / sqrt(ref_get(&c->in[4], i) + call_float(c, 0));
        mean[i] = (float)parameter(c, 3, i, 0.0);
        factor[i] = (float)(rstd * parameter(c, 1, i, 1.0));
        shift[i] = (float)parameter(c, 2, i, 0.0);
    }
    channel_norm_apply(x, &c->in[0], &c->out[0], &e, &(struct norm_vectors){mean, factor, shift});
    return OK;
}

/* ---- running averages ------------------------------------------------------------------------ */

/* Vectors of channels: nothing to make fast. */
static enum status running_average_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    double momentum = call_float(c, RUNNING_MOMENTUM), count = (double)call_int(c, RUNNING_COUNT);
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double s = ref_get(&c->in[1], i);
        if (call_bool(c, RUNNING_OF_VARIANCE)) /* of one element: as it is */
            s = (1.0 / (s * s) - call_float(c, RUNNING_EPSILON)) * count / fmax(count - 1.0, 1.0);
        ref_set(&c->out[0], i, (1.0 - momentum) * ref_get(&c->in[0], i) + momentum * s);
    }
    return OK;
}

const struct kernel cpu_kernels_batch_norm[] = {
    {"bands", cpu_declines_f64, workspace, batch_norm_bands},
    {"reference", NULL, NULL, batch_norm_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_batch_norm_grad[] = {
    {"bands", cpu_declines_f64, workspace, batch_norm_grad_bands},
    {"reference", NULL, NULL, batch_norm_grad_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_batch_norm_inference[] = {
    {"rows", cpu_declines_f64, inference_workspace, inference_rows},
    {"reference", NULL, NULL, inference_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_running_average[] = {
    {"reference", NULL, NULL, running_average_reference},
    KERNEL_END,
};
