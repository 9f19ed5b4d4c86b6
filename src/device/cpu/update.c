/* update.c: what changes state: clearing and adding to accumulators, gradient norms, optimizers.
 *
 * The optimizers make one pass over memory: each block of parameter, gradient and states is read,
 * updated and written before the next. Outputs normally are their inputs' memory; where they are
 * not (tests), the results land in the outputs and the inputs stay as they were.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu_block.h"
#include "device/cpu/cpu_ref.h"

/* ---- fill, accumulate ------------------------------------------------------------------------ */

static enum status fill_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    float value = (float)call_float(c, 0), block[CPU_BLOCK];
    for (int i = 0; i < CPU_BLOCK; i++)
        block[i] = value;
#pragma omp parallel for schedule(static) num_threads(x->env.n_threads) if (n > CPU_SERIAL)
    for (int64_t i_block = 0; i_block < block_count(n); i_block++) {
        int64_t at = i_block * CPU_BLOCK;
        cpu_store_f32(c->out[0].data, c->out[0].dtype, at, block, block_size(n, at));
    }
    return OK;
}

static const char *fill_declines(const struct op_call *c)
{
    return dtype_is_float(c->out[0].dtype) ? cpu_declines_f64(c) : "takes floats only";
}

static enum status fill_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, call_float(c, 0));
    return OK;
}

static enum status accumulate_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
#pragma omp parallel for schedule(static) num_threads(x->env.n_threads) if (n > CPU_SERIAL)
    for (int64_t i_block = 0; i_block < block_count(n); i_block++) {
        float acc_buffer[CPU_BLOCK], g_buffer[CPU_BLOCK];
        int64_t at = i_block * CPU_BLOCK, size = block_size(n, at);
        const float *acc = block_read(&c->in[0], at, size, acc_buffer);
        const float *g = block_read(&c->in[1], at, size, g_buffer);
        float *y = block_open(&c->out[0], at, acc_buffer);
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            y[i] = acc[i] + g[i];
        block_close(&c->out[0], at, y, size);
    }
    return OK;
}

static enum status accumulate_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i, ref_get(&c->in[0], i) + ref_get(&c->in[1], i));
    return OK;
}

/* ---- sum_squares, clip_scale ------------------------------------------------------------------
 */

/* Each task sums CHUNK elements in f64; the chunks' sums are added in order. */
enum { CHUNK = 64 * CPU_BLOCK };

static int64_t chunk_count(const struct op_call *c)
{
    return (shape_elems(&c->in[0].shape) + CHUNK - 1) / CHUNK;
}

static int64_t sum_squares_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return chunk_count(c) * (int64_t)sizeof(double);
}

/* Sums side by side: enough vectors of them that one addition does not wait for the last. */
enum { SQUARE_SUMS = 64 };

static double chunk_squares(const struct tensor *g, int64_t at, int64_t n)
{
    float buffer[CPU_BLOCK];
    double part[SQUARE_SUMS] = {0.0}, sum = 0.0;
    for (int64_t i = 0; i < n; i += CPU_BLOCK) {
        int64_t size = block_size(n, i), k = 0;
        const float *block = block_read(g, at + i, size, buffer);
        for (; k + SQUARE_SUMS <= size; k += SQUARE_SUMS) {
#pragma omp simd
            for (int j = 0; j < SQUARE_SUMS; j++)
                part[j] += (double)block[k + j] * (double)block[k + j];
        }
        for (; k < size; k++)
            part[0] += (double)block[k] * (double)block[k];
    }
    for (int j = 0; j < SQUARE_SUMS; j++)
        sum += part[j];
    return sum;
}

static enum status sum_squares_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->in[0].shape), n_chunks = chunk_count(c);
    double *partial = x->workspace, sum = 0.0;
#pragma omp parallel for schedule(static) num_threads(x->env.n_threads) if (n_chunks > 1)
    for (int64_t i = 0; i < n_chunks; i++)
        partial[i] = chunk_squares(&c->in[0], i * CHUNK, MIN((int64_t)CHUNK, n - i * CHUNK));
    for (int64_t i = 0; i < n_chunks; i++)
        sum += partial[i];
    ref_set(&c->out[0], 0, sum);
    return OK;
}

static enum status sum_squares_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    double sum = 0.0;
    for (int64_t i = 0; i < shape_elems(&c->in[0].shape); i++)
        sum += ref_get(&c->in[0], i) * ref_get(&c->in[0], i);
    ref_set(&c->out[0], 0, sum);
    return OK;
}

static enum status clip_scale_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    double max_norm = call_float(c, 0), nominal = call_float(c, 1);
    double count = ref_get(&c->in[0], 0), squares = 0.0;
    for (int i = 2; i < c->n_in; i++)
        squares += ref_get(&c->in[i], 0);
    double s = count == 0.0 ? 0.0 : nominal / count;
    if (call_has(c, 1))
        s /= ref_get(&c->in[1], 0);
    double norm = s * sqrt(squares), scale = s;
    if (max_norm > 0.0)
        scale *= fmin(1.0, max_norm / (norm + 1e-6));
    ref_set(&c->out[0], 0, isfinite(norm) && isfinite(scale) ? scale : 0.0);
    ref_set(&c->out[1], 0, norm);
    return OK;
}

/* ---- blocks of several tensors in step ----------------------------------------------------------
 */

enum { MAX_STREAMS = 4 };

/* A tensor that is updated: block by block from `in` to `out`. */
struct stream {
    const struct tensor *in, *out;
};

/* The block of a stream, ready to be changed where it lies: in the output when that is f32. */
static float *stream_open(const struct stream *s, int64_t at, int64_t n, float *buffer)
{
    float *block = block_open(s->out, at, buffer);
    if (s->in->dtype == DTYPE_F32 && (const float *)s->in->data + at == block)
        return block;
    cpu_load_f32(block, s->in->data, s->in->dtype, at, n);
    return block;
}

/* Outputs are the inputs, unchanged. */
static void copy_streams(const struct stream *streams, int n_streams)
{
    for (int i = 0; i < n_streams; i++) {
        if (streams[i].out->data != streams[i].in->data)
            memcpy(streams[i].out->data, streams[i].in->data, (size_t)tensor_bytes(streams[i].in));
    }
}

/* block[i] is the block of stream i; g that of the gradient. */
typedef void update_fn(const void *rule, float *const *block, const float *g, int64_t n);

static void run_update(const struct kernel_ctx *x, const struct stream *streams, int n_streams,
                       const struct tensor *grad, update_fn *update, const void *rule)
{
    int64_t n = shape_elems(&grad->shape);
#pragma omp parallel for schedule(static) num_threads(x->env.n_threads) if (n > CPU_SERIAL)
    for (int64_t i_block = 0; i_block < block_count(n); i_block++) {
        float buffer[MAX_STREAMS][CPU_BLOCK], g_buffer[CPU_BLOCK];
        float *block[MAX_STREAMS] = {NULL};
        int64_t at = i_block * CPU_BLOCK, size = block_size(n, at);
        const float *g = block_read(grad, at, size, g_buffer);
        for (int i = 0; i < n_streams; i++)
            block[i] = stream_open(&streams[i], at, size, buffer[i]);
        update(rule, block, g, size);
        for (int i = 0; i < n_streams; i++)
            block_close(streams[i].out, at, block[i], size);
    }
}

/* ---- adamw
 * ---------------------------------------------------------------------------------------- */

/* Everything that is the same for all elements, worked out in f64. */
struct adamw {
    float scale, keep;           /* of the gradient; 1 - lr weight_decay */
    float beta1, beta2;          /* */
    float rate1, rate2;          /* 1 - beta */
    float step_size, correction; /* lr / (1 - beta1^t); 1 / sqrt(1 - beta2^t) */
    float epsilon;
};

static struct adamw adamw_rule(const struct op_call *c)
{
    double beta1 = call_float(c, 0), beta2 = call_float(c, 1);
    double lr = ref_get(&c->in[4], 0), step = ref_get(&c->in[5], 0);
    return (struct adamw){
        .scale = (float)ref_get(&c->in[6], 0),
        .keep = (float)(1.0 - lr * call_float(c, 3)),
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .rate1 = (float)(1.0 - beta1),
        .rate2 = (float)(1.0 - beta2),
        .step_size = (float)(lr / (1.0 - pow(beta1, step))),
        .correction = (float)(1.0 / sqrt(1.0 - pow(beta2, step))),
        .epsilon = (float)call_float(c, 2),
    };
}

/* block: parameter (or master), m, v */
static void adamw_block(const void *rule, float *const *block, const float *grad, int64_t n)
{
    const struct adamw r = *(const struct adamw *)rule;
    float *restrict p = block[0], *restrict m = block[1], *restrict v = block[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * r.scale;
        m[i] = r.beta1 * m[i] + r.rate1 * g;
        v[i] = r.beta2 * v[i] + r.rate2 * (g * g);
        p[i] = p[i] * r.keep - r.step_size * m[i] / (sqrtf(v[i]) * r.correction + r.epsilon);
    }
}

/* The fourth block is the parameter, made again from the first, the master. */
static void adamw_master_block(const void *rule, float *const *block, const float *grad, int64_t n)
{
    adamw_block(rule, block, grad, n);
    memcpy(block[3], block[0], (size_t)n * sizeof(float));
}

/* 0: nothing counted, or the norm was not finite; see clip_scale. */
static bool is_skipped(const struct op_call *c, int i_scale)
{
    return ref_get(&c->in[i_scale], 0) == 0.0;
}

static enum status adamw_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct stream streams[] = {
        {&c->in[0], &c->out[0]}, {&c->in[2], &c->out[1]}, {&c->in[3], &c->out[2]}};
    struct adamw rule = adamw_rule(c);
    if (is_skipped(c, 6))
        copy_streams(streams, 3);
    else
        run_update(x, streams, 3, &c->in[1], adamw_block, &rule);
    return OK;
}

static enum status adamw_master_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct stream streams[] = {{&c->in[7], &c->out[3]},
                                     {&c->in[2], &c->out[1]},
                                     {&c->in[3], &c->out[2]},
                                     {&c->in[0], &c->out[0]}};
    struct adamw rule = adamw_rule(c);
    if (is_skipped(c, 6))
        copy_streams(streams, 4);
    else
        run_update(x, streams, 4, &c->in[1], adamw_master_block, &rule);
    return OK;
}

/* `from` and `to`: the tensor that is updated, the parameter or its master. */
static void adamw_element(const struct op_call *c, const struct tensor *from,
                          const struct tensor *to, int64_t i)
{
    double beta1 = call_float(c, 0), beta2 = call_float(c, 1), epsilon = call_float(c, 2);
    double lr = ref_get(&c->in[4], 0), t = ref_get(&c->in[5], 0);
    double g = ref_get(&c->in[1], i) * ref_get(&c->in[6], 0);
    double p = ref_get(from, i), m = ref_get(&c->in[2], i), v = ref_get(&c->in[3], i);
    p -= lr * call_float(c, 3) * p;
    m = beta1 * m + (1.0 - beta1) * g;
    v = beta2 * v + (1.0 - beta2) * g * g;
    double denominator = sqrt(v) / sqrt(1.0 - pow(beta2, t)) + epsilon;
    p -= lr / (1.0 - pow(beta1, t)) * m / denominator;
    ref_set(to, i, p);
    ref_set(&c->out[1], i, m);
    ref_set(&c->out[2], i, v);
}

static enum status adamw_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct stream streams[] = {
        {&c->in[0], &c->out[0]}, {&c->in[2], &c->out[1]}, {&c->in[3], &c->out[2]}};
    if (is_skipped(c, 6)) {
        copy_streams(streams, 3);
        return OK;
    }
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        adamw_element(c, &c->in[0], &c->out[0], i);
    return OK;
}

static enum status adamw_master_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct stream streams[] = {{&c->in[0], &c->out[0]},
                                     {&c->in[2], &c->out[1]},
                                     {&c->in[3], &c->out[2]},
                                     {&c->in[7], &c->out[3]}};
    if (is_skipped(c, 6)) {
        copy_streams(streams, 4);
        return OK;
    }
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        adamw_element(c, &c->in[7], &c->out[3], i);
        ref_set(&c->out[0], i, ref_get(&c->out[3], i));
    }
    return OK;
}

/* ---- sgd
 * ------------------------------------------------------------------------------------------ */

struct sgd {
    float lr, scale, weight_decay, momentum;
    bool nesterov;
    bool first; /* the buffer starts as the gradient */
};

static void sgd_block(const void *rule, float *const *block, const float *grad, int64_t n)
{
    const struct sgd r = *(const struct sgd *)rule;
    float *restrict p = block[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] -= r.lr * (grad[i] * r.scale + r.weight_decay * p[i]);
}

/* block: parameter, momentum buffer */
static void sgd_momentum_block(const void *rule, float *const *block, const float *grad, int64_t n)
{
    const struct sgd r = *(const struct sgd *)rule;
    float *restrict p = block[0], *restrict buf = block[1];
    const float old = r.first ? 0.0f : r.momentum; /* weight of the old buffer */
    const float fresh = r.nesterov ? 1.0f : 0.0f;  /* step = fresh g + carried buf' */
    const float carried = r.nesterov ? r.momentum : 1.0f;
    if (r.first)
        memset(buf, 0, (size_t)n * sizeof(float));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * r.scale + r.weight_decay * p[i];
        buf[i] = old * buf[i] + g;
        p[i] -= r.lr * (fresh * g + carried * buf[i]);
    }
}

static enum status sgd_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct stream param = {&c->in[0], &c->out[0]};
    const struct sgd rule = {
        .lr = (float)ref_get(&c->in[2], 0),
        .scale = (float)ref_get(&c->in[4], 0),
        .weight_decay = (float)call_float(c, 0),
    };
    if (is_skipped(c, 4))
        copy_streams(&param, 1);
    else
        run_update(x, &param, 1, &c->in[1], sgd_block, &rule);
    return OK;
}

static enum status sgd_momentum_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct stream streams[] = {{&c->in[0], &c->out[0]}, {&c->in[2], &c->out[1]}};
    const struct sgd rule = {
        .lr = (float)ref_get(&c->in[3], 0),
        .scale = (float)ref_get(&c->in[5], 0),
        .weight_decay = (float)call_float(c, 2),
        .momentum = (float)call_float(c, 0),
        .nesterov = call_bool(c, 1),
        .first = ref_get(&c->in[4], 0) <= 1.0,
    };
    if (is_skipped(c, 5))
        copy_streams(streams, 2);
    else
        run_update(x, streams, 2, &c->in[1], sgd_momentum_block, &rule);
    return OK;
}

static enum status sgd_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct stream param = {&c->in[0], &c->out[0]};
    double lr = ref_get(&c->in[2], 0), scale = ref_get(&c->in[4], 0);
    if (is_skipped(c, 4)) {
        copy_streams(&param, 1);
        return OK;
    }
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double p = ref_get(&c->in[0], i);
        double g = scale * ref_get(&c->in[1], i) + call_float(c, 0) * p;
        ref_set(&c->out[0], i, p - lr * g);
    }
    return OK;
}

static enum status sgd_momentum_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct stream streams[] = {{&c->in[0], &c->out[0]}, {&c->in[2], &c->out[1]}};
    double lr = ref_get(&c->in[3], 0), scale = ref_get(&c->in[5], 0);
    double momentum = call_float(c, 0);
    if (is_skipped(c, 5)) {
        copy_streams(streams, 2);
        return OK;
    }
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        double p = ref_get(&c->in[0], i);
        double g = scale * ref_get(&c->in[1], i) + call_float(c, 2) * p;
        double buf = ref_get(&c->in[4], 0) <= 1.0 ? g : momentum * ref_get(&c->in[2], i) + g;
        ref_set(&c->out[0], i, p - lr * (call_bool(c, 1) ? g + momentum * buf : buf));
        ref_set(&c->out[1], i, buf);
    }
    return OK;
}

/* ---- lists
 * ------------------------------------------------------------------------------------------ */

const struct kernel cpu_kernels_fill[] = {
    {"blocked", fill_declines, NULL, fill_blocked},
    {"reference", NULL, NULL, fill_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_sum_squares[] = {
    {"blocked", cpu_declines_f64, sum_squares_workspace, sum_squares_blocked},
    {"reference", NULL, NULL, sum_squares_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_clip_scale[] = {
    {"reference", NULL, NULL, clip_scale_reference},
    KERNEL_END,
};

#define KERNELS(name)                                        \
    const struct kernel cpu_kernels_##name[] = {             \
        {"blocked", cpu_declines_f64, NULL, name##_blocked}, \
        {"reference", NULL, NULL, name##_reference},         \
        KERNEL_END,                                          \
    };
KERNELS(accumulate)
KERNELS(adamw)
KERNELS(adamw_master)
KERNELS(sgd)
KERNELS(sgd_momentum)
