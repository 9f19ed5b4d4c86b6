/* weights_read.c: Hugging Face weights into parameters: converted, turned round, coded. */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/file_hash.h"
#include "io/weights_convert.h"
#include "io/weights_internal.h"

/* ---- reading ---- */

enum {
    RUN = 16384,         /* elements read and converted at a time, on the stack */
    RUN_BYTES = 8 * RUN, /* the widest */
    PIECE = 16384        /* elements worth handing to another thread */
};

/* A tensor of a file on its way into memory. */
struct reading {
    const struct st_tensor *t;
    enum dtype from, to;
    unsigned char *dst;
    int64_t begin, count;      /* elements of it that are read, into dst */
    const unsigned char *slab; /* `n` elements of the file, or rows of it, from `first` on */
    int64_t first, n;
    int64_t channels, inner; /* of rows that change places */
};

static void convert_runs(const void *job, int64_t first, int64_t last, int thread)
{
    const struct reading *r = job;
    (void)thread;
    int64_t e = first * RUN, n = MIN(last * RUN, r->n) - e;
    weights_convert(r->from, r->slab + e * dtype_size(r->from), r->to, n,
                    r->dst + (r->first + e) * dtype_size(r->to));
}

/* A range of a tensor that threads share: each reads runs of its own, so that a file comes as fast
 * as the disk or the cache of the system has it. */
struct ranging {
    const struct reading *r;
    struct file_in file;
    atomic_bool *failed;
};

static enum status range_run(const struct ranging *g, int64_t e)
{
    const struct reading *r = g->r;
    unsigned char buffer[RUN_BYTES];
    int64_t n = MIN((int64_t)RUN, r->count - e), size = dtype_size(r->from);
    int64_t offset = r->t->offset + (r->begin + e) * size;
    unsigned char *to = r->dst + e * dtype_size(r->to);
    if (r->from == r->to)
        return file_in_read(&g->file, offset, to, (size_t)(n * size));
    TRY(file_in_read(&g->file, offset, buffer, (size_t)(n * size)));
    weights_convert(r->from, buffer, r->to, n, to);
    return OK;
}

static void range_runs(const void *job, int64_t first, int64_t last, int thread)
{
    const struct ranging *g = job;
    (void)thread;
    for (int64_t k = first; k < last && !atomic_load(g->failed); k++) {
        if (range_run(g, k * RUN) != OK)
            atomic_store(g->failed, true);
    }
}

/* What goes wrong on another thread goes wrong again here, where the message is kept. */
static enum status read_range(const struct reading *r, struct team *team)
{
    atomic_bool failed = false;
    struct ranging g = {.r = r, .failed = &failed};
    TRY(file_in_open(&g.file, r->t->file));
    enum status status = OK;
    team_run(team, (r->count + RUN - 1) / RUN, PIECE / RUN, range_runs, &g);
    for (int64_t e = 0; e < r->count && status == OK && atomic_load(&failed); e += RUN)
        status = range_run(&g, e);
    file_in_close(&g.file);
    return status;
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
    BUG_ON(r->begin != 0 || r->count != r->t->n_elems);
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
    int64_t n_rows = r->count / r->inner, row_bytes = r->inner * dtype_size(r->from);
    int64_t offset = r->t->offset + r->begin * dtype_size(r->from), slab = w->n_slab / row_bytes;
    BUG_ON(r->begin % r->inner != 0 || r->count % r->inner != 0);
    for (r->first = 0; r->first < n_rows; r->first += slab) {
        r->n = MIN(slab, n_rows - r->first);
        TRY(file_read_part(r->t->file, offset + r->first * row_bytes, w->slab,
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
    return p->transposed ? read_transposed(w, r, team) : read_range(r, team);
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
    from.slab = (const unsigned char *)(x + r->begin);
    from.n = r->count;
    team_run(team, (from.n + RUN - 1) / RUN, PIECE / RUN, convert_runs, &from);
out:
    mem_free(x);
    coded_matrix_release(&m);
    return status;
}

static enum status read_part(const struct weights *w, int i, int64_t first,
                             const struct tensor *dst, struct team *team)
{
    const struct model_param *p = &w->params[i];
    int64_t at = 0, end = first + shape_elems(&dst->shape);
    for (int k = 0; k < p->n_pieces; k++) {
        const struct st_tensor *t = w->tensors[w->first[i] + k];
        struct shape s = param_piece_shape(p, k);
        int64_t from = MAX(first, at), to = MIN(end, at + shape_elems(&s));
        struct reading r = {.t = t, .to = dst->dtype, .begin = from - at, .count = to - from};
        r.dst = (unsigned char *)dst->data + (from - first) * dtype_size(dst->dtype);
        r.slab = w->slab;
        at += shape_elems(&s);
        if (from >= to)
            continue;
        if (coded_tensor_is(t)) {
            TRY(decode_piece(&w->coded[w->first[i] + k], &s, &r, team));
        } else {
            BUG_ON(!weights_memory_dtype(t->dtype, &r.from));
            TRY(read_piece(w, p, &r, team));
        }
    }
    return OK;
}

static enum status check_tensor(const struct model_param *p, const struct tensor *dst)
{
    if (dtype_is_float(dst->dtype) && shape_equal(&dst->shape, &p->shape))
        return OK;
    return FAIL(ERR_SHAPE, "%s: cannot be read into a tensor of another shape or dtype %s", p->name,
                dtype_name(dst->dtype));
}

enum status weights_read(const struct weights *w, int i, const struct tensor *dst,
                         struct team *team)
{
    TRY(check_tensor(&w->params[i], dst));
    return read_part(w, i, 0, dst, team);
}

enum status weights_read_staged(const struct weights *w, int i, const struct tensor *dst,
                                const struct tensor_stage *stage, struct team *team)
{
    const struct model_param *p = &w->params[i];
    TRY(check_tensor(p, dst));
    int64_t n = shape_elems(&p->shape), most = stage_elems(stage, dst, param_unit(p));
    for (int64_t at = 0; at < n; at += most) {
        struct tensor part = tensor_part(dst, at, MIN(most, n - at));
        struct tensor host = stage_tensor(stage, &part);
        TRY(read_part(w, i, at, &host, team));
        TRY(stage_store(stage, &part));
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
                        .begin = first,
                        .count = n,
                        .dst = (unsigned char *)x,
                        .slab = w->slab};
    BUG_ON(!weights_memory_dtype(r.t->dtype, &r.from));
    if (!c->whole)
        return read_range(&r, c->team);
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
    r.count = r.t->n_elems;
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
    for (int i = 0; i < n_params && status == OK; i++)
        status = weights_read_staged(w, i, &dst[i], stage, team);
    weights_close(w);
    return status;
}

enum status weights_load(const char *folder, const struct model_param *params, int n_params,
                         const struct tensor *dst, struct team *team)
{
    return weights_load_staged(folder, params, n_params, dst, &host_stage, team);
}
