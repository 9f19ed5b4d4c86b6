/* weights_save.c: parameters into Hugging Face weights. */
#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"
#include "io/weights.h"
#include "io/weights_convert.h"

/* Elements converted and written at a time: 8 MiB of doubles at most. */
enum { BUFFER_ELEMS = 1 << 19, TILE = 16 };

struct saver {
    const struct model_param *params;
    int n_params;
    const struct weights_source *source;
    enum dtype dtype;
    struct st_writer *writer;
    double *elems;        /* [BUFFER_ELEMS] */
    unsigned char *bytes; /* [BUFFER_ELEMS * 8] */
};

static enum status declare(struct saver *s)
{
    enum st_dtype dtype;
    if (!weights_file_dtype(s->dtype, &dtype))
        return FAIL(ERR_CONFIG, "weights cannot be saved as %s", dtype_name(s->dtype));
    for (int i = 0; i < s->n_params; i++) {
        const struct model_param *p = &s->params[i];
        for (int k = 0; k < p->n_pieces; k++) {
            int64_t dims[MAX_RANK];
            memcpy(dims, p->shape.dim, sizeof(dims));
            dims[0] = p->pieces[k].rows;
            if (p->transposed) {
                dims[0] = p->shape.dim[1];
                dims[1] = p->pieces[k].rows;
            }
            TRY(st_writer_add(s->writer, p->pieces[k].name, dtype, p->shape.rank, dims));
        }
    }
    return OK;
}

static enum status write_elems(struct saver *s, int64_t n)
{
    weights_from_double(s->dtype, s->elems, n, s->bytes);
    return st_writer_append(s->writer, s->bytes, (size_t)(n * dtype_size(s->dtype)));
}

static enum status write_plain(struct saver *s, enum dtype from, const unsigned char *src,
                               int64_t n)
{
    if (from == s->dtype)
        return st_writer_append(s->writer, src, (size_t)(n * dtype_size(from)));
    for (int64_t e = 0; e < n; e += BUFFER_ELEMS) {
        int64_t n_now = MIN((int64_t)BUFFER_ELEMS, n - e);
        weights_to_double(from, src + e * dtype_size(from), n_now, s->elems);
        TRY(write_elems(s, n_now));
    }
    return OK;
}

/* Memory [n_out, n_in] -> file [n_in, n_out], some file rows at a time. */
static enum status write_transposed(struct saver *s, enum dtype from, const unsigned char *src,
                                    int64_t n_out, int64_t n_in)
{
    if (n_out > BUFFER_ELEMS)
        return FAIL(ERR_UNSUPPORTED, "a transposed weight of %lld outputs cannot be saved",
                    (long long)n_out);
    int64_t n_rows = MIN(MAX(BUFFER_ELEMS / n_out, (int64_t)1), (int64_t)TILE);
    for (int64_t i = 0; i < n_in; i += n_rows) {
        int64_t n_now = MIN(n_rows, n_in - i);
        double x[TILE];
        for (int64_t o = 0; o < n_out; o++) {
            weights_to_double(from, src + (o * n_in + i) * dtype_size(from), n_now, x);
            for (int64_t k = 0; k < n_now; k++)
                s->elems[k * n_out + o] = x[k];
        }
        TRY(write_elems(s, n_now * n_out));
    }
    return OK;
}

static enum status write_param(struct saver *s, int i)
{
    const struct model_param *p = &s->params[i];
    struct tensor t = {0};
    TRY(s->source->get(s->source->user, i, &t));
    if (!dtype_is_float(t.dtype) || !shape_equal(&t.shape, &p->shape))
        return FAIL(ERR_SHAPE, "%s: the tensor to save has another shape or dtype %s", p->name,
                    dtype_name(t.dtype));
    const unsigned char *at = t.data;
    int64_t n_inner = shape_inner(&p->shape, 1);
    for (int k = 0; k < p->n_pieces; k++) {
        int64_t rows = p->pieces[k].rows, n = rows * n_inner;
        TRY(p->transposed ? write_transposed(s, t.dtype, at, rows, n_inner)
                          : write_plain(s, t.dtype, at, n));
        at += n * dtype_size(t.dtype);
    }
    return OK;
}

static enum status get_staged(void *user, int i, struct tensor *src)
{
    const struct staged_tensors *from = user;
    return stage_fetch(from->stage, &from->tensors[i], src);
}

struct weights_source weights_from_tensors(struct staged_tensors *from)
{
    return (struct weights_source){get_staged, from};
}

enum status weights_save(const char *folder, const struct model_param *params, int n_params,
                         const struct weights_source *source,
                         const struct weights_save_options *options)
{
    struct saver s = {
        .params = params, .n_params = n_params, .source = source, .dtype = options->dtype};
    enum status status;
    int64_t max_shard =
        options->max_shard_bytes ? options->max_shard_bytes : ST_DEFAULT_SHARD_BYTES;
    TRY_GOTO(mem_try_array(&s.elems, BUFFER_ELEMS, sizeof(*s.elems)), out);
    TRY_GOTO(mem_try_array(&s.bytes, BUFFER_ELEMS, sizeof(double)), out);
    TRY_GOTO(st_writer_new(&s.writer), out);
    TRY_GOTO(declare(&s), out);
    TRY_GOTO(st_writer_open_folder(s.writer, folder, max_shard), out);
    for (int i = 0; i < n_params; i++)
        TRY_GOTO(write_param(&s, i), out);
    TRY_GOTO(st_writer_finish(s.writer, options->sync), out);
out:
    st_writer_free(s.writer);
    mem_free(s.elems);
    mem_free(s.bytes);
    return status;
}
