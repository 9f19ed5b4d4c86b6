/* tile.h: the innermost loops of convolutions: sums that live in registers, a few pixels by one to
 * four vectors of channels. One value is broadcast for as many multiply-adds as there are vectors.
 */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_TILE_H
#define SNUG_DEVICE_CPU_CONVOLUTION_TILE_H

#include "device/cpu/convolution/lanes.h"
#include "device/cpu/convolution/pass.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TILE_VECTORS = CPU_GEMM_AVX512 ? 4 : 1,
    TILE_WIDTH = TILE_VECTORS * LANES,
    TILE_PIXELS = CPU_GEMM_AVX512 ? 14 : 6, /* at most, with the fewest vectors */
    TILE_PANEL = 96,                        /* elements of windows in a panel of weights */
};

/* Channels are taken in strips of whole vectors, TILE_VECTORS at a time while there are as many. */
static inline int64_t tile_strips(int64_t channels)
{
    return (channels + TILE_WIDTH - 1) / TILE_WIDTH;
}
static inline int tile_vectors(int64_t channels, int64_t strip)
{
    int64_t left = channels - strip * TILE_WIDTH;
    return (int)MIN((left + LANES - 1) / LANES, (int64_t)TILE_VECTORS);
}

/* How many pixels a tile of so many vectors takes: as many as there are registers for. */
static inline int tile_pixels(int vectors)
{
    static const int most[] = {TILE_PIXELS, 14, 9, 7};
    return most[vectors - 1];
}

/* A stretch of windows: elements offset .. offset + length - 1 from each pixel on. */
struct tile_stretch {
    int64_t offset, length;
};

/* Stretches of windows that are multiplied with a panel of packed weights, [elements of all
 * stretches, vectors * LANES], which stays in the first-level cache while pixels pass by. */
struct tile_panel {
    int n;
    bool first;         /* sums begin here, they do not go on */
    int64_t ahead_step; /* pass_view's */
    const float *weights;
    struct tile_stretch stretch[TILE_PANEL];
};

/* sums[pixel][vectors * LANES] = (+=) products of the windows at pixel[] with the panel. */
void tile_windows(const struct tile_panel *panel, const float *const *pixel, int n_pixels,
                  int vectors, float *sums);

/* sums[n][vectors * LANES] += sum over the block's results of source element i < n of the view's
 * (data + offset) with result[.., vectors * LANES]; n is at most tile_pixels(vectors). */
void tile_results(const struct pass_view *v, const struct pass_block *b, int64_t offset, int n,
                  const float *result, int vectors, float *sums);

#ifdef __cplusplus
}
#endif
#endif
