/* coded_matrix.h: a matrix as codes and scales in host memory, on its way to where it is kept:
 * coded run by run, so that the matrix itself is never there as a whole. */
#ifndef SNUG_IO_CODED_MATRIX_H
#define SNUG_IO_CODED_MATRIX_H

#include "base/team.h"
#include "graph/quantized.h"

#ifdef __cplusplus
extern "C" {
#endif

struct coded_matrix {
    struct quant_layout layout;
    struct format_part part[QUANT_PARTS];
    void *memory[QUANT_PARTS]; /* of each part */
    int n_parts;
    struct quant_data data; /* the same */
    float *scales;          /* of the piece that is being coded */
    float *run;             /* elements that are coded at a time */
    int64_t run_blocks;
};

/* On failure there is nothing to release. */
enum status coded_matrix_init(struct coded_matrix *m, const struct quant_layout *l) MUST_CHECK;
void coded_matrix_release(struct coded_matrix *m);
/* What one takes. */
int64_t coded_matrix_bytes(const struct quant_layout *l);

/* Elements [first, first + n) of a piece, in f32. */
typedef enum status coded_source(void *user, int i_piece, int64_t first, int64_t n, float *x);

/* Codes a piece of the matrix. The team may be NULL. */
enum status coded_matrix_fill(struct coded_matrix *m, int i_piece, coded_source *source, void *user,
                              struct team *team) MUST_CHECK;
/* All of it as f32, [rows, columns]. */
void coded_matrix_decode(const struct coded_matrix *m, float *x, struct team *team);

#ifdef __cplusplus
}
#endif
#endif
