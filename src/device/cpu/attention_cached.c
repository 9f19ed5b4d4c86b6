/* attention_cached.c: attention of new tokens over a cache of keys and values, for generation. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_ref.h"
#include "ops/layer_support.h"

/* Checks the position and brings this call's keys and values into the cache (in place: out[1] is
 * in[1]'s memory; copied first when it is not). The dtypes are equal, so rows move as bytes. */
static enum status append(const struct op_call *c, const struct qkv_dims *d, int64_t *position)
{
    const struct tensor *cache = &c->out[1];
    int64_t n_slots = cache->shape.dim[2];
    *position = *(const int32_t *)c->in[2].data;
    if (*position < 0 || *position + d->n_tokens > n_slots)
        return FAIL(ERR_SHAPE, "attention_cached: tokens %lld to %lld do not fit a cache of %lld",
                    (long long)*position, (long long)(*position + d->n_tokens - 1),
                    (long long)n_slots);
    if (cache->data != c->in[1].data)
        memcpy(cache->data, c->in[1].data, (size_t)tensor_bytes(cache));
    int64_t size = dtype_size(cache->dtype), row = d->kv_heads * d->head_dim;
    for (int64_t i = 0; i < 2 * d->batch * d->n_tokens; i++) {
        int64_t token = i % d->n_tokens, batch = i / d->n_tokens % d->batch;
        int64_t kind = i / (d->n_tokens * d->batch);
        int64_t from =
            (batch * d->n_tokens + token) * d->width + d->heads * d->head_dim + kind * row;
        int64_t to = ((kind * d->batch + batch) * n_slots + *position + token) * row;
        memcpy((char *)cache->data + to * size, (const char *)c->in[0].data + from * size,
               (size_t)(row * size));
    }
    return OK;
}

static void reference_query(const struct op_call *c, const struct qkv_dims *d, int64_t position,
                            int64_t i_query, double *p)
{
    const struct tensor *cache = &c->out[1];
    int64_t n_slots = cache->shape.dim[2], head = i_query % d->heads;
    int64_t row = i_query / d->heads, batch = row / d->n_tokens;
    int64_t last = position + row % d->n_tokens, window = call_int(c, CACHED_WINDOW);
    int64_t first = window > 0 && last - window + 1 > 0 ? last - window + 1 : 0;
    int64_t stride = d->kv_heads * d->head_dim;
    int64_t k = batch * n_slots * stride + head / (d->heads / d->kv_heads) * d->head_dim;
    int64_t v = k + d->batch * n_slots * stride;
    double top = (double)-INFINITY, sum = 0.0;
    for (int64_t j = first; j <= last; j++) {
        p[j] = 0.0;
        for (int64_t e = 0; e < d->head_dim; e++)
            p[j] += ref_get(&c->in[0], row * d->width + head * d->head_dim + e) *
                    ref_get(cache, k + j * stride + e);
        p[j] *= attention_scale(c, CACHED_SCALE, d);
        top = fmax(top, p[j]);
    }
    for (int64_t j = first; j <= last; j++)
        sum += exp(p[j] - top);
    for (int64_t e = 0; e < d->head_dim; e++) {
        double out = 0.0;
        for (int64_t j = first; j <= last; j++)
            out += exp(p[j] - top) / sum * ref_get(cache, v + j * stride + e);
        ref_set(&c->out[0], i_query * d->head_dim + e, out);
    }
}

static int64_t reference_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return c->in[1].shape.dim[2] * (int64_t)sizeof(double);
}

static enum status reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    int64_t position;
    TRY(append(c, &d, &position));
    for (int64_t i = 0; i < d.batch * d.n_tokens * d.heads; i++)
        reference_query(c, &d, position, i, x->workspace);
    return OK;
}

const struct kernel cpu_kernels_attention_cached[] = {
    {"reference", NULL, reference_workspace, reference},
    KERNEL_END,
};
