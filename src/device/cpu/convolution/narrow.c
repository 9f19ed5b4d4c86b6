#include "device/cpu/convolution/narrow.h"

#include <string.h>

#include "device/cpu/convolution/lanes.h"
#include "device/cpu/convolution/pass.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/micro.h"
#include "device/cpu/support/block.h"

enum {
    TILE = CPU_GEMM_AVX512 ? LANES : 4, /* places whose products are in registers */
    BAND_FLOATS = 16 * 1024,            /* sums of a band: they stay in the second-level cache */
    LEAST_ROWS = 4, /* of a band: rows of the source at its edge are read twice */
};

/* One pass over the result, and what all its threads share. */
struct narrow {
    struct conv_pass pass;
    const struct tensor *source, *weights, *result;
    const struct tensor *base; /* what the result is added to, perhaps itself; NULL: nothing */
    const struct tensor *bias; /* NULL: none */
    bool transposed;           /* weights are [channels of the source, taps, of the result] */
    int64_t n_rows, n_bands;   /* of the result: rows of a band, bands of a sample */
    int64_t margin, width;     /* of a row of sums: columns before the first, and all */
    float *packed;             /* weights: [source channels][LANES], a lane a tap's channel */
    float *scratch;            /* of each thread: sixteen places of the source, sums of a band */
};

static int64_t lanes_used(const struct conv_pass *p)
{
    return pass_taps(p) * p->result_channels;
}

/* Columns j of the result that column i of the source reaches: i - source_first - m tap_step. */
static struct narrow narrow_of(const struct conv_pass *p)
{
    const struct pass_axis *column = &p->axis[2];
    int64_t reach = column->source_first + MAX(column->n_taps - 1, (int64_t)0) * column->tap_step;
    struct narrow n = {.pass = *p, .margin = MAX(reach, (int64_t)0)};
    int64_t last = MAX(p->source_size[2] - column->source_first, column->n);
    n.width = n.margin + last + 2 * LANES;
    int64_t rows = BAND_FLOATS / (n.width * p->result_channels);
    n.n_rows = MIN(MAX(rows, (int64_t)LEAST_ROWS), MAX(p->axis[1].n, (int64_t)1));
    n.n_bands = (p->axis[1].n + n.n_rows - 1) / n.n_rows;
    return n;
}

/* ---- packed weights -------------------------------------------------------------------------- */

static void pack(const struct narrow *n)
{
    const struct conv_pass *p = &n->pass;
    int64_t n_taps = window_places(p->kernel), n_out = p->result_channels;
    memset(n->packed, 0, (size_t)(p->source_channels * LANES) * sizeof(float));
    for (int64_t c = 0; c < p->source_channels; c++) {
        for (int64_t lane = 0; lane < lanes_used(p); lane++) {
            int64_t tap = pass_kernel_tap(p, lane / n_out), r = lane % n_out;
            int64_t at = n->transposed ? (c * n_taps + tap) * n_out + r
                                       : (r * n_taps + tap) * p->source_channels + c;
            cpu_load_f32(n->packed + c * LANES + lane, n->weights->data, n->weights->dtype, at, 1);
        }
    }
}

/* ---- a row of the source --------------------------------------------------------------------- */

/* square[place][lane] of TILE places, `channels` apart. */
LANES_INLINE void multiply_places(const float *x, int64_t channels, const float *weights,
                                  float *square)
{
    lanes sum[TILE];
    UNROLL for (int i = 0; i < TILE; i++)
    {
        sum[i] = lanes_all(0.0f);
    }
    for (int64_t c = 0; c < channels; c++, weights += LANES) {
        lanes w = lanes_load(weights);
        UNROLL for (int i = 0; i < TILE; i++)
        {
            sum[i] = lanes_fma(lanes_all(x[i * channels + c]), w, sum[i]);
        }
    }
    UNROLL for (int i = 0; i < TILE; i++)
    {
        lanes_store(square + i * LANES, sum[i]);
    }
}

/* Products of up to sixteen places of the source, from element `at` on: [lane][place], zeros where
 * there are no places. */
static void multiply_square(const struct narrow *n, int64_t at, int64_t n_places, float *copy,
                            float square[LANES * LANES])
{
    int64_t channels = n->pass.source_channels;
    const float *x = copy;
    if (n_places == LANES && n->source->dtype == DTYPE_F32) {
        x = (const float *)n->source->data + at;
    } else {
        cpu_load_f32(copy, n->source->data, n->source->dtype, at, n_places * channels);
        memset(copy + n_places * channels, 0,
               (size_t)((LANES - n_places) * channels) * sizeof(float));
    }
    for (int i = 0; i < LANES; i += TILE)
        multiply_places(x + i * channels, channels, n->packed, square + (ptrdiff_t)i * LANES);
    micro_transpose(square);
}

/* Adds what row y of the source gives to rows first .. last - 1 of the result, whose sums these
 * are. */
static void add_row(const struct narrow *n, int64_t sample_row, int64_t y, int64_t first,
                    int64_t last, float *copy, float *sums)
{
    const struct conv_pass *p = &n->pass;
    const struct pass_axis *row = &p->axis[1], *column = &p->axis[2];
    float square[LANES * LANES];
    for (int64_t x = 0; x < p->source_size[2]; x += LANES) {
        int64_t n_places = MIN(p->source_size[2] - x, (int64_t)LANES);
        int64_t at = ((sample_row + y) * p->source_size[2] + x) * p->source_channels;
        multiply_square(n, at, n_places, copy, square);
        for (int64_t lane = 0; lane < lanes_used(p); lane++) {
            int64_t tap = lane / p->result_channels, r = lane % p->result_channels;
            int64_t j = y - row->source_first - tap / column->n_taps * row->tap_step;
            int64_t i = x - column->source_first - tap % column->n_taps * column->tap_step;
            if (j < first || j >= last)
                continue;
            float *to = sums + ((j - first) * p->result_channels + r) * n->width + n->margin + i;
            lanes_store(
                to, lanes_fma(lanes_all(1.0f), lanes_load(square + lane * LANES), lanes_load(to)));
        }
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

/* n columns of a channel, `step` elements apart: base + sums into the result. */
static void write_columns(const struct narrow *n, int64_t at, int64_t step, int64_t n_columns,
                          float *sums)
{
    float base[LANES];
    if (step != 1) {
        for (int64_t i = 0; i < n_columns; i++)
            write_columns(n, at + i * step, 1, 1, sums + i);
        return;
    }
    for (int64_t i = 0; i < n_columns && n->base; i += LANES) {
        int64_t size = MIN(n_columns - i, (int64_t)LANES);
        cpu_load_f32(base, n->base->data, n->base->dtype, at + i, size);
        for (int64_t k = 0; k < size; k++)
            sums[i + k] += base[k];
    }
    cpu_store_f32(n->result->data, n->result->dtype, at, sums, n_columns);
}

/* sums + bias + base into a row of the result. */
static void finish_row(const struct narrow *n, int64_t sample, int64_t depth, int64_t j,
                       float *sums)
{
    const struct conv_pass *p = &n->pass;
    const struct pass_axis *x = p->axis;
    int64_t place = sample * p->result_size[0] + x[0].first + depth * x[0].step;
    place = (place * p->result_size[1] + x[1].first + j * x[1].step) * p->result_size[2];
    for (int64_t r = 0; r < p->result_channels; r++, sums += n->width) {
        float bias = 0.0f, *own = sums + n->margin;
        if (n->bias)
            cpu_load_f32(&bias, n->bias->data, n->bias->dtype, r, 1);
        for (int64_t i = 0; i < x[2].n && n->bias; i++)
            own[i] += bias;
        write_columns(n, (place + x[2].first) * p->result_channels + r,
                      x[2].step * p->result_channels, x[2].n, own);
    }
}

static int64_t copy_floats(const struct narrow *n)
{
    return LANES * n->pass.source_channels;
}
static int64_t sums_floats(const struct narrow *n)
{
    return (n->n_rows * n->pass.result_channels * n->width + LANES - 1) / LANES * LANES;
}

/* Item: a band of rows at a depth of a sample. */
static void run_bands(const void *job, int64_t first, int64_t last, int thread)
{
    const struct narrow *n = job;
    const struct conv_pass *p = &n->pass;
    const struct pass_axis *row = &p->axis[1];
    float *copy = n->scratch + thread * (copy_floats(n) + sums_floats(n));
    float *sums = copy + copy_floats(n);
    for (int64_t item = first; item < last; item++) {
        int64_t j = item % n->n_bands * n->n_rows, end = MIN(j + n->n_rows, row->n);
        int64_t depth = item / n->n_bands % p->axis[0].n, sample = item / n->n_bands / p->axis[0].n;
        int64_t reach = (row->n_taps - 1) * row->tap_step;
        int64_t y = MAX(j + row->source_first, (int64_t)0);
        int64_t y_end = MIN(end - 1 + row->source_first + reach + 1, p->source_size[1]);
        int64_t plane = p->axis[0].source_first + depth;
        memset(sums, 0, (size_t)sums_floats(n) * sizeof(float));
        if (pass_taps(p) > 0 && plane >= 0 && plane < p->source_size[0]) {
            int64_t sample_row = (sample * p->source_size[0] + plane) * p->source_size[1];
            for (; y < y_end; y++)
                add_row(n, sample_row, y, j, end, copy, sums);
        }
        for (int64_t k = j; k < end; k++)
            finish_row(n, sample, depth, k, sums + (k - j) * p->result_channels * n->width);
    }
}

static void run_pass(const struct kernel_ctx *x, struct narrow n)
{
    n.packed = x->workspace;
    n.scratch = n.packed + n.pass.source_channels * LANES;
    pack(&n);
    team_run(x->env.team, n.pass.batch * n.pass.axis[0].n * n.n_bands, 1, run_bands, &n);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static const char *pass_declines(const struct conv_pass *p)
{
    if (p->groups != 1)
        return "it is for one group";
    if (p->axis[0].n_taps > 1 || p->axis[0].source_step != 1)
        return "it is for windows in one or two axes";
    if (p->axis[1].source_step != 1 || p->axis[2].source_step != 1)
        return "it is for a stride of one";
    if (lanes_used(p) > LANES)
        return "its taps and channels together are more than sixteen";
    return NULL;
}

static int64_t pass_workspace(const struct conv_pass *p, const struct kernel_env *env)
{
    struct narrow n = narrow_of(p);
    int64_t scratch = env->n_threads * (copy_floats(&n) + sums_floats(&n));
    return (p->source_channels * LANES + scratch) * (int64_t)sizeof(float);
}

const char *conv_narrow_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_dims dims = conv_dims_of(c);
    struct conv_pass p = conv_forward_pass(&dims);
    if (pass_taps(&p) == 1)
        return "a window of one element has no taps to put into lanes";
    const char *why = pass_declines(&p);
    return why ? why : cpu_declines_f64(c, env);
}

int64_t conv_narrow_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_dims dims = conv_dims_of(c);
    struct conv_pass p = conv_forward_pass(&dims);
    return pass_workspace(&p, env);
}

enum status conv_narrow(const struct kernel_ctx *x, const struct op_call *c)
{
    struct conv_dims dims = conv_dims_of(c);
    struct conv_pass p = conv_forward_pass(&dims);
    struct narrow n = narrow_of(&p);
    n.source = &c->in[0];
    n.weights = &c->in[1];
    n.result = &c->out[0];
    n.bias = call_has(c, 2) ? &c->in[2] : NULL;
    run_pass(x, n);
    return OK;
}

const char *conv_grad_input_narrow_declines(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_dims dims = conv_dims_of(c);
    const char *why = cpu_declines_f64(c, env);
    int64_t n_taps = 0;
    for (int64_t i = 0; i < conv_input_passes(&dims) && !why; i++) {
        struct conv_pass p = conv_input_pass(&dims, i);
        n_taps = MAX(n_taps, pass_taps(&p));
        why = pass_declines(&p);
    }
    if (!why && n_taps <= 1)
        why = "a place that one element of a window reads has no taps to put into lanes";
    return why;
}

int64_t conv_grad_input_narrow_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_dims dims = conv_dims_of(c);
    int64_t most = 0;
    for (int64_t i = 0; i < conv_input_passes(&dims); i++) {
        struct conv_pass p = conv_input_pass(&dims, i);
        most = MAX(most, pass_workspace(&p, env));
    }
    return most;
}

enum status conv_grad_input_narrow(const struct kernel_ctx *x, const struct op_call *c)
{
    struct conv_dims dims = conv_dims_of(c);
    for (int64_t i = 0; i < conv_input_passes(&dims); i++) {
        struct conv_pass p = conv_input_pass(&dims, i);
        struct narrow n = narrow_of(&p);
        n.source = &c->in[0];
        n.weights = &c->in[1];
        n.result = &c->out[0];
        n.base = call_has(c, 2) ? &c->in[2] : NULL;
        n.transposed = true;
        run_pass(x, n);
    }
    return OK;
}
