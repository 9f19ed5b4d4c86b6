/* factored.h: Adafactor's second moment: which elements of a parameter share which of its numbers.
 *
 * A parameter may hold several tensors of a checkpoint (struct param_tensors); each has a moment of
 * its own. That of a vector is a number for every element. Of other tensors the last two axes are a
 * matrix and those before count matrices; a matrix has a number for every row and one for every
 * column. Matrices with pieces one below the other are a stack:
 *
 *     [rows, columns]  5 rows in pieces of 2 and 3:   r0 r1 r2 r3 r4 | columns of 0 | columns of 1
 *
 * In a convolution's weight the channels come last here and second in checkpoints, where the taps
 * are the matrix. They count matrices then, too, n_inner of them side by side: every number above
 * is a vector of so many.
 */
#ifndef SNUG_GRAPH_FACTORED_H
#define SNUG_GRAPH_FACTORED_H

#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which tensors of a checkpoint a parameter holds; all zero: one. */
struct param_tensors {
    int64_t n_experts; /* the first axis counts what each expert has of its own; 0: it does not */
    int n_pieces;      /* that this, or the whole, is stacked of; 0: it is one */
    int64_t rows[MAX_ATTR_INTS]; /* of each of them */
    bool channels_last;          /* checkpoints have the last axis second */
};

struct factored_layout {
    bool factored;                        /* false: of vectors, whose elements are rows here */
    int64_t n_experts;                    /* at least 1 */
    int64_t n_stacks;                     /* of one expert; above 1 there is one piece to each */
    int64_t n_rows, n_columns, n_inner;   /* of a stack */
    int n_pieces;                         /* of a stack */
    int64_t first_row[MAX_ATTR_INTS + 1]; /* of each piece in its stack; then n_rows */
};

/* NULL, or why a parameter of this shape cannot hold these. */
const char *factored_problem(const struct shape *s, const struct param_tensors *k);
/* Of a parameter that can; k NULL: it is one tensor. */
struct factored_layout factored_layout(const struct shape *s, const struct param_tensors *k);
/* Of the moment. */
struct shape factored_shape(const struct shape *s, const struct param_tensors *k);

/* ---- where things are ------------------------------------------------------------------------ */

static inline HOST_DEVICE int64_t factored_width(const struct factored_layout *l)
{
    return l->n_columns * l->n_inner;
}

static inline HOST_DEVICE int64_t factored_all_stacks(const struct factored_layout *l)
{
    return l->n_experts * l->n_stacks;
}

static inline HOST_DEVICE int64_t factored_all_rows(const struct factored_layout *l)
{
    return factored_all_stacks(l) * l->n_rows;
}

/* Pieces of stacks, in their order: n_inner matrices each. */
static inline HOST_DEVICE int64_t factored_all_pieces(const struct factored_layout *l)
{
    return factored_all_stacks(l) * l->n_pieces;
}

/* Tensors of the checkpoint. */
static inline HOST_DEVICE int64_t factored_all_tensors(const struct factored_layout *l)
{
    return l->n_experts * l->n_pieces;
}

/* Where a row of the parameter belongs. */
struct factored_place {
    int64_t piece, tensor; /* of all */
    int64_t row_at;        /* of the moment: its n_inner numbers */
    int64_t columns_at;    /* and those of the columns */
    int64_t n_left;        /* rows from here to the end of the piece */
};

static inline HOST_DEVICE struct factored_place factored_place(const struct factored_layout *l,
                                                               int64_t row)
{
    const int64_t stack = row / l->n_rows, in_stack = row % l->n_rows;
    const int64_t width = factored_width(l);
    const int64_t at = stack * (l->n_rows * l->n_inner + l->n_pieces * width);
    int p = 0;
    while (in_stack >= l->first_row[p + 1])
        p++;
    struct factored_place place;
    place.piece = stack * l->n_pieces + p;
    place.tensor = stack / l->n_stacks * l->n_pieces + p;
    place.row_at = at + in_stack * l->n_inner;
    place.columns_at = at + l->n_rows * l->n_inner + p * width;
    place.n_left = l->first_row[p + 1] - in_stack;
    return place;
}

/* The first row of a piece, of all. */
static inline HOST_DEVICE int64_t factored_first_row(const struct factored_layout *l, int64_t piece)
{
    return piece / l->n_pieces * l->n_rows + l->first_row[piece % l->n_pieces];
}

static inline HOST_DEVICE int64_t factored_piece_rows(const struct factored_layout *l,
                                                      int64_t piece)
{
    const int p = (int)(piece % l->n_pieces);
    return l->first_row[p + 1] - l->first_row[p];
}

/* ---- lines: what kernels sum at a time ------------------------------------------------------- */

/* A line is a row of a matrix, or a run of a vector; none is of two tensors. Tensors have lines
 * [first, first + n) each. */
enum { FACTORED_RUN = 1024 };

static inline HOST_DEVICE int64_t factored_runs(const struct factored_layout *l, int p)
{
    return (l->first_row[p + 1] - l->first_row[p] + FACTORED_RUN - 1) / FACTORED_RUN;
}

/* Lines of one expert. */
static inline HOST_DEVICE int64_t factored_expert_lines(const struct factored_layout *l)
{
    if (l->factored)
        return l->n_stacks * l->n_rows;
    int64_t n = 0;
    for (int p = 0; p < l->n_pieces; p++)
        n += factored_runs(l, p);
    return n;
}

struct factored_range {
    int64_t first, n;
};

/* The elements of line i. */
static inline HOST_DEVICE struct factored_range factored_line(const struct factored_layout *l,
                                                              int64_t i)
{
    struct factored_range line;
    line.n = factored_width(l);
    line.first = i * line.n;
    if (l->factored)
        return line;
    const int64_t per = factored_expert_lines(l), expert = i / per;
    int p = 0;
    for (i %= per; i >= factored_runs(l, p); p++)
        i -= factored_runs(l, p);
    line.first = l->first_row[p] + i * FACTORED_RUN;
    line.n = l->first_row[p + 1] - line.first;
    if (line.n > FACTORED_RUN)
        line.n = FACTORED_RUN;
    line.first += expert * l->n_rows;
    return line;
}

/* The lines of a tensor. */
static inline HOST_DEVICE struct factored_range
factored_tensor_lines(const struct factored_layout *l, int64_t tensor)
{
    const int p = (int)(tensor % l->n_pieces);
    struct factored_range lines;
    lines.first = tensor / l->n_pieces * factored_expert_lines(l);
    if (l->factored) {
        lines.first += l->first_row[p];
        lines.n = l->n_stacks * factored_piece_rows(l, p);
        return lines;
    }
    for (int before = 0; before < p; before++)
        lines.first += factored_runs(l, before);
    lines.n = factored_runs(l, p);
    return lines;
}

/* And how many elements it has. */
static inline HOST_DEVICE int64_t factored_tensor_elems(const struct factored_layout *l,
                                                        int64_t tensor)
{
    return l->n_stacks * factored_piece_rows(l, tensor) * factored_width(l);
}

#ifdef __cplusplus
}
#endif
#endif
