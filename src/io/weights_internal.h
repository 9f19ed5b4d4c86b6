/* weights_internal.h: weights that are open, for weights_open.c (which tensor of the files is which
 * parameter) and weights_read.c (what is in it, into memory). */
#ifndef SNUG_IO_WEIGHTS_INTERNAL_H
#define SNUG_IO_WEIGHTS_INTERNAL_H

#include "io/weights.h"
#include "io/weights_coded.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weights {
    struct st_reader *reader;
    const struct model_param *params;
    int n_params;
    /* [sum of n_pieces] in the order of the table; first[i] is where parameter i's begin */
    const struct st_tensor **tensors;
    struct st_tensor *views;    /* the same: pieces that are parts of a tensor; NULL: none is */
    struct coded_tensor *coded; /* the same: those that are stored as codes; else all zero */
    int *first;
    bool *used;          /* [st_reader_count] */
    unsigned char *slab; /* [n_slab]: what is read of a file at a time */
    int64_t n_slab;
};

#ifdef __cplusplus
}
#endif
#endif
