/* clip.c: gradient norms, what gradients are multiplied by, and the loss scale. */
#include <math.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/squares_chunk.h"

/* ---- sum_squares ----------------------------------------------------------------------------- */

/* Each task sums CHUNK elements in f64; the chunks' sums are added in order. */
enum { CHUNK = 64 * CPU_BLOCK };

static int64_t chunks_of(const struct tensor *t)
{
    return (shape_elems(&t->shape) + CHUNK - 1) / CHUNK;
}

static int64_t chunk_count(const struct op_call *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_in; i++)
        n += chunks_of(&c->in[i]);
    return n;
}

static int64_t sum_squares_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return chunk_count(c) * (int64_t)sizeof(double);
}

static double chunk_squares(const struct tensor *g, int64_t at, int64_t n)
{
    float buffer[CPU_BLOCK];
    double part[BLOCK_SUMS] = {0.0}, sum = 0.0;
    for (int64_t i = 0; i < n; i += CPU_BLOCK) {
        int64_t size = block_size(n, i);
        const float *block = block_read(g, at + i, size, buffer);
        block_add_products(part, block, block, size);
    }
    for (int j = 0; j < BLOCK_SUMS; j++)
        sum += part[j];
    return sum;
}

struct squares {
    const struct tensor *g;
    double *partial; /* [chunks] */
};

static void square_chunks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct squares *s = job;
    int64_t n = shape_elems(&s->g->shape);
    (void)thread;
    for (int64_t i = first; i < last; i++)
        s->partial[i] = chunk_squares(s->g, i * CHUNK, MIN((int64_t)CHUNK, n - i * CHUNK));
}

static enum status sum_squares_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    double *partial = x->workspace, sum = 0.0;
    int64_t n_done = 0;
    for (int t = 0; t < c->n_in; t++) {
        struct squares s = {&c->in[t], partial + n_done};
        cpu_loop(x, chunks_of(s.g), CHUNK, square_chunks, &s);
        n_done += chunks_of(s.g);
    }
    for (int64_t i = 0; i < n_done; i++)
        sum += partial[i];
    ref_set(&c->out[0], 0, sum);
    return OK;
}

static enum status sum_squares_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    double sum = 0.0;
    for (int t = 0; t < c->n_in; t++) {
        for (int64_t i = 0; i < shape_elems(&c->in[t].shape); i++)
            sum += ref_get(&c->in[t], i) * ref_get(&c->in[t], i);
    }
    ref_set(&c->out[0], 0, sum);
    return OK;
}

/* ---- chunk_squares --------------------------------------------------------------------------- */

static void square_each_chunk(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    int64_t n = shape_elems(&c->in[0].shape);
    float *y = c->out[0].data;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t at = i * SQUARES_CHUNK;
        y[i] = (float)chunk_squares(&c->in[0], at, MIN((int64_t)SQUARES_CHUNK, n - at));
    }
}

static enum status chunk_squares_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_loop(x, shape_elems(&c->out[0].shape), SQUARES_CHUNK, square_each_chunk, c);
    return OK;
}

static enum status chunk_squares_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t n = shape_elems(&c->in[0].shape);
    for (int64_t i = 0; i * SQUARES_CHUNK < n; i++) {
        double sum = 0.0;
        for (int64_t k = i * SQUARES_CHUNK; k < MIN(n, (i + 1) * SQUARES_CHUNK); k++)
            sum += ref_get(&c->in[0], k) * ref_get(&c->in[0], k);
        ref_set(&c->out[0], i, sum);
    }
    return OK;
}

/* ---- clip_scale, loss_scale_update ----------------------------------------------------------- */

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

static enum status loss_scale_update_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    double growth = call_float(c, 0), backoff = call_float(c, 1), minimum = call_float(c, 4);
    double scale = ref_get(&c->in[0], 0), good = ref_get(&c->in[1], 0);
    double applied = ref_get(&c->in[2], 0), tolerated = ref_get(&c->in[3], 0);
    bool overflow = !isfinite(ref_get(&c->in[5], 0));
    bool tolerate = tolerated < (double)call_int(c, 3) - 1.0;
    good = overflow ? 0.0 : good + 1.0;
    if (overflow && tolerate)
        tolerated += 1.0;
    else if (overflow)
        scale = fmin(scale, fmax(scale * backoff, minimum));
    if (good >= (double)call_int(c, 2)) {
        good = tolerated = 0.0;
        scale = isfinite((float)(scale * growth)) ? scale * growth : scale;
    }
    if (ref_get(&c->in[4], 0) != 0.0)
        applied += 1.0;
    ref_set(&c->out[0], 0, scale);
    ref_set(&c->out[1], 0, good);
    ref_set(&c->out[2], 0, applied);
    ref_set(&c->out[3], 0, tolerated);
    return OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_sum_squares[] = {
    {"blocked", cpu_declines_f64, sum_squares_workspace, sum_squares_blocked},
    {"reference", NULL, NULL, sum_squares_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_chunk_squares[] = {
    {"blocked", cpu_declines_f64, NULL, chunk_squares_blocked},
    {"reference", NULL, NULL, chunk_squares_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_clip_scale[] = {
    {"reference", NULL, NULL, clip_scale_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_loss_scale_update[] = {
    {"reference", NULL, NULL, loss_scale_update_reference},
    KERNEL_END,
};
