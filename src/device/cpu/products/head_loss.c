/* head_loss.c: the output projection and cross entropy in one op: the kernel lists and the plain
 * reference kernels. The chunked kernels are in head_loss_chunks.c. */
#include <math.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/head_loss_chunks.h"
#include "device/cpu/support/ref.h"
#include "ops/layer_support.h"

struct sizes {
    int64_t n_rows, n_words, n_columns;
};

static struct sizes sizes_of(const struct op_call *c)
{
    struct sizes s = {.n_words = c->in[1].shape.dim[0], .n_columns = c->in[1].shape.dim[1]};
    s.n_rows = shape_elems(&c->in[2].shape);
    return s;
}

/* Row i's loss; z receives its logits and then, when gradient is not 0, the loss's gradient with
 * respect to them times `gradient`. */
static double reference_row(const struct op_call *c, int64_t i, double gradient, double *z)
{
    struct sizes s = sizes_of(c);
    int64_t target = ((const int32_t *)c->in[2].data)[i];
    double e = call_float(c, HEAD_LOSS_SMOOTHING), z_loss = call_float(c, HEAD_LOSS_Z);
    double cap = call_float(c, HEAD_LOSS_CAP), top = (double)-INFINITY, sum = 0.0, avg = 0.0;
    for (int64_t v = 0; v < s.n_words; v++) {
        z[v] = 0.0;
        for (int64_t k = 0; k < s.n_columns; k++)
            z[v] +=
                ref_get(&c->in[0], i * s.n_columns + k) * ref_get(&c->in[1], v * s.n_columns + k);
        z[v] = softcap_of(z[v], cap);
        top = fmax(top, z[v]);
        avg += z[v] / (double)s.n_words;
    }
    for (int64_t v = 0; v < s.n_words; v++)
        sum += exp(z[v] - top);
    double lse = top + log(sum); // cppcheck-suppress invalidFunctionArg ; there is a word
    bool valid = target != call_int(c, HEAD_LOSS_IGNORE);
    double loss = valid ? lse - (1.0 - e) * z[target] - e * avg + z_loss * lse * lse : 0.0;
    for (int64_t v = 0; v < s.n_words; v++) {
        double g = exp(z[v] - lse) * (1.0 + 2.0 * z_loss * lse) - e / (double)s.n_words -
                   (v == target ? 1.0 - e : 0.0);
        z[v] = valid ? gradient * g * softcap_slope(z[v], cap) : 0.0;
    }
    return loss;
}

/* All rows' losses into out[0] and the valid rows' number into out[1]; z has one row of logits per
 * row when stride is n_words, one in all when it is 0. */
static void reference_loss(const struct op_call *c, double gradient, double *z, int64_t stride)
{
    double loss = 0.0, count = 0.0;
    for (int64_t i = 0; i < sizes_of(c).n_rows; i++) {
        loss += reference_row(c, i, gradient, z + i * stride);
        count += ((const int32_t *)c->in[2].data)[i] != call_int(c, HEAD_LOSS_IGNORE);
    }
    ref_set(&c->out[0], 0, loss);
    ref_set(&c->out[1], 0, count);
}

static int64_t reference_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return sizes_of(c).n_words * (int64_t)sizeof(double);
}

static enum status reference(const struct kernel_ctx *x, const struct op_call *c)
{
    TRY(cpu_head_loss_check(c));
    reference_loss(c, 1.0, x->workspace, 0);
    return OK;
}

static int64_t reference_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return reference_workspace(c, env) * sizes_of(c).n_rows;
}

/* dw, where it is made, before dx: dx may lie over x. */
static enum status reference_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct sizes s = sizes_of(c);
    double *g = x->workspace; /* [n_rows, n_words] */
    TRY(cpu_head_loss_check(c));
    reference_loss(c, ref_get(&c->in[3], 0), g, s.n_words);
    for (int64_t at = 0; c->n_out > 3 && at < s.n_words * s.n_columns; at++) {
        int64_t v = at / s.n_columns, k = at % s.n_columns;
        double sum = call_has(c, 4) ? ref_get(&c->in[4], at) : 0.0;
        for (int64_t i = 0; i < s.n_rows; i++)
            sum += g[i * s.n_words + v] * ref_get(&c->in[0], i * s.n_columns + k);
        ref_set(&c->out[3], at, sum);
    }
    for (int64_t at = 0; at < s.n_rows * s.n_columns; at++) {
        int64_t i = at / s.n_columns, k = at % s.n_columns;
        double sum = 0.0;
        for (int64_t v = 0; v < s.n_words; v++)
            sum += g[i * s.n_words + v] * ref_get(&c->in[1], v * s.n_columns + k);
        ref_set(&c->out[2], at, sum);
    }
    return OK;
}

const struct kernel cpu_kernels_linear_cross_entropy[] = {
    {"chunks", cpu_declines_f64, cpu_head_loss_workspace, cpu_head_loss},
    {"reference", NULL, reference_workspace, reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_linear_cross_entropy_grad[] = {
    {"chunks", cpu_declines_f64, cpu_head_loss_grad_workspace, cpu_head_loss_grad},
    {"reference", NULL, reference_grad_workspace, reference_grad},
    KERNEL_END,
};

const struct kernel cpu_kernels_linear_cross_entropy_grad_input[] = {
    {"chunks", cpu_declines_f64, cpu_head_loss_grad_workspace, cpu_head_loss_grad},
    {"reference", NULL, reference_grad_workspace, reference_grad},
    KERNEL_END,
};
