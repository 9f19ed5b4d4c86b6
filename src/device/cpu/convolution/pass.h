/* pass.h: convolutions and gradients of their inputs as the same loops over a source and a result.
 *
 * Along each axis result j of a pass is at first + j step of the whole result; it is a sum over
 * taps m, of source place  source_first + j source_step + m tap_step  with weight tap  tap + m
 * tap_next. A convolution is one pass. The gradient of its input is one for each residue of the
 * places modulo the strides: places of one residue are read by the same taps, from neighbouring
 * outputs.
 *
 *     stride 2, kernel 3:   even places of dx:  dy[j - 1] w[2] + dy[j] w[0]
 *                           odd places of dx:   dy[j] w[1]
 */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_PASS_H
#define SNUG_DEVICE_CPU_CONVOLUTION_PASS_H

#include "ops/window_support.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pass_axis {
    int64_t n, first, step;
    int64_t source_first, source_step;
    int64_t n_taps, tap_step, tap, tap_next;
};

struct conv_pass {
    struct pass_axis axis[WINDOW_AXES];
    int64_t batch, source_size[WINDOW_AXES], result_size[WINDOW_AXES];
    int64_t kernel[WINDOW_AXES];
    int64_t groups;
    int64_t source_channels, result_channels; /* of a group */
};

struct conv_pass conv_forward_pass(const struct conv_dims *d);
int64_t conv_input_passes(const struct conv_dims *d);
struct conv_pass conv_input_pass(const struct conv_dims *d, int64_t i);

static inline int64_t pass_taps(const struct conv_pass *p)
{
    return p->axis[0].n_taps * p->axis[1].n_taps * p->axis[2].n_taps;
}
/* Places of the result that the pass makes, of one sample. */
static inline int64_t pass_places(const struct conv_pass *p)
{
    return p->axis[0].n * p->axis[1].n * p->axis[2].n;
}

/* Number, among the kernel's, of tap i of the pass. */
int64_t pass_kernel_tap(const struct conv_pass *p, int64_t i);

/* Taps first .. last - 1 of result j along an axis lie inside of the source. */
struct tap_range {
    int64_t first, last;
};
struct tap_range pass_taps_inside(const struct conv_pass *p, int axis, int64_t j);

/* Some results of a pass: in one sample, at one place of the first axis, rows and columns. */
struct pass_block {
    int64_t sample, depth, row, n_rows, column, n_columns;
};

/* How a pass is cut into blocks. */
struct pass_cut {
    int64_t rows, columns;     /* of a block */
    int64_t n_rows, n_columns; /* of blocks */
    int64_t n_blocks;
};

/* Blocks of about so many places. */
struct pass_cut pass_cut_of(const struct conv_pass *p, enum dtype source, int64_t places);
struct pass_block pass_block_at(const struct conv_pass *p, const struct pass_cut *cut, int64_t i);

/* What a block reads, as f32: in the source's own memory where nothing has to be padded or
 * converted, else in a copy with its padding. Elements of result (row, column)'s window are at
 * data + row * row_step + column * column_step + the steps of the taps, in runs of `run`. */
struct pass_view {
    const float *data;
    int64_t row_step, column_step;
    int64_t n_taps[WINDOW_AXES], tap_step[WINDOW_AXES];
    int64_t ahead_step; /* column_step where neighbours are in memory still, 0 in a copy */
    int64_t run; /* channels of a tap, or of all taps of a row where they follow each other */
};

/* Floats of the copy; 0: none is made. */
int64_t pass_copy_floats(const struct conv_pass *p, const struct pass_cut *cut, enum dtype source);
struct pass_view pass_read(const struct conv_pass *p, const struct pass_block *b, int64_t group,
                           const struct tensor *source, float *copy);

#ifdef __cplusplus
}
#endif
#endif
