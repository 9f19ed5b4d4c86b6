/* attention_grad.c: the gradient of softmax attention, from the saved output and log-sum-exp: the
 * kernel list and the plain reference. The tiles are attention_grad_tiles.c's. */
#include <math.h>
#include <string.h>

#include "device/cpu/attention/attention_dropout.h"
#include "device/cpu/attention/attention_tiles.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/ref.h"
#include "ops/layer_support.h"

/* Adds what the pair (query i, key j) of one head gives to the double-precision sums `grad`, which
 * are laid out as qkv. delta is the query's sum of dout * out; `factor` is 0 on a dropped pair. */
static void reference_pair(const struct op_call *c, const struct qkv_dims *d, double *grad,
                           int64_t dout, int64_t q, int64_t k, double lse, double delta,
                           double factor)
{
    const struct tensor *qkv = &c->in[1];
    int64_t v = k + d->kv_heads * d->head_dim;
    double scale = attention_scale(c, ATTENTION_SCALE, d), s = 0.0, dp = 0.0;
    for (int64_t e = 0; e < d->head_dim; e++) {
        s += scale * ref_get(qkv, q + e) * ref_get(qkv, k + e);
        dp += ref_get(&c->in[0], dout + e) * ref_get(qkv, v + e);
    }
    double cap = call_float(c, ATTENTION_CAP);
    s = softcap_of(s, cap);
    double p = exp(s - lse), ds = p * (dp * factor - delta) * scale * softcap_slope(s, cap);
    for (int64_t e = 0; e < d->head_dim; e++) {
        grad[q + e] += ds * ref_get(qkv, k + e);
        grad[k + e] += ds * ref_get(qkv, q + e);
        grad[v + e] += p * factor * ref_get(&c->in[0], dout + e);
    }
}

static void reference_query(const struct op_call *c, const struct qkv_dims *d, double *grad,
                            int64_t batch, int64_t head, int64_t i)
{
    int64_t row = batch * d->n_tokens, kv = head / (d->heads / d->kv_heads);
    int64_t first = attention_first(i, call_int(c, ATTENTION_WINDOW), call_int(c, ATTENTION_BLOCK));
    int64_t last = call_bool(c, ATTENTION_CAUSAL) ? i : d->n_tokens - 1;
    if (call_has(c, 5))
        first = MAX(first, i - (int64_t)ref_get(&c->in[5], row + i));
    int64_t dout = ((row + i) * d->heads + head) * d->head_dim, i_head = batch * d->heads + head;
    struct attention_dropout drop = attention_dropout_of(c, 4, d->n_tokens);
    double delta = 0.0;
    for (int64_t e = 0; e < d->head_dim; e++)
        delta += ref_get(&c->in[0], dout + e) * ref_get(&c->in[2], dout + e);
    for (int64_t j = first; j <= last; j++)
        reference_pair(c, d, grad, dout, (row + i) * d->width + head * d->head_dim,
                       (row + j) * d->width + (d->heads + kv) * d->head_dim,
                       ref_get(&c->in[3], i_head * d->n_tokens + i), delta,
                       pair_factor(&drop, i_head, i, j));
}

static int64_t reference_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return shape_elems(&c->in[1].shape) * (int64_t)sizeof(double);
}

static enum status reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 1);
    int64_t n = shape_elems(&c->in[1].shape);
    double *grad = x->workspace;
    memset(grad, 0, (size_t)n * sizeof(double));
    for (int64_t batch = 0; batch < d.batch; batch++) {
        for (int64_t head = 0; head < d.heads; head++) {
            for (int64_t i = 0; i < d.n_tokens; i++)
                reference_query(c, &d, grad, batch, head, i);
        }
    }
    for (int64_t i = 0; i < n; i++)
        ref_set(&c->out[0], i, grad[i]);
    return OK;
}

/* ---- by tiles -------------------------------------------------------------------------------- */

static struct attention_grad grad_of(const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 1);
    struct head_layout packed = {
        .t = &c->in[1], .gradient = &c->out[0], .n_rows = d.n_tokens, .width = d.width};
    struct attention_grad g = {
        .batch = d.batch,
        .heads = d.heads,
        .kv_heads = d.kv_heads,
        .head_dim = d.head_dim,
        .q = packed,
        .k = packed,
        .v = packed,
        .out = {&c->in[2], &c->in[0], d.n_tokens, d.heads * d.head_dim, 0},
        .lse = c->in[3].data,
        .positions = call_has(c, 5) ? c->in[5].data : NULL,
        .mask = {.causal = call_bool(c, ATTENTION_CAUSAL),
                 .window = call_int(c, ATTENTION_WINDOW),
                 .block = call_int(c, ATTENTION_BLOCK),
                 .n_keys = d.n_tokens},
        .scale = (float)attention_scale(c, ATTENTION_SCALE, &d),
        .cap = (float)call_float(c, ATTENTION_CAP),
        .dropout = attention_dropout_of(c, 4, d.n_tokens),
    };
    g.k.at = d.heads * d.head_dim;
    g.v.at = (d.heads + d.kv_heads) * d.head_dim;
    return g;
}

static int64_t tiles_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct attention_grad g = grad_of(c);
    return cpu_attention_grad_bytes(&g, env);
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_grad g = grad_of(c);
    cpu_attention_grad(x, &g);
    return OK;
}

const struct kernel cpu_kernels_attention_grad[] = {
    {"tiles", cpu_declines_f64, tiles_workspace, tiles},
    {"reference", NULL, reference_workspace, reference},
    KERNEL_END,
};
