/* quantize.h: frozen weights as codes and scales, in the graph.
 *
 * The value of a parameter that is kept so becomes its codes; values with the names of its other
 * parts (graph/quantized.h) stand beside it, and a node makes the matrix of them for the first node
 * that reads it. What the others read is that node's output, which plans make again for each reader
 * in the backward pass.
 */
#ifndef SNUG_PRECISION_QUANTIZE_H
#define SNUG_PRECISION_QUANTIZE_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs after dtypes are set: matrices have the dtype that the parameter has until then. */
enum status quantize_apply(struct graph *g, const struct model_graph *io) MUST_CHECK;

/* "<parameter>.<part>", or the parameter's own name: what storage of a part is called. */
enum { QUANT_NAME = 300 };
const char *quantize_part_name(char out[QUANT_NAME], const char *param, const char *suffix);

#ifdef __cplusplus
}
#endif
#endif
