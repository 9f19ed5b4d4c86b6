/* lanes.h: sixteen floats at a time: a register of AVX-512, or what the compiler makes of a short
 * loop. The tiles of convolutions are written in these. */
#ifndef SNUG_DEVICE_CPU_CONVOLUTION_LANES_H
#define SNUG_DEVICE_CPU_CONVOLUTION_LANES_H

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/avx512.h"
#include "device/cpu/support/math.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LANES = 16 };

/* Functions whose counts are constants where they are called, so that sums stay in registers. */
#define LANES_INLINE static inline __attribute__((always_inline))

/* The functions below. A file whose loops are UNSANITIZED has them be that, and always inline. */
#ifndef LANES_STEP
#define LANES_STEP static inline
#endif

#if CPU_GEMM_AVX512

typedef __m512 lanes;

LANES_STEP lanes lanes_all(float x)
{
    return _mm512_set1_ps(x);
}
LANES_STEP lanes lanes_load(const float *at)
{
    return _mm512_loadu_ps(at);
}
LANES_STEP void lanes_store(float *at, lanes x)
{
    _mm512_storeu_ps(at, x);
}
LANES_STEP lanes lanes_fma(lanes a, lanes b, lanes sum)
{
    return _mm512_fmadd_ps(a, b, sum);
}

#else

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef struct {
    float of[LANES];
} lanes;

LANES_STEP lanes lanes_all(float x)
{
    lanes y;
    for (int i = 0; i < LANES; i++)
        y.of[i] = x;
    return y;
}
LANES_STEP lanes lanes_load(const float *at)
{
    lanes y;
    for (int i = 0; i < LANES; i++)
        y.of[i] = at[i];
    return y;
}
LANES_STEP void lanes_store(float *at, lanes x)
{
    for (int i = 0; i < LANES; i++)
        at[i] = x.of[i];
}
LANES_STEP lanes lanes_fma(lanes a, lanes b, lanes sum)
{
    for (int i = 0; i < LANES; i++)
        sum.of[i] = cpu_fma(a.of[i], b.of[i], sum.of[i]);
    return sum;
}

#endif

/* Asks for the element at an offset that may be past the end: its address is never read. */
LANES_STEP void lanes_prefetch(const float *from, int64_t offset)
{
    uintptr_t at = (uintptr_t)from + (uintptr_t)offset * sizeof(float);
    __builtin_prefetch((const void *)at);
}

/* n elements of any storage from `at` on, n <= LANES; zeros behind them. Where the dtype is a
 * constant nothing of the choice is left. */
LANES_STEP lanes lanes_read_as(const struct tensor *t, enum dtype dtype, int64_t at, int64_t n)
{
#if CPU_GEMM_AVX512
    return avx512_load(t->data, dtype, at, avx512_first(n));
#else
    float x[LANES] = {0};
    cpu_load_f32(x, t->data, dtype, at, n);
    return lanes_load(x);
#endif
}

LANES_STEP lanes lanes_read(const struct tensor *t, int64_t at, int64_t n)
{
    return lanes_read_as(t, t->dtype, at, n);
}

/* One copy of a loop for each storage: calls `loop` with the constant in place of `dtype`. */
#define LANES_BY_DTYPE(dtype, loop, ...)   \
    do {                                   \
        if ((dtype) == DTYPE_F32)          \
            loop(DTYPE_F32, __VA_ARGS__);  \
        else if ((dtype) == DTYPE_BF16)    \
            loop(DTYPE_BF16, __VA_ARGS__); \
        else                               \
            loop(DTYPE_F16, __VA_ARGS__);  \
    } while (0)

LANES_STEP void lanes_write(const struct tensor *t, int64_t at, int64_t n, lanes x)
{
    float y[LANES];
    if (t->dtype == DTYPE_F32 && n == LANES) {
        lanes_store((float *)t->data + at, x);
        return;
    }
    lanes_store(y, x);
    cpu_store_f32(t->data, t->dtype, at, y, n);
}

#ifdef __cplusplus
}
#endif
#endif
