/* weights_load.c: Hugging Face weights into parameters. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "io/file_hash.h"
#include "io/hf_dir.h"
#include "io/weights.h"
#include "io/weights_coded.h"
#include "io/weights_convert.h"

struct weights {
    struct st_reader *reader;
    const struct model_param *params;
    int n_params;
    /* [sum of n_pieces] in the order of the table; first[i] is where parameter i's begin */
    const struct st_tensor **tensors;
    struct coded_tensor *coded; /* the same: those that are stored as codes; else all zero */
    int *first;
    bool *used;          /* [st_reader_count] */
    unsigned char *slab; /* [n_slab]: what is read of a file at a time */
    int64_t n_slab;
};

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

static enum status find_param(struct weights *w, int i)
{
    const struct model_param *p = &w->params[i];
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
    mem_free(w->coded);
    mem_free(w->first);
    mem_free(w->used);
    mem_free(w->slab);
    mem_free(w);
}

/* ---- reading ---- */

enum {
    RUN = 4096,   /* elements converted at a time, on the stack */
    PIECE = 16384 /* elements worth handing to another thread */
};

/* A tensor of a file on its way into memory. */
struct reading {
    const struct st_tensor *t;
    enum dtype from, to;
    unsigned char *dst;
    const unsigned char *slab; /* `n` elements of the file, or rows of it, from `first` on */
    int64_t first, n;
    int64_t channels, inner; /* of rows that change places */
};

static void read_runs(const void *job, int64_t first, int64_t last, int thread)
{
    const struct reading *r = job;
    int64_t size = dtype_size(r->to);
    (void)thread;
    for (int64_t k = first; k < last; k++) {
        double x[RUN];
        int64_t e = k * RUN, n = MIN((int64_t)RUN, r->n - e);
        weights_to_double(r->from, r->slab + e * dtype_size(r->from), n, x);
        weights_from_double(r->to, x, n, r->dst + (r->first + e) * size);
    }
}

/* `n` elements of the file from `begin` on. */
static enum status read_range(const struct weights *w, struct reading *r, int64_t begin, int64_t n,
                              struct team *team)
{
    int64_t size = dtype_size(r->from), slab = w->n_slab / size;
    int64_t offset = r->t->offset + begin * size;
    if (r->from == r->to)
        return file_read_part(r->t->file, offset, r->dst, (size_t)(n * size));
    for (r->first = 0; r->first < n; r->first += slab) {
        r->n = MIN(slab, n - r->first);
        TRY(file_read_part(r->t->file, offset + r->first * size, w->slab, (size_t)(r->n * size)));
        team_run(team, (r->n + RUN - 1) / RUN, PIECE / RUN, read_runs, r);
    }
    return OK;
}

static enum status read_plain(const struct weights *w, struct reading *r, struct team *team)
{
    return read_range(w, r, 0, r->t->n_elems, team);
}

enum { TILE_IN = 16, TILE_OUT = 128 };

/* Rows of the file's [n_in, n_out] -> columns of memory's [n_out, n_in], in tiles so that both
 * sides see whole cache lines: bands of TILE_OUT rows of memory. */
static void read_bands(const void *job, int64_t first, int64_t last, int thread)
{
    const struct reading *r = job;
    const struct st_tensor *t = r->t;
    enum dtype from = r->from, to = r->to;
    int64_t n_in = t->dims[0], n_out = t->dims[1], end = r->first + r->n;
    (void)thread;
    for (int64_t o = first * TILE_OUT; o < MIN(last * TILE_OUT, n_out); o += TILE_OUT) {
        double tile[TILE_IN][TILE_OUT], row[TILE_IN];
        int64_t n_o = MIN((int64_t)TILE_OUT, n_out - o);
        for (int64_t i = r->first; i < end; i += TILE_IN) {
            int64_t n_i = MIN((int64_t)TILE_IN, end - i);
            for (int64_t k = 0; k < n_i; k++)
                weights_to_double(from,
                                  r->slab + ((i - r->first + k) * n_out + o) * dtype_size(from),
                                  n_o, tile[k]);
            for (int64_t j = 0; j < n_o; j++) {
                for (int64_t k = 0; k < n_i; k++)
                    row[k] = tile[k][j];
                weights_from_double(to, row, n_i, r->dst + ((o + j) * n_in + i) * dtype_size(to));
            }
        }
    }
}

static enum status read_transposed(const struct weights *w, struct reading *r, struct team *team)
{
    int64_t n_rows = r->t->dims[0], n_bands = (r->t->dims[1] + TILE_OUT - 1) / TILE_OUT;
    int64_t row_bytes = MAX(r->t->dims[1] * dtype_size(r->from), (int64_t)1);
    int64_t slab = w->n_slab / row_bytes;
    for (r->first = 0; r->first < n_rows; r->first += slab) {
        r->n = MIN(slab, n_rows - r->first);
        TRY(file_read_part(r->t->file, r->t->offset + r->first * row_bytes, w->slab,
                           (size_t)(r->n * row_bytes)));
        team_run(team, n_bands, PIECE / TILE_OUT / r->n, read_bands, r);
    }
    return OK;
}

/* Rows [channels, places] of the file -> [places, channels] in memory. */
static void read_channels(const void *job, int64_t first, int64_t last, int thread)
{
    const struct reading *r = job;
    int64_t inner = r->inner, n_places = inner / r->channels, size = dtype_size(r->to);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        const unsigned char *from = r->slab + row * inner * dtype_size(r->from);
        unsigned char *to = r->dst + (r->first + row) * inner * size;
        for (int64_t e = 0; e < inner; e++) {
            double x;
            weights_to_double(r->from, from + e * dtype_size(r->from), 1, &x);
            weights_from_double(r->to, &x, 1,
                                to + (e % n_places * r->channels + e / n_places) * size);
        }
    }
}

static enum status read_rows(const struct weights *w, struct reading *r, struct team *team)
{
    int64_t n_rows = r->t->n_elems / r->inner, row_bytes = r->inner * dtype_size(r->from);
    int64_t slab = w->n_slab / row_bytes;
    for (r->first = 0; r->first < n_rows; r->first += slab) {
        r->n = MIN(slab, n_rows - r->first);
        TRY(file_read_part(r->t->file, r->t->offset + r->first * row_bytes, w->slab,
                           (size_t)(r->n * row_bytes)));
        team_run(team, r->n, MAX(PIECE / r->inner, (int64_t)1), read_channels, r);
    }
    return OK;
}

static enum status read_piece(const struct weights *w, const struct model_param *p,
                              struct reading *r, struct team *team)
{
    r->channels = p->channels;
    r->inner = shape_inner(&p->shape, 1);
    if (p->channels)
        return read_rows(w, r, team);
    return p->transposed ? read_transposed(w, r, team) : read_plain(w, r, team);
}

/* A tensor that is stored as codes, in numbers. */
static enum status decode_piece(const struct coded_tensor *c, const struct shape *s,
                                const struct reading *r, struct team *team)
{
    struct quant_layout l = {.q = c->q, .n_columns = s->dim[1], .n_pieces = 1, .rows = {s->dim[0]}};
    struct coded_matrix m;
    int64_t n = shape_elems(s);
    float *x = NULL;
    enum status status;
    TRY(coded_matrix_init(&m, &l));
    TRY_GOTO(mem_try_array(&x, (size_t)n + 1, sizeof(*x)), out);
    TRY_GOTO(coded_tensor_read(c, &m, 0), out);
    coded_matrix_decode(&m, x, team);
    struct reading from = *r;
    from.from = DTYPE_F32;
    from.slab = (const unsigned char *)x;
    from.n = n;
    team_run(team, (n + RUN - 1) / RUN, PIECE / RUN, read_runs, &from);
out:
    mem_free(x);
    coded_matrix_release(&m);
    return status;
}

enum status weights_read(const struct weights *w, int i, const struct tensor *dst,
                         struct team *team)
{
    const struct model_param *p = &w->params[i];
    if (!dtype_is_float(dst->dtype) || !shape_equal(&dst->shape, &p->shape))
        return FAIL(ERR_SHAPE, "%s: cannot be read into a tensor of another shape or dtype %s",
                    p->name, dtype_name(dst->dtype));
    unsigned char *at = dst->data;
    for (int k = 0; k < p->n_pieces; k++) {
        const struct st_tensor *t = w->tensors[w->first[i] + k];
        struct reading r = {.t = t, .to = dst->dtype, .dst = at, .slab = w->slab};
        struct shape s = param_piece_shape(p, k);
        if (coded_tensor_is(t)) {
            TRY(decode_piece(&w->coded[w->first[i] + k], &s, &r, team));
        } else {
            BUG_ON(!weights_memory_dtype(t->dtype, &r.from));
            TRY(read_piece(w, p, &r, team));
        }
        at += shape_elems(&s) * dtype_size(dst->dtype);
    }
    return OK;
}

/* ---- codes ---- */

struct coding {
    const struct weights *w;
    int i;        /* parameter */
    float *whole; /* of the piece, where it must be read so; else NULL */
    struct team *team;
};

static enum status read_run(void *user, int i_piece, int64_t first, int64_t n, float *x)
{
    const struct coding *c = user;
    const struct weights *w = c->w;
    struct reading r = {.t = w->tensors[w->first[c->i] + i_piece],
                        .to = DTYPE_F32,
                        .dst = (unsigned char *)x,
                        .slab = w->slab};
    BUG_ON(!weights_memory_dtype(r.t->dtype, &r.from));
    if (!c->whole)
        return read_range(w, &r, first, n, c->team);
    memcpy(x, c->whole + first, (size_t)n * sizeof(*x));
    return OK;
}

/* A piece whose columns are rows of the file. */
static enum status code_transposed(struct coding *c, struct coded_matrix *m, int k)
{
    const struct weights *w = c->w;
    struct reading r = {.t = w->tensors[w->first[c->i] + k], .to = DTYPE_F32, .slab = w->slab};
    BUG_ON(!weights_memory_dtype(r.t->dtype, &r.from));
    TRY(mem_try_array(&c->whole, (size_t)r.t->n_elems + 1, sizeof(*c->whole)));
    r.dst = (unsigned char *)c->whole;
    enum status status = read_piece(w, &w->params[c->i], &r, c->team);
    if (status == OK)
        status = coded_matrix_fill(m, k, read_run, c, c->team);
    mem_free(c->whole);
    c->whole = NULL;
    return status;
}

enum status weights_read_coded(const struct weights *w, int i, struct coded_matrix *m,
                               struct team *team)
{
    const struct model_param *p = &w->params[i];
    struct coding c = {.w = w, .i = i, .team = team};
    for (int k = 0; k < p->n_pieces; k++) {
        const struct st_tensor *t = w->tensors[w->first[i] + k];
        if (coded_tensor_is(t))
            TRY(coded_tensor_read(&w->coded[w->first[i] + k], m, k));
        else if (p->transposed)
            TRY(code_transposed(&c, m, k));
        else
            TRY(coded_matrix_fill(m, k, read_run, &c, team));
    }
    return OK;
}

enum status weights_load_staged(const char *folder, const struct model_param *params, int n_params,
                                const struct tensor *dst, const struct tensor_stage *stage,
                                struct team *team)
{
    struct weights *w;
    TRY(weights_open(&w, folder, params, n_params));
    enum status status = OK;
    for (int i = 0; i < n_params && status == OK; i++) {
        struct tensor host = stage_tensor(stage, &dst[i]);
        status = weights_read(w, i, &host, team);
        if (status == OK)
            status = stage_store(stage, &dst[i]);
    }
    weights_close(w);
    return status;
}

enum status weights_load(const char *folder, const struct model_param *params, int n_params,
                         const struct tensor *dst, struct team *team)
{
    return weights_load_staged(folder, params, n_params, dst, &host_stage, team);
}
