/* hdf5.h: data sets of an HDF5 file, row by row. */
#ifndef SNUG_DATA_HDF5_H
#define SNUG_DATA_HDF5_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HDF5_MOST_AXES = 8 };

/* Does the name end in .h5, .hdf5 or .hdf? */
bool hdf5_is_named(const char *path);

struct hdf5_set;

/* Data set `name` ("images", "Product/Signal") of a file; its axes, the first of which counts rows,
 * in dims. ERR_DATA, with file and name, for what is not there or is no numbers. */
enum status hdf5_open(struct hdf5_set **out, const char *path, const char *name, int *rank,
                      int64_t dims[HDF5_MOST_AXES]) MUST_CHECK;
void hdf5_close(struct hdf5_set *s); /* NULL is fine */

/* A row, whatever the file has, as doubles. By one thread at a time. */
enum status hdf5_read_row(struct hdf5_set *s, int64_t row, double *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
