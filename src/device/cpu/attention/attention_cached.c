/* attention_cached.c: attention of new tokens over a cache of keys and values, for generation.
 *
 * Many tokens at once (a prompt) go through the tiles of attention_tiles.c. A few (one token at a
 * time) are bound by reading the cache: each row of keys and values is read once for all the
 * queries of its head.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/attention/attention_tiles.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "device/cpu/support/ref.h"
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
    int64_t last = position + row % d->n_tokens;
    int64_t first = attention_first(last, call_int(c, CACHED_WINDOW), call_int(c, CACHED_BLOCK));
    int64_t stride = d->kv_heads * d->head_dim;
    int64_t k = batch * n_slots * stride + head / (d->heads / d->kv_heads) * d->head_dim;
    int64_t v = k + d->batch * n_slots * stride;
    double top = (double)-INFINITY, sum = 0.0;
    for (int64_t j = first; j <= last; j++) {
        p[j] = 0.0;
        for (int64_t e = 0; e < d->head_dim; e++)
            p[j] += ref_get(&c->in[0], row * d->width + head * d->head_dim + e) *
                    ref_get(cache, k + j * stride + e);
        p[j] = softcap_of(p[j] * attention_scale(c, CACHED_SCALE, d), call_float(c, CACHED_CAP));
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

enum { FEW_TOKENS = 8 }; /* below this, tiles would be mostly padding */

/* One batch entry's head of keys or values in the cache. */
static struct head_rows cache_rows(const struct op_call *c, const struct qkv_dims *d, int64_t kind,
                                   int64_t batch, int64_t kv)
{
    int64_t stride = d->kv_heads * d->head_dim;
    struct head_rows h = {.t = &c->out[1], .stride = stride};
    h.first = (kind * d->batch + batch) * c->out[1].shape.dim[2] * stride + kv * d->head_dim;
    return h;
}

static struct attention_job job_of(const struct op_call *c, const struct qkv_dims *d,
                                   int64_t position, int64_t batch, int64_t head)
{
    int64_t kv = head / (d->heads / d->kv_heads), row = batch * d->n_tokens;
    struct attention_job job = {
        .q = {&c->in[0], row * d->width + head * d->head_dim, d->width},
        .k = cache_rows(c, d, 0, batch, kv),
        .v = cache_rows(c, d, 1, batch, kv),
        .mask = {.causal = true,
                 .window = call_int(c, CACHED_WINDOW),
                 .block = call_int(c, CACHED_BLOCK),
                 .n_keys = position + d->n_tokens},
        .position = position,
        .head_dim = d->head_dim,
        .scale = (float)attention_scale(c, CACHED_SCALE, d),
        .cap = (float)call_float(c, CACHED_CAP),
        .out = &c->out[0],
        .out_first = (row * d->heads + head) * d->head_dim,
        .out_stride = d->heads * d->head_dim,
    };
    return job;
}

/* ---- a few tokens ------------------------------------------------------------------------- */

/* p[0 .. n) = softmax; everything outside first .. last is 0. */
static void soften(float *p, int64_t first, int64_t last, int64_t n)
{
    float top = -INFINITY, sum = 0.0f;
#pragma omp simd reduction(max : top)
    for (int64_t j = first; j <= last; j++)
        top = p[j] > top ? p[j] : top;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = first; j <= last; j++) {
        p[j] = micro_flush(cpu_expf(p[j] - top));
        sum += p[j];
    }
    float factor = 1.0f / sum;
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        p[j] = j >= first && j <= last ? p[j] * factor : 0.0f;
}

static int64_t few_floats(const struct op_call *c, const struct qkv_dims *d)
{
    int64_t n_queries = d->heads / d->kv_heads * d->n_tokens;
    return micro_round_up(n_queries * (c->in[1].shape.dim[2] + 2 * d->head_dim) + d->head_dim, 16);
}

/* All queries of one key/value head; query r is token r % n_tokens of the r / n_tokens-th head. */
static void few_tokens(const struct op_call *c, const struct qkv_dims *d, int64_t position,
                       int64_t batch, int64_t kv, float *scratch)
{
    int64_t group = d->heads / d->kv_heads, n = group * d->n_tokens, dim = d->head_dim;
    int64_t n_keys = position + d->n_tokens;
    float *q = scratch, *out = q + n * dim, *row = out + n * dim, *p = row + dim; /* p: [n, keys] */
    struct attention_job job = job_of(c, d, position, batch, kv * group);
    int64_t first = mask_first(&job.mask, position);
    for (int64_t r = 0; r < n; r++) {
        int64_t at = job.q.first + r / d->n_tokens * dim + r % d->n_tokens * job.q.stride;
        cpu_load_f32(q + r * dim, c->in[0].data, c->in[0].dtype, at, dim);
    }
    memset(out, 0, (size_t)(n * dim) * sizeof(float));
    for (int64_t j = first; j < n_keys; j++) {
        const float *k = block_read(job.k.t, job.k.first + j * job.k.stride, dim, row);
        for (int64_t r = 0; r < n; r++) {
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t e = 0; e < dim; e++)
                sum += q[r * dim + e] * k[e];
            p[r * n_keys + j] = sum * job.scale;
        }
    }
    for (int64_t r = 0; r < n; r++) {
        int64_t at = position + r % d->n_tokens;
        tile_cap(p + r * n_keys + first, n_keys - first, job.cap);
        soften(p + r * n_keys, mask_first(&job.mask, at), mask_last(&job.mask, at), n_keys);
    }
    for (int64_t j = first; j < n_keys; j++) {
        const float *v = block_read(job.v.t, job.v.first + j * job.v.stride, dim, row);
        for (int64_t r = 0; r < n; r++) {
            float weight = p[r * n_keys + j];
#pragma omp simd
            for (int64_t e = 0; e < dim; e++)
                out[r * dim + e] += weight * v[e];
        }
    }
    for (int64_t r = 0; r < n; r++)
        cpu_store_f32(c->out[0].data, c->out[0].dtype,
                      job.out_first + r / d->n_tokens * dim + r % d->n_tokens * job.out_stride,
                      out + r * dim, dim);
}

/* ---- the kernel --------------------------------------------------------------------------- */

static int64_t thread_floats(const struct op_call *c, const struct qkv_dims *d)
{
    return d->n_tokens < FEW_TOKENS ? few_floats(c, d) : cpu_attention_scratch(d->head_dim);
}

static int64_t tiles_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    return env->n_threads * thread_floats(c, &d) * (int64_t)sizeof(float);
}

/* A task is a head with its few tokens, or a block of queries of a head. */
struct tasks {
    const struct kernel_ctx *x;
    const struct op_call *c;
    struct qkv_dims d;
    int64_t position, n_heads, n_blocks;
    bool few;
};

static void run_tasks(const void *job_of_all, int64_t first, int64_t last, int thread)
{
    const struct tasks *t = job_of_all;
    const struct qkv_dims *d = &t->d;
    float *scratch = (float *)t->x->workspace + thread * thread_floats(t->c, d);
    for (int64_t task = first; task < last; task++) {
        int64_t batch = task / t->n_blocks / t->n_heads, head = task / t->n_blocks % t->n_heads;
        if (t->few) {
            few_tokens(t->c, d, t->position, batch, head, scratch);
        } else {
            struct attention_job job = job_of(t->c, d, t->position, batch, head);
            int64_t i = task % t->n_blocks * CPU_QUERIES;
            cpu_attention_block(&job, i, MIN(d->n_tokens - i, CPU_QUERIES), scratch);
        }
    }
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct tasks t = {.x = x, .c = c, .d = qkv_dims_of(c, 0)};
    const struct qkv_dims *d = &t.d;
    TRY(append(c, d, &t.position));
    t.few = d->n_tokens < FEW_TOKENS;
    t.n_blocks = t.few ? 1 : (d->n_tokens + CPU_QUERIES - 1) / CPU_QUERIES;
    t.n_heads = t.few ? d->kv_heads : d->heads;
    int64_t n_tasks = d->batch * t.n_heads * t.n_blocks;
    double work = (double)(d->batch * d->n_tokens * d->heads * d->head_dim) *
                  (double)(t.position + d->n_tokens);
    team_run(x->env.team, n_tasks, cpu_attention_grain(work / (double)n_tasks), run_tasks, &t);
    return OK;
}

const struct kernel cpu_kernels_attention_cached[] = {
    {"tiles", cpu_declines_f64, tiles_workspace, tiles},
    {"reference", NULL, reference_workspace, reference},
    KERNEL_END,
};
