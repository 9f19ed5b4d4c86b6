#include "graph/quantized.h"

#include <string.h>

int64_t quant_block(const struct quant_layout *l)
{
    return l->q.code == CODE_INT8 ? l->n_columns : CODE4_BLOCK;
}

static int64_t ceil_div(int64_t n, int64_t by)
{
    return by > 0 ? (n + by - 1) / by : 0;
}

int quant_pieces_each(const struct quant_layout *l)
{
    return l->n_pieces / MAX(l->n_matrices, 1);
}

/* Piece i of the first matrix, and after the last one where the next matrix begins. */
static struct quant_piece piece_of_first(const struct quant_layout *l, int i)
{
    struct quant_piece p = {0};
    for (int k = 0; k <= i; k++) {
        p.first_row += p.n_rows;
        p.first_elem += p.n_elems;
        p.first_byte += p.n_bytes;
        p.first_block += p.n_blocks;
        p.first_group += p.n_groups;
        p.n_rows = k < quant_pieces_each(l) ? l->rows[k] : 0;
        p.n_elems = p.n_rows * l->n_columns;
        p.n_bytes = l->q.code == CODE_INT8 ? p.n_elems : ceil_div(p.n_elems, 2);
        p.n_blocks = ceil_div(p.n_elems, quant_block(l));
        p.n_groups = ceil_div(p.n_blocks, SCALE_GROUP);
    }
    return p;
}

struct quant_piece quant_piece(const struct quant_layout *l, int i)
{
    int n_each = quant_pieces_each(l), n_before = i / n_each;
    struct quant_piece p = piece_of_first(l, i % n_each), matrix = piece_of_first(l, n_each);
    p.first_row += n_before * matrix.first_row;
    p.first_elem += n_before * matrix.first_elem;
    p.first_byte += n_before * matrix.first_byte;
    p.first_block += n_before * matrix.first_block;
    p.first_group += n_before * matrix.first_group;
    return p;
}

struct shape quant_shape(const struct quant_layout *l)
{
    int64_t n_rows = quant_piece(l, quant_pieces_each(l)).first_row;
    return l->n_matrices ? shape_of(3, (int64_t)l->n_matrices, n_rows, l->n_columns)
                         : shape_of(2, n_rows, l->n_columns);
}

int quant_parts(const struct quant_layout *l, struct format_part out[QUANT_PARTS])
{
    struct quant_piece all = quant_piece(l, l->n_pieces);
    bool is_nested = l->q.nested;
    out[0] = (struct format_part){"", DTYPE_U8, shape_of(1, all.first_byte)};
    if (l->q.code == CODE_INT8)
        out[0].shape = shape_of(2, all.first_row, l->n_columns);
    out[1] = (struct format_part){"absmax", is_nested ? DTYPE_U8 : DTYPE_F32,
                                  shape_of(1, all.first_block)};
    if (!is_nested)
        return 2;
    out[2] = (struct format_part){"nested_absmax", DTYPE_F32, shape_of(1, all.first_group)};
    out[3] = (struct format_part){"nested_table", DTYPE_F32,
                                  shape_of(2, (int64_t)l->n_pieces, (int64_t)SCALE_TABLE)};
    return 4;
}

struct quant_data quant_data(const struct quant_layout *l, void *const *parts)
{
    struct quant_data d = {.codes = parts[0], .absmax = parts[1]};
    if (l->q.nested) {
        d.groups = parts[2];
        d.tables = parts[3];
    }
    return d;
}

/* Elements of block b of a piece. */
static int64_t block_elems(const struct quant_layout *l, const struct quant_piece *p, int64_t b)
{
    return MIN(quant_block(l), p->n_elems - b * quant_block(l));
}

/* Where the codes of block b of a piece begin. */
static int64_t block_byte(const struct quant_layout *l, const struct quant_piece *p, int64_t b)
{
    int64_t elem = b * quant_block(l);
    return p->first_byte + (l->q.code == CODE_INT8 ? elem : elem / 2);
}

void quant_encode(const struct quant_layout *l, int i_piece, int64_t first, int64_t n,
                  const float *x, const struct quant_data *to, float *scales)
{
    struct quant_piece p = quant_piece(l, i_piece);
    if (l->q.code != CODE_INT8) {
        int64_t at = first * CODE4_BLOCK;
        code4_encode(l->q.code, x, MIN(n * CODE4_BLOCK, p.n_elems - at),
                     to->codes + block_byte(l, &p, first), scales + first);
        return;
    }
    for (int64_t b = first; b < first + n; b++, x += l->n_columns)
        scales[b] = int8_encode(x, l->n_columns, to->codes + block_byte(l, &p, b));
}

void quant_begin_scales(const struct quant_layout *l, int i_piece, const float *scales,
                        const struct quant_data *to)
{
    if (l->q.nested)
        scales_begin(scales, quant_piece(l, i_piece).n_blocks,
                     to->tables + (int64_t)i_piece * SCALE_TABLE);
}

void quant_encode_scales(const struct quant_layout *l, int i_piece, int64_t first, int64_t n,
                         const float *scales, const struct quant_data *to)
{
    struct quant_piece p = quant_piece(l, i_piece);
    int64_t begin = first * SCALE_GROUP, n_here = MIN(n * SCALE_GROUP, p.n_blocks - begin);
    if (l->q.nested)
        scales_encode(to->tables + (int64_t)i_piece * SCALE_TABLE, scales + begin, n_here,
                      (uint8_t *)to->absmax + p.first_block + begin,
                      to->groups + p.first_group + first);
    else
        memcpy((float *)to->absmax + p.first_block + begin, scales + begin,
               (size_t)n_here * sizeof(float));
}

static float scale_of(const struct quant_layout *l, int i_piece, const struct quant_piece *p,
                      const struct quant_data *from, int64_t b)
{
    if (!l->q.nested)
        return ((const float *)from->absmax)[p->first_block + b];
    return scale_decode(from->tables + (int64_t)i_piece * SCALE_TABLE,
                        ((const uint8_t *)from->absmax)[p->first_block + b],
                        from->groups[p->first_group + b / SCALE_GROUP]);
}

void quant_decode(const struct quant_layout *l, int i_piece, int64_t first, int64_t n,
                  const struct quant_data *from, float *x)
{
    struct quant_piece p = quant_piece(l, i_piece);
    for (int64_t b = first; b < first + n; b++) {
        const uint8_t *codes = from->codes + block_byte(l, &p, b);
        int64_t n_here = block_elems(l, &p, b);
        float scale = scale_of(l, i_piece, &p, from, b);
        if (l->q.code == CODE_INT8)
            int8_decode(codes, n_here, scale, x);
        else
            code4_decode(l->q.code, codes, n_here, scale, x);
        x += n_here;
    }
}
