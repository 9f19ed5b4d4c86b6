/* scan.c: the selective scan and its gradient; f32 arithmetic over f32, bf16, f16 storage.
 *
 * A channel of a sample is walked from its first step to its last with its states in registers. The
 * gradient keeps the states of one channel at a time: it walks forward, notes them, and walks back.
 * What is summed over channels (the gradients of b and c) is summed by bands whose number depends
 * on shapes alone, so the number of threads does not show.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "device/cpu/support/ref.h"
#include "ops/scan_support.h"

enum { MOST_STATES = 256, MOST_BANDS = 16, BAND_CHANNELS = 8 };

static const char *declines(const struct op_call *c, const struct kernel_env *env)
{
    int i = c->op == OP_selective_scan_grad;
    if (scan_dims_of(c, i).states > MOST_STATES)
        return "takes at most 256 states";
    return cpu_declines_f64(c, env);
}

static float at(const struct tensor *t, int64_t i)
{
    float x;
    if (t->dtype == DTYPE_F32)
        return ((const float *)t->data)[i];
    cpu_load_f32(&x, t->data, t->dtype, i, 1);
    return x;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void scan_channel(const struct op_call *c, const struct scan_dims *d, int64_t sample,
                         int64_t channel)
{
    float h[MOST_STATES] = {0}, a_buffer[MOST_STATES], b_buffer[MOST_STATES], c_buffer[MOST_STATES];
    const float *a = block_read(&c->in[2], channel * d->states, d->states, a_buffer);
    for (int64_t t = 0; t < d->n_steps; t++) {
        int64_t row = sample * d->n_steps + t, i = row * d->channels + channel;
        const float *b = block_read(&c->in[3], row * d->states, d->states, b_buffer);
        const float *read = block_read(&c->in[4], row * d->states, d->states, c_buffer);
        float step = at(&c->in[1], i), in = step * at(&c->in[0], i), y = 0.0f;
#pragma omp simd reduction(+ : y)
        for (int64_t n = 0; n < d->states; n++) {
            h[n] = cpu_expf(step * a[n]) * h[n] + in * b[n];
            y += read[n] * h[n];
        }
        cpu_store_f32(c->out[0].data, c->out[0].dtype, i, &y, 1);
    }
}

static void scan_channels(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    struct scan_dims d = scan_dims_of(c, 0);
    (void)thread;
    for (int64_t i = first; i < last; i++)
        scan_channel(c, &d, i / d.channels, i % d.channels);
}

static enum status scan_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct scan_dims d = scan_dims_of(c, 0);
    cpu_loop(x, d.batch * d.channels, 8 * d.n_steps * d.states, scan_channels, c);
    return OK;
}

static enum status scan_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct scan_dims d = scan_dims_of(c, 0);
    double *h = x->workspace;
    for (int64_t k = 0; k < d.batch * d.channels; k++) {
        int64_t sample = k / d.channels, channel = k % d.channels;
        memset(h, 0, (size_t)d.states * sizeof(*h));
        for (int64_t t = 0; t < d.n_steps; t++) {
            int64_t row = sample * d.n_steps + t, i = row * d.channels + channel;
            double step = ref_get(&c->in[1], i), y = 0.0;
            for (int64_t n = 0; n < d.states; n++) {
                h[n] = exp(step * ref_get(&c->in[2], channel * d.states + n)) * h[n] +
                       step * ref_get(&c->in[3], row * d.states + n) * ref_get(&c->in[0], i);
                y += ref_get(&c->in[4], row * d.states + n) * h[n];
            }
            ref_set(&c->out[0], i, y);
        }
    }
    return OK;
}

static int64_t reference_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return scan_dims_of(c, 0).states * (int64_t)sizeof(double);
}

/* ---- gradient -------------------------------------------------------------------------------- */

struct scan_grad {
    const struct op_call *c;
    struct scan_dims d;
    int64_t n_bands;
    float *states; /* [bands, T + 1, N]: of the channel a band is at; states[0] is 0 */
    float *sums;   /* [bands, 2, B, T, N]: of db and dc */
};

static struct scan_grad grad_of(const struct op_call *c)
{
    struct scan_grad g = {.c = c, .d = scan_dims_of(c, 1)};
    g.n_bands = MIN((g.d.channels + BAND_CHANNELS - 1) / BAND_CHANNELS, (int64_t)MOST_BANDS);
    g.n_bands = MAX(g.n_bands, (int64_t)1);
    return g;
}

static int64_t states_size(const struct scan_grad *g)
{
    return (g->d.n_steps + 1) * g->d.states;
}

static int64_t sums_size(const struct scan_grad *g)
{
    return 2 * g->d.batch * g->d.n_steps * g->d.states;
}

static int64_t grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct scan_grad g = grad_of(c);
    (void)env;
    return g.n_bands * (states_size(&g) + sums_size(&g)) * (int64_t)sizeof(float);
}

/* Notes the states after every step of a channel. */
static void walk_forward(const struct scan_grad *g, int64_t sample, int64_t channel, const float *a,
                         float *h)
{
    const struct op_call *c = g->c;
    float buffer[MOST_STATES];
    int64_t n_states = g->d.states;
    memset(h, 0, (size_t)n_states * sizeof(*h));
    for (int64_t t = 0; t < g->d.n_steps; t++, h += n_states) {
        int64_t row = sample * g->d.n_steps + t, i = row * g->d.channels + channel;
        const float *b = block_read(&c->in[4], row * n_states, n_states, buffer);
        float step = at(&c->in[2], i), in = step * at(&c->in[1], i);
#pragma omp simd
        for (int64_t n = 0; n < n_states; n++)
            h[n_states + n] = cpu_expf(step * a[n]) * h[n] + in * b[n];
    }
}

/* From the last step to the first: carry is the gradient by a step's states. */
static void walk_back(const struct scan_grad *g, int64_t sample, int64_t channel, const float *a,
                      const float *states, float *sums, float *da)
{
    const struct op_call *c = g->c;
    int64_t n_states = g->d.states, all = g->d.batch * g->d.n_steps * n_states;
    float carry[MOST_STATES] = {0}, b_buffer[MOST_STATES], c_buffer[MOST_STATES];
    for (int64_t t = g->d.n_steps - 1; t >= 0; t--) {
        int64_t row = sample * g->d.n_steps + t, i = row * g->d.channels + channel;
        const float *b = block_read(&c->in[4], row * n_states, n_states, b_buffer);
        const float *read = block_read(&c->in[5], row * n_states, n_states, c_buffer);
        const float *before = states + t * n_states, *h = before + n_states;
        float *db = sums + row * n_states, *dc = db + all;
        float dy = at(&c->in[0], i), x = at(&c->in[1], i), step = at(&c->in[2], i);
        float dx = 0.0f, d_step = 0.0f;
#pragma omp simd reduction(+ : dx, d_step)
        for (int64_t n = 0; n < n_states; n++) {
            float keep = cpu_expf(step * a[n]), d = carry[n] + dy * read[n];
            dc[n] += dy * h[n];
            db[n] += d * step * x;
            dx += d * step * b[n];
            d_step += d * (a[n] * keep * before[n] + b[n] * x);
            da[n] += d * step * keep * before[n];
            carry[n] = d * keep;
        }
        cpu_store_f32(c->out[0].data, c->out[0].dtype, i, &dx, 1);
        cpu_store_f32(c->out[1].data, c->out[1].dtype, i, &d_step, 1);
    }
}

/* Item: a band of channels, in all samples. */
static void grad_bands(const void *job, int64_t first, int64_t last, int thread)
{
    const struct scan_grad *g = job;
    const struct op_call *c = g->c;
    int64_t n_states = g->d.states;
    (void)thread;
    for (int64_t band = first; band < last; band++) {
        float *states = g->states + band * states_size(g), *sums = g->sums + band * sums_size(g);
        int64_t end = (band + 1) * g->d.channels / g->n_bands;
        memset(sums, 0, (size_t)sums_size(g) * sizeof(*sums));
        for (int64_t channel = band * g->d.channels / g->n_bands; channel < end; channel++) {
            float a_buffer[MOST_STATES], da[MOST_STATES] = {0};
            const float *a = block_read(&c->in[3], channel * n_states, n_states, a_buffer);
            for (int64_t sample = 0; sample < g->d.batch; sample++) {
                walk_forward(g, sample, channel, a, states);
                walk_back(g, sample, channel, a, states, sums, da);
            }
            cpu_store_f32(c->out[2].data, c->out[2].dtype, channel * n_states, da, n_states);
        }
    }
}

/* Item: an element of db, then of dc. */
static void grad_sums(const void *job, int64_t first, int64_t last, int thread)
{
    const struct scan_grad *g = job;
    int64_t half = sums_size(g) / 2;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        double sum = 0.0;
        for (int64_t band = 0; band < g->n_bands; band++)
            sum += (double)g->sums[band * 2 * half + i];
        ref_set(&g->c->out[i < half ? 3 : 4], i % half, sum);
    }
}

static enum status grad_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct scan_grad g = grad_of(c);
    g.states = x->workspace;
    g.sums = g.states + g.n_bands * states_size(&g);
    int64_t work = g.d.batch * g.d.n_steps * g.d.states * g.d.channels / g.n_bands;
    cpu_loop(x, g.n_bands, 16 * work, grad_bands, &g);
    cpu_loop(x, sums_size(&g), g.n_bands, grad_sums, &g);
    return OK;
}

/* Doubles: the states of a channel, what is carried, then a sum for each element of the outputs. */
static int64_t grad_reference_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct scan_dims d = scan_dims_of(c, 1);
    int64_t n = (d.n_steps + 2) * d.states;
    (void)env;
    for (int i = 1; i < c->n_in; i++)
        n += shape_elems(&c->in[i].shape);
    return n * (int64_t)sizeof(double);
}

struct reference_walk {
    const struct op_call *c;
    struct scan_dims d;
    double *states, *carry, *sums[5];
};

static void reference_forward(const struct reference_walk *w, int64_t sample, int64_t channel)
{
    const struct op_call *c = w->c;
    int64_t n_states = w->d.states;
    for (int64_t t = 0; t < w->d.n_steps; t++) {
        int64_t row = sample * w->d.n_steps + t, i = row * w->d.channels + channel;
        double step = ref_get(&c->in[2], i), in = step * ref_get(&c->in[1], i);
        for (int64_t n = 0; n < n_states; n++)
            w->states[(t + 1) * n_states + n] =
                exp(step * ref_get(&c->in[3], channel * n_states + n)) *
                    w->states[t * n_states + n] +
                in * ref_get(&c->in[4], row * n_states + n);
    }
}

static void reference_back(const struct reference_walk *w, int64_t sample, int64_t channel)
{
    const struct op_call *c = w->c;
    int64_t n_states = w->d.states;
    for (int64_t t = w->d.n_steps - 1; t >= 0; t--) {
        int64_t row = sample * w->d.n_steps + t, i = row * w->d.channels + channel;
        double dy = ref_get(&c->in[0], i), in = ref_get(&c->in[1], i);
        double step = ref_get(&c->in[2], i);
        for (int64_t n = 0; n < n_states; n++) {
            int64_t e = row * n_states + n, own = channel * n_states + n;
            double a = ref_get(&c->in[3], own), b = ref_get(&c->in[4], e);
            double before = w->states[t * n_states + n], keep = exp(step * a);
            double dh = w->carry[n] + dy * ref_get(&c->in[5], e);
            w->sums[4][e] += dy * w->states[(t + 1) * n_states + n];
            w->sums[3][e] += dh * step * in;
            w->sums[0][i] += dh * step * b;
            w->sums[1][i] += dh * (a * keep * before + b * in);
            w->sums[2][own] += dh * step * keep * before;
            w->carry[n] = dh * keep;
        }
    }
}

static enum status grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct reference_walk w = {.c = c, .d = scan_dims_of(c, 1), .states = x->workspace};
    memset(x->workspace, 0, (size_t)grad_reference_workspace(c, &x->env));
    w.carry = w.states + (w.d.n_steps + 1) * w.d.states;
    w.sums[0] = w.carry + w.d.states;
    for (int o = 1; o < 5; o++)
        w.sums[o] = w.sums[o - 1] + shape_elems(&c->out[o - 1].shape);
    for (int64_t k = 0; k < w.d.batch * w.d.channels; k++) {
        memset(w.carry, 0, (size_t)w.d.states * sizeof(*w.carry));
        reference_forward(&w, k / w.d.channels, k % w.d.channels);
        reference_back(&w, k / w.d.channels, k % w.d.channels);
    }
    for (int o = 0; o < 5; o++) {
        for (int64_t i = 0; i < shape_elems(&c->out[o].shape); i++)
            ref_set(&c->out[o], i, w.sums[o][i]);
    }
    return OK;
}

const struct kernel cpu_kernels_selective_scan[] = {
    {"channels", declines, NULL, scan_run},
    {"reference", NULL, reference_workspace, scan_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_selective_scan_grad[] = {
    {"bands", declines, grad_workspace, grad_run},
    {"reference", NULL, grad_reference_workspace, grad_reference},
    KERNEL_END,
};
