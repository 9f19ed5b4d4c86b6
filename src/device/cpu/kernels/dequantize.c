/* dequantize.c: matrices from codes and scales. */
#include "ops/dequantize.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

struct decoding {
    struct quant_layout layout;
    struct quant_data from;
    int i_piece;
    struct quant_piece piece;
    const struct tensor *to;
};

static struct quant_data data_of(const struct quant_layout *l, const struct op_call *c)
{
    void *parts[QUANT_PARTS] = {NULL};
    for (int i = 0; i < c->n_in; i++)
        parts[i] = c->in[i].data;
    return quant_data(l, parts);
}

static void decode_blocks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct decoding *d = job;
    (void)thread;
    for (int64_t b = first; b < last; b++) {
        float buffer[CODE4_BLOCK];
        int64_t at = b * CODE4_BLOCK, n = MIN((int64_t)CODE4_BLOCK, d->piece.n_elems - at);
        float *x = block_open(d->to, d->piece.first_elem + at, buffer);
        quant_decode(&d->layout, d->i_piece, b, 1, &d->from, x);
        block_close(d->to, d->piece.first_elem + at, x, n);
    }
}

/* A row's scale serves all parts of the row. */
static void decode_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct decoding *d = job;
    const float *scales = d->from.absmax;
    int64_t n_columns = d->layout.n_columns;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        for (int64_t k = 0; k < n_columns; k += CPU_BLOCK) {
            float buffer[CPU_BLOCK];
            int64_t at = row * n_columns + k, n = MIN((int64_t)CPU_BLOCK, n_columns - k);
            float *x = block_open(d->to, at, buffer);
            int8_decode(d->from.codes + at, n, scales[row], x);
            block_close(d->to, at, x, n);
        }
    }
}

static enum status dequantize_blocks(const struct kernel_ctx *x, const struct op_call *c)
{
    struct decoding d = {.layout = dequantize_layout(c), .to = &c->out[0]};
    d.from = data_of(&d.layout, c);
    if (d.layout.q.code == CODE_INT8) {
        cpu_loop(x, c->in[0].shape.dim[0], d.layout.n_columns, decode_rows, &d);
        return OK;
    }
    for (d.i_piece = 0; d.i_piece < d.layout.n_pieces; d.i_piece++) {
        d.piece = quant_piece(&d.layout, d.i_piece);
        cpu_loop(x, d.piece.n_blocks, CODE4_BLOCK, decode_blocks, &d);
    }
    return OK;
}

/* ---- the reference --------------------------------------------------------------------------- */

static double reference_scale(const struct op_call *c, int i_piece, const struct quant_piece *p,
                              int64_t block)
{
    double scale = ref_get(&c->in[1], p->first_block + block);
    if (c->n_in <= 2)
        return scale;
    int64_t table = (int64_t)i_piece * SCALE_TABLE;
    return ref_get(&c->in[3], table) + ref_get(&c->in[3], table + 1 + (int64_t)scale) *
                                           ref_get(&c->in[2], p->first_group + block / SCALE_GROUP);
}

static double reference_value(const struct quant_layout *l, const struct op_call *c,
                              const struct quant_piece *p, int64_t i)
{
    const uint8_t *codes = c->in[0].data;
    if (l->q.code == CODE_INT8)
        return (double)(int8_t)codes[p->first_byte + i] / 127.0;
    int pair = codes[p->first_byte + i / 2];
    return (double)code4_values(l->q.code)[i % 2 ? pair % 16 : pair / 16];
}

static enum status dequantize_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct quant_layout l = dequantize_layout(c);
    (void)x;
    for (int k = 0; k < l.n_pieces; k++) {
        struct quant_piece p = quant_piece(&l, k);
        for (int64_t i = 0; i < p.n_elems; i++)
            ref_set(&c->out[0], p.first_elem + i,
                    reference_value(&l, c, &p, i) * reference_scale(c, k, &p, i / quant_block(&l)));
    }
    return OK;
}

const struct kernel cpu_kernels_dequantize[] = {
    {"blocks", cpu_declines_f64, NULL, dequantize_blocks},
    {"reference", NULL, NULL, dequantize_reference},
    KERNEL_END,
};
