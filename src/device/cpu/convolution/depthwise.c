#include "device/cpu/convolution/depthwise.h"

#include "device/cpu/convolution/depthwise_rows.h"
#include "device/cpu/support/block.h"

enum { PIXELS = 8 };

const char *depthwise_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_dims d = conv_dims_of(c);
    if (d.groups != d.channels || d.groups != d.features)
        return "takes a group for each channel only";
    return cpu_declines_f64(c, env);
}

struct job {
    struct conv_pass pass;
    const struct tensor *source, *weights, *result;
    const struct tensor *base; /* what the result is added to, perhaps itself; NULL: nothing */
    const struct tensor *bias; /* NULL: none */
    float *packed;             /* weights: [taps of the pass][channels in whole vectors] */
};

static int64_t whole_vectors(int64_t channels)
{
    return (channels + LANES - 1) / LANES * LANES;
}

static void pack_weights(const struct job *d)
{
    const struct conv_pass *p = &d->pass;
    int64_t width = whole_vectors(p->groups), n_taps = window_places(p->kernel);
    for (int64_t i = 0; i < pass_taps(p); i++) {
        int64_t tap = pass_kernel_tap(p, i);
        for (int64_t c = 0; c < width; c++) {
            float *to = d->packed + i * width + c;
            *to = 0.0f;
            if (c < p->groups)
                cpu_load_f32(to, d->weights->data, d->weights->dtype, c * n_taps + tap, 1);
        }
    }
}

/* A few neighbouring columns of a row: the taps they share. */
struct columns {
    const struct depthwise_row *row;
    int64_t first, n;
    struct tap_range taps;
};

/* Vector of channels from `channel` on of all the columns; dtype and their number n are constants.
 */
LANES_INLINE void sum_columns(enum dtype dtype, const struct job *d, const struct columns *s,
                              int64_t channel, int64_t n_channels, lanes *sums, int n)
{
    const struct conv_pass *p = &d->pass;
    const struct tap_range *rows = s->row->taps;
    int64_t width = whole_vectors(p->groups), step = p->axis[2].source_step * p->groups;
    int64_t next = p->axis[2].tap_step * p->groups;
    lanes sum[PIXELS];
    UNROLL for (int i = 0; i < n; i++)
    {
        sum[i] = sums[i];
    }
    for (int64_t a = rows[0].first; a < rows[0].last; a++) {
        for (int64_t b = rows[1].first; b < rows[1].last; b++) {
            int64_t first = s->taps.first;
            int64_t at = depthwise_source(p, s->row, s->first, a, b, first) * p->groups + channel;
            const float *w = d->packed + depthwise_tap(p, a, b, first) * width + channel;
            for (int64_t c = first; c < s->taps.last; c++, at += next, w += width) {
                lanes weight = lanes_load(w);
                UNROLL for (int i = 0; i < n; i++)
                {
                    lanes x = lanes_read_as(d->source, dtype, at + i * step, n_channels);
                    sum[i] = lanes_fma(x, weight, sum[i]);
                }
            }
        }
    }
    UNROLL for (int i = 0; i < n; i++)
    {
        sums[i] = sum[i];
    }
}

static void sum_any(const struct job *d, const struct columns *s, int64_t channel,
                    int64_t n_channels, lanes *sum)
{
    enum dtype dtype = d->source->dtype;
    if (s->n == PIXELS)
        LANES_BY_DTYPE(dtype, sum_columns, d, s, channel, n_channels, sum, PIXELS);
    else if (s->n == PIXELS / 2)
        LANES_BY_DTYPE(dtype, sum_columns, d, s, channel, n_channels, sum, PIXELS / 2);
    else if (s->n == PIXELS / 4)
        LANES_BY_DTYPE(dtype, sum_columns, d, s, channel, n_channels, sum, PIXELS / 4);
    else
        LANES_BY_DTYPE(dtype, sum_columns, d, s, channel, n_channels, sum, 1);
}

static void run_columns(const struct job *d, const struct columns *s)
{
    const struct conv_pass *p = &d->pass;
    int64_t at = depthwise_result(p, s->row, s->first) * p->groups;
    int64_t step = p->axis[2].step * p->groups;
    lanes one = lanes_all(1.0f);
    for (int64_t channel = 0; channel < p->groups; channel += LANES) {
        int64_t n_channels = MIN(p->groups - channel, (int64_t)LANES);
        lanes sum[PIXELS];
        lanes start = d->bias ? lanes_read(d->bias, channel, n_channels) : lanes_all(0.0f);
        UNROLL for (int i = 0; i < PIXELS; i++)
        {
            sum[i] = start;
        }
        sum_any(d, s, channel, n_channels, sum);
        for (int64_t i = 0; i < s->n; i++) {
            int64_t to = at + i * step + channel;
            if (d->base)
                sum[i] = lanes_fma(lanes_read(d->base, to, n_channels), one, sum[i]);
            lanes_write(d->result, to, n_channels, sum[i]);
        }
    }
}

static void run_rows(const void *work, int64_t first, int64_t last, int thread)
{
    const struct job *d = work;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        struct depthwise_row row = depthwise_row_at(&d->pass, i);
        for (int64_t column = 0; column < d->pass.axis[2].n;) {
            struct columns s = {.row = &row, .first = column};
            int64_t n = depthwise_columns(&d->pass, column, &s.taps);
            for (s.n = PIXELS; s.n > n;)
                s.n /= 2;
            run_columns(d, &s);
            column += s.n;
        }
    }
}

static void run_pass(const struct kernel_ctx *x, struct job *d)
{
    const struct conv_pass *p = &d->pass;
    d->packed = x->workspace;
    pack_weights(d);
    cpu_loop(x, depthwise_rows(p), p->axis[2].n * p->groups, run_rows, d);
}

/* All taps of the kernel: no pass has more. */
int64_t depthwise_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_dims d = conv_dims_of(c);
    (void)env;
    return window_places(d.window.kernel) * whole_vectors(d.channels) * (int64_t)sizeof(float);
}

enum status depthwise(const struct kernel_ctx *x, const struct op_call *c)
{
    struct conv_dims dims = conv_dims_of(c);
    struct job d = {
        .pass = conv_forward_pass(&dims),
        .source = &c->in[0],
        .weights = &c->in[1],
        .result = &c->out[0],
        .bias = call_has(c, 2) ? &c->in[2] : NULL,
    };
    run_pass(x, &d);
    return OK;
}

int64_t depthwise_grad_input_workspace(const struct op_call *c, const struct kernel_env *env)
{
    return depthwise_workspace(c, env);
}

enum status depthwise_grad_input(const struct kernel_ctx *x, const struct op_call *c)
{
    struct conv_dims dims = conv_dims_of(c);
    struct job d = {
        .source = &c->in[0],
        .weights = &c->in[1],
        .result = &c->out[0],
        .base = call_has(c, 2) ? &c->in[2] : NULL,
    };
    for (int64_t i = 0; i < conv_input_passes(&dims); i++) {
        d.pass = conv_input_pass(&dims, i);
        run_pass(x, &d);
    }
    return OK;
}
