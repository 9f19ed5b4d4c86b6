/* quantized.h: a frozen matrix as codes and scales: which tensors it consists of, and what of them
 * belongs to which element.
 *
 * A matrix may be stacked of several of a checkpoint (q, k and v), and there may be many such
 * matrices one behind the other (experts). Each of these pieces is coded by itself, as it is when
 * it is a tensor of its own: blocks, groups of scales and offsets begin anew.
 *
 *     codes            u8     4 bits: [bytes]; 8 bits: [rows, columns]
 *     absmax           f32    [blocks], or u8: codes of them
 *     nested_absmax    f32    [groups]                  where scales are codes
 *     nested_table     f32    [pieces, SCALE_TABLE]     likewise
 */
#ifndef SNUG_GRAPH_QUANTIZED_H
#define SNUG_GRAPH_QUANTIZED_H

#include "base/block_codes.h"
#include "graph/format.h"
#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct quantization {
    enum block_code code; /* NONE: numbers stand for themselves */
    bool nested;          /* scales are codes */
};

/* A matrix of so many columns, stacked of pieces, or several that are alike. */
struct quant_layout {
    struct quantization q;
    int64_t n_columns;
    int n_pieces;   /* of all matrices */
    int n_matrices; /* one behind the other, [matrices, rows, columns]; 0: one matrix */
    int64_t rows[MAX_ATTR_INTS]; /* of each piece of a matrix */
};

/* What belongs to one piece: the first of it and how many. */
struct quant_piece {
    int64_t first_row, n_rows;
    int64_t first_elem, n_elems;
    int64_t first_byte, n_bytes;   /* of codes */
    int64_t first_block, n_blocks; /* scales */
    int64_t first_group, n_groups; /* of scales */
};

enum { QUANT_PARTS = 4 };

/* The tensors of a matrix in memory; those it has not are NULL. */
struct quant_data {
    uint8_t *codes;
    void *absmax; /* uint8_t or float */
    float *groups, *tables;
};

int64_t quant_block(const struct quant_layout *l);      /* elements that share a scale */
int quant_pieces_each(const struct quant_layout *l);    /* of one matrix */
struct shape quant_shape(const struct quant_layout *l); /* in numbers */
/* Piece i; with i = n_pieces the firsts are how many there are in all. */
struct quant_piece quant_piece(const struct quant_layout *l, int i);
/* The tensors, codes first; how many. */
int quant_parts(const struct quant_layout *l, struct format_part out[QUANT_PARTS]);
/* Where each of them lies, in the order of quant_parts. */
struct quant_data quant_data(const struct quant_layout *l, void *const *parts);

/* Blocks [first, first + n) of a piece, x their elements, one after the other. scales[b] is that of
 * block b of the piece. When all are known, quant_begin_scales and then quant_encode_scales of
 * groups [first, first + n) of them, of which there are p.n_groups, in whatever order, code them.
 */
void quant_encode(const struct quant_layout *l, int i_piece, int64_t first, int64_t n,
                  const float *x, const struct quant_data *to, float *scales);
void quant_begin_scales(const struct quant_layout *l, int i_piece, const float *scales,
                        const struct quant_data *to);
void quant_encode_scales(const struct quant_layout *l, int i_piece, int64_t first, int64_t n,
                         const float *scales, const struct quant_data *to);
void quant_decode(const struct quant_layout *l, int i_piece, int64_t first, int64_t n,
                  const struct quant_data *from, float *x);

#ifdef __cplusplus
}
#endif
#endif
