/* init.c: see init.h. */
#include "model/init.h"

#include "base/half.h"
#include "base/rng.h"

/* FNV-1a, 64 bit: which stream of the generator a name draws from. */
static uint64_t hash_name(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h;
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

/* Four normal draws: elements 4 group .. 4 group + 3 of the stream. */
static void draw(uint64_t seed, uint64_t stream, int64_t group, float out[4])
{
    struct philox4 w = philox(seed, stream, (uint64_t)group);
    rng_normal2(w.v[0], w.v[1], &out[0], &out[1]);
    rng_normal2(w.v[2], w.v[3], &out[2], &out[3]);
}

enum status init_param(const struct model_param *p, uint64_t seed, enum dtype dtype, int64_t first,
                       int64_t n, void *dst, int n_threads)
{
    if (!dtype_is_float(dtype))
        return FAIL(ERR_SHAPE, "%s: cannot be initialised as %s", p->name, dtype_name(dtype));
    BUG_ON(first < 0 || n < 0 || n_threads < 1);
    uint64_t stream = hash_name(p->name);
    bool normal = p->init == INIT_NORMAL;
    float same = p->init == INIT_ONE ? 1.0f : 0.0f;
    int64_t last = first + n; /* one past */
#pragma omp parallel for schedule(static) num_threads(n_threads) if (n > 16384)
    for (int64_t group = first / 4; group < (last + 3) / 4; group++) {
        float x[4] = {0};
        if (normal)
            draw(seed, stream, group, x);
        for (int j = 0; j < 4; j++) {
            int64_t e = 4 * group + j;
            if (e >= first && e < last)
                store(dtype, dst, e - first, normal ? (float)(p->std * (double)x[j]) : same);
        }
    }
    return OK;
}
