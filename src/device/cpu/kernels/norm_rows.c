/* norm_rows.c: layer_norm, rms_norm, head_norm and their gradients by rows, f32 arithmetic over
 * f32, bf16 or f16 storage.
 *
 * Parameter gradients are sums over rows in two levels, so that long sums stay accurate: rows are
 * cut into one range per thread; a range is added up in groups of GROUP_ROWS rows, group sums go
 * into the thread's total, and the totals are added in the order of threads. The result depends on
 * shapes and the number of threads only.
 *
 * Workspace, in units of n floats rounded up to 64 bytes:
 *
 *     | weight | bias | thread 0: x, dy, add, y, group sums (2), totals (2) | thread 1: ... |
 */
#include "device/cpu/kernels/norm_rows.h"

#include <math.h>
#include <string.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/block.h"
#include "ops/layer_support.h"

enum {
    GROUP_ROWS = 32,
    SHARED_ROWS = 2, /* weight and bias, or the two weights of head_norm */
    THREAD_ROWS = 8,
};

/* A thread's slice of the workspace. */
struct scratch {
    float *x, *dy, *add, *y;
    float *group[2], *total[2];
};

static int64_t stride_of(int64_t n)
{
    return (n + 15) / 16 * 16;
}

static int64_t row_workspace(int64_t n, const struct kernel_env *env)
{
    return (SHARED_ROWS + THREAD_ROWS * (int64_t)env->n_threads) * stride_of(n) *
           (int64_t)sizeof(float);
}

static struct scratch scratch_of(const struct kernel_ctx *x, int64_t n, int64_t thread)
{
    int64_t stride = stride_of(n);
    float *base = (float *)x->workspace + (SHARED_ROWS + THREAD_ROWS * thread) * stride;
    struct scratch s = {base, base + stride, base + 2 * stride, base + 3 * stride, {NULL}, {NULL}};
    s.group[0] = base + 4 * stride;
    s.group[1] = base + 5 * stride;
    s.total[0] = base + 6 * stride;
    s.total[1] = base + 7 * stride;
    return s;
}

/* Input i as n floats (NULL when absent), converted into shared row `slot` where it must be. */
static const float *weight_of(const struct kernel_ctx *x, const struct op_call *c, int i, int slot,
                              int64_t n)
{
    if (!call_has(c, i))
        return NULL;
    return block_read(&c->in[i], 0, n, (float *)x->workspace + slot * stride_of(n));
}

/* The same with a number added to each. */
static const float *weight_above(const struct kernel_ctx *x, const struct op_call *c, int i,
                                 int slot, int64_t n, double offset)
{
    const float *w = weight_of(x, c, i, slot, n);
    float *above = (float *)x->workspace + slot * stride_of(n);
    if (offset == 0.0)
        return w;
    for (int64_t j = 0; j < n; j++)
        above[j] = w[j] + (float)offset;
    return above;
}

static float *statistics(const struct tensor *t)
{
    return t->data;
}

/* ---- one row ------------------------------------------------------------------------------ */

static float sum_of(const float *x, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static float squares_of(const float *x, float mean, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

/* y = (x - mean) rstd w + b; y may be x. */
static void normalise(const float *x, float *y, float mean, float rstd, const float *w,
                      const float *b, int64_t n)
{
    if (w && b) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    } else if (w) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd + (b ? b[i] : 0.0f);
    }
}

/* Adds this row's part to dw = sum dy h (and db = sum dy, unless NULL), then writes
 * dx = rstd (g - (centred ? avg(g) : 0) - h avg(g h)) + add with h = (x - mean) rstd, g = dy w; add
 * may be NULL. dx may be dy, x or add. */
static void row_grad(const float *dy, const float *x, const float *w, float mean, float rstd,
                     bool centred, const float *add, float *dx, float *restrict dw,
                     float *restrict db, int64_t n)
{
    float sum_g = 0.0f, sum_gh = 0.0f;
#pragma omp simd reduction(+ : sum_g, sum_gh)
    for (int64_t i = 0; i < n; i++) {
        float h = (x[i] - mean) * rstd, g = w ? dy[i] * w[i] : dy[i];
        dw[i] += dy[i] * h;
        sum_g += g;
        sum_gh += g * h;
    }
    if (db) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            db[i] += dy[i];
    }
    float avg_g = centred ? sum_g / (float)n : 0.0f, avg_gh = sum_gh / (float)n;
    if (add) { /* a loop of its own: with the question inside, compilers leave it unvectorised */
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float h = (x[i] - mean) * rstd, g = w ? dy[i] * w[i] : dy[i];
            dx[i] = rstd * (g - avg_g - h * avg_gh) + add[i];
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float h = (x[i] - mean) * rstd, g = w ? dy[i] * w[i] : dy[i];
        dx[i] = rstd * (g - avg_g - h * avg_gh);
    }
}

/* ---- sums over rows ----------------------------------------------------------------------- */

static void clear(float *const sums[2], int64_t n)
{
    memset(sums[0], 0, (size_t)n * sizeof(float));
    memset(sums[1], 0, (size_t)n * sizeof(float));
}

static void close_group(struct scratch *s, int64_t n)
{
    for (int k = 0; k < 2; k++) {
        float *restrict total = s->total[k], *restrict group = s->group[k];
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            total[i] += group[i];
    }
    clear(s->group, n);
}

/* Adds the threads' totals and stores them as outputs 1 and 2. */
static void store_totals(const struct kernel_ctx *x, const struct op_call *c, int64_t n)
{
    struct scratch first = scratch_of(x, n, 0);
    for (int k = 0; k < c->n_out - 1; k++) {
        for (int thread = 1; thread < x->env.n_threads; thread++) {
            const float *add = scratch_of(x, n, thread).total[k];
#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                first.total[k][i] += add[i];
        }
        cpu_store_f32(c->out[k + 1].data, c->out[k + 1].dtype, 0, first.total[k], n);
    }
}

/* ---- layer_norm and rms_norm -------------------------------------------------------------- */

int64_t cpu_layer_norm_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return row_workspace(shape_last(&c->in[0].shape), env);
}

int64_t cpu_rms_norm_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return row_workspace(shape_last(&c->in[0].shape), env);
}

int64_t cpu_layer_norm_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return row_workspace(shape_last(&c->in[0].shape), env);
}

int64_t cpu_rms_norm_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return row_workspace(shape_last(&c->in[0].shape), env);
}

/* What all rows of a call share. */
struct norm {
    const struct kernel_ctx *x;
    const struct op_call *c;
    const float *w, *b;       /* [n]; NULL: absent. head_norm: of queries and of keys */
    const float *mean, *rstd; /* of the gradients, per row */
    int64_t n, n_rows;
    int i_add; /* input that is added to dx, where it is given */
};

static struct norm norm_of(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->in[0].shape);
    return (struct norm){.x = x, .c = c, .n = n, .n_rows = shape_elems(&c->in[0].shape) / n};
}

static void layer_norm_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm *m = job;
    const struct op_call *c = m->c;
    int64_t n = m->n;
    float epsilon = (float)call_float(c, 0);
    struct scratch s = scratch_of(m->x, n, thread);
    for (int64_t row = first; row < last; row++) {
        const float *in = block_read(&c->in[0], row * n, n, s.x);
        float mean = sum_of(in, n) / (float)n;
        float rstd = 1.0f / sqrtf(squares_of(in, mean, n) / (float)n + epsilon);
        float *y = block_open(&c->out[0], row * n, s.y);
        normalise(in, y, mean, rstd, m->w, m->b, n);
        block_close(&c->out[0], row * n, y, n);
        statistics(&c->out[1])[row] = mean;
        statistics(&c->out[2])[row] = rstd;
    }
}

enum status cpu_layer_norm(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm m = norm_of(x, c);
    m.w = weight_of(x, c, 1, 0, m.n);
    m.b = weight_of(x, c, 2, 1, m.n);
    cpu_loop(x, m.n_rows, m.n, layer_norm_rows, &m);
    return OK;
}

static void rms_norm_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm *m = job;
    const struct op_call *c = m->c;
    int64_t n = m->n;
    float epsilon = (float)call_float(c, RMS_NORM_EPSILON);
    struct scratch s = scratch_of(m->x, n, thread);
    for (int64_t row = first; row < last; row++) {
        const float *in = block_read(&c->in[0], row * n, n, s.x);
        float rstd = 1.0f / sqrtf(squares_of(in, 0.0f, n) / (float)n + epsilon);
        float *y = block_open(&c->out[0], row * n, s.y);
        normalise(in, y, 0.0f, rstd, m->w, NULL, n);
        block_close(&c->out[0], row * n, y, n);
        statistics(&c->out[1])[row] = rstd;
    }
}

enum status cpu_rms_norm(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm m = norm_of(x, c);
    m.w = weight_above(x, c, 1, 0, m.n, call_float(c, RMS_NORM_OFFSET));
    cpu_loop(x, m.n_rows, m.n, rms_norm_rows, &m);
    return OK;
}

/* Gradients with sums over rows: rows are cut into as many parts as there are threads, each with
 * scratch and sums of its own, whichever thread makes it. */
static int64_t first_row(const struct norm *m, int64_t part)
{
    return m->n_rows * part / m->x->env.n_threads;
}

/* Runs `work` over the parts, of rows of `row_elems`, and stores the sums. */
static void run_parts(const struct norm *m, int64_t row_elems, team_work *work)
{
    int64_t n_parts = m->x->env.n_threads;
    cpu_loop(m->x, n_parts, m->n_rows * row_elems / n_parts, work, m);
    store_totals(m->x, m->c, m->n);
}

/* Rows first .. last of a part, with its scratch. */
static void norm_grad_rows(const struct norm *m, struct scratch *s, int64_t first, int64_t last)
{
    const struct op_call *c = m->c;
    bool adds = call_has(c, m->i_add);
    int64_t n = m->n;
    for (int64_t row = first; row < last; row++) {
        const float *dy = block_read(&c->in[0], row * n, n, s->dy);
        const float *in = block_read(&c->in[1], row * n, n, s->x);
        const float *add = adds ? block_read(&c->in[m->i_add], row * n, n, s->add) : NULL;
        float *dx = block_open(&c->out[0], row * n, s->y);
        row_grad(dy, in, m->w, m->mean ? m->mean[row] : 0.0f, m->rstd[row], m->mean != NULL, add,
                 dx, s->group[0], m->mean ? s->group[1] : NULL, n);
        block_close(&c->out[0], row * n, dx, n);
        if ((row - first) % GROUP_ROWS == GROUP_ROWS - 1 || row + 1 == last)
            close_group(s, n);
    }
}

static void norm_grad_parts(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm *m = job;
    (void)thread;
    for (int64_t part = first; part < last; part++) {
        struct scratch s = scratch_of(m->x, m->n, part);
        clear(s.group, m->n);
        clear(s.total, m->n);
        norm_grad_rows(m, &s, first_row(m, part), first_row(m, part + 1));
    }
}

enum status cpu_layer_norm_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm m = norm_of(x, c);
    m.w = weight_of(x, c, 2, 0, m.n);
    m.mean = statistics(&c->in[3]);
    m.rstd = statistics(&c->in[4]);
    m.i_add = 5;
    run_parts(&m, m.n, norm_grad_parts);
    return OK;
}

enum status cpu_rms_norm_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm m = norm_of(x, c);
    m.w = weight_above(x, c, 2, 0, m.n, call_float(c, RMS_NORM_GRAD_OFFSET));
    m.rstd = statistics(&c->in[3]);
    m.i_add = 4;
    run_parts(&m, m.n, norm_grad_parts);
    return OK;
}

/* ---- head_norm ------------------------------------------------------------------------------ */

int64_t cpu_head_norm_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return row_workspace(qkv_dims_of(c, 0).head_dim, env);
}

int64_t cpu_head_norm_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return row_workspace(qkv_dims_of(c, 0).head_dim, env);
}

/* The value heads of a token, from input 0 to output 0 (one dtype, so as bytes). */
static void copy_values(const struct op_call *c, const struct qkv_dims *d, int64_t row)
{
    int64_t size = dtype_size(c->in[0].dtype);
    int64_t at = (row * d->width + (d->heads + d->kv_heads) * d->head_dim) * size;
    if (c->in[0].data != c->out[0].data)
        memcpy((char *)c->out[0].data + at, (const char *)c->in[0].data + at,
               (size_t)(d->kv_heads * d->head_dim * size));
}

static struct norm head_norm_of(const struct kernel_ctx *x, const struct op_call *c, int i_weight,
                                double offset)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    struct norm m = {.x = x, .c = c, .n = d.head_dim, .n_rows = d.batch * d.n_tokens};
    m.w = weight_above(x, c, i_weight, 0, m.n, offset);
    m.b = weight_above(x, c, i_weight + 1, 1, m.n, offset);
    return m;
}

static void head_norm_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm *m = job;
    const struct op_call *c = m->c;
    struct qkv_dims d = qkv_dims_of(c, 0);
    int64_t n = m->n, n_heads = d.heads + d.kv_heads;
    float epsilon = (float)call_float(c, HEAD_NORM_EPSILON);
    struct scratch s = scratch_of(m->x, n, thread);
    for (int64_t row = first; row < last; row++) {
        for (int64_t head = 0; head < n_heads; head++) {
            int64_t at = row * d.width + head * n;
            const float *in = block_read(&c->in[0], at, n, s.x);
            float rstd = 1.0f / sqrtf(squares_of(in, 0.0f, n) / (float)n + epsilon);
            float *y = block_open(&c->out[0], at, s.y);
            normalise(in, y, 0.0f, rstd, head < d.heads ? m->w : m->b, NULL, n);
            block_close(&c->out[0], at, y, n);
            statistics(&c->out[1])[row * n_heads + head] = rstd;
        }
        copy_values(c, &d, row);
    }
}

enum status cpu_head_norm(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm m = head_norm_of(x, c, 1, call_float(c, HEAD_NORM_OFFSET));
    cpu_loop(x, m.n_rows, qkv_dims_of(c, 0).width, head_norm_rows, &m);
    return OK;
}

static void head_norm_grad_row(const struct norm *m, const struct qkv_dims *d, struct scratch *s,
                               int64_t row)
{
    const struct op_call *c = m->c;
    int64_t n = m->n, n_heads = d->heads + d->kv_heads;
    for (int64_t head = 0; head < n_heads; head++) {
        int64_t at = row * d->width + head * n;
        bool query = head < d->heads;
        const float *dy = block_read(&c->in[0], at, n, s->dy);
        const float *in = block_read(&c->in[1], at, n, s->x);
        float *dx = block_open(&c->out[0], at, s->y);
        row_grad(dy, in, query ? m->w : m->b, 0.0f, m->rstd[row * n_heads + head], false, NULL, dx,
                 s->group[query ? 0 : 1], NULL, n);
        block_close(&c->out[0], at, dx, n);
    }
    copy_values(c, d, row);
    close_group(s, n); /* a token's heads make a group */
}

static void head_norm_grad_parts(const void *job, int64_t first, int64_t last, int thread)
{
    const struct norm *m = job;
    struct qkv_dims d = qkv_dims_of(m->c, 0);
    (void)thread;
    for (int64_t part = first; part < last; part++) {
        struct scratch s = scratch_of(m->x, m->n, part);
        clear(s.group, m->n);
        clear(s.total, m->n);
        for (int64_t row = first_row(m, part); row < first_row(m, part + 1); row++)
            head_norm_grad_row(m, &d, &s, row);
    }
}

enum status cpu_head_norm_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct norm m = head_norm_of(x, c, 2, call_float(c, HEAD_NORM_GRAD_OFFSET));
    m.rstd = statistics(&c->in[4]);
    run_parts(&m, qkv_dims_of(c, 0).width, head_norm_grad_parts);
    return OK;
}
