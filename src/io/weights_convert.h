/* weights_convert.h: runs of elements between file and memory dtypes, through double (exact for all
 * of them). Internal to weights_open.c, weights_read.c and weights_save.c. */
#ifndef SNUG_IO_WEIGHTS_CONVERT_H
#define SNUG_IO_WEIGHTS_CONVERT_H

#include "graph/tensor.h"
#include "io/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The file's name for a float dtype, and back; false when there is none. */
int weights_file_dtype(enum dtype dtype, enum st_dtype *out);
int weights_memory_dtype(enum st_dtype dtype, enum dtype *out);

/* [n, .., C] as [n, C, ..]: how checkpoints have what has channels. */
struct shape channels_first(const struct shape *s);

/* n elements of a float dtype; src and dst need not be aligned. */
void weights_to_double(enum dtype dtype, const void *src, int64_t n, double *dst);
void weights_from_double(enum dtype dtype, const double *src, int64_t n, void *dst);
/* From one float dtype to another: as the two one after the other, by way of float where that holds
 * all there is. */
void weights_convert(enum dtype from, const void *src, enum dtype to, int64_t n, void *dst);

#ifdef __cplusplus
}
#endif
#endif
