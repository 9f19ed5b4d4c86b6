#include "device/cpu/convolution/weight_grad.h"

#include <string.h>

#include "device/cpu/convolution/tile.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/micro.h"
#include "device/cpu/support/block.h"

enum {
    BLOCK_PLACES = 112,            /* their gradients stay in the first-level cache */
    SPANS = 64,                    /* times strips: enough for many threads */
    SPAN_PLACES = 512,             /* at least, so that adding up sums costs nothing beside them */
    SUMS_FLOATS = 2 * 1024 * 1024, /* of all spans, unless one has more */
};

struct weight_grad {
    const struct op_call *c;
    struct conv_pass pass;
    struct pass_cut cut;
    int64_t n_strips, n_spans;
    int64_t depth;  /* weights of a feature: taps times channels of a group */
    float *sums;    /* [spans][groups][strips][depth][TILE_WIDTH] */
    float *scratch; /* of the threads */
    int64_t copy_floats, result_floats;
};

static int64_t align_floats(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

static struct weight_grad weight_grad_of(const struct op_call *c)
{
    struct conv_dims dims = conv_dims_of(c);
    struct weight_grad g = {.c = c, .pass = conv_forward_pass(&dims)};
    const struct conv_pass *p = &g.pass;
    g.cut = pass_cut_of(p, c->in[0].dtype, BLOCK_PLACES);
    g.n_strips = tile_strips(p->result_channels);
    g.depth = pass_taps(p) * p->source_channels;
    int64_t span_floats = p->groups * g.n_strips * g.depth * TILE_WIDTH;
    g.n_spans = MIN(SPANS / (p->groups * g.n_strips), p->batch * pass_places(p) / SPAN_PLACES);
    g.n_spans = MIN(g.n_spans, MIN(g.cut.n_blocks, SUMS_FLOATS / span_floats));
    g.n_spans = MAX(g.n_spans, (int64_t)1);
    g.copy_floats = align_floats(pass_copy_floats(p, &g.cut, c->in[0].dtype));
    g.result_floats = g.cut.rows * g.cut.columns * TILE_WIDTH;
    return g;
}

static int64_t sums_floats(const struct weight_grad *g)
{
    return g->n_spans * g->pass.groups * g->n_strips * g->depth * TILE_WIDTH;
}

/* ---- sums of a span -------------------------------------------------------------------------- */

/* Channels of a strip of the block's results, [places][width] as f32; zeros beside them. */
static void read_results(const struct weight_grad *g, const struct pass_block *b, int64_t channel,
                         int64_t n, int64_t width, float *to)
{
    const struct conv_pass *p = &g->pass;
    const struct tensor *dy = &g->c->in[1];
    int64_t channels = p->groups * p->result_channels;
    for (int64_t r = 0; r < b->n_rows; r++) {
        int64_t row = (b->sample * p->result_size[0] + b->depth) * p->result_size[1] + b->row + r;
        int64_t at = (row * p->result_size[2] + b->column) * channels + channel;
        for (int64_t i = 0; i < b->n_columns; i++, at += channels, to += width) {
            cpu_load_f32(to, dy->data, dy->dtype, at, n);
            memset(to + n, 0, (size_t)(width - n) * sizeof(float));
        }
    }
}

static void add_block(const struct weight_grad *g, const struct pass_block *b, int64_t group,
                      int64_t strip, float *sums, float *scratch)
{
    const struct conv_pass *p = &g->pass;
    int vectors = tile_vectors(p->result_channels, strip), width = vectors * LANES;
    int64_t n = MIN(p->result_channels - strip * TILE_WIDTH, (int64_t)width);
    float *results = scratch + g->copy_floats;
    struct pass_view v = pass_read(p, b, group, &g->c->in[0], scratch);
    read_results(g, b, group * p->result_channels + strip * TILE_WIDTH, n, width, results);
    for (int64_t i = 0; i < v.n_taps[0] * v.n_taps[1] * v.n_taps[2]; i++) {
        int64_t offset = i / (v.n_taps[1] * v.n_taps[2]) * v.tap_step[0] +
                         i / v.n_taps[2] % v.n_taps[1] * v.tap_step[1] +
                         i % v.n_taps[2] * v.tap_step[2];
        for (int64_t k = 0; k < v.run; k += tile_pixels(vectors))
            tile_results(&v, b, offset + k, (int)MIN(v.run - k, (int64_t)tile_pixels(vectors)),
                         results, vectors, sums + (i * v.run + k) * width);
    }
}

/* Item: a strip of a group, over a span of the blocks. */
static void sum_spans(const void *job, int64_t first, int64_t last, int thread)
{
    const struct weight_grad *g = job;
    float *scratch = g->scratch + thread * (g->copy_floats + g->result_floats);
    for (int64_t i = first; i < last; i++) {
        int64_t strip = i % g->n_strips, group = i / g->n_strips % g->pass.groups;
        int64_t span = i / g->n_strips / g->pass.groups, n = g->cut.n_blocks;
        float *sums = g->sums + i * g->depth * TILE_WIDTH;
        memset(sums, 0, (size_t)(g->depth * TILE_WIDTH) * sizeof(float));
        for (int64_t k = span * n / g->n_spans; k < (span + 1) * n / g->n_spans; k++) {
            struct pass_block b = pass_block_at(&g->pass, &g->cut, k);
            add_block(g, &b, group, strip, sums, scratch);
        }
    }
}

/* ---- the gradient ---------------------------------------------------------------------------- */

/* Sums of all spans of one vector of features and LANES weights of each: [weights][features]. */
static void add_spans(const struct weight_grad *g, int64_t i_strip, int64_t at, int64_t width,
                      int64_t n, float square[MICRO_SQUARE * MICRO_SQUARE])
{
    int64_t step = g->pass.groups * g->n_strips * g->depth * TILE_WIDTH;
    for (int64_t k = 0; k < n; k++) {
        const float *from = g->sums + i_strip * g->depth * TILE_WIDTH + at + k * width;
        lanes sum = lanes_load(from), one = lanes_all(1.0f);
        for (int64_t s = 1; s < g->n_spans; s++)
            sum = lanes_fma(one, lanes_load(from + s * step), sum);
        lanes_store(square + k * MICRO_SQUARE, sum);
    }
}

/* Weights first .. first + n of a vector of features, from column v of the strip on. */
static void write_square(const struct weight_grad *g, int64_t i_strip, int64_t v, int64_t first,
                         int64_t n)
{
    const struct conv_pass *p = &g->pass;
    const struct tensor *dw = &g->c->out[0];
    int64_t strip = i_strip % g->n_strips, group = i_strip / g->n_strips;
    int64_t width = tile_vectors(p->result_channels, strip) * LANES;
    int64_t channel = strip * TILE_WIDTH + v;
    int64_t n_features = MIN(p->result_channels - channel, (int64_t)LANES);
    float square[MICRO_SQUARE * MICRO_SQUARE] = {0}, added[MICRO_SQUARE];
    add_spans(g, i_strip, first * width + v, width, n, square);
    micro_transpose(square);
    for (int64_t f = 0; f < n_features; f++) {
        int64_t at = (group * p->result_channels + channel + f) * g->depth + first;
        float *sums = square + f * MICRO_SQUARE;
        if (call_has(g->c, 2)) {
            cpu_load_f32(added, g->c->in[2].data, g->c->in[2].dtype, at, n);
            for (int64_t k = 0; k < n; k++)
                sums[k] += added[k];
        }
        cpu_store_f32(dw->data, dw->dtype, at, sums, n);
    }
}

/* Item: LANES weights of all features of a strip. */
static void write_weights(const void *job, int64_t first, int64_t last, int thread)
{
    const struct weight_grad *g = job;
    int64_t n_pieces = (g->depth + LANES - 1) / LANES;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        int64_t i_strip = i / n_pieces, at = i % n_pieces * LANES;
        int64_t width = tile_vectors(g->pass.result_channels, i_strip % g->n_strips) * LANES;
        for (int64_t v = 0; v < width; v += LANES)
            write_square(g, i_strip, v, at, MIN(g->depth - at, (int64_t)LANES));
    }
}

int64_t conv_grad_weight_direct_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct weight_grad g = weight_grad_of(c);
    int64_t scratch = env->n_threads * (g.copy_floats + g.result_floats);
    return (sums_floats(&g) + scratch) * (int64_t)sizeof(float);
}

enum status conv_grad_weight_direct(const struct kernel_ctx *x, const struct op_call *c)
{
    struct weight_grad g = weight_grad_of(c);
    int64_t n_strips = g.pass.groups * g.n_strips, n_pieces = (g.depth + LANES - 1) / LANES;
    g.sums = x->workspace;
    g.scratch = g.sums + sums_floats(&g);
    team_run(x->env.team, g.n_spans * n_strips, 1, sum_spans, &g);
    cpu_loop(x, n_strips * n_pieces, LANES * TILE_WIDTH * g.n_spans, write_weights, &g);
    return OK;
}
