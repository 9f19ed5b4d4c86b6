/* weights_convert.c: see weights_convert.h. */
#include "io/weights_convert.h"

#include <string.h>

#include "base/half.h"

static const struct {
    enum dtype memory;
    enum st_dtype file;
} pairs[] = {{DTYPE_F32, ST_F32}, {DTYPE_F64, ST_F64}, {DTYPE_BF16, ST_BF16}, {DTYPE_F16, ST_F16}};

int weights_file_dtype(enum dtype dtype, enum st_dtype *out)
{
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        if (pairs[i].memory == dtype) {
            *out = pairs[i].file;
            return 1;
        }
    }
    return 0;
}

int weights_memory_dtype(enum st_dtype dtype, enum dtype *out)
{
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        if (pairs[i].file == dtype) {
            *out = pairs[i].memory;
            return 1;
        }
    }
    return 0;
}

struct shape channels_first(const struct shape *s)
{
    struct shape out = *s;
    out.dim[1] = s->dim[s->rank - 1];
    for (int i = 2; i < s->rank; i++)
        out.dim[i] = s->dim[i - 1];
    return out;
}

void weights_to_double(enum dtype dtype, const void *src, int64_t n, double *dst)
{
    const unsigned char *at = src;
    if (dtype == DTYPE_F64) {
        memcpy(dst, at, (size_t)n * sizeof(*dst));
    } else if (dtype == DTYPE_F32) {
        for (int64_t i = 0; i < n; i++) {
            float x;
            memcpy(&x, at + 4 * i, sizeof(x));
            dst[i] = (double)x;
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, at + 2 * i, sizeof(h));
            dst[i] = (double)(dtype == DTYPE_BF16 ? bf16_to_f32(h) : f16_to_f32(h));
        }
    }
}

void weights_from_double(enum dtype dtype, const double *src, int64_t n, void *dst)
{
    unsigned char *at = dst;
    if (dtype == DTYPE_F64) {
        memcpy(at, src, (size_t)n * sizeof(*src));
    } else if (dtype == DTYPE_F32) {
        for (int64_t i = 0; i < n; i++) {
            float x = (float)src[i];
            memcpy(at + 4 * i, &x, sizeof(x));
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            float x = (float)src[i];
            uint16_t h = dtype == DTYPE_BF16 ? bf16_from_f32(x) : f16_from_f32(x);
            memcpy(at + 2 * i, &h, sizeof(h));
        }
    }
}

static void to_float(enum dtype dtype, const void *src, int64_t n, float *dst)
{
    const unsigned char *at = src;
    if (dtype == DTYPE_F32) {
        memcpy(dst, at, (size_t)n * sizeof(*dst));
    } else if (dtype == DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, at + 2 * i, sizeof(h));
            dst[i] = bf16_to_f32(h);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, at + 2 * i, sizeof(h));
            dst[i] = f16_to_f32(h);
        }
    }
}

static void from_float(enum dtype dtype, const float *src, int64_t n, void *dst)
{
    unsigned char *at = dst;
    if (dtype == DTYPE_F32) {
        memcpy(at, src, (size_t)n * sizeof(*src));
    } else if (dtype == DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h = bf16_from_f32(src[i]);
            memcpy(at + 2 * i, &h, sizeof(h));
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h = f16_from_f32(src[i]);
            memcpy(at + 2 * i, &h, sizeof(h));
        }
    }
}

void weights_convert(enum dtype from, const void *src, enum dtype to, int64_t n, void *dst)
{
    enum { RUN = 1024 }; /* stays in the first cache */
    const unsigned char *in = src;
    unsigned char *out = dst;
    for (int64_t e = 0; e < n; e += RUN) {
        int64_t n_here = MIN((int64_t)RUN, n - e);
        const void *here = in + e * dtype_size(from);
        void *there = out + e * dtype_size(to);
        if (from == DTYPE_F64 || to == DTYPE_F64) {
            double x[RUN];
            weights_to_double(from, here, n_here, x);
            weights_from_double(to, x, n_here, there);
        } else if (to == DTYPE_F32 && (uintptr_t)there % sizeof(float) == 0) {
            to_float(from, here, n_here, there);
        } else {
            float x[RUN];
            to_float(from, here, n_here, x);
            from_float(to, x, n_here, there);
        }
    }
}
