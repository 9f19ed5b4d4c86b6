/* weights_save.c: parameters into Hugging Face weights. */
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/vec.h"
#include "io/weights.h"
#include "io/weights_convert.h"

/* Elements converted and written at a time, at most: 4 MiB of doubles. */
enum { BUFFER_ELEMS = 1 << 19, TILE = 16 };

/* A tensor of the file: piece k of a parameter, which begins at element `first` of it. */
struct piece {
    int i_param, k;
    int64_t first;
};

struct saver {
    const struct model_param *params;
    int n_params;
    const struct tensor *src;
    const struct tensor_stage *stage;
    enum dtype dtype; /* NONE: each as in memory */
    struct st_writer *writer;
    VEC(struct piece) pieces; /* in the order of declaration */
    int64_t n_elems;          /* of the buffers */
    double *elems;            /* [n_elems] */
    unsigned char *bytes;     /* [n_elems * 8] */
};

/* Elements that the buffers have for a parameter: whole rows of the file where it is transposed. */
static int64_t buffer_elems(const struct model_param *p, enum dtype from, enum dtype to)
{
    int64_t most = 0;
    for (int k = 0; p->transposed && k < p->n_pieces; k++)
        most = MAX(most, p->pieces[k].rows * TILE);
    if (!p->transposed && (from != to || p->channels))
        most = shape_elems(&p->shape);
    return MIN(most, (int64_t)BUFFER_ELEMS);
}

int64_t weights_save_bytes(const struct model_param *params, int n_params, enum dtype from,
                           enum dtype to)
{
    int64_t most = 0;
    for (int i = 0; i < n_params; i++)
        most = MAX(most, buffer_elems(&params[i], from, to));
    return most * 2 * (int64_t)sizeof(double);
}

static enum dtype file_dtype_of(const struct saver *s, int i_param)
{
    return s->dtype == DTYPE_NONE ? s->src[i_param].dtype : s->dtype;
}

static enum status declare_param(struct saver *s, int i)
{
    const struct model_param *p = &s->params[i];
    struct piece piece = {.i_param = i};
    enum st_dtype dtype;
    if (!weights_file_dtype(file_dtype_of(s, i), &dtype))
        return FAIL(ERR_CONFIG, "weights cannot be saved as %s", dtype_name(file_dtype_of(s, i)));
    if (!dtype_is_float(s->src[i].dtype) || !shape_equal(&s->src[i].shape, &p->shape))
        return FAIL(ERR_SHAPE, "%s: the tensor to save has another shape or dtype %s", p->name,
                    dtype_name(s->src[i].dtype));
    for (; piece.k < p->n_pieces; piece.k++) {
        int64_t rows = p->pieces[piece.k].rows;
        struct shape due = param_piece_shape(p, piece.k);
        if (p->channels && !p->flat)
            due = channels_first(&due);
        if (p->transposed) {
            due.dim[0] = p->shape.dim[1];
            due.dim[1] = rows;
        }
        TRY(st_writer_add(s->writer, p->pieces[piece.k].name, dtype, due.rank, due.dim));
        TRY(vec_push(&s->pieces, piece));
        piece.first += rows * param_row_elems(p);
    }
    return OK;
}

static enum status write_elems(struct saver *s, enum dtype to, int64_t n)
{
    weights_from_double(to, s->elems, n, s->bytes);
    return st_writer_append(s->writer, s->bytes, (size_t)(n * dtype_size(to)));
}

static enum status write_plain(struct saver *s, enum dtype from, enum dtype to,
                               const unsigned char *src, int64_t n)
{
    if (from == to)
        return st_writer_append(s->writer, src, (size_t)(n * dtype_size(from)));
    for (int64_t e = 0; e < n; e += s->n_elems) {
        int64_t n_now = MIN(s->n_elems, n - e);
        weights_to_double(from, src + e * dtype_size(from), n_now, s->elems);
        TRY(write_elems(s, to, n_now));
    }
    return OK;
}

/* Memory [n_out, n_in] -> file [n_in, n_out], some file rows at a time. */
static enum status write_transposed(struct saver *s, enum dtype from, enum dtype to,
                                    const unsigned char *src, int64_t n_out, int64_t n_in)
{
    if (n_out > s->n_elems)
        return FAIL(ERR_UNSUPPORTED, "a transposed weight of %lld outputs cannot be saved",
                    (long long)n_out);
    int64_t n_rows = MIN(MAX(s->n_elems / n_out, (int64_t)1), (int64_t)TILE);
    for (int64_t i = 0; i < n_in; i += n_rows) {
        int64_t n_now = MIN(n_rows, n_in - i);
        double x[TILE];
        for (int64_t o = 0; o < n_out; o++) {
            weights_to_double(from, src + (o * n_in + i) * dtype_size(from), n_now, x);
            for (int64_t k = 0; k < n_now; k++)
                s->elems[k * n_out + o] = x[k];
        }
        TRY(write_elems(s, to, n_now * n_out));
    }
    return OK;
}

/* Rows [places, channels] in memory -> [channels, places] in the file. */
static enum status write_channels(struct saver *s, enum dtype from, enum dtype to,
                                  const unsigned char *src, const struct model_param *p, int64_t n)
{
    int64_t inner = shape_inner(&p->shape, 1), n_places = inner / p->channels, n_buffered = 0;
    for (int64_t e = 0; e < n; e++) {
        int64_t row = e / inner, at = e % inner;
        int64_t place = row * inner + at % n_places * p->channels + at / n_places;
        weights_to_double(from, src + place * dtype_size(from), 1, &s->elems[n_buffered++]);
        if (n_buffered == s->n_elems || e + 1 == n) {
            TRY(write_elems(s, to, n_buffered));
            n_buffered = 0;
        }
    }
    return OK;
}

static enum status write_host(struct saver *s, const struct piece *piece, enum dtype from,
                              const void *data, int64_t n)
{
    const struct model_param *p = &s->params[piece->i_param];
    enum dtype to = file_dtype_of(s, piece->i_param);
    if (p->channels)
        return write_channels(s, from, to, data, p, n);
    if (p->transposed)
        return write_transposed(s, from, to, data, p->pieces[piece->k].rows, param_row_elems(p));
    return write_plain(s, from, to, data, n);
}

/* The stage has no room for the parameter: the piece in parts. */
static enum status write_in_parts(struct saver *s, const struct piece *piece, int64_t most)
{
    const struct model_param *p = &s->params[piece->i_param];
    int64_t n = p->pieces[piece->k].rows * param_row_elems(p);
    for (int64_t at = 0; at < n; at += most) {
        int64_t n_now = MIN(most, n - at);
        struct tensor part = tensor_part(&s->src[piece->i_param], piece->first + at, n_now), host;
        TRY(stage_fetch(s->stage, &part, &host));
        TRY(write_host(s, piece, host.dtype, host.data, n_now));
    }
    return OK;
}

/* In the file's order, which is not the table's where dtypes differ. Pieces of one parameter mostly
 * follow each other: where it goes through the stage whole, it is fetched once for them. */
static enum status write_pieces(struct saver *s)
{
    struct tensor t = {0};
    int fetched = -1;
    for (int64_t at = st_writer_next(s->writer); at >= 0; at = st_writer_next(s->writer)) {
        const struct piece *piece = &s->pieces.items[at];
        const struct model_param *p = &s->params[piece->i_param];
        const struct tensor *src = &s->src[piece->i_param];
        int64_t most = stage_elems(s->stage, src, param_unit(p));
        if (most < shape_elems(&src->shape)) {
            TRY(write_in_parts(s, piece, most));
            fetched = -1;
            continue;
        }
        if (fetched != piece->i_param)
            TRY(stage_fetch(s->stage, src, &t));
        fetched = piece->i_param;
        TRY(write_host(s, piece, t.dtype, (const char *)t.data + piece->first * dtype_size(t.dtype),
                       p->pieces[piece->k].rows * param_row_elems(p)));
    }
    return OK;
}

static enum status make_buffers(struct saver *s)
{
    for (int i = 0; i < s->n_params; i++)
        s->n_elems =
            MAX(s->n_elems, buffer_elems(&s->params[i], s->src[i].dtype, file_dtype_of(s, i)));
    TRY(mem_try_array(&s->elems, (size_t)MAX(s->n_elems, (int64_t)1), sizeof(*s->elems)));
    return mem_try_array(&s->bytes, (size_t)MAX(s->n_elems, (int64_t)1), sizeof(double));
}

static enum status open_writer(struct saver *s, const char *folder,
                               const struct weights_save_options *options)
{
    int64_t max_shard =
        options->max_shard_bytes ? options->max_shard_bytes : ST_DEFAULT_SHARD_BYTES;
    struct str path = {0};
    if (!options->file)
        return st_writer_open_folder(s->writer, folder, max_shard);
    str_addf(&path, "%s/%s", folder, options->file);
    enum status status = str_status(&path);
    if (status == OK)
        status = st_writer_open_file(s->writer, path.text);
    str_release(&path);
    return status;
}

enum status weights_save(const char *folder, const struct model_param *params, int n_params,
                         const struct tensor *src, const struct tensor_stage *stage,
                         const struct weights_save_options *options)
{
    struct saver s = {.params = params,
                      .n_params = n_params,
                      .src = src,
                      .stage = stage,
                      .dtype = options->dtype};
    enum status status;
    TRY_GOTO(make_buffers(&s), out);
    TRY_GOTO(st_writer_new(&s.writer), out);
    for (int i = 0; i < n_params; i++)
        TRY_GOTO(declare_param(&s, i), out);
    TRY_GOTO(open_writer(&s, folder, options), out);
    TRY_GOTO(write_pieces(&s), out);
    TRY_GOTO(st_writer_finish(s.writer, options->sync), out);
out:
    st_writer_free(s.writer);
    vec_release(&s.pieces);
    mem_free(s.elems);
    mem_free(s.bytes);
    return status;
}
