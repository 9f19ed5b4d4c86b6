/* weights_open.c: the tensors of Hugging Face weights that are a model's parameters, found and
 * checked before anything is read. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "io/file_hash.h"
#include "io/hf_dir.h"
#include "io/weights_convert.h"
#include "io/weights_internal.h"

/* Files are read and not mapped: pages of a mapping are resident beside the parameters, and come
 * and go as the system sees fit. */
enum { SLAB_BYTES = 1 << 20 };

/* Whole rows where their elements change places. */
static int64_t slab_bytes(const struct model_param *p)
{
    int64_t row = p->transposed ? p->shape.dim[0] : p->channels ? shape_inner(&p->shape, 1) : 0;
    int64_t least = row * dtype_size(DTYPE_F64);
    return MAX(least, MIN(shape_elems(&p->shape) * dtype_size(DTYPE_F64), (int64_t)SLAB_BYTES));
}

/* A matrix that is coded; it is read whole first where the file has its columns as rows. */
static int64_t code_bytes(const struct model_param *p)
{
    if (p->quantization.code == CODE_NONE)
        return 0;
    struct quant_layout l = param_quant_layout(p);
    int64_t whole = p->transposed ? shape_elems(&p->shape) * (int64_t)sizeof(float) : 0;
    return coded_matrix_bytes(&l) + whole;
}

int64_t weights_load_bytes(const struct model_param *params, int n_params)
{
    int64_t most = 0;
    for (int i = 0; i < n_params; i++)
        most = MAX(most, slab_bytes(&params[i]) + code_bytes(&params[i]));
    return most;
}

/* ---- finding and checking ---- */

/* The tensor under its full name, or without the first part of it. */
static const struct st_tensor *find(const struct st_reader *r, const char *name)
{
    static const char *const roots[] = {"transformer.", "model."};
    const struct st_tensor *t = st_reader_find(r, name);
    for (size_t i = 0; !t && i < ARRAY_LEN(roots); i++) {
        if (str_starts_with(name, roots[i]))
            t = st_reader_find(r, name + strlen(roots[i]));
    }
    return t;
}

static void mark_used(struct weights *w, const struct st_tensor *t)
{
    for (size_t i = 0; i < st_reader_count(w->reader); i++) {
        if (st_reader_at(w->reader, i) == t)
            w->used[i] = true;
    }
}

/* What piece k of p looks like in the file. */
static struct shape file_shape(const struct model_param *p, int k)
{
    struct shape s = param_piece_shape(p, k);
    if (p->channels && !p->flat)
        s = channels_first(&s);
    if (p->transposed) {
        s.dim[0] = p->shape.dim[1];
        s.dim[1] = p->pieces[k].rows;
    }
    return s;
}

static enum status check_tensor(const struct st_tensor *t, const struct shape *due)
{
    enum dtype dtype;
    if (!weights_memory_dtype(t->dtype, &dtype))
        return FAIL(ERR_DATA,
                    "%s: tensor '%s' is %s; weights must be F32, BF16, F16 or F64, or quantised "
                    "by bitsandbytes",
                    t->file, t->name, st_dtype_name(t->dtype));
    struct shape s = {.rank = MIN(t->rank, MAX_RANK)};
    for (int i = 0; i < s.rank; i++)
        s.dim[i] = t->dims[i];
    if (t->rank == s.rank && shape_equal(&s, due))
        return OK;
    char have[SHAPE_TEXT], want[SHAPE_TEXT];
    return FAIL(ERR_DATA, "%s: tensor '%s' has shape %s, the model's config asks for %s", t->file,
                t->name, shape_text(have, &s), shape_text(want, due));
}

static enum status compare_bytes(struct weights *w, const struct st_tensor *a,
                                 const struct st_tensor *b, bool *same)
{
    int64_t half = w->n_slab / 2;
    *same = a->dtype == b->dtype;
    for (int64_t at = 0, n; *same && at < a->n_bytes; at += n) {
        n = MIN(half, a->n_bytes - at);
        TRY(file_read_part(a->file, a->offset + at, w->slab, (size_t)n));
        TRY(file_read_part(b->file, b->offset + at, w->slab + half, (size_t)n));
        *same = memcmp(w->slab, w->slab + half, (size_t)n) == 0;
    }
    return OK;
}

/* A tied head stored beside the embedding: the same numbers, or the config is wrong about it. */
static enum status check_tied(struct weights *w, const struct model_param *p,
                              const struct st_tensor *own)
{
    const struct st_tensor *t = p->tied_name ? find(w->reader, p->tied_name) : NULL;
    if (!t)
        return OK;
    struct shape due = file_shape(p, 0);
    TRY(check_tensor(t, &due));
    bool same;
    TRY(compare_bytes(w, t, own, &same));
    if (!same)
        return FAIL(ERR_DATA,
                    "%s: '%s' differs from '%s', but the config ties them; set "
                    "tie_word_embeddings: false to load both",
                    t->file, t->name, own->name);
    mark_used(w, t);
    return OK;
}

/* What belongs to tensor t, which piece k of parameter i is stored as. */
static enum status find_codes(struct weights *w, int i, int k, const struct st_tensor *t)
{
    const struct model_param *p = &w->params[i];
    struct coded_tensor *c = &w->coded[w->first[i] + k];
    struct shape matrix = param_piece_shape(p, k);
    TRY(coded_tensor_open(c, w->reader, t, &matrix));
    const struct st_tensor *const all[] = {c->codes, c->absmax,    c->groups,
                                           c->map,   c->others[0], c->others[1]};
    for (size_t n = 0; n < ARRAY_LEN(all); n++)
        mark_used(w, all[n]);
    struct quantization due = p->quantization;
    if (due.code == CODE_NONE || (due.code == c->q.code && due.nested == c->q.nested))
        return OK;
    return FAIL(ERR_DATA,
                "%s: tensor '%s' is stored in %s%s, but %s%s is asked for: leave out the keys that "
                "ask for it",
                t->file, t->name, block_code_name(c->q.code),
                c->q.nested ? " with double quantisation" : "", block_code_name(due.code),
                due.nested ? " with double quantisation" : "");
}

/* The tensor that has the parameter whole; NULL: its pieces are there, or it has no such name. */
static const struct st_tensor *find_stacked(const struct weights *w, const struct model_param *p)
{
    if (!p->stacked_name || find(w->reader, p->pieces[0].name))
        return NULL;
    return find(w->reader, p->stacked_name);
}

static enum status check_stacked(const struct st_tensor *t, const struct shape *due)
{
    bool turned = t->rank == 3 && due->rank == 3 && t->dims[0] == due->dim[0] &&
                  t->dims[1] == due->dim[2] && t->dims[2] == due->dim[1];
    if (turned && due->dim[1] != due->dim[2])
        return FAIL(ERR_DATA,
                    "%s: tensor '%s' has its experts as [in, out] = [%" PRId64 ", %" PRId64
                    "]; they must be [out, in]: transpose its last two axes, or save the model "
                    "with transformers' save_pretrained, which writes a tensor for each expert",
                    t->file, t->name, t->dims[1], t->dims[2]);
    return check_tensor(t, due);
}

/* Pieces that lie one behind the other in tensor t, in the order they have in memory. */
static enum status view_pieces(struct weights *w, int i, const struct st_tensor *t)
{
    const struct model_param *p = &w->params[i];
    int64_t offset = t->offset, size = st_dtype_bits(t->dtype) / 8;
    TRY(check_stacked(t, &p->shape));
    mark_used(w, t);
    if (!w->views)
        TRY(mem_try_array(&w->views, (size_t)w->first[w->n_params] + 1, sizeof(*w->views)));
    for (int k = 0; k < p->n_pieces; k++) {
        struct st_tensor *view = &w->views[w->first[i] + k];
        struct shape s = param_piece_shape(p, k);
        *view = *t;
        view->rank = 0; /* what is read of it goes by its bytes */
        view->dims = NULL;
        view->n_elems = shape_elems(&s);
        view->n_bytes = view->n_elems * size;
        view->offset = offset;
        view->data = t->data + (offset - t->offset);
        offset += view->n_bytes;
        w->tensors[w->first[i] + k] = view;
    }
    return OK;
}

static enum status find_param(struct weights *w, int i)
{
    const struct model_param *p = &w->params[i];
    const struct st_tensor *stacked = find_stacked(w, p);
    if (stacked)
        return view_pieces(w, i, stacked);
    for (int k = 0; k < p->n_pieces; k++) {
        const struct st_tensor *t = find(w->reader, p->pieces[k].name);
        if (!t)
            TRY(st_reader_get(w->reader, p->pieces[k].name, &t)); /* fails, naming the nearest */
        struct shape due = file_shape(p, k);
        w->tensors[w->first[i] + k] = t;
        if (coded_tensor_is(t)) {
            TRY(find_codes(w, i, k, t));
            continue;
        }
        TRY(check_tensor(t, &due));
        mark_used(w, t);
    }
    return check_tied(w, p, w->tensors[w->first[i]]);
}

/* Buffers that older checkpoints carry: causal masks, rotary tables. */
static bool is_buffer(const char *name)
{
    return str_ends_with(name, ".attn.bias") || str_ends_with(name, ".attn.masked_bias") ||
           str_ends_with(name, "rotary_emb.inv_freq");
}

static enum status check_extra(const struct weights *w, const char *folder)
{
    enum { LISTED = 6 };
    int n = 0;
    struct str list = {0};
    for (size_t i = 0; i < st_reader_count(w->reader); i++) {
        const char *name = st_reader_at(w->reader, i)->name;
        if (w->used[i] || is_buffer(name))
            continue;
        if (n++ < LISTED)
            str_addf(&list, "%s%s", n > 1 ? ", " : "", name);
    }
    enum status status = str_status(&list);
    if (status == OK && n > 0)
        status = FAIL(ERR_DATA,
                      "%s: %d tensor%s the model has no place for (is config.json of this model?): "
                      "%s%s",
                      folder, n, n > 1 ? "s" : "", str_text(&list), n > LISTED ? ", ..." : "");
    str_release(&list);
    return status;
}

static enum status open_all(struct weights *w, const char *where, bool is_file)
{
    int n_pieces = 0;
    w->n_slab = MAX(weights_load_bytes(w->params, w->n_params), (int64_t)16);
    TRY(mem_try_array(&w->slab, (size_t)w->n_slab, 1));
    TRY(mem_try_array(&w->first, (size_t)w->n_params + 1, sizeof(*w->first)));
    for (int i = 0; i < w->n_params; i++) {
        w->first[i] = n_pieces;
        n_pieces += w->params[i].n_pieces;
    }
    w->first[w->n_params] = n_pieces;
    TRY(mem_try_array(&w->tensors, (size_t)n_pieces + 1, sizeof(*w->tensors)));
    TRY(mem_try_array(&w->coded, (size_t)n_pieces + 1, sizeof(*w->coded)));
    TRY(is_file ? st_reader_open_file(&w->reader, where) : hf_dir_open_weights(&w->reader, where));
    TRY(mem_try_array(&w->used, st_reader_count(w->reader) + 1, sizeof(*w->used)));
    for (int i = 0; i < w->n_params; i++)
        TRY(find_param(w, i));
    return check_extra(w, where);
}

static enum status open_weights(struct weights **out, const char *where, bool is_file,
                                const struct model_param *params, int n_params)
{
    *out = NULL;
    struct weights *w;
    TRY(mem_try_array(&w, 1, sizeof(*w)));
    w->params = params;
    w->n_params = n_params;
    enum status status = open_all(w, where, is_file);
    if (status != OK) {
        weights_close(w);
        return status;
    }
    *out = w;
    return OK;
}

enum status weights_open(struct weights **out, const char *folder, const struct model_param *params,
                         int n_params)
{
    return open_weights(out, folder, false, params, n_params);
}

enum status weights_open_file(struct weights **out, const char *path,
                              const struct model_param *params, int n_params)
{
    return open_weights(out, path, true, params, n_params);
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    st_reader_close(w->reader);
    mem_free(w->tensors);
    mem_free(w->views);
    mem_free(w->coded);
    mem_free(w->first);
    mem_free(w->used);
    mem_free(w->slab);
    mem_free(w);
}
