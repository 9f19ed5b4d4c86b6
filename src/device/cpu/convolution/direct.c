#include "device/cpu/convolution/direct.h"

#include <string.h>

#include "device/cpu/convolution/tile.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/micro.h"
#include "device/cpu/support/block.h"

enum { BLOCK_PLACES = 224 }; /* of a block: packed weights are read once for each tile of it */

/* One pass over the result, and what all its threads share. */
struct direct {
    struct conv_pass pass;
    struct pass_cut cut;
    const struct tensor *source, *weights, *result;
    const struct tensor *base; /* what the result is added to, perhaps itself; NULL: nothing */
    const struct tensor *bias; /* NULL: none */
    bool transposed;           /* weights are [channels of the source, taps, of the result] */
    int64_t n_parts;           /* that the strips of a block are cut into */
    float *packed;             /* weights: [groups][strips][taps][source channels][TILE_WIDTH] */
    float *scratch;            /* of the threads, copy_floats each */
    int64_t copy_floats;
};

/* ---- packed weights -------------------------------------------------------------------------- */

static int64_t strip_floats(const struct conv_pass *p)
{
    return pass_taps(p) * p->source_channels * TILE_WIDTH;
}

static int64_t packed_floats(const struct conv_pass *p)
{
    return p->groups * tile_strips(p->result_channels) * strip_floats(p);
}

/* n <= LANES rows of n_k <= LANES elements, `row` apart, as columns of `to`; zeros beside them. */
static void pack_square(float *to, int64_t width, const struct tensor *w, int64_t from, int64_t row,
                        int64_t n, int64_t n_k)
{
    float square[MICRO_SQUARE * MICRO_SQUARE] = {0};
    for (int64_t i = 0; i < n; i++)
        cpu_load_f32(square + i * MICRO_SQUARE, w->data, w->dtype, from + i * row, n_k);
    micro_transpose(square);
    for (int64_t k = 0; k < n_k; k++)
        memcpy(to + k * width, square + k * MICRO_SQUARE, LANES * sizeof(float));
}

/* Weights [result channels, taps, source channels] of one tap, a vector of result channels: a
 * transposition. */
static void pack_forward(const struct direct *d, int64_t tap, int64_t channel, int64_t n, float *to,
                         int64_t width)
{
    const struct conv_pass *p = &d->pass;
    int64_t depth = p->source_channels, n_taps = window_places(p->kernel);
    for (int64_t k = 0; k < depth; k += LANES)
        pack_square(to + k * width, width, d->weights, (channel * n_taps + tap) * depth + k,
                    n_taps * depth, n, MIN(depth - k, (int64_t)LANES));
}

/* Weights [source channels, taps, result channels]: lines as they are. */
static void pack_transposed(const struct direct *d, int64_t group, int64_t tap, int64_t channel,
                            int64_t n, float *to, int64_t width)
{
    const struct conv_pass *p = &d->pass;
    int64_t n_taps = window_places(p->kernel);
    for (int64_t k = 0; k < p->source_channels; k++) {
        int64_t line = (group * p->source_channels + k) * n_taps + tap;
        cpu_load_f32(to + k * width, d->weights->data, d->weights->dtype,
                     line * p->result_channels + channel, n);
        memset(to + k * width + n, 0, (size_t)(LANES - n) * sizeof(float));
    }
}

/* Item: a tap of a strip of a group. */
static void pack_taps(const void *job, int64_t first, int64_t last, int thread)
{
    const struct direct *d = job;
    const struct conv_pass *p = &d->pass;
    int64_t n_taps = pass_taps(p), n_strips = tile_strips(p->result_channels);
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t tap = i % n_taps, strip = i / n_taps % n_strips, group = i / n_taps / n_strips;
        int64_t width = tile_vectors(p->result_channels, strip) * LANES;
        float *to = d->packed + i / n_taps * strip_floats(p) + tap * p->source_channels * width;
        for (int64_t v = 0; v < width; v += LANES) {
            int64_t channel = strip * TILE_WIDTH + v;
            int64_t n = MIN(p->result_channels - channel, (int64_t)LANES);
            if (d->transposed)
                pack_transposed(d, group, pass_kernel_tap(p, tap), channel, n, to + v, width);
            else
                pack_forward(d, pass_kernel_tap(p, tap), group * p->result_channels + channel, n,
                             to + v, width);
        }
    }
}

/* ---- one block ------------------------------------------------------------------------------- */

/* Where a strip of a result's channels begins. */
static int64_t result_at(const struct conv_pass *p, const struct pass_block *b, int64_t i,
                         int64_t group, int64_t strip)
{
    const struct pass_axis *x = p->axis;
    int64_t row = b->row + i / b->n_columns, column = b->column + i % b->n_columns;
    int64_t place = b->sample * p->result_size[0] + x[0].first + b->depth * x[0].step;
    place = place * p->result_size[1] + x[1].first + row * x[1].step;
    place = place * p->result_size[2] + x[2].first + column * x[2].step;
    return (place * p->groups + group) * p->result_channels + strip * TILE_WIDTH;
}

/* sums + bias + base into the result. */
static void finish(const struct direct *d, const float *bias, int64_t at, int64_t n, float *sums)
{
    const struct tensor *result = d->result, *base = d->base;
    float added[TILE_WIDTH];
    for (int64_t k = 0; bias && k < n; k++)
        sums[k] += bias[k];
    if (base) {
        cpu_load_f32(added, base->data, base->dtype, at, n);
        for (int64_t k = 0; k < n; k++)
            sums[k] += added[k];
    }
    cpu_store_f32(result->data, result->dtype, at, sums, n);
}

static void run_strip(const struct direct *d, const struct pass_view *v, const struct pass_block *b,
                      int64_t group, int64_t strip)
{
    const struct conv_pass *p = &d->pass;
    int vectors = tile_vectors(p->result_channels, strip), width = vectors * LANES;
    int64_t n = MIN(p->result_channels - strip * TILE_WIDTH, (int64_t)width);
    int64_t n_places = b->n_rows * b->n_columns;
    const float *weights =
        d->packed + (group * tile_strips(p->result_channels) + strip) * strip_floats(p);
    float sums[TILE_PIXELS * TILE_WIDTH], bias[TILE_WIDTH];
    if (d->bias)
        cpu_load_f32(bias, d->bias->data, d->bias->dtype,
                     group * p->result_channels + strip * TILE_WIDTH, n);
    for (int64_t first = 0; first < n_places; first += tile_pixels(vectors)) {
        const float *pixel[TILE_PIXELS];
        int n_pixels = (int)MIN(n_places - first, (int64_t)tile_pixels(vectors));
        for (int i = 0; i < n_pixels; i++)
            pixel[i] = v->data + (first + i) / b->n_columns * v->row_step +
                       (first + i) % b->n_columns * v->column_step;
        tile_windows(v, pixel, n_pixels, weights, vectors, sums);
        for (int i = 0; i < n_pixels; i++)
            finish(d, d->bias ? bias : NULL, result_at(p, b, first + i, group, strip), n,
                   sums + i * width);
    }
}

/* Item: a part of the strips of a group at a block. */
static void run_blocks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct direct *d = job;
    const struct conv_pass *p = &d->pass;
    int64_t n_strips = tile_strips(p->result_channels);
    float *copy = d->scratch + thread * d->copy_floats;
    for (int64_t i = first; i < last; i++) {
        int64_t part = i % d->n_parts, group = i / d->n_parts % p->groups;
        struct pass_block b = pass_block_at(p, &d->cut, i / d->n_parts / p->groups);
        struct pass_view v = pass_read(p, &b, group, d->source, copy);
        for (int64_t s = part * n_strips / d->n_parts; s < (part + 1) * n_strips / d->n_parts; s++)
            run_strip(d, &v, &b, group, s);
    }
}

/* ---- a pass ---------------------------------------------------------------------------------- */

static int64_t align_floats(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* Where blocks are few for so many threads, each is given out in parts. */
static int64_t part_count(const struct conv_pass *p, const struct pass_cut *cut, int n_threads)
{
    int64_t n_strips = tile_strips(p->result_channels), items = MAX(cut->n_blocks * p->groups, 1);
    return MIN(n_strips, (4 * n_threads + items - 1) / items);
}

static int64_t pass_workspace(const struct conv_pass *p, enum dtype source,
                              const struct kernel_env *env)
{
    struct pass_cut cut = pass_cut_of(p, source, BLOCK_PLACES);
    int64_t copies = env->n_threads * align_floats(pass_copy_floats(p, &cut, source));
    return (align_floats(packed_floats(p)) + copies) * (int64_t)sizeof(float);
}

static void run_pass(const struct kernel_ctx *x, struct direct *d)
{
    const struct conv_pass *p = &d->pass;
    d->cut = pass_cut_of(p, d->source->dtype, BLOCK_PLACES);
    d->n_parts = part_count(p, &d->cut, x->env.n_threads);
    d->packed = x->workspace;
    d->scratch = d->packed + align_floats(packed_floats(p));
    d->copy_floats = align_floats(pass_copy_floats(p, &d->cut, d->source->dtype));
    int64_t n_taps = p->groups * tile_strips(p->result_channels) * pass_taps(p);
    int64_t tap_floats = p->source_channels * MIN(p->result_channels, (int64_t)TILE_WIDTH);
    cpu_loop(x, n_taps, tap_floats, pack_taps, d);
    team_run(x->env.team, d->cut.n_blocks * p->groups * d->n_parts, 1, run_blocks, d);
}

int64_t conv_direct_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_dims dims = conv_dims_of(c);
    struct conv_pass p = conv_forward_pass(&dims);
    return pass_workspace(&p, c->in[0].dtype, env);
}

enum status conv_direct(const struct kernel_ctx *x, const struct op_call *c)
{
    struct conv_dims dims = conv_dims_of(c);
    struct direct d = {
        .pass = conv_forward_pass(&dims),
        .source = &c->in[0],
        .weights = &c->in[1],
        .result = &c->out[0],
        .bias = call_has(c, 2) ? &c->in[2] : NULL,
    };
    run_pass(x, &d);
    return OK;
}

int64_t conv_grad_input_direct_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct conv_dims dims = conv_dims_of(c);
    int64_t most = 0;
    for (int64_t i = 0; i < conv_input_passes(&dims); i++) {
        struct conv_pass p = conv_input_pass(&dims, i);
        most = MAX(most, pass_workspace(&p, c->in[0].dtype, env));
    }
    return most;
}

enum status conv_grad_input_direct(const struct kernel_ctx *x, const struct op_call *c)
{
    struct conv_dims dims = conv_dims_of(c);
    struct direct d = {
        .source = &c->in[0],
        .weights = &c->in[1],
        .result = &c->out[0],
        .base = call_has(c, 2) ? &c->in[2] : NULL,
        .transposed = true,
    };
    for (int64_t i = 0; i < conv_input_passes(&dims); i++) {
        d.pass = conv_input_pass(&dims, i);
        run_pass(x, &d);
    }
    return OK;
}
