/* gguf_quants.c: GGUF's number formats, and those of 32 elements with one scale. */
#include <math.h>

#include "base/compiler.h"
#include "base/half.h"
#include "io/gguf_types.h"

const struct gguf_type_info gguf_types[GGUF_TYPE_COUNT] = {
    [GGUF_F32] = {"f32", 0, 1, 4, false},        [GGUF_F16] = {"f16", 1, 1, 2, false},
    [GGUF_BF16] = {"bf16", 30, 1, 2, false},     [GGUF_Q8_0] = {"q8_0", 8, 32, 34, true},
    [GGUF_Q4_0] = {"q4_0", 2, 32, 18, true},     [GGUF_Q4_K] = {"q4_k", 12, 256, 144, true},
    [GGUF_Q5_K] = {"q5_k", 13, 256, 176, true},  [GGUF_Q6_K] = {"q6_k", 14, 256, 210, true},
    [GGUF_TQ2_0] = {"tq2_0", 35, 256, 66, true},
};

static void put_u16(uint8_t *out, uint16_t x)
{
    out[0] = (uint8_t)(x & 0xff);
    out[1] = (uint8_t)(x >> 8);
}

static void block_f32(const float *x, uint8_t *out)
{
    uint32_t bits = f32_bits(*x);
    put_u16(out, (uint16_t)(bits & 0xffff));
    put_u16(out + 2, (uint16_t)(bits >> 16));
}

static void block_f16(const float *x, uint8_t *out)
{
    put_u16(out, f16_from_f32(*x));
}

static void block_bf16(const float *x, uint8_t *out)
{
    put_u16(out, bf16_from_f32(*x));
}

/* The element that is largest in magnitude, the first of several. */
static float extreme(const float *x, int n)
{
    float found = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(found))
            found = x[i];
    return found;
}

/* 1 / d; 0 where that is infinite: such a d is stored as 0 too. */
static float inverse_of(float d)
{
    float inverse = 1.0f / d;
    return isfinite(inverse) ? inverse : 0.0f;
}

/* Products and sums are statements of their own here, so that no compiler fuses them: the bytes are
 * those that other writers of the format make. */
void gguf_block_q8_0(const float *x, uint8_t *out)
{
    float d = fabsf(extreme(x, 32)) / 127.0f;
    float inverse = inverse_of(d);
    put_u16(out, f16_from_f32(d));
    for (int i = 0; i < 32; i++) {
        float scaled = x[i] * inverse;
        out[2 + i] = (uint8_t)(int8_t)roundf(scaled);
    }
}

void gguf_block_q4_0(const float *x, uint8_t *out)
{
    float d = extreme(x, 32) / -8.0f;
    float inverse = inverse_of(d);
    uint8_t q[32];
    for (int i = 0; i < 32; i++) {
        float scaled = x[i] * inverse;
        float shifted = scaled + 8.5f;
        q[i] = (uint8_t)fminf(shifted, 15.0f);
    }
    put_u16(out, f16_from_f32(d));
    for (int i = 0; i < 16; i++)
        out[2 + i] = (uint8_t)(q[i] | q[i + 16] << 4);
}

void gguf_block_tq2_0(const float *x, uint8_t *out)
{
    float d = fabsf(extreme(x, 256));
    float inverse = inverse_of(d);
    for (int i = 0; i < 64; i++) {
        out[i] = 0;
        for (int n = 0; n < 4; n++) {
            int q = (int)lroundf(x[i / 32 * 128 + n * 32 + i % 32] * inverse) + 1;
            out[i] = (uint8_t)(out[i] | q << 2 * n);
        }
    }
    put_u16(out + 64, f16_from_f32(fminf(d, 65504.0f))); /* no infinity */
}

typedef void block_encoder(const float *x, uint8_t *out);

static block_encoder *const encoders[GGUF_TYPE_COUNT] = {
    [GGUF_F32] = block_f32,        [GGUF_F16] = block_f16,        [GGUF_BF16] = block_bf16,
    [GGUF_Q8_0] = gguf_block_q8_0, [GGUF_Q4_0] = gguf_block_q4_0, [GGUF_Q4_K] = gguf_block_q4_k,
    [GGUF_Q5_K] = gguf_block_q5_k, [GGUF_Q6_K] = gguf_block_q6_k, [GGUF_TQ2_0] = gguf_block_tq2_0,
};

void gguf_encode(enum gguf_type type, const float *x, int64_t n, uint8_t *out)
{
    const struct gguf_type_info *info = &gguf_types[type];
    for (int64_t i = 0; i < n / info->elems; i++)
        encoders[type](x + i * info->elems, out + i * info->bytes);
}
