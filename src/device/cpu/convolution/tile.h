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

/* sums[pixel][vectors * LANES] = products of the windows at pixel[] with the packed weights
 * [taps, channels of the source, vectors * LANES]. */
void tile_windows(const struct pass_view *v, const float *const *pixel, int n_pixels,
                  const float *weights, int vectors, float *sums);

/* sums[n][vectors * LANES] += sum over the block's results of source element i < n of the view's
 * (data + offset) with result[.., vectors * LANES]; n is at most tile_pixels(vectors). */
void tile_results(const struct pass_view *v, const struct pass_block *b, int64_t offset, int n,
                  const float *result, int vectors, float *sums);

#ifdef __cplusplus
}
#endif
#endif
