/* attention.c: softmax attention over packed rows. The tiled kernel splits every head's queries
 * into blocks (attention_tiles.c); a block's results do not depend on who computes it. */
#include <math.h>

#include "device/cpu/attention/attention_dropout.h"
#include "device/cpu/attention/attention_tiles.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/ref.h"
#include "ops/layer_support.h"

static double score(const struct op_call *c, const struct qkv_dims *d, int64_t q, int64_t k)
{
    double sum = 0.0;
    for (int64_t i = 0; i < d->head_dim; i++)
        sum += ref_get(&c->in[0], q + i) * ref_get(&c->in[0], k + i);
    return softcap_of(sum * attention_scale(c, ATTENTION_SCALE, d), call_float(c, ATTENTION_CAP));
}

/* One query against all the keys it sees; p has room for n_tokens scores. */
static void reference_query(const struct op_call *c, const struct qkv_dims *d, int64_t batch,
                            int64_t head, int64_t i, double *p)
{
    struct attention_dropout drop = attention_dropout_of(c, 1, d->n_tokens);
    int64_t row = batch * d->n_tokens, kv = head / (d->heads / d->kv_heads);
    int64_t first = attention_first(i, call_int(c, ATTENTION_WINDOW), call_int(c, ATTENTION_BLOCK));
    int64_t last = call_bool(c, ATTENTION_CAUSAL) ? i : d->n_tokens - 1;
    if (call_has(c, 2))
        first = MAX(first, i - (int64_t)ref_get(&c->in[2], row + i));
    double top = (double)-INFINITY, sum = 0.0;
    for (int64_t j = first; j <= last; j++) {
        p[j] = score(c, d, (row + i) * d->width + head * d->head_dim,
                     (row + j) * d->width + (d->heads + kv) * d->head_dim);
        top = fmax(top, p[j]);
    }
    for (int64_t j = first; j <= last; j++)
        sum += exp(p[j] - top);
    for (int64_t j = first; j <= last; j++)
        p[j] = exp(p[j] - top) / sum * pair_factor(&drop, batch * d->heads + head, i, j);
    for (int64_t e = 0; e < d->head_dim; e++) {
        double out = 0.0;
        int64_t v = (d->heads + d->kv_heads + kv) * d->head_dim + e;
        for (int64_t j = first; j <= last; j++)
            out += p[j] * ref_get(&c->in[0], (row + j) * d->width + v);
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

static int64_t tiles_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return env->n_threads * cpu_attention_scratch(qkv_dims_of(c, 0).head_dim) *
           (int64_t)sizeof(float);
}

static struct attention_job job_of(const struct op_call *c, const struct qkv_dims *d, int64_t batch,
                                   int64_t head)
{
    int64_t kv = d->heads + head / (d->heads / d->kv_heads);
    int64_t row = batch * d->n_tokens;
    struct attention_job job = {
        .q = {&c->in[0], row * d->width + head * d->head_dim, d->width},
        .k = {&c->in[0], row * d->width + kv * d->head_dim, d->width},
        .v = {&c->in[0], row * d->width + (kv + d->kv_heads) * d->head_dim, d->width},
        .mask = {.causal = call_bool(c, ATTENTION_CAUSAL),
                 .window = call_int(c, ATTENTION_WINDOW),
                 .block = call_int(c, ATTENTION_BLOCK),
                 .n_keys = d->n_tokens,
                 .positions = mask_positions(c, 2, batch, d->n_tokens)},
        .head_dim = d->head_dim,
        .scale = (float)attention_scale(c, ATTENTION_SCALE, d),
        .cap = (float)call_float(c, ATTENTION_CAP),
        .out = &c->out[0],
        .out_first = (row * d->heads + head) * d->head_dim,
        .out_stride = d->heads * d->head_dim,
        .lse = (float *)c->out[1].data + (batch * d->heads + head) * d->n_tokens,
        .dropout = attention_dropout_of(c, 1, d->n_tokens),
        .head = batch * d->heads + head,
    };
    return job;
}

struct tasks {
    const struct kernel_ctx *x;
    const struct op_call *c;
};

static int64_t block_count_of(const struct qkv_dims *d)
{
    return (d->n_tokens + CPU_QUERIES - 1) / CPU_QUERIES;
}

static void run_tasks(const void *job_of_all, int64_t first, int64_t last, int thread)
{
    const struct kernel_ctx *x = ((const struct tasks *)job_of_all)->x;
    const struct op_call *c = ((const struct tasks *)job_of_all)->c;
    struct qkv_dims d = qkv_dims_of(c, 0);
    int64_t n_blocks = block_count_of(&d);
    float *scratch = (float *)x->workspace + thread * cpu_attention_scratch(d.head_dim);
    for (int64_t task = first; task < last; task++) {
        /* The last blocks of a head see the most keys: they go first. */
        int64_t i = (n_blocks - 1 - task / (d.batch * d.heads)) * CPU_QUERIES;
        int64_t head = task % (d.batch * d.heads);
        struct attention_job job = job_of(c, &d, head / d.heads, head % d.heads);
        cpu_attention_block(&job, i, MIN(d.n_tokens - i, CPU_QUERIES), scratch);
    }
}

static enum status tiles(const struct kernel_ctx *x, const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    struct tasks t = {x, c};
    double task_work = (double)MIN(d.n_tokens, CPU_QUERIES) * (double)(d.n_tokens * d.head_dim);
    team_run(x->env.team, d.batch * d.heads * block_count_of(&d), cpu_attention_grain(task_work),
             run_tasks, &t);
    return OK;
}

const struct kernel cpu_kernels_attention[] = {
    {"tiles", cpu_declines_f64, tiles_workspace, tiles},
    {"reference", NULL, reference_workspace, reference},
    KERNEL_END,
};
