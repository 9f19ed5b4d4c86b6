/* group_norm.c: norms over a sample's channels of a group and all its places. */
#include <math.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/kernels/channel_norm.h"
#include "device/cpu/support/ref.h"
#include "ops/channel_norm_support.h"

static struct norm_extent extent_of(const struct op_call *c)
{
    const struct shape *x = &c->in[0].shape;
    struct norm_extent e = {.n_samples = x->dim[0], .channels = shape_last(x)};
    e.groups = call_int(c, GROUP_NORM_GROUPS);
    e.width = e.channels / e.groups;
    e.n_places = shape_rows(x) / MAX(e.n_samples, (int64_t)1);
    return e;
}

/* Element i of group g of a sample: where it is. */
static int64_t element(const struct norm_extent *e, int64_t sample, int64_t g, int64_t i)
{
    return (sample * e->n_places + i / e->width) * e->channels + g * e->width + i % e->width;
}

static double parameter(const struct op_call *c, int i, int64_t channel, double otherwise)
{
    return call_has(c, i) ? ref_get(&c->in[i], channel) : otherwise;
}

/* ---- references ------------------------------------------------------------------------------ */

static void normalise_group(const struct op_call *c, const struct norm_extent *e, int64_t sample,
                            int64_t g)
{
    int64_t n = e->n_places * e->width;
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += ref_get(&c->in[0], element(e, sample, g, i));
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double x = ref_get(&c->in[0], element(e, sample, g, i)) - mean;
        squares += x * x;
    }
    double rstd = 1.0 / sqrt(squares / (double)n + call_float(c, GROUP_NORM_EPSILON));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = element(e, sample, g, i), channel = at % e->channels;
        double h = (ref_get(&c->in[0], at) - mean) * rstd;
        ref_set(&c->out[0], at, h * parameter(c, 1, channel, 1.0) + parameter(c, 2, channel, 0.0));
    }
    ref_set(&c->out[1], sample * e->groups + g, mean);
    ref_set(&c->out[2], sample * e->groups + g, rstd);
}

static enum status group_norm_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct norm_extent e = extent_of(c);
    for (int64_t i = 0; i < e.n_samples * e.groups; i++)
        normalise_group(c, &e, i / e.groups, i % e.groups);
    return OK;
}

static void grad_of_parameters(const struct op_call *c, const struct norm_extent *e,
                               int64_t channel)
{
    double dgamma = 0.0, dbeta = 0.0;
    for (int64_t row = 0; row < e->n_samples * e->n_places; row++) {
        int64_t at = row * e->channels + channel;
        int64_t i = row / e->n_places * e->groups + channel / e->width;
        double h = (ref_get(&c->in[1], at) - ref_get(&c->in[3], i)) * ref_get(&c->in[4], i);
        dgamma += ref_get(&c->in[0], at) * h;
        dbeta += ref_get(&c->in[0], at);
    }
    ref_set(&c->out[1], channel, dgamma);
    ref_set(&c->out[2], channel, dbeta);
}

static void grad_of_group(const struct op_call *c, const struct norm_extent *e, int64_t sample,
                          int64_t g)
{
    int64_t n = e->n_places * e->width;
    double mean = ref_get(&c->in[3], sample * e->groups + g);
    double rstd = ref_get(&c->in[4], sample * e->groups + g);
    double sum = 0.0, product = 0.0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = element(e, sample, g, i);
        double dh = ref_get(&c->in[0], at) * parameter(c, 2, at % e->channels, 1.0);
        sum += dh;
        product += dh * (ref_get(&c->in[1], at) - mean) * rstd;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = element(e, sample, g, i);
        double dh = ref_get(&c->in[0], at) * parameter(c, 2, at % e->channels, 1.0);
        double h = (ref_get(&c->in[1], at) - mean) * rstd;
        ref_set(&c->out[0], at, rstd * (dh - (sum + h * product) / (double)n));
    }
}

/* dx may take the memory of dy or x: it comes last. */
static enum status group_norm_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct norm_extent e = extent_of(c);
    for (int64_t channel = 0; channel < e.channels; channel++)
        grad_of_parameters(c, &e, channel);
    for (int64_t i = 0; i < e.n_samples * e.groups; i++)
        grad_of_group(c, &e, i / e.groups, i % e.groups);
    return OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int64_t workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct norm_extent e = extent_of(c);
    (void)env;
    return channel_norm_workspace(&e);
}

static enum status group_norm_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm_extent e = extent_of(c);
    channel_norm(x, c, &e, call_float(c, GROUP_NORM_EPSILON));
    return OK;
}

static enum status group_norm_grad_bands(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm_extent e = extent_of(c);
    channel_norm_grad(x, c, &e);
    return OK;
}

const struct kernel cpu_kernels_group_norm[] = {
    {"bands", cpu_declines_f64, workspace, group_norm_bands},
    {"reference", NULL, NULL, group_norm_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_group_norm_grad[] = {
    {"bands", cpu_declines_f64, workspace, group_norm_grad_bands},
    {"reference", NULL, NULL, group_norm_grad_reference},
    KERNEL_END,
};
