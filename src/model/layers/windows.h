/* windows.h: kernel, stride and padding as layers write them: one number for all axes, or a list
 * with one for each. Internal to layers/. */
#ifndef SNUG_MODEL_LAYERS_WINDOWS_H
#define SNUG_MODEL_LAYERS_WINDOWS_H

#include "model/layers/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As written; counts of 0: not given. */
struct layer_window {
    int64_t kernel[MAX_RANK], stride[MAX_RANK], padding[MAX_RANK], padding_end[MAX_RANK],
        dilation[MAX_RANK];
    int n_kernel, n_stride, n_padding, n_padding_end, n_dilation;
    bool pads_to_same;    /* padding: same: as many places come out as went in, with stride 1 */
    bool steps_by_kernel; /* a stride that is not given is the kernel's size (pools) */
};

/* For the axes of an activation. */
struct window_sizes {
    int rank;
    int64_t kernel[3], stride[3], pad_before[3], pad_after[3], dilation[3];
};

/* The keys kernel, stride, padding and padding_end. */
void window_parse(struct keys *k, struct layer_window *out);
/* false, and the builder has why: x has other axes than there are numbers. */
bool window_sizes(struct writer *w, value_id x, const struct layer_window *from,
                  struct window_sizes *out);

struct attr_set window_attr(const char *name, const int64_t *sizes, int n);

#ifdef __cplusplus
}
#endif
#endif
