/* depthwise_weight.c: the gradient of the weights of a depthwise convolution. Rows of results are
 * cut into spans, by shapes alone; each has sums of its own, added in their order at the end. */
#include <string.h>

#include "device/cpu/convolution/depthwise.h"
#include "device/cpu/convolution/depthwise_rows.h"
#include "device/cpu/support/block.h"

enum { SPANS = 64, SPAN_ROWS = 8, TAPS = 9 };

struct weight_job {
    const struct op_call *c;
    struct conv_pass pass;
    int64_t width, n_taps, n_spans;
    float *sums; /* [spans][taps][width] */
};

static struct weight_job job_of(const struct op_call *c)
{
    struct conv_dims d = conv_dims_of(c);
    struct weight_job j = {.c = c, .pass = conv_forward_pass(&d)};
    j.width = (d.channels + LANES - 1) / LANES * LANES;
    j.n_taps = pass_taps(&j.pass);
    j.n_spans = MIN((int64_t)SPANS, (depthwise_rows(&j.pass) + SPAN_ROWS - 1) / SPAN_ROWS);
    return j;
}

/* Up to TAPS taps of some columns: where each begins to read, and whose sum it is. */
struct tap_list {
    int n;
    int64_t source[TAPS], tap[TAPS];
};

/* sums[tap] += products of one vector of channels over n columns; dtype and n_taps are constants.
 */
LANES_INLINE void add_products(enum dtype dtype, const struct weight_job *j,
                               const struct tap_list *l, int64_t result, int64_t n,
                               int64_t n_channels, float *sums, int n_taps)
{
    const struct conv_pass *p = &j->pass;
    int64_t step = p->axis[2].source_step * p->groups;
    lanes sum[TAPS];
    UNROLL for (int t = 0; t < n_taps; t++)
    {
        sum[t] = lanes_load(sums + l->tap[t] * j->width);
    }
    for (int64_t i = 0; i < n; i++) {
        lanes dy = lanes_read_as(&j->c->in[1], dtype, result + i * p->groups, n_channels);
        UNROLL for (int t = 0; t < n_taps; t++)
        {
            lanes x = lanes_read_as(&j->c->in[0], dtype, l->source[t] + i * step, n_channels);
            sum[t] = lanes_fma(x, dy, sum[t]);
        }
    }
    UNROLL for (int t = 0; t < n_taps; t++)
    {
        lanes_store(sums + l->tap[t] * j->width, sum[t]);
    }
}

/* All channels of n columns with the taps of the list, which is then empty. */
static void add_list(const struct weight_job *j, struct tap_list *l, int64_t result, int64_t n,
                     float *sums)
{
    int64_t channels = j->pass.groups;
    enum dtype dtype = j->c->in[0].dtype;
    for (int64_t c = 0; c < channels; c += LANES) {
        int64_t n_channels = MIN(channels - c, (int64_t)LANES);
        struct tap_list own = {.n = l->n};
        for (int t = 0; t < l->n; t++) {
            own.source[t] = l->source[t] + c;
            own.tap[t] = l->tap[t];
        }
        if (l->n == TAPS) {
            LANES_BY_DTYPE(dtype, add_products, j, &own, result + c, n, n_channels, sums + c, TAPS);
            continue;
        }
        for (int t = 0; t < l->n; t++) {
            struct tap_list one = {1, {own.source[t]}, {own.tap[t]}};
            LANES_BY_DTYPE(dtype, add_products, j, &one, result + c, n, n_channels, sums + c, 1);
        }
    }
    l->n = 0;
}

static void add_columns(const struct weight_job *j, const struct depthwise_row *r, int64_t column,
                        int64_t n, struct tap_range taps, float *sums)
{
    const struct conv_pass *p = &j->pass;
    int64_t result = depthwise_result(p, r, column) * p->groups;
    struct tap_list l = {0};
    for (int64_t a = r->taps[0].first; a < r->taps[0].last; a++) {
        for (int64_t b = r->taps[1].first; b < r->taps[1].last; b++) {
            for (int64_t c = taps.first; c < taps.last; c++) {
                l.source[l.n] = depthwise_source(p, r, column, a, b, c) * p->groups;
                l.tap[l.n++] = depthwise_tap(p, a, b, c);
                if (l.n == TAPS)
                    add_list(j, &l, result, n, sums);
            }
        }
    }
    add_list(j, &l, result, n, sums);
}

static void sum_spans(const void *work, int64_t first, int64_t last, int thread)
{
    const struct weight_job *j = work;
    int64_t n_rows = depthwise_rows(&j->pass);
    (void)thread;
    for (int64_t span = first; span < last; span++) {
        float *sums = j->sums + span * j->n_taps * j->width;
        memset(sums, 0, (size_t)(j->n_taps * j->width) * sizeof(float));
        for (int64_t i = span * n_rows / j->n_spans; i < (span + 1) * n_rows / j->n_spans; i++) {
            struct depthwise_row r = depthwise_row_at(&j->pass, i);
            struct tap_range taps;
            for (int64_t column = 0, n; column < j->pass.axis[2].n; column += n) {
                n = depthwise_columns(&j->pass, column, &taps);
                add_columns(j, &r, column, n, taps, sums);
            }
        }
    }
}

/* dw [channels, taps] of all spans. */
static void write_weights(const struct weight_job *j)
{
    const struct op_call *c = j->c;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        float sum = 0.0f, added = 0.0f;
        for (int64_t span = 0; span < j->n_spans; span++)
            sum += j->sums[(span * j->n_taps + i % j->n_taps) * j->width + i / j->n_taps];
        if (call_has(c, 2))
            cpu_load_f32(&added, c->in[2].data, c->in[2].dtype, i, 1);
        sum += added;
        cpu_store_f32(c->out[0].data, c->out[0].dtype, i, &sum, 1);
    }
}

int64_t depthwise_grad_weight_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct weight_job j = job_of(c);
    (void)env;
    return j.n_spans * j.n_taps * j.width * (int64_t)sizeof(float);
}

enum status depthwise_grad_weight(const struct kernel_ctx *x, const struct op_call *c)
{
    struct weight_job j = job_of(c);
    j.sums = x->workspace;
    int64_t row_elems = j.pass.axis[2].n * j.pass.groups;
    cpu_loop(x, j.n_spans, depthwise_rows(&j.pass) * row_elems / j.n_spans, sum_spans, &j);
    write_weights(&j);
    return OK;
}
