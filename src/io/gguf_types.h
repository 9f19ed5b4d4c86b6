/* gguf_types.h: how GGUF files store numbers: plain, or in blocks of integers with scales.
 *
 *   q8_0   32 x: f16 d, 32 x int8                                x = d q
 *   q4_0   32 x: f16 d, 32 x 4 bits                              x = d (q - 8)
 *   q4_k  256 x: f16 d, m; 8 x 6-bit scale and minimum; 4 bits   x = d s q - m t
 *   q5_k  256 x: the same with 5 bits
 *   q6_k  256 x: 6 bits; 16 x int8 scale; f16 d                  x = d s (q - 32)
 *   tq2_0 256 x: 2 bits; f16 d                                   x = d (q - 1), of -1, 0 and 1
 */
#ifndef SNUG_IO_GGUF_TYPES_H
#define SNUG_IO_GGUF_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gguf_type {
    GGUF_F32,
    GGUF_F16,
    GGUF_BF16,
    GGUF_Q8_0,
    GGUF_Q4_0,
    GGUF_Q4_K,
    GGUF_Q5_K,
    GGUF_Q6_K,
    GGUF_TQ2_0,
    GGUF_TYPE_COUNT
};

struct gguf_type_info {
    const char *name;
    uint32_t id;    /* in the file */
    int64_t elems;  /* of a block */
    int64_t bytes;  /* of a block */
    bool quantized; /* integers: only finite numbers can be stored */
};
extern const struct gguf_type_info gguf_types[GGUF_TYPE_COUNT];

/* n elements, whole blocks, as bytes. Quantised types take finite numbers alone. */
void gguf_encode(enum gguf_type type, const float *x, int64_t n, uint8_t *out);

/* ---- inside io/ ---- */

/* gguf_quants.c, gguf_quants_k.c: one block. */
void gguf_block_q8_0(const float *x, uint8_t *out);
void gguf_block_q4_0(const float *x, uint8_t *out);
void gguf_block_q4_k(const float *x, uint8_t *out);
void gguf_block_q5_k(const float *x, uint8_t *out);
void gguf_block_q6_k(const float *x, uint8_t *out);
void gguf_block_tq2_0(const float *x, uint8_t *out);

#ifdef __cplusplus
}
#endif
#endif
