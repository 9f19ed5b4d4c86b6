/* cross_attention.c: softmax attention between two sequences with padded keys, and its gradient: on
 * the tiles of attention, and the plain references. */
#include <math.h>
#include <string.h>

#include "device/cpu/attention/attention_dropout.h"
#include "device/cpu/attention/attention_tiles.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/ref.h"
#include "ops/cross_attention_support.h"

/* Where a query and a key begin; its value is kv_heads * head_dim further. */
static int64_t query_at(const struct cross_dims *d, int64_t batch, int64_t head, int64_t i)
{
    return ((batch * d->n_queries + i) * d->heads + head) * d->head_dim;
}
static int64_t key_at(const struct cross_dims *d, int64_t batch, int64_t head, int64_t j)
{
    int64_t kv = head / (d->heads / d->kv_heads);
    return ((batch * d->n_keys + j) * 2 * d->kv_heads + kv) * d->head_dim;
}

static bool is_key(const struct op_call *c, int i_mask, const struct cross_dims *d, int64_t batch,
                   int64_t j)
{
    return !call_has(c, i_mask) || ref_get(&c->in[i_mask], batch * d->n_keys + j) != 0.0;
}

static double dot(const struct tensor *x, int64_t i, const struct tensor *y, int64_t j, int64_t n)
{
    double sum = 0.0;
    for (int64_t e = 0; e < n; e++)
        sum += ref_get(x, i + e) * ref_get(y, j + e);
    return sum;
}

/* ---- the reference --------------------------------------------------------------------------- */

/* p[j] = the weight of key j, 0 where it is padding; returns the log-sum-exp, 0 without a key. */
static double reference_weights(const struct op_call *c, const struct cross_dims *d, int64_t batch,
                                int64_t head, int64_t i, double *p)
{
    const struct tensor *q = &c->in[CROSS_Q], *kv = &c->in[CROSS_KV];
    double top = (double)-INFINITY, sum = 0.0, scale = cross_scale(c, d);
    memset(p, 0, (size_t)d->n_keys * sizeof(*p));
    for (int64_t j = 0; j < d->n_keys; j++) {
        if (!is_key(c, CROSS_MASK, d, batch, j))
            continue;
        p[j] =
            scale * dot(q, query_at(d, batch, head, i), kv, key_at(d, batch, head, j), d->head_dim);
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < d->n_keys; j++) {
        p[j] = is_key(c, CROSS_MASK, d, batch, j) ? exp(p[j] - top) : 0.0;
        sum += p[j];
    }
    for (int64_t j = 0; j < d->n_keys && sum != 0.0; j++)
        p[j] /= sum;
    return sum == 0.0 ? 0.0 : top + log(sum);
}

static void reference_query(const struct op_call *c, const struct cross_dims *d, int64_t batch,
                            int64_t head, int64_t i, double *p)
{
    struct attention_dropout drop = cross_dropout_of(c, CROSS_RNG, d);
    int64_t i_head = batch * d->heads + head;
    ref_set(&c->out[1], i_head * d->n_queries + i, reference_weights(c, d, batch, head, i, p));
    for (int64_t e = 0; e < d->head_dim; e++) {
        double out = 0.0;
        for (int64_t j = 0; j < d->n_keys; j++) {
            int64_t v = key_at(d, batch, head, j) + d->kv_heads * d->head_dim;
            if (is_key(c, CROSS_MASK, d, batch, j))
                out += p[j] * pair_factor(&drop, i_head, i, j) * ref_get(&c->in[CROSS_KV], v + e);
        }
        ref_set(&c->out[0], query_at(d, batch, head, i) + e, out);
    }
}

static int64_t reference_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return cross_dims_of(c, CROSS_Q).n_keys * (int64_t)sizeof(double);
}

static enum status reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cross_dims d = cross_dims_of(c, CROSS_Q);
    for (int64_t row = 0; row < d.batch * d.heads * d.n_queries; row++)
        reference_query(c, &d, row / d.n_queries / d.heads, row / d.n_queries % d.heads,
                        row % d.n_queries, x->workspace);
    return OK;
}

/* ---- the reference of the gradient ----------------------------------------------------------- */

/* Adds what a query gives to the double-precision sums dq and dkv. */
static void reference_query_grad(const struct op_call *c, const struct cross_dims *d, int64_t batch,
                                 int64_t head, int64_t i, double *dq, double *dkv)
{
    const struct tensor *dout = &c->in[CROSS_GRAD_DOUT], *q = &c->in[CROSS_GRAD_Q];
    const struct tensor *kv = &c->in[CROSS_GRAD_KV];
    struct attention_dropout drop = cross_dropout_of(c, CROSS_GRAD_RNG, d);
    int64_t i_head = batch * d->heads + head, at = query_at(d, batch, head, i), n = d->head_dim;
    double lse = ref_get(&c->in[CROSS_GRAD_LSE], i_head * d->n_queries + i);
    double delta = dot(dout, at, &c->in[CROSS_GRAD_OUT], at, n), scale = cross_scale(c, d);
    for (int64_t j = 0; j < d->n_keys; j++) {
        int64_t k = key_at(d, batch, head, j), v = k + d->kv_heads * n;
        double factor = pair_factor(&drop, i_head, i, j);
        if (!is_key(c, CROSS_GRAD_MASK, d, batch, j))
            continue;
        double p = exp(scale * dot(q, at, kv, k, n) - lse);
        double ds = p * (dot(dout, at, kv, v, n) * factor - delta) * scale;
        for (int64_t e = 0; e < n; e++) {
            dq[at + e] += ds * ref_get(kv, k + e);
            dkv[k + e] += ds * ref_get(q, at + e);
            dkv[v + e] += p * factor * ref_get(dout, at + e);
        }
    }
}

static int64_t reference_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return (shape_elems(&c->out[0].shape) + shape_elems(&c->out[1].shape)) *
           (int64_t)sizeof(double);
}

static enum status reference_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cross_dims d = cross_dims_of(c, CROSS_GRAD_Q);
    int64_t n_q = shape_elems(&c->out[0].shape), n_kv = shape_elems(&c->out[1].shape);
    double *dq = x->workspace, *dkv = dq + n_q;
    memset(dq, 0, (size_t)(n_q + n_kv) * sizeof(double));
    for (int64_t row = 0; row < d.batch * d.heads * d.n_queries; row++)
        reference_query_grad(c, &d, row / d.n_queries / d.heads, row / d.n_queries % d.heads,
                             row % d.n_queries, dq, dkv);
    for (int64_t i = 0; i < n_q; i++)
        ref_set(&c->out[0], i, dq[i]);
    for (int64_t i = 0; i < n_kv; i++)
        ref_set(&c->out[1], i, dkv[i]);
    return OK;
}

/* ---- by tiles -------------------------------------------------------------------------------- */

static int64_t tiles_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return env->n_threads * cpu_attention_scratch(cross_dims_of(c, CROSS_Q).head_dim) *
           (int64_t)sizeof(float);
}

static struct attention_job job_of(const struct op_call *c, const struct cross_dims *d,
                                   int64_t batch, int64_t head)
{
    int64_t q_width = d->heads * d->head_dim, kv_width = 2 * d->kv_heads * d->head_dim;
    int64_t k = key_at(d, batch, head, 0), q = query_at(d, batch, head, 0);
    struct attention_job job = {
        .q = {&c->in[CROSS_Q], q, q_width},
        .k = {&c->in[CROSS_KV], k, kv_width},
        .v = {&c->in[CROSS_KV], k + d->kv_heads * d->head_dim, kv_width},
        .mask = {.n_keys = d->n_keys, .keys = mask_positions(c, CROSS_MASK, batch, d->n_keys)},
        .head_dim = d->head_dim,
        .scale = (float)cross_scale(c, d),
        .out = &c->out[0],
        .out_first = q,
        .out_stride = q_width,
        .lse = (float *)c->out[1].data + (batch * d->heads + head) * d->n_queries,
        .dropout = cross_dropout_of(c, CROSS_RNG, d),
        .head = batch * d->heads + head,
    };
    return job;
}

struct tasks {
    const struct kernel_ctx *x;
    const struct op_call *c;
    struct cross_dims d;
    int64_t n_blocks; /* of queries, to a head */
};

static void run_tasks(const void *job_of_all, int64_t first, int64_t last, int thread)
{
    const struct tasks *t = job_of_all;
    const struct cross_dims *d = &t->d;
    float *scratch = (float *)t->x->workspace + thread * cpu_attention_scratch(d->head_dim);
    for (int64_t task = first; task < last; task++) {
        int64_t i = task % t->n_blocks * CPU_QUERIES, head = task / t->n_blocks;
        struct attention_job job = job_of(t->c, d, head / d->heads, head % d->heads);
        cpu_attention_block(&job, i, MIN(d->n_queries - i, CPU_QUERIES), scratch);
    }
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct tasks t = {.x = x, .c = c, .d = cross_dims_of(c, CROSS_Q)};
    t.n_blocks = (t.d.n_queries + CPU_QUERIES - 1) / CPU_QUERIES;
    double task_work =
        (double)MIN(t.d.n_queries, CPU_QUERIES) * (double)t.d.n_keys * (double)t.d.head_dim;
    team_run(x->env.team, t.d.batch * t.d.heads * t.n_blocks, cpu_attention_grain(task_work),
             run_tasks, &t);
    return OK;
}

static struct attention_grad grad_of(const struct op_call *c)
{
    struct cross_dims d = cross_dims_of(c, CROSS_GRAD_Q);
    int64_t q_width = d.heads * d.head_dim, half = d.kv_heads * d.head_dim;
    return (struct attention_grad){
        .batch = d.batch,
        .heads = d.heads,
        .kv_heads = d.kv_heads,
        .head_dim = d.head_dim,
        .q = {&c->in[CROSS_GRAD_Q], &c->out[0], d.n_queries, q_width, 0},
        .k = {&c->in[CROSS_GRAD_KV], &c->out[1], d.n_keys, 2 * half, 0},
        .v = {&c->in[CROSS_GRAD_KV], &c->out[1], d.n_keys, 2 * half, half},
        .out = {&c->in[CROSS_GRAD_OUT], &c->in[CROSS_GRAD_DOUT], d.n_queries, q_width, 0},
        .lse = c->in[CROSS_GRAD_LSE].data,
        .keys = call_has(c, CROSS_GRAD_MASK) ? c->in[CROSS_GRAD_MASK].data : NULL,
        .mask = {.n_keys = d.n_keys},
        .scale = (float)cross_scale(c, &d),
        .dropout = cross_dropout_of(c, CROSS_GRAD_RNG, &d),
    };
}

static int64_t tiles_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct attention_grad g = grad_of(c);
    return cpu_attention_grad_bytes(&g, env);
}

static enum status tiles_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct attention_grad g = grad_of(c);
    cpu_attention_grad(x, &g);
    return OK;
}

const struct kernel cpu_kernels_cross_attention[] = {
    {"tiles", cpu_declines_f64, tiles_workspace, tiles},
    {"reference", NULL, reference_workspace, reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_cross_attention_grad[] = {
    {"tiles", cpu_declines_f64, tiles_grad_workspace, tiles_grad},
    {"reference", NULL, reference_grad_workspace, reference_grad},
    KERNEL_END,
};
