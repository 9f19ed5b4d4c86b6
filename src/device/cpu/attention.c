/* attention.c: softmax attention over packed rows. */
#include <math.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_ref.h"
#include "ops/layer_support.h"

static double score(const struct op_call *c, const struct qkv_dims *d, int64_t q, int64_t k)
{
    double sum = 0.0;
    for (int64_t i = 0; i < d->head_dim; i++)
        sum += ref_get(&c->in[0], q + i) * ref_get(&c->in[0], k + i);
    return sum * attention_scale(c, ATTENTION_SCALE, d);
}

/* One query against all the keys it sees; p has room for n_tokens scores. */
static void reference_query(const struct op_call *c, const struct qkv_dims *d, int64_t batch,
                            int64_t head, int64_t i, double *p)
{
    int64_t row = batch * d->n_tokens, kv = head / (d->heads / d->kv_heads);
    int64_t window = call_int(c, ATTENTION_WINDOW);
    int64_t first = window > 0 && i - window + 1 > 0 ? i - window + 1 : 0;
    int64_t last = call_bool(c, ATTENTION_CAUSAL) ? i : d->n_tokens - 1;
    double top = (double)-INFINITY, sum = 0.0;
    for (int64_t j = first; j <= last; j++) {
        p[j] = score(c, d, (row + i) * d->width + head * d->head_dim,
                     (row + j) * d->width + (d->heads + kv) * d->head_dim);
        top = fmax(top, p[j]);
    }
    for (int64_t j = first; j <= last; j++)
        sum += exp(p[j] - top);
    for (int64_t e = 0; e < d->head_dim; e++) {
        double out = 0.0;
        int64_t v = (d->heads + d->kv_heads + kv) * d->head_dim + e;
        for (int64_t j = first; j <= last; j++)
            out += exp(p[j] - top) / sum * ref_get(&c->in[0], (row + j) * d->width + v);
        ref_set(&c->out[0], ((row + i) * d->heads + head) * d->head_dim + e, out);
    }
    ref_set(&c->out[1], (batch * d->heads + head) * d->n_tokens + i, top + log(sum));
}

static int64_t reference_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return c->in[0].shape.dim[1] * (int64_t)sizeof(double);
}

static enum status reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    for (int64_t batch = 0; batch < d.batch; batch++) {
        for (int64_t head = 0; head < d.heads; head++) {
            for (int64_t i = 0; i < d.n_tokens; i++)
                reference_query(c, &d, batch, head, i, x->workspace);
        }
    }
    return OK;
}

const struct kernel cpu_kernels_attention[] = {
    {"reference", NULL, reference_workspace, reference},
    KERNEL_END,
};
