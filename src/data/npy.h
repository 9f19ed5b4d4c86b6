/* npy.h: the header of a .npy file (NumPy's format, versions 1 to 3): "\x93NUMPY", a version, the
 * length of a header, and in it {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}. */
#ifndef SNUG_DATA_NPY_H
#define SNUG_DATA_NPY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NPY_MOST_AXES = 8 };

struct npy_header {
    char kind;      /* 'f' float, 'i' signed, 'u' unsigned, 'b' bool */
    int item_bytes; /* of an element */
    int rank;
    int64_t dims[NPY_MOST_AXES];
    int64_t offset; /* of the first element in the file */
};

/* ERR_DATA, with the file's name, for what is no .npy file, is cut short, or is laid out in a way
 * that is not read: Fortran's order, big-endian, structures. */
enum status npy_read_header(const char *path, struct npy_header *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
