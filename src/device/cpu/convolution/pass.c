#include "device/cpu/convolution/pass.h"

#include <string.h>

#include "device/cpu/cpu_kernels.h"

enum {
    COPY_FLOATS = 48 * 1024, /* of a block: it stays in the second-level cache */
    LEAST_COLUMNS = 16,
};

/* ---- the passes ------------------------------------------------------------------------------ */

struct conv_pass conv_forward_pass(const struct conv_dims *d)
{
    const struct window *w = &d->window;
    struct conv_pass p = {
        .batch = w->batch,
        .groups = d->groups,
        .source_channels = d->channels / d->groups,
        .result_channels = d->features / d->groups,
    };
    for (int a = 0; a < WINDOW_AXES; a++) {
        p.source_size[a] = w->size[a];
        p.result_size[a] = w->out[a];
        p.kernel[a] = w->kernel[a];
        p.axis[a] = (struct pass_axis){
            .n = w->out[a],
            .step = 1,
            .source_first = -w->pad_before[a],
            .source_step = w->stride[a],
            .n_taps = w->kernel[a],
            .tap_step = w->dilation[a],
            .tap_next = 1,
        };
    }
    return p;
}

/* Residues of an axis that places have. */
static int64_t residues(const struct window *w, int a)
{
    return MIN(w->stride[a], w->size[a]);
}

int64_t conv_input_passes(const struct conv_dims *d)
{
    const struct window *w = &d->window;
    return residues(w, 0) * residues(w, 1) * residues(w, 2);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The places `residue` + j stride of dx: which taps reach them, the last first, so that the places
 * of dy ascend. */
static struct pass_axis residue_axis(const struct window *w, int a, int64_t residue)
{
    int64_t stride = w->stride[a], dilation = w->dilation[a];
    int64_t divisor = common_divisor(stride, dilation), next = stride / divisor;
    int64_t from = residue + w->pad_before[a], tap = 0;
    struct pass_axis x = {
        .n = (w->size[a] - residue + stride - 1) / stride,
        .first = residue,
        .step = stride,
        .source_step = 1,
        .tap_step = dilation / divisor,
        .tap_next = -next,
    };
    while (tap < MIN(next, w->kernel[a]) && (from - tap * dilation) % stride != 0)
        tap++;
    if (tap >= MIN(next, w->kernel[a]))
        return x; /* no tap reaches them */
    x.n_taps = (w->kernel[a] - 1 - tap) / next + 1;
    x.tap = tap + (x.n_taps - 1) * next;
    x.source_first = (from - x.tap * dilation) / stride;
    return x;
}

struct conv_pass conv_input_pass(const struct conv_dims *d, int64_t i)
{
    const struct window *w = &d->window;
    struct conv_pass p = {
        .batch = w->batch,
        .groups = d->groups,
        .source_channels = d->features / d->groups,
        .result_channels = d->channels / d->groups,
    };
    for (int a = WINDOW_AXES - 1; a >= 0; a--) {
        p.source_size[a] = w->out[a];
        p.result_size[a] = w->size[a];
        p.kernel[a] = w->kernel[a];
        p.axis[a] = residue_axis(w, a, i % residues(w, a));
        i /= residues(w, a);
    }
    return p;
}

int64_t pass_kernel_tap(const struct conv_pass *p, int64_t i)
{
    const struct pass_axis *x = p->axis;
    int64_t at[WINDOW_AXES] = {i / (x[1].n_taps * x[2].n_taps), i / x[2].n_taps % x[1].n_taps,
                               i % x[2].n_taps};
    int64_t tap = 0;
    for (int a = 0; a < WINDOW_AXES; a++)
        tap = tap * p->kernel[a] + x[a].tap + at[a] * x[a].tap_next;
    return tap;
}

struct tap_range pass_taps_inside(const struct conv_pass *p, int a, int64_t j)
{
    const struct pass_axis *x = &p->axis[a];
    int64_t base = x->source_first + j * x->source_step, left = p->source_size[a] - base;
    struct tap_range r = {0, x->n_taps};
    if (base < 0)
        r.first = (-base + x->tap_step - 1) / x->tap_step;
    r.last = left > 0 ? MIN(r.last, (left - 1) / x->tap_step + 1) : 0;
    r.first = MIN(r.first, r.last);
    return r;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Places of the source along an axis that n results in a row reach over. */
static int64_t reach(const struct pass_axis *x, int64_t n)
{
    return (n - 1) * x->source_step + MAX(x->n_taps - 1, (int64_t)0) * x->tap_step + 1;
}

static bool stays_inside(const struct conv_pass *p)
{
    for (int a = 0; a < WINDOW_AXES; a++) {
        const struct pass_axis *x = &p->axis[a];
        if (x->source_first < 0 || x->source_first + reach(x, x->n) > p->source_size[a])
            return false;
    }
    return true;
}

static bool reads_in_place(const struct conv_pass *p, enum dtype source)
{
    return pass_taps(p) == 0 || (source == DTYPE_F32 && stays_inside(p));
}

static int64_t copy_floats(const struct conv_pass *p, int64_t n_rows, int64_t n_columns)
{
    if (n_rows == 0 || n_columns == 0)
        return 0;
    return p->axis[0].n_taps * reach(&p->axis[1], n_rows) * reach(&p->axis[2], n_columns) *
           p->source_channels;
}

/* As many columns as a copy may have, then as many rows. */
struct pass_cut pass_cut_of(const struct conv_pass *p, enum dtype source, int64_t places)
{
    const struct pass_axis *row = &p->axis[1], *column = &p->axis[2];
    bool copies = !reads_in_place(p, source);
    struct pass_cut cut = {.rows = 1, .columns = MIN(column->n, places)};
    while (copies && cut.columns > LEAST_COLUMNS && copy_floats(p, 1, cut.columns) > COPY_FLOATS)
        cut.columns = (cut.columns + 1) / 2;
    while (cut.rows < row->n && (cut.rows + 1) * cut.columns <= places &&
           (!copies || copy_floats(p, cut.rows + 1, cut.columns) <= COPY_FLOATS))
        cut.rows++;
    cut.n_columns = column->n ? (column->n + cut.columns - 1) / cut.columns : 0;
    cut.n_rows = (row->n + cut.rows - 1) / cut.rows;
    cut.rows = cut.n_rows ? (row->n + cut.n_rows - 1) / cut.n_rows : 1; /* evenly */
    cut.n_blocks = p->batch * p->axis[0].n * cut.n_rows * cut.n_columns;
    return cut;
}

struct pass_block pass_block_at(const struct conv_pass *p, const struct pass_cut *cut, int64_t i)
{
    struct pass_block b;
    b.column = i % cut->n_columns * cut->columns;
    i /= cut->n_columns;
    b.row = i % cut->n_rows * cut->rows;
    i /= cut->n_rows;
    b.depth = i % p->axis[0].n;
    b.sample = i / p->axis[0].n;
    b.n_rows = MAX(MIN(cut->rows, p->axis[1].n - b.row), (int64_t)0);
    b.n_columns = MIN(cut->columns, p->axis[2].n - b.column);
    return b;
}

/* ---- reading --------------------------------------------------------------------------------- */

int64_t pass_copy_floats(const struct conv_pass *p, const struct pass_cut *cut, enum dtype source)
{
    return reads_in_place(p, source) ? 0 : copy_floats(p, cut->rows, cut->columns);
}

/* Element of the source at a place of a sample, where the group's channels begin. */
static int64_t source_at(const struct conv_pass *p, int64_t sample, int64_t group,
                         const int64_t at[WINDOW_AXES])
{
    int64_t place = sample;
    for (int a = 0; a < WINDOW_AXES; a++)
        place = place * p->source_size[a] + at[a];
    return (place * p->groups + group) * p->source_channels;
}

/* Columns at[2] .. at[2] + n of a row of the source, zeros where there are none. */
static void copy_row(const struct conv_pass *p, int64_t sample, int64_t group,
                     const int64_t at[WINDOW_AXES], int64_t n, const struct tensor *source,
                     float *to)
{
    int64_t channels = p->source_channels;
    int64_t first = MIN(MAX(-at[2], (int64_t)0), n);
    int64_t last = MAX(MIN(n, p->source_size[2] - at[2]), first);
    bool inside =
        at[0] >= 0 && at[0] < p->source_size[0] && at[1] >= 0 && at[1] < p->source_size[1];
    if (!inside)
        first = last = n;
    memset(to, 0, (size_t)(first * channels) * sizeof(float));
    memset(to + last * channels, 0, (size_t)((n - last) * channels) * sizeof(float));
    if (first == last)
        return;
    int64_t from = source_at(p, sample, group, (int64_t[]){at[0], at[1], at[2] + first});
    if (p->groups == 1) {
        cpu_load_f32(to + first * channels, source->data, source->dtype, from,
                     (last - first) * channels);
        return;
    }
    for (int64_t i = first; i < last; i++, from += p->groups * channels)
        cpu_load_f32(to + i * channels, source->data, source->dtype, from, channels);
}

static struct pass_view view_in_place(const struct conv_pass *p, const int64_t at[WINDOW_AXES],
                                      const struct pass_block *b, int64_t group,
                                      const struct tensor *source)
{
    int64_t pixel = p->groups * p->source_channels, row = p->source_size[2] * pixel;
    if (pass_taps(p) == 0)
        return (struct pass_view){.data = source->data}; /* nothing is read */
    return (struct pass_view){
        .data = (const float *)source->data + source_at(p, b->sample, group, at),
        .row_step = p->axis[1].source_step * row,
        .column_step = p->axis[2].source_step * pixel,
        .ahead_step = p->axis[2].source_step * pixel,
        .tap_step = {p->axis[0].tap_step * p->source_size[1] * row, p->axis[1].tap_step * row,
                     p->axis[2].tap_step * pixel},
    };
}

static struct pass_view view_of_copy(const struct conv_pass *p, const int64_t at[WINDOW_AXES],
                                     const struct pass_block *b, int64_t group,
                                     const struct tensor *source, float *copy)
{
    int64_t n_rows = reach(&p->axis[1], b->n_rows), n_columns = reach(&p->axis[2], b->n_columns);
    int64_t row = n_columns * p->source_channels;
    for (int64_t m = 0; m < p->axis[0].n_taps; m++) {
        for (int64_t r = 0; r < n_rows; r++) {
            int64_t from[WINDOW_AXES] = {at[0] + m * p->axis[0].tap_step, at[1] + r, at[2]};
            copy_row(p, b->sample, group, from, n_columns, source, copy + (m * n_rows + r) * row);
        }
    }
    return (struct pass_view){
        .data = copy,
        .row_step = p->axis[1].source_step * row,
        .column_step = p->axis[2].source_step * p->source_channels,
        .tap_step = {n_rows * row, p->axis[1].tap_step * row,
                     p->axis[2].tap_step * p->source_channels},
    };
}

struct pass_view pass_read(const struct conv_pass *p, const struct pass_block *b, int64_t group,
                           const struct tensor *source, float *copy)
{
    const struct pass_axis *x = p->axis;
    int64_t at[WINDOW_AXES] = {
        x[0].source_first + b->depth * x[0].source_step,
        x[1].source_first + b->row * x[1].source_step,
        x[2].source_first + b->column * x[2].source_step,
    };
    struct pass_view v = reads_in_place(p, source->dtype)
                             ? view_in_place(p, at, b, group, source)
                             : view_of_copy(p, at, b, group, source, copy);
    for (int a = 0; a < WINDOW_AXES; a++)
        v.n_taps[a] = x[a].n_taps;
    v.run = p->source_channels;
    if (v.tap_step[2] == v.run) { /* the taps of a row follow each other */
        v.run *= v.n_taps[2];
        v.n_taps[2] = 1;
    }
    return v;
}
