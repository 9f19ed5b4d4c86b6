/* init.c: see init.h.
 *
 * Normal draws come from one 32-bit word each, through the inverse of the normal distribution
 * (Wichura, "Algorithm AS 241", 1988, the single-precision version, 7 digits): unlike Box-Muller
 * it is rational functions for most words, so that billions of weights take seconds.
 */
#include "model/init.h"

#include <math.h>

#include "base/half.h"
#include "base/hash.h"
#include "base/rng.h"

enum {
    BLOCK = 1024, /* elements drawn at a time, on the stack */
    PIECE = 16384 /* elements worth handing to another thread */
};

/* Distance of word w from the nearer end of the range, as a probability below 1/2. */
static inline float tail_of(uint32_t w)
{
    uint32_t t = w & 0x80000000u ? ~w : w;
    return ((float)t + 0.5f) * (1.0f / 4294967296.0f);
}

/* Quantile for |p - 1/2| = q <= 0.425. */
static inline float central(float q)
{
    float r = 0.180625f - q * q;
    float a = ((59.109374720f * r + 159.29113202f) * r + 50.434271938f) * r + 3.3871327179f;
    float b = ((67.187563600f * r + 78.757757664f) * r + 17.895169469f) * r + 1.0f;
    return q * a / b;
}

/* Quantile (its size) where the tail beyond has probability p. */
static float outer(float p)
{
    float r = sqrtf(-logf(p));
    if (r <= 5.0f) {
        r -= 1.6f;
        float a = ((0.17023821103f * r + 1.3067284816f) * r + 2.7568153900f) * r + 1.4234372777f;
        return a / ((0.12021132975f * r + 0.73700164250f) * r + 1.0f);
    }
    r -= 5.0f;
    float a = ((0.017337203997f * r + 0.42868294337f) * r + 3.0812263860f) * r + 6.6579051150f;
    return a / ((0.012258202635f * r + 0.24197894225f) * r + 1.0f);
}

/* Elements [BLOCK i_block, BLOCK (i_block + 1)) of a stream of standard normal draws. */
static void draw_block(uint64_t seed, uint64_t stream, int64_t i_block, float x[BLOCK])
{
    uint32_t words[BLOCK];
    uint64_t group = (uint64_t)i_block * (BLOCK / 4);
    for (int i = 0; i < BLOCK / 4; i++) {
        struct philox4 w = philox(seed, stream, group + (uint64_t)i);
        for (int j = 0; j < 4; j++)
            words[4 * i + j] = w.v[j];
    }
#pragma omp simd
    for (int i = 0; i < BLOCK; i++)
        x[i] = central(0.5f - tail_of(words[i]));
    for (int i = 0; i < BLOCK; i++) {
        float p = tail_of(words[i]);
        if (p < 0.075f)
            x[i] = outer(p);
    }
#pragma omp simd
    for (int i = 0; i < BLOCK; i++)
        x[i] = words[i] & 0x80000000u ? x[i] : -x[i];
}

/* The same of numbers spread evenly over (-1, 1). */
static void spread_block(uint64_t seed, uint64_t stream, int64_t i_block, float x[BLOCK])
{
    uint64_t group = (uint64_t)i_block * (BLOCK / 4);
    for (int i = 0; i < BLOCK / 4; i++) {
        struct philox4 w = philox(seed, stream, group + (uint64_t)i);
        for (int j = 0; j < 4; j++)
            x[4 * i + j] = 2.0f * rng_uniform(w.v[j]) - 1.0f + 0x1p-24f;
    }
}

static float step_of(float x)
{
    float least = logf(0.001f), most = logf(0.1f);
    float step = expf(least + 0.5f * (x + 1.0f) * (most - least));
    return step + logf(-expm1f(-step)); /* the inverse of log(1 + e^x) */
}

static void store(enum dtype dtype, void *dst, int64_t i, float x)
{
    if (dtype == DTYPE_F32)
        ((float *)dst)[i] = x;
    else if (dtype == DTYPE_F64)
        ((double *)dst)[i] = (double)x;
    else
        ((uint16_t *)dst)[i] = dtype == DTYPE_BF16 ? bf16_from_f32(x) : f16_from_f32(x);
}

/* Elements [begin, end) of a parameter, into dst. */
struct filling {
    const struct model_param *p;
    uint64_t seed, stream;
    enum dtype dtype;
    int64_t begin, end;
    void *dst;
};

/* Blocks counted from the one that holds element `begin`. */
static void fill_blocks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct filling *f = job;
    bool normal = f->p->init == INIT_NORMAL, steps = f->p->init == INIT_STEPS;
    bool spread = f->p->init == INIT_UNIFORM || steps;
    float scale = normal ? (float)f->p->std : spread && !steps ? (float)f->p->bound : 1.0f;
    float same = f->p->init == INIT_ONE ? 1.0f : 0.0f;
    int64_t before = f->begin / BLOCK;
    (void)thread;
    for (int64_t block = before + first; block < before + last; block++) {
        float x[BLOCK];
        for (int i = 0; i < BLOCK; i++)
            x[i] = same;
        if (normal)
            draw_block(f->seed, f->stream, block, x);
        else if (spread)
            spread_block(f->seed, f->stream, block, x);
        for (int i = 0; i < BLOCK && steps; i++)
            x[i] = step_of(x[i]);
        for (int i = 0; i < BLOCK && f->p->init == INIT_COUNTS; i++)
            x[i] = logf((float)((block * BLOCK + i) % shape_last(&f->p->shape) + 1));
        int64_t begin = MAX(f->begin, block * BLOCK), end = MIN(f->end, (block + 1) * BLOCK);
        for (int64_t e = begin; e < end; e++)
            store(f->dtype, f->dst, e - f->begin, scale * x[e - block * BLOCK]);
    }
}

enum status init_param(const struct model_param *p, uint64_t seed, enum dtype dtype, int64_t first,
                       int64_t n, void *dst, struct team *team)
{
    if (!dtype_is_float(dtype))
        return FAIL(ERR_SHAPE, "%s: cannot be initialised as %s", p->name, dtype_name(dtype));
    BUG_ON(first < 0 || n < 0);
    struct filling f = {p, seed, hash_text(p->name), dtype, first, first + n, dst};
    int64_t n_blocks = (first + n + BLOCK - 1) / BLOCK - first / BLOCK;
    team_run(team, n_blocks, PIECE / BLOCK, fill_blocks, &f);
    return OK;
}
