/* channel_norm.h: norms by channel, f32 arithmetic over f32, bf16, f16 storage.
 *
 * x is [samples, places, groups, width]; statistics are over a sample's places and the channels of
 * a group. A batch norm is one sample of all places with a group for each channel.
 *
 * Moments are taken run by run of rows that stay in the cache, about the run's own mean, and merged
 * in f64 ("Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", Chan, Golub,
 * LeVeque 1979). Runs are put together in bands of a number that depends on shapes alone, so the
 * number of threads does not show.
 */
#ifndef SNUG_DEVICE_CPU_KERNELS_CHANNEL_NORM_H
#define SNUG_DEVICE_CPU_KERNELS_CHANNEL_NORM_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

struct norm_extent {
    int64_t n_samples, n_places, groups, width, channels;
};

/* x, gamma, beta -> y, mean, rstd */
int64_t channel_norm_workspace(const struct norm_extent *e);
void channel_norm(const struct kernel_ctx *x, const struct op_call *c, const struct norm_extent *e,
                  double epsilon);

/* dy, x, gamma, mean, rstd -> dx, dgamma, dbeta */
void channel_norm_grad(const struct kernel_ctx *x, const struct op_call *c,
                       const struct norm_extent *e);

/* y = (x - mean) factor + shift by channel: vectors of [samples, channels], each n_samples *
 * channels long. */
struct norm_vectors {
    const float *mean, *factor, *shift;
};
/* mean and rstd alone, and the vectors that make y of x, which lie in the workspace. */
struct norm_vectors channel_norm_statistics(const struct kernel_ctx *x, const struct op_call *c,
                                            const struct norm_extent *e, double epsilon);
void channel_norm_apply(const struct kernel_ctx *x, const struct tensor *from,
                        const struct tensor *to, const struct norm_extent *e,
                        const struct norm_vectors *v);

#ifdef __cplusplus
}
#endif
#endif
