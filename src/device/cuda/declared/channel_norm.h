/* channel_norm.h: how calls that treat channels as wholes are cut: batch_norm, group_norm and their
 * gradients, alone and with what stands behind them, film, dropout of channels.
 *
 * x is [n_samples, n_places, groups, width]: of a batch norm one sample, and a group is a channel.
 * A block takes the rows of a band of a sample and some vectors of channels, `lanes` of them side
 * by side and `lines` rows at a time. Sums over a band go to the workspace; how many bands there
 * are depends on the shape and the GPU only, so sums have the same bits in every run.
 */
#ifndef SNUG_DEVICE_CUDA_DECLARED_CHANNEL_NORM_H
#define SNUG_DEVICE_CUDA_DECLARED_CHANNEL_NORM_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CHANNEL_THREADS = 256,
    CHANNEL_BLOCKS = 4, /* on a multiprocessor */
    CHANNEL_AHEAD = 4,  /* rows of a thread on their way at once */
    CHANNEL_SUMS = 2,   /* for each channel */
};

struct channel_extent {
    int64_t n_samples, n_places, groups, width, channels;
};
struct channel_extent channel_extent_of(const struct op_call *c);
/* Every sample by itself, a group for each channel. */
struct channel_extent channel_extent_by_sample(const struct op_call *c);

struct channel_cut {
    int vector;       /* channels of a thread: 16 bytes, or 1 */
    int lanes, lines; /* threads of a block; some may be left over */
    int64_t n_tiles;  /* blocks side by side */
    int64_t n_bands, band_rows;
};
/* For sums, and for what is worked out row by row, which needs no workspace: more and shorter
 * bands. */
struct channel_cut channel_cut_sums(const struct op_call *c, const struct kernel_env *env);
struct channel_cut channel_cut_rows(const struct op_call *c);
struct channel_cut channel_cut_rows_in(const struct op_call *c, const struct channel_extent *e);

/* Sums for each channel that gradients of batch_norm_activation take: of u = dy f'(z), u (x - mean)
 * and, behind a scale, dy. Their workspace: f64 [n_samples, n_bands, sums, channels], then f32
 * [ACTIVATED_SHARES, channels]. */
enum { ACTIVATED_SHARES = 2 };
int activated_sums(const struct op_call *c);
int64_t activated_sums_bytes(const struct op_call *c, const struct kernel_env *env);

/* The workspace: f64 [n_samples, n_bands, CHANNEL_SUMS, channels]; of a gradient f32 [n_samples,
 * groups, CHANNEL_SUMS] after it. */
int64_t channel_sums_bytes(const struct op_call *c, const struct kernel_env *env);

#ifdef __cplusplus
}
#endif
#endif
