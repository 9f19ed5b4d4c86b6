#include "task/sample_files.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "base/vec.h"
#include "data/hdf5.h"
#include "data/manifest.h"
#include "data/npy.h"
#include "io/safetensors.h"
#include "task/sample_manifest.h"

enum { LABEL_NONE = -100, MOST_AXES = 8 };

/* A field's numbers in one place. */
struct column {
    char *path, *tensor; /* tensor: its name; NULL: the file has one alone */
    struct file_in file;
    char kind; /* as in npy_header; 'h': bf16 */
    int item_bytes;
    int rank;
    int64_t dims[MOST_AXES];
    int64_t offset;
    int64_t channels;     /* above 0: rows lie as [channels, ..] */
    struct hdf5_set *set; /* of an HDF5 file, which is read through its library */
};

struct place {
    int64_t first, n;       /* samples */
    struct column *columns; /* NULL: the samples are listed */
    struct sample_manifest *list;
};

struct sample_files {
    const struct sample_facts *facts;
    bool skips_bad;
    VEC(struct place) places;
    int64_t n_samples, n_skipped;
    unsigned char *row; /* the largest, as it is in its file */
};

/* ---- finding columns ------------------------------------------------------------------------- */

static enum status use_npy(const char *path, struct column *c)
{
    struct npy_header h;
    TRY(npy_read_header(path, &h));
    c->kind = h.kind;
    c->item_bytes = h.item_bytes;
    c->rank = h.rank;
    c->offset = h.offset;
    memcpy(c->dims, h.dims, sizeof(c->dims));
    return OK;
}

static enum status set_type(struct column *c, const struct st_tensor *t)
{
    static const struct {
        enum st_dtype dtype;
        char kind;
        int n_bytes;
    } types[] = {{ST_F32, 'f', 4}, {ST_F64, 'f', 8}, {ST_F16, 'f', 2},  {ST_BF16, 'h', 2},
                 {ST_U8, 'u', 1},  {ST_I8, 'i', 1},  {ST_I16, 'i', 2},  {ST_U16, 'u', 2},
                 {ST_I32, 'i', 4}, {ST_I64, 'i', 8}, {ST_BOOL, 'b', 1}, {ST_U32, 'u', 4}};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (types[i].dtype != t->dtype)
            continue;
        c->kind = types[i].kind;
        c->item_bytes = types[i].n_bytes;
        return OK;
    }
    return FAIL(ERR_DATA, "%s: tensor '%s': %s is not read as data; save it as F32", t->file,
                t->name, st_dtype_name(t->dtype));
}

static enum status use_safetensors(const char *path, const char *name, struct column *c)
{
    struct st_reader *r = NULL;
    const struct st_tensor *t;
    enum status status;
    TRY(st_reader_open_file(&r, path));
    TRY_GOTO(st_reader_get(r, name, &t), out);
    TRY_GOTO(set_type(c, t), out);
    c->rank = MIN(t->rank, MOST_AXES);
    for (int i = 0; i < c->rank; i++)
        c->dims[i] = t->dims[i];
    c->offset = t->offset;
    c->tensor = mem_strdup(name);
    status = c->tensor ? OK : FAIL(ERR_MEMORY, "%s: out of memory", path);
out:
    st_reader_close(r);
    return status;
}

static enum status use_hdf5(const char *path, const char *name, struct column *c)
{
    TRY(hdf5_open(&c->set, path, name, &c->rank, c->dims));
    c->kind = 'f'; /* rows come as doubles */
    c->item_bytes = sizeof(double);
    c->tensor = mem_strdup(name);
    return c->tensor ? OK : FAIL(ERR_MEMORY, "%s: out of memory", path);
}

static enum status find_column(const struct config_dataset *d, const struct model_field *f,
                               struct column *c)
{
    struct str path = {0};
    enum status status;
    c->file.fd = -1;
    if (file_is_folder(d->path))
        str_addf(&path, "%s/%s.npy", d->path, f->name);
    else
        str_add(&path, d->path);
    status = str_status(&path);
    if (status == OK)
        c->path = str_take(&path);
    str_release(&path);
    TRY(status);
    if (hdf5_is_named(c->path))
        return use_hdf5(c->path, f->name, c);
    if (str_ends_with(c->path, ".npy"))
        TRY(use_npy(c->path, c));
    else if (str_ends_with(c->path, ".safetensors"))
        TRY(use_safetensors(c->path, f->name, c));
    else
        return FAIL(ERR_UNSUPPORTED,
                    "%s: %s: samples are read from a .safetensors or .h5 file with a tensor for "
                    "each of the "
                    "network's fields, a folder with a .npy file for each, or a .jsonl file that "
                    "lists them",
                    d->where, d->path);
    return file_in_open(&c->file, c->path);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void column_shape(const struct column *c, struct shape *row)
{
    *row = (struct shape){.rank = MIN(c->rank - 1, MAX_RANK)};
    for (int i = 0; i < row->rank; i++)
        row->dim[i] = c->dims[i + 1];
}

/* [.., C] written as [C, ..]. */
static bool is_channels_first(const struct shape *row, const struct shape *due)
{
    if (row->rank != due->rank || due->rank < 2 || row->dim[0] != shape_last(due))
        return false;
    for (int i = 1; i < due->rank; i++) {
        if (row->dim[i] != due->dim[i - 1])
            return false;
    }
    return true;
}

static enum status check_shape(struct column *c, const struct model_field *f)
{
    char is[SHAPE_TEXT], due[SHAPE_TEXT];
    struct shape row;
    if (c->rank < 1)
        return FAIL(ERR_DATA, "%s: '%s' is one number; its first axis counts samples", c->path,
                    f->name);
    column_shape(c, &row);
    bool is_one = shape_elems(&f->shape) == 1 && row.rank == 0;
    if (shape_equal(&row, &f->shape) || is_one)
        return OK;
    if (is_channels_first(&row, &f->shape)) {
        c->channels = row.dim[0];
        return OK;
    }
    return FAIL(ERR_DATA, "%s: a sample of '%s' has the shape %s, the network's is %s", c->path,
                f->name, shape_text(is, &row), shape_text(due, &f->shape));
}

/* ---- opening --------------------------------------------------------------------------------- */

static void close_place(struct place *p, int n_columns)
{
    for (int i = 0; i < n_columns && p->columns; i++) {
        mem_free(p->columns[i].path);
        mem_free(p->columns[i].tensor);
        hdf5_close(p->columns[i].set);
        file_in_close(&p->columns[i].file);
    }
    sample_manifest_close(p->list);
    mem_free(p->columns);
}

static enum status open_list(struct sample_files *s, const struct config_dataset *d,
                             struct place *p)
{
    TRY(sample_manifest_open(&p->list, d->path, s->facts));
    p->first = s->n_samples;
    p->n = sample_manifest_count(p->list);
    s->n_samples += p->n;
    return OK;
}

static enum status open_place(struct sample_files *s, const struct config_dataset *d,
                              struct place *p)
{
    const struct sample_facts *facts = s->facts;
    if (manifest_is_named(d->path))
        return open_list(s, d, p);
    TRY(mem_try_array(&p->columns, (size_t)facts->n_fields, sizeof(*p->columns)));
    for (int f = 0; f < facts->n_fields; f++)
        p->columns[f].file.fd = -1;
    for (int f = 0; f < facts->n_fields; f++) {
        struct column *c = &p->columns[f];
        TRY(find_column(d, &facts->fields[f], c));
        TRY(check_shape(c, &facts->fields[f]));
        if (f > 0 && c->dims[0] != p->columns[0].dims[0])
            return FAIL(ERR_DATA, "%s: '%s' has %" PRId64 " samples, '%s' has %" PRId64, d->path,
                        facts->fields[f].name, c->dims[0], facts->fields[0].name,
                        p->columns[0].dims[0]);
    }
    p->first = s->n_samples;
    p->n = p->columns[0].dims[0];
    s->n_samples += p->n;
    return OK;
}

static enum status open_all(struct sample_files *s, const struct config_datasets *places)
{
    int64_t most = 1;
    for (int f = 0; f < s->facts->n_fields; f++)
        most = MAX(most, shape_elems(&s->facts->fields[f].shape));
    TRY(mem_try_array(&s->row, (size_t)most, sizeof(double)));
    for (size_t i = 0; i < places->n; i++) {
        struct place p = {0};
        enum status status = open_place(s, &places->items[i], &p);
        if (status == OK)
            status = vec_push(&s->places, p);
        if (status != OK) {
            close_place(&p, s->facts->n_fields);
            return status;
        }
    }
    if (s->n_samples == 0)
        return FAIL(ERR_DATA, "%s: has no samples", places->items[0].path);
    return OK;
}

enum status sample_files_open(struct sample_files **out, const struct config_datasets *places,
                              const struct sample_facts *facts, bool skips_bad)
{
    struct sample_files *s;
    *out = NULL;
    TRY(mem_try_array(&s, 1, sizeof(*s)));
    s->facts = facts;
    s->skips_bad = skips_bad;
    enum status status = open_all(s, places);
    if (status != OK) {
        sample_files_close(s);
        return status;
    }
    *out = s;
    return OK;
}

void sample_files_close(struct sample_files *s)
{
    if (!s)
        return;
    if (s->n_skipped > 0)
        log_warn("%" PRId64
                 " reads of samples with numbers that are not finite, labels that are no class, or "
                 "images that cannot be read were skipped",
                 s->n_skipped);
    for (size_t i = 0; i < s->places.n; i++)
        close_place(&s->places.items[i], s->facts->n_fields);
    vec_release(&s->places);
    mem_free(s->row);
    mem_free(s);
}

/* ---- reading --------------------------------------------------------------------------------- */

#define TAKE(type)                 \
    do {                           \
        type x;                    \
        memcpy(&x, at, sizeof(x)); \
        return (double)x;          \
    } while (0)

static double element(const struct column *c, const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, MIN(sizeof(half), (size_t)c->item_bytes));
    if (c->kind == 'h')
        return (double)bf16_to_f32(half);
    if (c->kind == 'f' && c->item_bytes == 2)
        return (double)f16_to_f32(half);
    if (c->kind == 'f' && c->item_bytes == 4)
        TAKE(float);
    if (c->kind == 'f')
        TAKE(double);
    bool is_signed = c->kind == 'i';
    switch (c->item_bytes) {
    case 1:
        return is_signed ? (double)*(const int8_t *)at : (double)*at;
    case 2:
        return is_signed ? (double)(int16_t)half : (double)half;
    case 4:
        if (is_signed)
            TAKE(int32_t);
        TAKE(uint32_t);
    default:
        if (is_signed)
            TAKE(int64_t);
        TAKE(uint64_t);
    }
}
#undef TAKE

/* Where element e of a row is in a file that has channels first. */
static int64_t place_of(const struct column *c, int64_t n, int64_t e)
{
    return c->channels ? e % c->channels * (n / c->channels) + e / c->channels : e;
}

/* A sample in words: "data.h5: 'input': sample 3", or the line that lists it. */
static void name_sample(struct str *out, const struct place *p, int f,
                        const struct model_field *field, int64_t i)
{
    if (p->list)
        str_addf(out, "%s: '%s'", sample_manifest_where(p->list, i), field->name);
    else
        str_addf(out, "%s: '%s': sample %" PRId64, p->columns[f].path, field->name, i);
}

static enum status fail_element(const char *sample, const struct model_field *f, int64_t e,
                                double x)
{
    char element[32];
    (void)snprintf(element, sizeof(element), ", element %" PRId64, e);
    if (f->n_classes)
        return FAIL(ERR_DATA,
                    "%s%s: label %.9g; the network has %" PRId64 " classes, 0 to %" PRId64
                    ". Mend it, or set skip_bad_samples: true",
                    sample, shape_elems(&f->shape) > 1 ? element : "", x, f->n_classes,
                    f->n_classes - 1);
    return FAIL(ERR_DATA, "%s%s is %s. Mend it, or set skip_bad_samples: true", sample, element,
                isnan(x) ? "NaN" : "infinite");
}

/* A label below 0 of a sample that has one label says that it does not count. */
static bool take(const struct model_field *f, double x, void *out, int64_t e, bool *counts)
{
    if (!f->n_classes) {
        ((float *)out)[e] = (float)x;
        return isfinite((float)x);
    }
    bool is_none = x == LABEL_NONE && f->shape.rank == 0;
    bool is_class = x >= 0 && x < (double)f->n_classes && floor(x) == x;
    ((int32_t *)out)[e] = is_class ? (int32_t)x : LABEL_NONE;
    if (is_none)
        *counts = false;
    return is_class || is_none;
}

static enum status leave_out(struct sample_files *s, const struct model_field *f, void *out,
                             bool *counts)
{
    memset(out, f->n_classes ? 0xFF : 0, (size_t)shape_elems(&f->shape) * sizeof(float));
    s->n_skipped++;
    *counts = false;
    return OK;
}

/* The field as it is in its file, into s->row; of a list: as doubles. */
static enum status fetch(struct sample_files *s, const struct place *p, int f, int64_t i)
{
    const struct model_field *field = &s->facts->fields[f];
    if (p->list)
        return sample_manifest_read(p->list, field, i, (double *)(void *)s->row);
    const struct column *c = &p->columns[f];
    int64_t n_bytes = shape_elems(&field->shape) * c->item_bytes;
    if (c->set)
        return hdf5_read_row(c->set, i, (double *)(void *)s->row);
    return file_in_read(&c->file, c->offset + i * n_bytes, s->row, (size_t)n_bytes);
}

static enum status read_field(struct sample_files *s, const struct place *p, int f, int64_t i,
                              void *out, bool *counts)
{
    static const struct column doubles = {.kind = 'f', .item_bytes = sizeof(double)};
    const struct model_field *field = &s->facts->fields[f];
    const struct column *c = p->list ? &doubles : &p->columns[f];
    int64_t n = shape_elems(&field->shape);
    enum status status = fetch(s, p, f, i);
    if (status == ERR_DATA && s->skips_bad)
        return leave_out(s, field, out, counts);
    TRY(status);
    for (int64_t e = 0; e < n; e++) {
        double x = element(c, s->row + place_of(c, n, e) * c->item_bytes);
        if (take(field, x, out, e, counts))
            continue;
        if (s->skips_bad)
            return leave_out(s, field, out, counts);
        struct str sample = {0};
        name_sample(&sample, p, f, field, i);
        status = fail_element(str_text(&sample), field, e, x);
        str_release(&sample);
        return status;
    }
    return OK;
}

static enum status read(void *user, int f, int64_t i, void *out, bool *counts)
{
    struct sample_files *s = user;
    const struct place *p = s->places.items;
    while (i >= p->first + p->n)
        p++;
    return read_field(s, p, f, i - p->first, out, counts);
}

struct sample_source sample_files_source(struct sample_files *s)
{
    return (struct sample_source){.user = s, .n_samples = s->n_samples, .read = read};
}

/* ---- which data it is ------------------------------------------------------------------------ */

static uint64_t hash_column(const struct column *c, int64_t row_bytes)
{
    enum { PART = 4096 };
    unsigned char bytes[PART];
    int64_t all = c->dims[0] * row_bytes, n = MIN((int64_t)PART, all);
    uint64_t h = (uint64_t)all;
    for (int end = 0; end < 2; end++) {
        if (file_in_read(&c->file, c->offset + (end ? all - n : 0), bytes, (size_t)n) == OK)
            h = h * 31 + hash_bytes(bytes, (size_t)n);
    }
    return h;
}

static uint64_t hash_place(struct place *p, const struct sample_facts *facts)
{
    uint64_t h = 0;
    for (int f = 0; f < facts->n_fields && !p->list; f++) {
        const struct column *c = &p->columns[f];
        h = h * 31 + (c->set
                          ? hash_text(c->tensor) + (uint64_t)c->dims[0]
                          : hash_column(c, shape_elems(&facts->fields[f].shape) * c->item_bytes));
    }
    return p->list ? sample_manifest_hash(p->list) : h;
}

uint64_t sample_files_hash(const struct sample_files *s)
{
    uint64_t h = 0;
    for (size_t i = 0; i < s->places.n; i++)
        h = h * 31 + hash_place(&s->places.items[i], s->facts);
    return h;
}
