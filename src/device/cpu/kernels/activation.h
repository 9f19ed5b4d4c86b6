/* activation.h: activations and their slopes at one element, in f32 for loops that vectorise and in
 * double for the reference kernels. */
#ifndef SNUG_DEVICE_CPU_KERNELS_ACTIVATION_H
#define SNUG_DEVICE_CPU_KERNELS_ACTIVATION_H

#include <math.h>
#include <stdbool.h>

#include "device/cpu/support/math.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GELU_CUBIC 0.044715f
#define GELU_SCALE 0.79788456080f /* sqrt(2 / pi) */
#define NORMAL_PDF 0.39894228040f /* 1 / sqrt(2 pi) */

static inline float silu(float x)
{
    return x * cpu_sigmoidf(x);
}

static inline float silu_slope(float x)
{
    float s = cpu_sigmoidf(x);
    return s * (1.0f + x * (1.0f - s));
}

static inline float gelu_exact(float x)
{
    return x * cpu_normal_cdf(x);
}

static inline float gelu_exact_slope(float x)
{
    float e = cpu_expf(-0.5f * x * x);
    return cpu_normal_cdf_given(x, e) + x * NORMAL_PDF * e;
}

/* (1 + tanh t) / 2 = sigmoid(2 t), which keeps its accuracy where tanh is close to -1. */
static inline float gelu_tanh(float x)
{
    return x * cpu_sigmoidf(2.0f * GELU_SCALE * (x + GELU_CUBIC * x * x * x));
}

static inline float gelu_tanh_slope(float x)
{
    float s = cpu_sigmoidf(2.0f * GELU_SCALE * (x + GELU_CUBIC * x * x * x));
    float inner = 2.0f * GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * x * x);
    return s + x * s * (1.0f - s) * inner;
}

static inline double ref_silu(double x)
{
    return x / (1.0 + exp(-x));
}

static inline double ref_silu_slope(double x)
{
    double s = 1.0 / (1.0 + exp(-x));
    return s + x * s * (1.0 - s);
}

static inline double ref_gelu(double x, bool approximate)
{
    if (approximate)
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    return 0.5 * x * erfc(-x * M_SQRT1_2);
}

static inline double ref_gelu_slope(double x, bool approximate)
{
    if (approximate) {
        double t = tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
        double inner = sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
    }
    return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-0.5 * x * x) / sqrt(2.0 * M_PI);
}

#ifdef __cplusplus
}
#endif
#endif
