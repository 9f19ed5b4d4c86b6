/* update.h: what the update rules share: blocks of several tensors in step, and how they are
 * rounded into bf16.
 *
 * A rule makes one pass over memory: each block of parameter, gradient and states is read, updated
 * and written before the next. Outputs normally are their inputs' memory; where they are not
 * (tests), the results land in the outputs and the inputs stay as they were.
 */
#ifndef SNUG_DEVICE_CPU_KERNELS_UPDATE_H
#define SNUG_DEVICE_CPU_KERNELS_UPDATE_H

#include "base/dynamic_map.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/kernels/update_factors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { UPDATE_STREAMS = 4 };

/* Whose share of an element's random bits a tensor takes (base/rounding.h). */
enum rounding { ROUND_NEAREST, ROUND_PARAM, ROUND_STATE1, ROUND_STATE2 };

/* Beside a tensor of codes: the scales of its blocks, and what the codes mean. */
struct update_codes {
    const struct tensor *absmax_in, *absmax_out;
    const struct dynamic_map *map;
    bool is_signed; /* which map it is */
};

/* A tensor that is updated: block by block from `in` to `out`. */
struct update_stream {
    const struct tensor *in, *out;
    enum rounding rounding;           /* into bf16, when there is a seed */
    const struct update_codes *codes; /* NULL: elements are numbers */
    bool is_image;                    /* it becomes the first stream, rounded to nearest */
    /* `in` and `out` are what these bf16 lack of 24 bits (base/split.h); NULL: they are numbers */
    const struct tensor *upper_in, *upper_out;
};

/* block[i] is the block of stream i, to be changed where it is (an image has none); g that of the
 * gradient. They are elements [at, at + n). */
typedef void update_rule(const void *rule, float *const *block, const float *g, int64_t at,
                         int64_t n);

/* What the random bits of an element depend on, beside its place in the call (base/rounding.h). */
struct update_draw {
    uint64_t seed; /* 0: everything is rounded to nearest */
    int64_t step;
    int64_t first_element; /* of the whole that the call is a slice of */
};

struct update {
    const struct update_stream *streams;
    int n_streams;
    const struct tensor *grad;
    const struct update_factors *factors; /* what the gradient is made of; NULL: it is `grad` */
    update_rule *apply;
    const void *rule;
    struct update_draw draw;
};

/* 0: nothing counted, or the norm was not finite; see clip_scale. */
bool update_is_skipped(const struct tensor *scale);
/* Outputs are the inputs, unchanged. */
void update_copy(const struct update_stream *streams, int n_streams);
void update_run(const struct kernel_ctx *x, const struct update *u);

/* Element i of stream s becomes x, rounded as update_run would: for the reference kernels. */
void update_set(const struct update_stream *s, int64_t i, double x, const struct update_draw *d);
/* What element i of a stream that is not coded was. */
double update_get(const struct update_stream *s, int64_t i);
/* By attribute `seed` and input `step` of a call. */
struct update_draw update_draw_of(const struct op_call *c, int seed, int step);

#ifdef __cplusplus
}
#endif
#endif
