/* update_factors.h: a gradient that is the product of a few rows, made where an update reads it. */
#ifndef SNUG_DEVICE_CPU_KERNELS_UPDATE_FACTORS_H
#define SNUG_DEVICE_CPU_KERNELS_UPDATE_FACTORS_H

#include "device/cpu/cpu_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct update_factors {
    const struct tensor *dy, *x; /* [..., n], [..., k]: the gradient is [n, k] */
    enum dtype dtype;            /* each element is rounded to it */
};

/* Elements [at, at + n) of the gradient, n at most CPU_BLOCK. */
void update_factors_block(const struct update_factors *f, int64_t at, int64_t n, float *g);
/* Element `at`, in f64 but for the rounding. */
double update_factors_get(const struct update_factors *f, int64_t at);

#ifdef __cplusplus
}
#endif
#endif
