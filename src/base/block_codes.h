/* block_codes.h: numbers as codes of 4 or 8 bits, with a scale for each block of them.
 *
 *     nf4, fp4   x = map[code] scale       a block is 64 numbers, its scale their largest
 * magnitude; two codes to a byte, the first in its upper half int8       x = code scale / 127 a
 * block is a row of a matrix
 *
 * Scales of 4-bit codes may be codes themselves: scale = offset + map8[code] group_scale, where
 * groups are 256 scales and the offset is the mean of all (Dettmers et al., "QLoRA: Efficient
 * Finetuning of Quantized LLMs", 2023, "double quantization"). Maps, borders and the order of
 * operations are bitsandbytes', so that codes and numbers are the same bits.
 */
#ifndef SNUG_BASE_BLOCK_CODES_H
#define SNUG_BASE_BLOCK_CODES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

enum block_code { CODE_NONE, CODE_NF4, CODE_FP4, CODE_INT8, CODE_COUNT };

enum {
    CODE4_VALUES = 16,
    CODE4_BLOCK = 64,  /* numbers that share a scale */
    SCALE_GROUP = 256, /* scales that share one */
    SCALE_CODES = 256,
    SCALE_TABLE = 1 + SCALE_CODES, /* the offset, and what each code of a scale stands for */
};

/* Quantiles of the normal distribution, and 0 (their paper, appendix E). */
#define NF4_VALUES                                                                                \
    {                                                                                             \
        -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,                 \
            -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,            \
            0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f,                     \
            0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, \
            1.0f                                                                                  \
    }
/* A sign, two bits of exponent, one of fraction; the code's order is not that of the numbers. */
#define FP4_VALUES                                                                           \
    {                                                                                        \
        0.0f, 0.0052083334885537624f, 0.6666666865348816f, 1.0f, 0.3333333432674408f, 0.5f,  \
            0.1666666716337204f, 0.25f, 0.0f, -0.0052083334885537624f, -0.6666666865348816f, \
            -1.0f, -0.3333333432674408f, -0.5f, -0.1666666716337204f, -0.25f                 \
    }
#define INT8_UNIT 7.874015718698502e-3f /* 1 / 127 */

const char *block_code_name(enum block_code k);
/* [CODE4_VALUES], of NF4 or FP4. */
const float *code4_values(enum block_code k);

/* ---- coding ---------------------------------------------------------------------------------- */

/* n numbers into (n + 1) / 2 bytes, and a scale for each block: whole ones, but for the last one of
 * a tensor. */
void code4_encode(enum block_code k, const float *x, int64_t n, uint8_t *codes, float *scales);
/* A row of n numbers; its scale. */
float int8_encode(const float *x, int64_t n, uint8_t *codes);
/* The table of a tensor's scales, n of them. */
void scales_begin(const float *scales, int64_t n, float table[SCALE_TABLE]);
/* By this table n of them, whole groups but for the last of the tensor: codes [n], scales of groups
 * [ceil(n / 256)]. */
void scales_encode(const float table[SCALE_TABLE], const float *scales, int64_t n, uint8_t *codes,
                   float *groups);

/* ---- and back -------------------------------------------------------------------------------- */

void code4_decode(enum block_code k, const uint8_t *codes, int64_t n, float scale, float *x);
void int8_decode(const uint8_t *codes, int64_t n, float scale, float *x);

/* Product and sum are rounded each: two statements, which no compiler makes one of. */
static inline float scale_decode(const float *table, uint8_t code, float group)
{
    float share = table[1 + code] * group;
    return share + table[0];
}

#ifdef __cplusplus
}
#endif
#endif
