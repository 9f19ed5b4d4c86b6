/* class_loss.c: softmax cross-entropy of rows of logits with labels, and its gradient. A row at a
 * time, in double: there are few classes, and the loss is what is read. */
#include <math.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* ---- forward --------------------------------------------------------------------------------- */

struct row {
    double top, sum, lse; /* largest; of all; log of the sum of e^x */
    int64_t first_top;
};

static struct row look_at(const struct tensor *x, int64_t at, int64_t n)
{
    struct row r = {.top = ref_get(x, at)};
    double total = 0;
    for (int64_t j = 0; j < n; j++) {
        double v = ref_get(x, at + j);
        r.sum += v;
        if (v > r.top || (isnan(v) && !isnan(r.top))) {
            r.top = v;
            r.first_top = j;
        }
    }
    for (int64_t j = 0; j < n; j++)
        total += exp(ref_get(x, at + j) - r.top);
    r.lse = r.top + log(total);
    return r;
}

static void loss_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    const struct tensor *x = &c->in[0];
    int64_t n = shape_last(&x->shape);
    double smoothing = call_float(c, 0);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int32_t label = ((const int32_t *)c->in[1].data)[i];
        struct row r = look_at(x, i * n, n);
        double due = label < 0 ? 0 : ref_get(x, i * n + label);
        double loss = r.lse - (1.0 - smoothing) * due - smoothing * r.sum / (double)n;
        ref_set(&c->out[0], i, label < 0 ? 0.0 : loss);
        ref_set(&c->out[1], i, r.lse);
        ref_set(&c->out[2], i, label >= 0 && r.first_top == label ? 1.0 : 0.0);
    }
}

/* ---- gradient -------------------------------------------------------------------------------- */

static void grad_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    const struct tensor *x = &c->in[1];
    int64_t n = shape_last(&x->shape);
    double smoothing = call_float(c, 0);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int32_t label = ((const int32_t *)c->in[2].data)[i];
        double dy = label < 0 ? 0.0 : ref_get(&c->in[0], i), lse = ref_get(&c->in[3], i);
        for (int64_t j = 0; j < n; j++) {
            double due = (j == label ? 1.0 - smoothing : 0.0) + smoothing / (double)n;
            double p = exp(ref_get(x, i * n + j) - lse);
            ref_set(&c->out[0], i * n + j, label < 0 ? 0.0 : dy * (p - due));
        }
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

static enum status loss_shared(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_loop(x, shape_rows(&c->in[0].shape), shape_last(&c->in[0].shape), loss_rows, c);
    return OK;
}

static enum status loss_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    loss_rows(c, 0, shape_rows(&c->in[0].shape), 0);
    return OK;
}

const struct kernel cpu_kernels_softmax_cross_entropy[] = {
    {"rows", NULL, NULL, loss_shared},
    {"reference", NULL, NULL, loss_reference},
    KERNEL_END,
};

static enum status grad_shared(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_loop(x, shape_rows(&c->in[1].shape), shape_last(&c->in[1].shape), grad_rows, c);
    return OK;
}

static enum status grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    grad_rows(c, 0, shape_rows(&c->in[1].shape), 0);
    return OK;
}

const struct kernel cpu_kernels_softmax_cross_entropy_grad[] = {
    {"rows", NULL, NULL, grad_shared},
    {"reference", NULL, NULL, grad_reference},
    KERNEL_END,
};
