/* norm.c: layer_norm, rms_norm and head_norm with their gradients: the kernel lists and the plain
 * reference kernels. The fast kernels are in norm_rows.c.
 *
 * The references take parameter gradients as sums over all rows in double, one column at a time,
 * before dx is written: dx may lie over dy, x or add.
 */
#include <math.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/kernels/norm_rows.h"
#include "device/cpu/support/ref.h"
#include "ops/layer_support.h"

static double get_or(const struct op_call *c, int i, int64_t j, double absent)
{
    return call_has(c, i) ? ref_get(&c->in[i], j) : absent;
}

static enum status reference_layer_norm(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / n;
    for (int64_t i = 0; i < n_rows; i++) {
        double mean = 0.0, variance = 0.0;
        for (int64_t j = 0; j < n; j++)
            mean += ref_get(&c->in[0], i * n + j) / (double)n;
        for (int64_t j = 0; j < n; j++) {
            double d = ref_get(&c->in[0], i * n + j) - mean;
            variance += d * d / (double)n;
        }
        double rstd = 1.0 / sqrt(variance + call_float(c, 0));
        for (int64_t j = 0; j < n; j++) {
            double h = (ref_get(&c->in[0], i * n + j) - mean) * rstd;
            ref_set(&c->out[0], i * n + j, h * get_or(c, 1, j, 1.0) + get_or(c, 2, j, 0.0));
        }
        ref_set(&c->out[1], i, mean);
        ref_set(&c->out[2], i, rstd);
    }
    return OK;
}

static enum status reference_layer_norm_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct tensor *dy = &c->in[0], *in = &c->in[1], *mean = &c->in[3], *rstd = &c->in[4];
    int64_t n = shape_last(&dy->shape), n_rows = shape_elems(&dy->shape) / n;
    for (int64_t j = 0; j < n; j++) {
        double dw = 0.0, db = 0.0;
        for (int64_t i = 0; i < n_rows; i++) {
            double h = (ref_get(in, i * n + j) - ref_get(mean, i)) * ref_get(rstd, i);
            dw += ref_get(dy, i * n + j) * h;
            db += ref_get(dy, i * n + j);
        }
        ref_set(&c->out[1], j, dw);
        ref_set(&c->out[2], j, db);
    }
    for (int64_t i = 0; i < n_rows; i++) {
        double avg_g = 0.0, avg_gh = 0.0, r = ref_get(rstd, i), m = ref_get(mean, i);
        for (int64_t j = 0; j < n; j++) {
            double g = ref_get(dy, i * n + j) * get_or(c, 2, j, 1.0);
            avg_g += g / (double)n;
            avg_gh += g * (ref_get(in, i * n + j) - m) * r / (double)n;
        }
        for (int64_t j = 0; j < n; j++) {
            double g = ref_get(dy, i * n + j) * get_or(c, 2, j, 1.0);
            double h = (ref_get(in, i * n + j) - m) * r;
            double add = get_or(c, 5, i * n + j, 0.0);
            ref_set(&c->out[0], i * n + j, r * (g - avg_g - h * avg_gh) + add);
        }
    }
    return OK;
}

/* What a row is multiplied by: a vector of parameters and a number added to each. */
struct weight {
    const struct tensor *t;
    double offset;
};

static double weight_at(const struct weight *w, int64_t j)
{
    return ref_get(w->t, j) + w->offset;
}

/* One row of n elements at offset: y = x rstd w; returns rstd. */
static double rms_row(const struct tensor *y, const struct tensor *in, int64_t offset, int64_t n,
                      const struct weight *w, double epsilon)
{
    double square = 0.0;
    for (int64_t j = 0; j < n; j++)
        square += ref_get(in, offset + j) * ref_get(in, offset + j) / (double)n;
    double rstd = 1.0 / sqrt(square + epsilon);
    for (int64_t j = 0; j < n; j++)
        ref_set(y, offset + j, ref_get(in, offset + j) * rstd * weight_at(w, j));
    return rstd;
}

/* add: NULL or what dx is added to. */
static void rms_row_grad(const struct tensor *dx, const struct tensor *dy, const struct tensor *in,
                         int64_t offset, int64_t n, const struct weight *w, double rstd,
                         const struct tensor *add)
{
    double avg_gh = 0.0;
    for (int64_t j = 0; j < n; j++)
        avg_gh +=
            ref_get(dy, offset + j) * weight_at(w, j) * ref_get(in, offset + j) * rstd / (double)n;
    for (int64_t j = 0; j < n; j++) {
        double g = ref_get(dy, offset + j) * weight_at(w, j);
        double before = add ? ref_get(add, offset + j) : 0.0;
        ref_set(dx, offset + j, rstd * (g - ref_get(in, offset + j) * rstd * avg_gh) + before);
    }
}

static enum status reference_rms_norm(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n = shape_last(&c->in[0].shape), n_rows = shape_elems(&c->in[0].shape) / n;
    struct weight w = {&c->in[1], call_float(c, RMS_NORM_OFFSET)};
    for (int64_t i = 0; i < n_rows; i++) {
        double rstd = rms_row(&c->out[0], &c->in[0], i * n, n, &w, call_float(c, RMS_NORM_EPSILON));
        ref_set(&c->out[1], i, rstd);
    }
    return OK;
}

static enum status reference_rms_norm_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct tensor *dy = &c->in[0], *in = &c->in[1], *rstd = &c->in[3];
    int64_t n = shape_last(&dy->shape), n_rows = shape_elems(&dy->shape) / n;
    for (int64_t j = 0; j < n; j++) {
        double dw = 0.0;
        for (int64_t i = 0; i < n_rows; i++)
            dw += ref_get(dy, i * n + j) * ref_get(in, i * n + j) * ref_get(rstd, i);
        ref_set(&c->out[1], j, dw);
    }
    struct weight w = {&c->in[2], call_float(c, RMS_NORM_GRAD_OFFSET)};
    for (int64_t i = 0; i < n_rows; i++)
        rms_row_grad(&c->out[0], dy, in, i * n, n, &w, ref_get(rstd, i),
                     call_has(c, 4) ? &c->in[4] : NULL);
    return OK;
}

static enum status reference_head_norm(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct qkv_dims d = qkv_dims_of(c, 0);
    int64_t n_normed = d.heads + d.kv_heads, n_all = d.heads + 2 * d.kv_heads;
    for (int64_t i = 0; i < d.batch * d.n_tokens * n_all; i++) {
        int64_t row = i / n_all, head = i % n_all, offset = i * d.head_dim;
        if (head < n_normed) {
            struct weight w = {&c->in[head < d.heads ? 1 : 2], call_float(c, HEAD_NORM_OFFSET)};
            double rstd = rms_row(&c->out[0], &c->in[0], offset, d.head_dim, &w,
                                  call_float(c, HEAD_NORM_EPSILON));
            ref_set(&c->out[1], row * n_normed + head, rstd);
        } else {
            for (int64_t j = 0; j < d.head_dim; j++)
                ref_set(&c->out[0], offset + j, ref_get(&c->in[0], offset + j));
        }
    }
    return OK;
}

/* Sum over rows and heads [first, last) of dy x rstd, for column j of a head. */
static double head_weight_grad(const struct op_call *c, const struct qkv_dims *d, int64_t first,
                               int64_t last, int64_t j)
{
    double sum = 0.0;
    for (int64_t row = 0; row < d->batch * d->n_tokens; row++) {
        for (int64_t head = first; head < last; head++) {
            int64_t at = row * d->width + head * d->head_dim + j;
            sum += ref_get(&c->in[0], at) * ref_get(&c->in[1], at) *
                   ref_get(&c->in[4], row * (d->heads + d->kv_heads) + head);
        }
    }
    return sum;
}

static enum status reference_head_norm_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct qkv_dims d = qkv_dims_of(c, 0);
    int64_t n_normed = d.heads + d.kv_heads, n_all = d.heads + 2 * d.kv_heads;
    for (int64_t j = 0; j < d.head_dim; j++) {
        ref_set(&c->out[1], j, head_weight_grad(c, &d, 0, d.heads, j));
        ref_set(&c->out[2], j, head_weight_grad(c, &d, d.heads, n_normed, j));
    }
    for (int64_t i = 0; i < d.batch * d.n_tokens * n_all; i++) {
        int64_t row = i / n_all, head = i % n_all, offset = i * d.head_dim;
        if (head < n_normed) {
            struct weight w = {&c->in[head < d.heads ? 2 : 3],
                               call_float(c, HEAD_NORM_GRAD_OFFSET)};
            rms_row_grad(&c->out[0], &c->in[0], &c->in[1], offset, d.head_dim, &w,
                         ref_get(&c->in[4], row * n_normed + head), NULL);
        } else {
            for (int64_t j = 0; j < d.head_dim; j++)
                ref_set(&c->out[0], offset + j, ref_get(&c->in[0], offset + j));
        }
    }
    return OK;
}

const struct kernel cpu_kernels_layer_norm[] = {
    {"rows", cpu_declines_f64, cpu_layer_norm_workspace, cpu_layer_norm},
    {"reference", NULL, NULL, reference_layer_norm},
    KERNEL_END,
};

const struct kernel cpu_kernels_layer_norm_grad[] = {
    {"rows", cpu_declines_f64, cpu_layer_norm_grad_workspace, cpu_layer_norm_grad},
    {"reference", NULL, NULL, reference_layer_norm_grad},
    KERNEL_END,
};

const struct kernel cpu_kernels_rms_norm[] = {
    {"rows", cpu_declines_f64, cpu_rms_norm_workspace, cpu_rms_norm},
    {"reference", NULL, NULL, reference_rms_norm},
    KERNEL_END,
};

const struct kernel cpu_kernels_rms_norm_grad[] = {
    {"rows", cpu_declines_f64, cpu_rms_norm_grad_workspace, cpu_rms_norm_grad},
    {"reference", NULL, NULL, reference_rms_norm_grad},
    KERNEL_END,
};

const struct kernel cpu_kernels_head_norm[] = {
    {"rows", cpu_declines_f64, cpu_head_norm_workspace, cpu_head_norm},
    {"reference", NULL, NULL, reference_head_norm},
    KERNEL_END,
};

const struct kernel cpu_kernels_head_norm_grad[] = {
    {"rows", cpu_declines_f64, cpu_head_norm_grad_workspace, cpu_head_norm_grad},
    {"reference", NULL, NULL, reference_head_norm_grad},
    KERNEL_END,
};
