/* dequantize.h: the layout that a call of dequantize is about: for its kernels. */
#ifndef SNUG_OPS_DEQUANTIZE_H
#define SNUG_OPS_DEQUANTIZE_H

#include "graph/quantized.h"

#ifdef __cplusplus
extern "C" {
#endif

struct quant_layout dequantize_layout(const struct op_call *c);

#ifdef __cplusplus
}
#endif
#endif
