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
    float *scratch;            /* of each thread: a copy of the source, and sums of a block */
    int64_t copy_floats, sums_floats;
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

/* Where results of a block lie: the first, and from row to row and column to column. */
struct result_steps {
    int64_t first, row, column;
};

static struct result_steps result_steps_of(const struct conv_pass *p, const struct pass_block *b,
                                           int64_t group, int64_t strip)
{
    const struct pass_axis *x = p->axis;
    int64_t channels = p->groups * p->result_channels;
    int64_t place = b->sample * p->result_size[0] + x[0].first + b->depth * x[0].step;
    place = place * p->result_size[1] + x[1].first + b->row * x[1].step;
    place = place * p->result_size[2] + x[2].first + b->column * x[2].step;
    return (struct result_steps){
        .first = place * channels + group * p->result_channels + strip * TILE_WIDTH,
        .row = x[1].step * p->result_size[2] * channels,
        .column = x[2].step * channels,
    };
}

/* sums + bias + base into n channels of the result. */
static void finish(const struct direct *d, const float *bias, int64_t at, int64_t n,
                   const float *sums)
{
    const lanes one = lanes_all(1.0f);
    for (int64_t k = 0; k < n; k += LANES) {
        int64_t left = MIN(n - k, (int64_t)LANES);
        lanes y = lanes_load(sums + k);
        if (d->bias)
            y = lanes_fma(lanes_load(bias + k), one, y);
        if (d->base)
            y = lanes_fma(lanes_read(d->base, at + k, left), one, y);
        lanes_write(d->result, at + k, left, y);
    }
}

/* Place i of a block, and the places after it row by row. */
struct cursor {
    int64_t row, column;
};

static void cursor_step(struct cursor *at, const struct pass_block *b)
{
    if (++at->column == b->n_columns) {
        at->column = 0;
        at->row++;
    }
}

/* The panel that begins with element `at` of the windows; returns where it ends. */
static int64_t fill_panel(const struct pass_view *v, int64_t at, struct tile_panel *panel)
{
    int64_t depth = v->n_taps[0] * v->n_taps[1] * v->n_taps[2] * v->run;
    int64_t end = MIN(depth, at + TILE_PANEL);
    panel->first = at == 0;
    panel->ahead_step = v->ahead_step;
    for (panel->n = 0; at < end; panel->n++) {
        int64_t tap = at / v->run, k = at % v->run;
        panel->stretch[panel->n] = (struct tile_stretch){
            .offset = tap / (v->n_taps[1] * v->n_taps[2]) * v->tap_step[0] +
                      tap / v->n_taps[2] % v->n_taps[1] * v->tap_step[1] +
                      tap % v->n_taps[2] * v->tap_step[2] + k,
            .length = MIN(v->run - k, end - at),
        };
        at += panel->stretch[panel->n].length;
    }
    return end;
}

/* sums[places][vectors * LANES] of the whole block with one panel. */
static void run_panel(const struct pass_view *v, const struct pass_block *b,
                      const struct tile_panel *panel, int vectors, float *sums)
{
    struct cursor at = {0, 0};
    while (at.row < b->n_rows) {
        const float *pixel[TILE_PIXELS];
        int n = 0;
        for (; n < tile_pixels(vectors) && at.row < b->n_rows; n++) {
            pixel[n] = v->data + at.row * v->row_step + at.column * v->column_step;
            cursor_step(&at, b);
        }
        tile_windows(panel, pixel, n, vectors, sums);
        sums += n * vectors * LANES;
    }
}

static void run_strip(const struct direct *d, const struct pass_view *v, const struct pass_block *b,
                      int64_t group, int64_t strip, float *sums)
{
    const struct conv_pass *p = &d->pass;
    int vectors = tile_vectors(p->result_channels, strip), width = vectors * LANES;
    int64_t n = MIN(p->result_channels - strip * TILE_WIDTH, (int64_t)width);
    int64_t depth = pass_taps(p) * p->source_channels, at = 0;
    const float *weights =
        d->packed + (group * tile_strips(p->result_channels) + strip) * strip_floats(p);
    do { /* once, for zeros, where nothing is read */
        struct tile_panel panel;
        panel.weights = weights + at * width;
        at = fill_panel(v, at, &panel);
        run_panel(v, b, &panel, vectors, sums);
    } while (at < depth);
    float bias[TILE_WIDTH] = {0};
    if (d->bias)
        cpu_load_f32(bias, d->bias->data, d->bias->dtype,
                     group * p->result_channels + strip * TILE_WIDTH, n);
    struct result_steps to = result_steps_of(p, b, group, strip);
    for (struct cursor i = {0, 0}; i.row < b->n_rows; cursor_step(&i, b), sums += width)
        finish(d, bias, to.first + i.row * to.row + i.column * to.column, n, sums);
}

/* Item: a part of the strips of a group at a block. */
static void run_blocks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct direct *d = job;
    const struct conv_pass *p = &d->pass;
    int64_t n_strips = tile_strips(p->result_channels);
    float *copy = d->scratch + thread * (d->copy_floats + d->sums_floats);
    for (int64_t i = first; i < last; i++) {
        int64_t part = i % d->n_parts, group = i / d->n_parts % p->groups;
        struct pass_block b = pass_block_at(p, &d->cut, i / d->n_parts / p->groups);
        struct pass_view v = pass_read(p, &b, group, d->source, copy);
        for (int64_t s = part * n_strips / d->n_parts; s < (part + 1) * n_strips / d->n_parts; s++)
            run_strip(d, &v, &b, group, s, copy + d->copy_floats);
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

static int64_t sums_floats(const struct pass_cut *cut)
{
    return cut->rows * cut->columns * TILE_WIDTH;
}

static int64_t pass_workspace(const struct conv_pass *p, enum dtype source,
                              const struct kernel_env *env)
{
    struct pass_cut cut = pass_cut_of(p, source, BLOCK_PLACES);
    int64_t scratch = align_floats(pass_copy_floats(p, &cut, source)) + sums_floats(&cut);
    return (align_floats(packed_floats(p)) + env->n_threads * scratch) * (int64_t)sizeof(float);
}

static void run_pass(const struct kernel_ctx *x, struct direct *d)
{
    const struct conv_pass *p = &d->pass;
    d->cut = pass_cut_of(p, d->source->dtype, BLOCK_PLACES);
    d->n_parts = part_count(p, &d->cut, x->env.n_threads);
    d->packed = x->workspace;
    d->scratch = d->packed + align_floats(packed_floats(p));
    d->copy_floats = align_floats(pass_copy_floats(p, &d->cut, d->source->dtype));
    d->sums_floats = sums_floats(&d->cut);
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
