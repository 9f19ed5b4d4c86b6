/* head_loss_chunks.c: output projection and cross entropy over chunks of rows, so that only one
 * chunk's logits exist at a time, in workspace.
 *
 * For each chunk of rows of x:
 *
 *     logits = x_chunk w^T              [rows, V], f32
 *     loss of each row; the logits are overwritten by the loss's gradient, which is rounded to bf16
 *     where x and w are (into the front half of its row): all products are then of bf16 matrices
 *     dw += logits^T x_chunk
 *     dx_chunk = logits w               dx may lie over x: this chunk of x is not read again
 *
 * Row losses are summed in double in the order of rows. A dw stored in 16 bits is summed over
 * several chunks in an f32 copy of its size in workspace and rounded once.
 */
#include "device/cpu/products/head_loss_chunks.h"

#include <math.h>
#include <string.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/products/micro.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "ops/layer_support.h"

enum {
    /* Rows enough that each pass over w and dw is paid for by the products with it, in logits that
     * still are a small part of a training step's memory. */
    AUTO_BYTES = 68 << 20,
    AUTO_ROWS = 64,
    SUM_BLOCK = 1024, /* terms added in f32 before they go into a double */
};

struct sizes {
    int64_t n_rows, n_words, n_columns;
    int64_t chunk_rows;
    enum dtype gradient; /* of the logits */
};

/* Chunks of one size, whole tiles of rows, no larger than the limits above. */
static int64_t auto_rows(int64_t n_rows, int64_t n_words)
{
    int64_t most = MAX(AUTO_BYTES / (n_words * (int64_t)sizeof(float)), AUTO_ROWS);
    int64_t n_chunks = (n_rows + most - 1) / most;
    return n_chunks > 1 ? micro_round_up((n_rows + n_chunks - 1) / n_chunks, 8) : n_rows;
}

static struct sizes sizes_of(const struct op_call *c)
{
    struct sizes s = {.n_words = c->in[1].shape.dim[0], .n_columns = c->in[1].shape.dim[1]};
    s.n_rows = shape_elems(&c->in[2].shape);
    bool bf16 = c->in[0].dtype == DTYPE_BF16 && c->in[1].dtype == DTYPE_BF16;
    s.gradient = bf16 ? DTYPE_BF16 : DTYPE_F32;
    int64_t n_chunks = call_int(c, HEAD_LOSS_CHUNKS);
    if (n_chunks > 0)
        s.chunk_rows = (s.n_rows + n_chunks - 1) / n_chunks;
    else
        s.chunk_rows = auto_rows(s.n_rows, s.n_words);
    s.chunk_rows = MAX(MIN(s.chunk_rows, s.n_rows), 1);
    return s;
}

enum status cpu_head_loss_check(const struct op_call *c)
{
    struct sizes s = sizes_of(c);
    const int32_t *target = c->in[2].data;
    for (int64_t i = 0; i < s.n_rows; i++) {
        if (target[i] != call_int(c, HEAD_LOSS_IGNORE) && (target[i] < 0 || target[i] >= s.n_words))
            return FAIL(ERR_DATA,
                        "%s: target %d at position %lld is outside the vocabulary of %lld",
                        op_get(c->op)->name, (int)target[i], (long long)i, (long long)s.n_words);
    }
    return OK;
}

/* ---- one row of logits -------------------------------------------------------------------- */

static float max_of(const float *z, int64_t n)
{
    float top = -INFINITY;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++)
        top = z[i] > top ? z[i] : top;
    return top;
}

static double sum_of(const float *z, int64_t n)
{
    double sum = 0.0;
    for (int64_t first = 0; first < n; first += SUM_BLOCK) {
        int64_t last = MIN(n, first + SUM_BLOCK);
        float part = 0.0f;
#pragma omp simd reduction(+ : part)
        for (int64_t i = first; i < last; i++)
            part += z[i];
        sum += (double)part;
    }
    return sum;
}

/* z = exp(z - top); returns their sum. */
static double exponentiate(float *z, float top, int64_t n)
{
    double sum = 0.0;
    for (int64_t first = 0; first < n; first += SUM_BLOCK) {
        int64_t last = MIN(n, first + SUM_BLOCK);
        float part = 0.0f;
#pragma omp simd reduction(+ : part)
        for (int64_t i = first; i < last; i++) {
            z[i] = cpu_expf(z[i] - top);
            part += z[i];
        }
        sum += (double)part;
    }
    return sum;
}

/* What row_loss found of a row, times d_loss: the gradient of logit z is
 * exp(z - top) factor - shift, through the cap where there is one, and `less` off the target's. */
struct row_gradient {
    float top, factor, shift, less;
    int64_t target;
};

/* The exponentials z become the gradient, stored as `to` in z's memory: front to back, so what is
 * narrower never lies over what is still to be read. */
static void store_gradient(float *z, int64_t n, const struct row_gradient *g, enum dtype to)
{
    for (int64_t first = 0; first < n; first += CPU_BLOCK) {
        float block[CPU_BLOCK];
        int64_t size = block_size(n, first);
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            block[i] = micro_flush(z[first + i] * g->factor - g->shift);
        if (g->target >= first && g->target < first + size)
            block[g->target - first] -= g->less;
        cpu_store_f32(z, to, first, block, size);
    }
}

/* Under a cap the gradient needs the logits again: sum_exponentials leaves them. */

static void cap_logits(float *z, float cap, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        z[i] = cap * cpu_tanhf(z[i] / cap);
}

static double sum_exponentials(const float *z, float top, int64_t n)
{
    double sum = 0.0;
    for (int64_t first = 0; first < n; first += SUM_BLOCK) {
        int64_t last = MIN(n, first + SUM_BLOCK);
        float part = 0.0f;
#pragma omp simd reduction(+ : part)
        for (int64_t i = first; i < last; i++)
            part += cpu_expf(z[i] - top);
        sum += (double)part;
    }
    return sum;
}

/* The logits become their gradient through the cap, as store_gradient does it. */
static void store_capped_gradient(float *z, int64_t n, const struct row_gradient *g, float cap,
                                  enum dtype to)
{
    for (int64_t first = 0; first < n; first += CPU_BLOCK) {
        float block[CPU_BLOCK];
        int64_t size = block_size(n, first);
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            float bend = z[first + i] / cap;
            float gradient = cpu_expf(z[first + i] - g->top) * g->factor - g->shift;
            block[i] = micro_flush(gradient * (1.0f - bend * bend));
        }
        if (g->target >= first && g->target < first + size)
            block[g->target - first] -= g->less;
        cpu_store_f32(z, to, first, block, size);
    }
}

/* The loss of a row with a valid target; its logits z become their own gradient times d_loss. */
static double row_loss(const struct op_call *c, float *z, int64_t n, int64_t target, double d_loss,
                       enum dtype gradient)
{
    double e = call_float(c, HEAD_LOSS_SMOOTHING), z_loss = call_float(c, HEAD_LOSS_Z);
    double cap = call_float(c, HEAD_LOSS_CAP);
    if (cap > 0.0)
        cap_logits(z, (float)cap, n);
    double z_target = (double)z[target], z_sum = e > 0.0 ? sum_of(z, n) : 0.0;
    float top = max_of(z, n);
    double sum = cap > 0.0 ? sum_exponentials(z, top, n) : exponentiate(z, top, n);
    double lse = (double)top + log(sum);
    struct row_gradient g = {.top = top,
                             .factor = (float)(d_loss * (1.0 + 2.0 * z_loss * lse) / sum),
                             .shift = (float)(d_loss * e / (double)n),
                             .less = (float)(d_loss * (1.0 - e) * softcap_slope(z_target, cap)),
                             .target = target};
    if (cap > 0.0)
        store_capped_gradient(z, n, &g, (float)cap, gradient);
    else
        store_gradient(z, n, &g, gradient);
    return lse - (1.0 - e) * z_target - e * z_sum / (double)n + z_loss * lse * lse;
}

/* ---- a chunk -------------------------------------------------------------------------------- */

struct work {
    float *logits;  /* [chunk_rows, n_words] */
    double *losses; /* [chunk_rows] */
    float *dw;      /* [n_words, n_columns] where dw cannot be summed in place, else NULL */
    void *gemm;
};

/* Of a weight that is not trained there is no gradient. */
static bool makes_dw(const struct op_call *c)
{
    return c->n_out > 3;
}

static bool sums_dw_apart(const struct op_call *c, const struct sizes *s)
{
    return makes_dw(c) && c->out[3].dtype != DTYPE_F32 && s->chunk_rows < s->n_rows;
}

static int64_t align(int64_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

/* Lays the parts of the workspace out; with base NULL, only their size in bytes counts. */
static int64_t lay_out(const struct op_call *c, const struct sizes *s, char *base, struct work *w)
{
    int64_t losses = align(s->chunk_rows * s->n_words * (int64_t)sizeof(float));
    int64_t dw = losses + align(s->chunk_rows * (int64_t)sizeof(double));
    bool apart = sums_dw_apart(c, s);
    int64_t gemm = dw + (apart ? align(s->n_words * s->n_columns * (int64_t)sizeof(float)) : 0);
    if (base) {
        w->logits = (float *)(void *)base;
        w->losses = (double *)(void *)(base + losses);
        w->dw = apart ? (float *)(void *)(base + dw) : NULL;
        w->gemm = base + gemm;
    }
    return gemm;
}

static void logits_of(const struct kernel_ctx *x, const struct op_call *c, const struct sizes *s,
                      const struct work *w, int64_t first, int64_t n)
{
    struct cpu_gemm g = {
        .m = n,
        .n = s->n_words,
        .k = s->n_columns,
        .a = cpu_matrix_of(&c->in[0], first * s->n_columns, s->n_columns),
        .b = cpu_matrix_transposed(cpu_matrix_of(&c->in[1], 0, s->n_columns)),
        .c = w->logits,
        .c_dtype = DTYPE_F32,
        .c_row = s->n_words,
    };
    cpu_gemm(&x->env, w->gemm, &g);
}

/* Rows of a chunk: their targets, and where logits and losses are. */
struct rows {
    const struct op_call *c;
    const struct sizes *s;
    const struct work *w;
    const int32_t *target;
    double d_loss;
};

static void losses_of_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct rows *r = job;
    int64_t ignore = call_int(r->c, HEAD_LOSS_IGNORE), n_words = r->s->n_words;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        float *z = r->w->logits + i * n_words;
        r->w->losses[i] = 0.0;
        if (r->target[i] == ignore)
            memset(z, 0, (size_t)n_words * sizeof(float));
        else
            r->w->losses[i] = row_loss(r->c, z, n_words, r->target[i], r->d_loss, r->s->gradient);
    }
}

/* Row losses, and logits turned into gradients; adds to the sums of the whole call. */
static void losses_of(const struct kernel_ctx *x, const struct op_call *c, const struct sizes *s,
                      const struct work *w, int64_t first, int64_t n, double d_loss, double sums[2])
{
    const int32_t *target = (const int32_t *)c->in[2].data + first;
    int64_t ignore = call_int(c, HEAD_LOSS_IGNORE);
    struct rows r = {c, s, w, target, d_loss};
    cpu_loop(x, n, s->n_words, losses_of_rows, &r);
    for (int64_t i = 0; i < n; i++) {
        sums[0] += w->losses[i];
        sums[1] += target[i] != ignore;
    }
}

/* dw += logits^T x of a chunk */
static void weight_gradient_of(const struct kernel_ctx *x, const struct op_call *c,
                               const struct sizes *s, const struct work *w,
                               const struct cpu_matrix *logits, int64_t first, int64_t n)
{
    struct cpu_gemm dw = {
        .m = s->n_words,
        .n = s->n_columns,
        .k = n,
        .a = cpu_matrix_transposed(*logits),
        .b = cpu_matrix_of(&c->in[0], first * s->n_columns, s->n_columns),
        .c = w->dw ? w->dw : c->out[3].data,
        .c_dtype = w->dw ? DTYPE_F32 : c->out[3].dtype,
        .c_row = s->n_columns,
        .add = first > 0 || (call_has(c, 4) && !w->dw),
    };
    cpu_gemm(&x->env, w->gemm, &dw);
}

static void gradients_of(const struct kernel_ctx *x, const struct op_call *c, const struct sizes *s,
                         const struct work *w, int64_t first, int64_t n)
{
    struct cpu_matrix logits = {.data = w->logits, .dtype = s->gradient, .column = 1};
    logits.row = s->n_words * (int64_t)sizeof(float) / dtype_size(s->gradient);
    if (makes_dw(c))
        weight_gradient_of(x, c, s, w, &logits, first, n);
    struct cpu_gemm dx = {
        .m = n,
        .n = s->n_columns,
        .k = s->n_words,
        .a = logits,
        .b = cpu_matrix_of(&c->in[1], 0, s->n_columns),
        .c = c->out[2].data,
        .c_dtype = c->out[2].dtype,
        .c_first = first * s->n_columns,
        .c_row = s->n_columns,
    };
    cpu_gemm(&x->env, w->gemm, &dx);
}

struct store {
    const struct op_call *c;
    float *dw;
};

static void store_block(const void *job, int64_t at, int64_t size)
{
    const struct store *s = job;
    const struct tensor *to = &s->c->out[3];
    float acc[CPU_BLOCK];
    if (call_has(s->c, 4)) {
        cpu_load_f32(acc, to->data, to->dtype, at, size);
        for (int64_t i = 0; i < size; i++)
            s->dw[at + i] += acc[i];
    }
    cpu_store_f32(to->data, to->dtype, at, s->dw + at, size);
}

/* out[3] = acc + dw, rounded once. */
static void store_dw(const struct kernel_ctx *x, const struct op_call *c, const struct sizes *s,
                     float *dw)
{
    struct store job = {c, dw};
    cpu_each_block(x, s->n_words * s->n_columns, store_block, &job);
}

/* ---- the kernels ---------------------------------------------------------------------------- */

static void store_sums(const struct op_call *c, const double sums[2])
{
    *(float *)c->out[0].data = (float)sums[0];
    *(float *)c->out[1].data = (float)sums[1];
}

int64_t cpu_head_loss_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct sizes s = sizes_of(c);
    return lay_out(c, &s, NULL, NULL) +
           cpu_gemm_workspace(env, s.chunk_rows, s.n_words, s.n_columns);
}

enum status cpu_head_loss(const struct kernel_ctx *x, const struct op_call *c)
{
    struct sizes s = sizes_of(c);
    struct work w;
    lay_out(c, &s, x->workspace, &w);
    double sums[2] = {0.0, 0.0};
    TRY(cpu_head_loss_check(c));
    for (int64_t first = 0; first < s.n_rows; first += s.chunk_rows) {
        int64_t n = MIN(s.chunk_rows, s.n_rows - first);
        logits_of(x, c, &s, &w, first, n);
        losses_of(x, c, &s, &w, first, n, 1.0, sums);
    }
    store_sums(c, sums);
    return OK;
}

int64_t cpu_head_loss_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct sizes s = sizes_of(c);
    int64_t logits = cpu_gemm_workspace(env, s.chunk_rows, s.n_words, s.n_columns);
    int64_t dw = makes_dw(c) ? cpu_gemm_workspace(env, s.n_words, s.n_columns, s.chunk_rows) : 0;
    int64_t dx = cpu_gemm_workspace(env, s.chunk_rows, s.n_columns, s.n_words);
    return lay_out(c, &s, NULL, NULL) + MAX(logits, MAX(dw, dx));
}

enum status cpu_head_loss_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct sizes s = sizes_of(c);
    struct work w;
    lay_out(c, &s, x->workspace, &w);
    double sums[2] = {0.0, 0.0}, d_loss = (double)*(const float *)c->in[3].data;
    TRY(cpu_head_loss_check(c));
    if (call_has(c, 4) && c->in[4].data != c->out[3].data)
        memcpy(c->out[3].data, c->in[4].data, (size_t)tensor_bytes(&c->out[3]));
    for (int64_t first = 0; first < s.n_rows; first += s.chunk_rows) {
        int64_t n = MIN(s.chunk_rows, s.n_rows - first);
        logits_of(x, c, &s, &w, first, n);
        losses_of(x, c, &s, &w, first, n, d_loss, sums);
        gradients_of(x, c, &s, &w, first, n);
    }
    if (w.dw)
        store_dw(x, c, &s, w.dw);
    store_sums(c, sums);
    return OK;
}
