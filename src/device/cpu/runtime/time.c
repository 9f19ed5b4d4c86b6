/* time.c: how long single kernels take, for the time model.
 *
 * The first run of a call touches its memory and is not counted. Short calls are repeated, and the
 * median counts; where other programs took turns on the same cores, which the system knows, it is
 * the fastest, and the timing says that it was disturbed.
 */
#include "device/cpu/runtime/time.h"

#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/rng.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/block.h"

enum { MOST_ROUNDS = 9 };
#define TIMING_S  60e-3 /* rounds of one call, in all */
#define DISTURBED 0.02  /* of the time spent waiting for a processor */

/* ---- contents ------------------------------------------------------------------------------- */

/* Bits without a pattern that a kernel could profit from; no more is asked of them. */
static inline uint32_t scatter(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

static void noise_block(const void *job, int64_t at, int64_t size)
{
    const struct tensor *t = job;
    float block[CPU_BLOCK];
#pragma omp simd
    for (int64_t i = 0; i < size; i++)
        block[i] = rng_uniform(scatter((uint32_t)(at + i))) - 0.5f;
    cpu_store_f32(t->data, t->dtype, at, block, size);
}

enum status cpu_fill(struct device *d, const struct tensor *t, struct index_rule rule)
{
    int64_t n = shape_elems(&t->shape);
    if (t->dtype == DTYPE_F32 || t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16) {
        cpu_each_block(&(struct kernel_ctx){.env = d->env}, n, noise_block, t);
        return OK;
    }
    memset(t->data, 0, (size_t)tensor_bytes(t));
    for (int64_t i = 0; i < n && t->dtype == DTYPE_I32; i++)
        ((int32_t *)t->data)[i] = (int32_t)index_value(rule, i, n, scatter((uint32_t)i));
    for (int64_t i = 0; i < n && t->dtype == DTYPE_I64; i++)
        ((int64_t *)t->data)[i] = index_value(rule, i, n, scatter((uint32_t)i));
    return OK;
}

/* ---- kernels -------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum status run_round(const struct timed_calls *t, double *seconds)
{
    double start = now_s();
    for (int i = 0; i < t->n; i++)
        TRY(t->kernel->run(&t->contexts[i], &t->calls[i]));
    *seconds = now_s() - start;
    return OK;
}

enum status cpu_time_calls(struct device *d, const struct timed_calls *t, struct call_time *out)
{
    double rounds[MOST_ROUNDS], spent = 0.0;
    double start = now_s(), delay = team_delay_s(d->env.team);
    int n = 0;
    TRY(run_round(t, &rounds[0]));
    if (rounds[0] > TIMING_S)
        n = 1; /* so long that touching memory does not show */
    while (n == 0 || (n < MOST_ROUNDS && spent < TIMING_S && rounds[0] <= TIMING_S)) {
        TRY(run_round(t, &rounds[n]));
        spent += rounds[n++];
    }
    delay = team_delay_s(d->env.team) - delay;
    qsort(rounds, (size_t)n, sizeof(*rounds), by_size);
    out->disturbed = delay > DISTURBED * (now_s() - start);
    out->seconds = rounds[out->disturbed ? 0 : n / 2] / t->n;
    return OK;
}
