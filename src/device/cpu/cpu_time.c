/* cpu_time.c: how long single kernels take, for the time model.
 *
 * The first run of a call touches its memory and is not counted. Short calls are repeated: what
 * counts is the median, since other programs take turns on the same cores.
 */
#include "device/cpu/cpu_time.h"

#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/rng.h"
#include "device/cpu/cpu_block.h"
#include "device/cpu/cpu_kernels.h"

enum { LEAST_ROUNDS = 1, MOST_ROUNDS = 9 };
#define TIMING_S 60e-3 /* rounds of one call, in all */

/* ---- contents ------------------------------------------------------------------------------- */

/* Bits without a pattern that a kernel could profit from; no more is asked of them. */
static inline uint32_t scatter(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

static void fill_noise(const struct tensor *t, int64_t n, int n_threads)
{
#pragma omp parallel for schedule(static) num_threads(n_threads) if (n > CPU_SERIAL)
    for (int64_t at = 0; at < n; at += CPU_BLOCK) {
        float block[CPU_BLOCK];
        int64_t size = block_size(n, at);
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            block[i] = rng_uniform(scatter((uint32_t)(at + i))) - 0.5f;
        cpu_store_f32(t->data, t->dtype, at, block, size);
    }
}

enum status cpu_fill(struct device *d, const struct tensor *t, int64_t limit)
{
    int64_t n = shape_elems(&t->shape);
    uint64_t below = (uint64_t)MAX(limit, 1);
    if (t->dtype == DTYPE_F32 || t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16) {
        fill_noise(t, n, d->env.n_threads);
        return OK;
    }
    memset(t->data, 0, (size_t)tensor_bytes(t));
    for (int64_t i = 0; i < n && t->dtype == DTYPE_I32; i++)
        ((int32_t *)t->data)[i] = (int32_t)(scatter((uint32_t)i) % below);
    for (int64_t i = 0; i < n && t->dtype == DTYPE_I64; i++)
        ((int64_t *)t->data)[i] = (int64_t)(scatter((uint32_t)i) % below);
    return OK;
}

/* ---- kernels -------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum status cpu_time_calls(struct device *d, const struct timed_calls *t, double *seconds)
{
    double rounds[MOST_ROUNDS], spent = 0.0;
    int n = 0;
    (void)d;
    for (int i = 0; i < t->n; i++)
        TRY(t->kernel->run(&t->contexts[i], &t->calls[i]));
    while (n < LEAST_ROUNDS || (n < MOST_ROUNDS && spent < TIMING_S)) {
        double start = now_s();
        for (int i = 0; i < t->n; i++)
            TRY(t->kernel->run(&t->contexts[i], &t->calls[i]));
        rounds[n] = now_s() - start;
        spent += rounds[n++];
    }
    qsort(rounds, (size_t)n, sizeof(*rounds), by_size);
    *seconds = rounds[n / 2] / t->n;
    return OK;
}
