/* conv_places.h: which elements a convolution multiplies, as the plain kernels (convolution/
 * conv_plain.cu) number them: on the GPU, and in tests without one.
 *
 * Each of the three ops is a product [m, k] times [k, n] for every group (conv_product_of):
 *
 *     forward        rows: places of y    terms: taps x channels    columns: features
 *     grad_input     rows: places of x    terms: taps x features    columns: channels
 *     grad_weight    rows: features       terms: places of y        columns: taps x channels
 *
 * What a row, a term or a column stands for is a conv_place, worked out once; the functions that
 * end in _at then give an element's number in its tensor, -1 for what is outside of it, which is 0.
 */
#ifndef SNUG_DEVICE_CUDA_DECLARED_CONV_PLACES_H
#define SNUG_DEVICE_CUDA_DECLARED_CONV_PLACES_H

#include "base/compiler.h"
#include "ops/window_support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A place of x or y, or a distance between two; `rest` is what comes with it: the sample of a
 * place, the channel or feature of a tap. */
struct conv_place {
    int64_t rest, at[WINDOW_AXES];
};

/* A group's channels and features, and which group it is. */
struct conv_group {
    int64_t index, channels, features;
};

static inline HOST_DEVICE struct conv_place conv_place_of(int64_t i,
                                                          const int64_t size[WINDOW_AXES])
{
    struct conv_place p;
    for (int axis = WINDOW_AXES - 1; axis >= 0; axis--) {
        p.at[axis] = i % size[axis];
        i /= size[axis];
    }
    p.rest = i;
    return p;
}

/* The first place of x in the window of output i. */
static inline HOST_DEVICE struct conv_place conv_window_start(const struct window *w, int64_t i)
{
    struct conv_place p = conv_place_of(i, w->out);
    for (int axis = 0; axis < WINDOW_AXES; axis++)
        p.at[axis] = p.at[axis] * w->stride[axis] - w->pad_before[axis];
    return p;
}

/* Place i of x, counted from where the window of output 0 starts. */
static inline HOST_DEVICE struct conv_place conv_padded_place(const struct window *w, int64_t i)
{
    struct conv_place p = conv_place_of(i, w->size);
    for (int axis = 0; axis < WINDOW_AXES; axis++)
        p.at[axis] += w->pad_before[axis];
    return p;
}

/* Tap i / n of the window as a distance, i % n as the rest. */
static inline HOST_DEVICE struct conv_place conv_tap(const struct window *w, int64_t i, int64_t n)
{
    struct conv_place p = conv_place_of(i / n, w->kernel);
    for (int axis = 0; axis < WINDOW_AXES; axis++)
        p.at[axis] *= w->dilation[axis];
    p.rest = i % n;
    return p;
}

/* In x: the tap's channel, at the window's start and the tap's distance from it. */
static inline HOST_DEVICE int64_t conv_x_at(const struct conv_dims *d, const struct conv_group *g,
                                            const struct conv_place *start,
                                            const struct conv_place *tap)
{
    int64_t at = start->rest;
    for (int axis = 0; axis < WINDOW_AXES; axis++) {
        const int64_t i = start->at[axis] + tap->at[axis], size = d->window.size[axis];
        if (i < 0 || i >= size)
            return -1;
        at = at * size + i;
    }
    return at * d->channels + g->index * g->channels + tap->rest;
}

/* In y: the tap's feature, of the output whose window has the place at this tap. */
static inline HOST_DEVICE int64_t conv_y_at(const struct conv_dims *d, const struct conv_group *g,
                                            const struct conv_place *place,
                                            const struct conv_place *tap)
{
    const struct window *w = &d->window;
    int64_t at = place->rest;
    for (int axis = 0; axis < WINDOW_AXES; axis++) {
        const int64_t i = place->at[axis] - tap->at[axis], stride = w->stride[axis];
        const int64_t out = stride == 1 ? i : i / stride;
        if (i < 0 || out * stride != i || out >= w->out[axis])
            return -1;
        at = at * w->out[axis] + out;
    }
    return at * d->features + g->index * g->features + tap->rest;
}

/* In w: a feature of the group, term i of the forward product (tap and channel). */
static inline HOST_DEVICE int64_t conv_w_at(const struct conv_group *g, int64_t feature,
                                            int64_t n_terms, int64_t i)
{
    return (g->index * g->features + feature) * n_terms + i;
}

/* In w: the feature and tap of term i of grad_input's product, and a channel of the group. */
static inline HOST_DEVICE int64_t conv_w_of_tap_at(const struct conv_group *g, int64_t n_terms,
                                                   int64_t i, int64_t channel)
{
    const int64_t n_taps = n_terms / g->features, tap = i / g->features;
    const int64_t feature = g->index * g->features + i % g->features;
    return (feature * n_taps + tap) * g->channels + channel;
}

#ifdef __cplusplus
}
#endif
#endif
