/* weights_coded.h: tensors of a checkpoint that bitsandbytes has quantised. Internal to the files
 * of weights.h.
 *
 *     4 bits   <name>                  u8 [bytes, 1]: codes
 *              <name>.absmax           f32 [blocks], or u8
 *              <name>.quant_map        f32 [16]
 *              <name>.nested_absmax    f32 [groups]         where scales are codes
 *              <name>.nested_quant_map f32 [256]            likewise
 *              <name>.quant_state.bitsandbytes__nf4 (or __fp4)   u8: JSON with the offset
 *     8 bits   <name>                  i8 [rows, columns]
 *              <module>.SCB            f32 [rows]
 *              <module>.weight_format  u8: how rows lie; 0 is row after row
 */
#ifndef SNUG_IO_WEIGHTS_CODED_H
#define SNUG_IO_WEIGHTS_CODED_H

#include "io/coded_matrix.h"
#include "io/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

struct coded_tensor {
    struct quantization q;
    const struct st_tensor *codes, *absmax, *groups,
        *map;                          /* of scales: NULL where they are numbers */
    const struct st_tensor *others[2]; /* looked at when it is opened; NULL: none */
    float offset;
};

/* Whether t is such a tensor, by its dtype. */
bool coded_tensor_is(const struct st_tensor *t);
/* Finds what belongs to t, whose matrix is of `rows` and `columns`, and checks it. */
enum status coded_tensor_open(struct coded_tensor *c, const struct st_reader *r,
                              const struct st_tensor *t, const struct shape *matrix) MUST_CHECK;
/* Its bytes as piece i of a matrix of the same quantisation. */
enum status coded_tensor_read(const struct coded_tensor *c, struct coded_matrix *m,
                              int i) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
