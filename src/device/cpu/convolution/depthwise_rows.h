/* depthwise_rows.h: what the depthwise kernels share: rows of a pass and the taps of their columns.
 */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_DEPTHWISE_ROWS_H
#define SNUG_DEVICE_CPU_CONVOLUTION_DEPTHWISE_ROWS_H

#include "device/cpu/convolution/lanes.h"
#include "device/cpu/convolution/pass.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row of results: its sample, its places on the first two axes, and the taps there. */
struct depthwise_row {
    int64_t sample, depth, row;
    struct tap_range taps[2];
};

static inline int64_t depthwise_rows(const struct conv_pass *p)
{
    return p->batch * p->axis[0].n * p->axis[1].n;
}

static inline struct depthwise_row depthwise_row_at(const struct conv_pass *p, int64_t i)
{
    struct depthwise_row r = {.row = i % p->axis[1].n};
    r.depth = i / p->axis[1].n % p->axis[0].n;
    r.sample = i / p->axis[1].n / p->axis[0].n;
    r.taps[0] = pass_taps_inside(p, 0, r.depth);
    r.taps[1] = pass_taps_inside(p, 1, r.row);
    return r;
}

/* Columns from `column` on that have the same taps: all of the middle, or one. */
static inline int64_t depthwise_columns(const struct conv_pass *p, int64_t column,
                                        struct tap_range *taps)
{
    const struct pass_axis *x = &p->axis[2];
    *taps = pass_taps_inside(p, 2, column);
    if (taps->first > 0 || taps->last < x->n_taps || x->n_taps == 0)
        return 1;
    int64_t reach = x->source_first + (x->n_taps - 1) * x->tap_step;
    int64_t last = (p->source_size[2] - 1 - reach) / x->source_step; /* of those with all taps */
    return MIN(last, x->n - 1) - column + 1;
}

/* Place of the source, as a row of channels, that tap (a, b, c) of a column reads. */
static inline int64_t depthwise_source(const struct conv_pass *p, const struct depthwise_row *r,
                                       int64_t column, int64_t a, int64_t b, int64_t c)
{
    const struct pass_axis *x = p->axis;
    int64_t place = r->sample * p->source_size[0] + x[0].source_first +
                    r->depth * x[0].source_step + a * x[0].tap_step;
    place = place * p->source_size[1] + x[1].source_first + r->row * x[1].source_step +
            b * x[1].tap_step;
    return place * p->source_size[2] + x[2].source_first + column * x[2].source_step +
           c * x[2].tap_step;
}

static inline int64_t depthwise_result(const struct conv_pass *p, const struct depthwise_row *r,
                                       int64_t column)
{
    const struct pass_axis *x = p->axis;
    int64_t place = r->sample * p->result_size[0] + x[0].first + r->depth * x[0].step;
    place = place * p->result_size[1] + x[1].first + r->row * x[1].step;
    return place * p->result_size[2] + x[2].first + column * x[2].step;
}

/* Tap (a, b, c) among those of the pass. */
static inline int64_t depthwise_tap(const struct conv_pass *p, int64_t a, int64_t b, int64_t c)
{
    return (a * p->axis[1].n_taps + b) * p->axis[2].n_taps + c;
}

#ifdef __cplusplus
}
#endif
#endif
