#include "device/cuda/declared/conv_parts.h"

#include "base/compiler.h"
#include "device/cuda/declared/sums.h"

/* ---- rows of the outermost axis -------------------------------------------------------------- */

static int outermost(const struct conv_shape *s)
{
    return WINDOW_AXES - s->dims.window.rank;
}

static int64_t x_row_elems(const struct conv_shape *s)
{
    const struct window *w = &s->dims.window;
    return conv_x_elems(s) / (w->batch * w->size[outermost(s)]);
}

static int64_t y_row_elems(const struct conv_shape *s)
{
    const struct window *w = &s->dims.window;
    return conv_y_elems(s) / (w->batch * w->out[outermost(s)]);
}

/* Rows of x that one row of y reaches over. */
static int64_t span_of(const struct window *w, int a)
{
    return (w->kernel[a] - 1) * w->dilation[a] + 1;
}

/* Rows from the first up to the last, which is not among them. */
struct rows {
    int64_t first, end;
};

/* A slab's rows of both. */
struct slab {
    struct rows x, y;
};

static struct slab slab_of(const struct conv_shape *s, int64_t first, int64_t n_rows)
{
    const struct window *w = &s->dims.window;
    const int a = outermost(s);
    const int64_t stride = w->stride[a], pad = w->pad_before[a], span = span_of(w, a);
    struct slab b;
    if (s->kind == CONV_GRAD_INPUT) { /* every row of y that reaches one of these of x */
        b.x = (struct rows){first, MIN(first + n_rows, w->size[a])};
        b.y.first = ceil_div(MAX(b.x.first + pad - span + 1, (int64_t)0), stride);
        b.y.first = MIN(b.y.first, (b.x.first + pad) / stride); /* or between two: the one before */
        b.y.end = MIN((b.x.end - 1 + pad) / stride + 1, w->out[a]);
    } else { /* every row of x that one of these of y reaches */
        b.y = (struct rows){first, MIN(first + n_rows, w->out[a])};
        b.x.first = MAX(b.y.first * stride - pad, (int64_t)0);
        b.x.end = MIN((b.y.end - 1) * stride - pad + span, w->size[a]);
    }
    return b;
}

/* The sample's convolution with these rows alone. What a window has outside of them is padding:
 * where it is not in the sample's own, it meets no row that the slab makes. */
static void keep_slab(struct window *w, int a, const struct slab *b)
{
    const int64_t span = span_of(w, a);
    w->pad_before[a] = b->x.first - (b->y.first * w->stride[a] - w->pad_before[a]);
    w->size[a] = b->x.end - b->x.first;
    w->out[a] = b->y.end - b->y.first;
    int64_t after = (w->out[a] - 1) * w->stride[a] + span - w->size[a] - w->pad_before[a];
    w->pad_after[a] = MAX(after, (int64_t)0);
}

/* ---- the cut --------------------------------------------------------------------------------- */

/* Rows of what is cut that a slab may have, so that both tensors' are few enough; below 1: none. */
static int64_t most_rows(const struct conv_shape *s, int64_t most)
{
    const struct window *w = &s->dims.window;
    const int a = outermost(s);
    const int64_t stride = w->stride[a], span = span_of(w, a);
    const int64_t x = most / x_row_elems(s), y = most / y_row_elems(s);
    if (s->kind != CONV_GRAD_INPUT)
        return x < span ? 0 : MIN(y, (x - span) / stride + 1);
    int64_t n = MIN(x, (y - 1) * stride - MAX(span, stride) + 2);
    return n / stride * stride; /* so that slabs are alike */
}

static struct conv_cut in_slabs(const struct conv_shape *s, int64_t most)
{
    const struct window *w = &s->dims.window;
    const int a = outermost(s);
    const int64_t all = s->kind == CONV_GRAD_INPUT ? w->size[a] : w->out[a];
    const int64_t unit = s->kind == CONV_GRAD_INPUT ? w->stride[a] : 1;
    const int64_t n_most = most_rows(s, most);
    struct conv_cut cut = {.batch = 1};
    if (n_most < 1)
        return cut;
    cut.n_rows = ceil_div(ceil_div(all, ceil_div(all, n_most)), unit) * unit;
    cut.n_slabs = ceil_div(all, cut.n_rows);
    for (int64_t i = 0; i < cut.n_slabs; i++) { /* one may lie in padding alone */
        const struct slab b = slab_of(s, i * cut.n_rows, cut.n_rows);
        if (b.x.first >= b.x.end || b.y.first >= b.y.end)
            return cut;
    }
    cut.n_parts = w->batch * cut.n_slabs;
    return cut;
}

struct conv_cut conv_cut_of(const struct conv_shape *s, int64_t most)
{
    const int64_t batch = s->dims.window.batch;
    int64_t sample = MAX(conv_x_elems(s), conv_y_elems(s)) / batch;
    int64_t n = MIN(batch, most / sample);
    if (conv_w_elems(s) > most)
        return (struct conv_cut){0};
    if (n == 0)
        return in_slabs(s, most);
    while (batch % n != 0)
        n--;
    return (struct conv_cut){.n_parts = batch / n, .batch = n, .n_slabs = 1};
}

struct conv_part conv_part_of(const struct conv_shape *s, const struct conv_cut *cut, int64_t i)
{
    const int64_t sample = i / cut->n_slabs * cut->batch, slab = i % cut->n_slabs;
    struct conv_part p = {.shape = *s};
    p.first_x = sample * (conv_x_elems(s) / s->dims.window.batch);
    p.first_y = sample * (conv_y_elems(s) / s->dims.window.batch);
    p.shape.dims.window.batch = cut->batch;
    if (cut->n_rows > 0) {
        const struct slab b = slab_of(s, slab * cut->n_rows, cut->n_rows);
        p.first_x += b.x.first * x_row_elems(s);
        p.first_y += b.y.first * y_row_elems(s);
        keep_slab(&p.shape.dims.window, outermost(s), &b);
    }
    return p;
}
