/* ternary.h: numbers of BitNet b1.58 (Ma et al., "The Era of 1-bit LLMs: All Large Language Models
 * are in 1.58 Bits", 2024, section 2) that inference and kernels share. */
#ifndef SNUG_OPS_TERNARY_H
#define SNUG_OPS_TERNARY_H

#ifdef __cplusplus
extern "C" {
#endif

enum { TERNARY_ROWS }; /* attribute of ternary_weight */

/* The least scale of a matrix and of a row. */
#define TERNARY_LEAST 1e-5f
/* The largest code of an activation. */
#define INT8_MOST 127.0f

#ifdef __cplusplus
}
#endif
#endif
