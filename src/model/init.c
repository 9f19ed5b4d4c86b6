/* init.c: see init.h.
 *
 * Normal draws come from one 32-bit word each, through the inverse of the normal distribution
 * (Wichura, "Algorithm AS 241", 1988, the single-precision version, 7 digits): unlike Box-Muller
 * it is rational functions for most words, so that billions of weights take seconds.
 */
#include "model/init.h"

#include <math.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "base/half.h"
#include "base/hash.h"
#include "base/rng.h"

enum {
    BLOCK = 1024, /* elements drawn at a time, on the stack */
    LANES = 16,   /* of a vector */
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

/* Natural logarithm of a normal number below 1, to 1e-14: log(2^k m) = k log 2 + 2 atanh s. */
static inline double log_of(float p)
{
    enum { ROOT_HALF = 0x3f3504f3, ONE = 0x3f800000 }; /* bits of sqrt(1/2), of 1 */
    uint32_t u = f32_bits(p) + (ONE - ROOT_HALF);
    double k = (double)((int32_t)(u >> 23) - 127);
    double m = (double)f32_from_bits((u & 0x7fffff) + ROOT_HALF);
    double s = (m - 1.0) / (m + 1.0), q = s * s;
    double a = ((1.0 / 15 * q + 1.0 / 13) * q + 1.0 / 11) * q + 1.0 / 9;
    a = ((a * q + 1.0 / 7) * q + 1.0 / 5) * q + 1.0 / 3;
    return k * 0.6931471805599453 + 2.0 * (s + s * q * a);
}

/* l[i] = logf(p[i]), the same bits: the library's is within 1e-9 of the logarithm before it is
 * rounded, at each of the 48 million p there are, so that it is asked only where twice as much
 * decides the rounding. */
static void take_logs(const float *p, int n, float *l)
{
    static const double doubt = 2e-9;
    int32_t open[BLOCK + LANES];
#pragma omp simd
    for (int i = 0; i < n; i++) {
        double y = log_of(p[i]);
        l[i] = (float)(y * (1 - doubt));
        open[i] = l[i] != (float)(y * (1 + doubt));
    }
    for (int i = 0; i < n; i++) {
        if (open[i])
            l[i] = logf(p[i]);
    }
}

/* Quantile (its size) where the tail beyond has probability p[i] below 0.075, over p: sqrt(-log p)
 * is below 5, as p is at least 2^-33. */
static void outer(float *p, int n)
{
    float l[BLOCK + LANES];
    take_logs(p, n, l);
#pragma omp simd
    for (int i = 0; i < n; i++) {
        float r = sqrtf(-l[i]) - 1.6f;
        float a = ((0.17023821103f * r + 1.3067284816f) * r + 2.7568153900f) * r + 1.4234372777f;
        p[i] = a / ((0.12021132975f * r + 0.73700164250f) * r + 1.0f);
    }
}

/* Words [BLOCK i_block, BLOCK (i_block + 1)) of a stream. */
static void draw_words(uint64_t seed, uint64_t stream, int64_t i_block, uint32_t words[BLOCK])
{
    philox_fill(seed, stream, (uint64_t)i_block * (BLOCK / 4), BLOCK / 4, words);
}

/* tail[k] = p[at[k]], those below 0.075; how many. One in seven is: no branch would foresee it. */
static int take_far(const float p[BLOCK], float tail[BLOCK + LANES], int32_t at[BLOCK + LANES])
{
    int n = 0;
#ifdef __AVX512F__
    __m512i place = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int i = 0; i < BLOCK; i += LANES) {
        __m512 x = _mm512_loadu_ps(p + i);
        __mmask16 far = _mm512_cmp_ps_mask(x, _mm512_set1_ps(0.075f), _CMP_LT_OQ);
        _mm512_storeu_ps(tail + n, _mm512_maskz_compress_ps(far, x));
        _mm512_storeu_si512(at + n, _mm512_maskz_compress_epi32(far, place));
        place = _mm512_add_epi32(place, _mm512_set1_epi32(LANES));
        n += __builtin_popcount(far);
    }
#else
    for (int i = 0; i < BLOCK; i++) {
        tail[n] = p[i];
        at[n] = i;
        n += p[i] < 0.075f;
    }
#endif
    return n;
}

/* Elements of those places of a stream of standard normal draws. The one in seven that is far out
 * is made again, all of them together. */
static void draw_block(uint64_t seed, uint64_t stream, int64_t i_block, float x[BLOCK])
{
    uint32_t words[BLOCK];
    float p[BLOCK], tail[BLOCK + LANES];
    int32_t at[BLOCK + LANES];
    draw_words(seed, stream, i_block, words);
#pragma omp simd
    for (int i = 0; i < BLOCK; i++) {
        p[i] = tail_of(words[i]);
        x[i] = central(0.5f - p[i]);
    }
    int n = take_far(p, tail, at);
    for (int i = 0; i < LANES; i++)
        tail[n + i] = 0.05f; /* whole vectors are made of them */
    outer(tail, (n + LANES - 1) / LANES * LANES);
    for (int i = 0; i < n; i++)
        x[at[i]] = tail[i];
#pragma omp simd
    for (int i = 0; i < BLOCK; i++)
        x[i] = words[i] & 0x80000000u ? x[i] : -x[i];
}

/* The same of numbers spread evenly over (-1, 1). */
static void spread_block(uint64_t seed, uint64_t stream, int64_t i_block, float x[BLOCK])
{
    uint32_t words[BLOCK];
    draw_words(seed, stream, i_block, words);
#pragma omp simd
    for (int i = 0; i < BLOCK; i++)
        x[i] = 2.0f * rng_uniform(words[i]) - 1.0f + 0x1p-24f;
}

static float step_of(float x)
{
    float least = logf(0.001f), most = logf(0.1f);
    float step = expf(least + 0.5f * (x + 1.0f) * (most - least));
    return step + logf(-expm1f(-step)); /* the inverse of log(1 + e^x) */
}

/* dst[i] = scale x[i], rounded. */
static void store(enum dtype dtype, const float *x, float scale, int64_t n, void *dst)
{
    if (dtype == DTYPE_F32) {
        for (int64_t i = 0; i < n; i++)
            ((float *)dst)[i] = scale * x[i];
    } else if (dtype == DTYPE_F64) {
        for (int64_t i = 0; i < n; i++)
            ((double *)dst)[i] = (double)(scale * x[i]);
    } else if (dtype == DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = bf16_from_f32(scale * x[i]);
    } else {
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = f16_from_f32(scale * x[i]);
    }
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
        for (int i = 0; i < BLOCK && !normal && !spread; i++)
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
        store(f->dtype, x + (begin - block * BLOCK), scale, end - begin,
              (char *)f->dst + (begin - f->begin) * dtype_size(f->dtype));
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
