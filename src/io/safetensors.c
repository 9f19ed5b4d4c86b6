/* safetensors.c: dtypes, and reading one file.
 *
 * Invariants of what a reader hands out:
 *  1. every tensor lies inside its file: offset + n_bytes <= size of the file;
 *  2. n_bytes is what dtype and dims say;
 *  3. the tensors of a file, by offset, touch each other and cover the data without a gap, so no
 *     byte belongs to two tensors and none can hide something;
 *  4. names are unique, also across shards.
 */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "io/safetensors_internal.h"

static const struct {
    const char *name;
    int bits;
} dtypes[ST_DTYPE_COUNT] = {
#define ST_DTYPE(name, bits) [ST_##name] = {#name, bits},
    ST_DTYPES
#undef ST_DTYPE
};

const char *st_dtype_name(enum st_dtype dtype)
{
    return dtypes[dtype].name;
}

int st_dtype_bits(enum st_dtype dtype)
{
    return dtypes[dtype].bits;
}

int st_dtype_parse(const char *name, enum st_dtype *dtype)
{
    for (int i = 0; i < ST_DTYPE_COUNT; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *dtype = (enum st_dtype)i;
            return 1;
        }
    return 0;
}

enum status st_tensor_bytes(enum st_dtype dtype, int rank, const int64_t *dims, int64_t *n_elems,
                            int64_t *n_bytes)
{
    BUG_ON(rank > 0 && !dims);
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return FAIL(ERR_DATA, "dimension %d is %lld; sizes cannot be negative", i,
                        (long long)dims[i]);
        /* Refused even when a later dimension is 0, as other implementations do. */
        if (dims[i] != 0 && n > INT64_MAX / dims[i])
            return FAIL(ERR_DATA, "the product of its shape overflows at dimension %d (%lld)", i,
                        (long long)dims[i]);
        n *= dims[i];
    }
    int bits = dtypes[dtype].bits;
    if (n > INT64_MAX / bits)
        return FAIL(ERR_DATA, "%lld elements of %s overflow the byte count", (long long)n,
                    dtypes[dtype].name);
    if (n * bits % 8 != 0)
        return FAIL(ERR_DATA, "%lld elements of %s do not fill whole bytes", (long long)n,
                    dtypes[dtype].name);
    *n_elems = n;
    *n_bytes = n * bits / 8;
    return OK;
}

/* ---- parsing one header ---- */

/* The file being parsed. Offsets of tensors are relative to `data`. */
struct source {
    const char *path;
    const uint8_t *data;
    int64_t n_data;
    int64_t data_offset; /* in the file */
};

/* "path: tensor 'name'" in front of the last message. */
static enum status at_tensor(enum status s, const struct source *src, const char *name)
{
    return status_prefix(s, "%s: tensor '%.200s'", src->path, name);
}

static enum status parse_dtype(const json_t *info, enum st_dtype *dtype)
{
    const char *name = json_string_value(json_object_get(info, "dtype"));
    if (!name)
        return FAIL(ERR_DATA, "no \"dtype\" string; the header is damaged, copy the file again");
    if (st_dtype_parse(name, dtype))
        return OK;
    const char *names[ST_DTYPE_COUNT];
    for (int i = 0; i < ST_DTYPE_COUNT; i++)
        names[i] = dtypes[i].name;
    const char *near = suggest(name, names, ST_DTYPE_COUNT);
    return FAIL(ERR_DATA, "unknown dtype \"%.40s\"%s%s; convert it to F32, BF16 or F16 first", name,
                near ? ", nearest is " : "", near ? near : "");
}

static enum status parse_shape(struct pool *pool, const json_t *info, struct st_tensor *t)
{
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return FAIL(ERR_DATA, "no \"shape\" array; the header is damaged, copy the file again");
    size_t rank = json_array_size(shape);
    t->rank = (int)rank;
    if (rank == 0)
        return OK;
    int64_t *dims;
    TRY(pool_try(pool, &dims, rank * sizeof(*dims)));
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim))
            return FAIL(ERR_DATA,
                        "\"shape\"[%zu] is not an integer; the header is damaged, "
                        "copy the file again",
                        i);
        dims[i] = json_integer_value(dim);
    }
    t->dims = dims;
    return OK;
}

/* Reads data_offsets into t->offset (still relative to the data) and checks them. */
static enum status parse_offsets(const struct source *src, const json_t *info, struct st_tensor *t)
{
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return FAIL(ERR_DATA, "\"data_offsets\" is not [begin, end]; the header is damaged, copy "
                              "the file again");
    long long begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || begin > end)
        return FAIL(ERR_DATA,
                    "data_offsets [%lld, %lld] do not go from begin to end; the header "
                    "is damaged, copy the file again",
                    begin, end);
    if (end > src->n_data)
        return FAIL(ERR_DATA,
                    "data_offsets [%lld, %lld] run past the %lld bytes of data; the file is "
                    "truncated, copy it again",
                    begin, end, (long long)src->n_data);
    if (end - begin != t->n_bytes)
        return FAIL(ERR_DATA,
                    "data_offsets [%lld, %lld] hold %lld bytes, but its shape of %s needs %lld; "
                    "the header is damaged, copy the file again",
                    begin, end, end - begin, dtypes[t->dtype].name, (long long)t->n_bytes);
    t->offset = begin;
    return OK;
}

static enum status parse_tensor(struct pool *pool, const struct source *src, const json_t *info,
                                struct st_tensor *t)
{
    if (!json_is_object(info))
        return FAIL(ERR_DATA, "its entry is not an object; the header is damaged, copy the file "
                              "again");
    TRY(parse_dtype(info, &t->dtype));
    TRY(parse_shape(pool, info, t));
    TRY(st_tensor_bytes(t->dtype, t->rank, t->dims, &t->n_elems, &t->n_bytes));
    return parse_offsets(src, info, t);
}

static enum status parse_metadata(struct st_reader *r, const struct source *src, json_t *metadata)
{
    if (!json_is_object(metadata))
        return FAIL(ERR_DATA, "%s: __metadata__ is not an object of strings; write the file again",
                    src->path);
    int is_first_file = r->metadata.n == 0 && r->tensors.n == 0;
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return FAIL(ERR_DATA,
                        "%s: __metadata__ value of '%.200s' is not a string; the format allows "
                        "only strings there, write the file again",
                        src->path, key);
        if (!is_first_file)
            continue;
        struct st_pair pair = {pool_strdup(&r->pool, key),
                               pool_strdup(&r->pool, json_string_value(value))};
        TRY(vec_push(&r->metadata, pair));
    }
    return pool_status(&r->pool);
}

/* Invariant 3, on the tensors of one file sorted by offset. */
static enum status check_cover(const struct source *src, const struct st_tensor *t, size_t n)
{
    int64_t covered = 0;
    const char *before = NULL;
    for (size_t i = 0; i < n; i++) {
        if (t[i].offset < covered)
            return at_tensor(FAIL(ERR_DATA,
                                  "its data at byte %lld overlaps tensor '%.200s', which ends at "
                                  "%lld; the header is damaged, copy the file again",
                                  (long long)t[i].offset, before, (long long)covered),
                             src, t[i].name);
        if (t[i].offset > covered)
            return at_tensor(FAIL(ERR_DATA,
                                  "%lld bytes before its data belong to no tensor (a hole at byte "
                                  "%lld); write the file again without gaps",
                                  (long long)(t[i].offset - covered), (long long)covered),
                             src, t[i].name);
        covered += t[i].n_bytes;
        before = t[i].name;
    }
    if (covered != src->n_data)
        return FAIL(ERR_DATA,
                    "%s: %lld bytes after tensor '%.200s' belong to no tensor (a hole at the "
                    "end); write the file again without gaps",
                    src->path, (long long)(src->n_data - covered), before ? before : "(none)");
    return OK;
}

static int compare_offset(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    /* Empty tensors go before the one that starts where they are. */
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes < y->n_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static enum status parse_entries(struct st_reader *r, const struct source *src, json_t *header)
{
    size_t first = r->tensors.n;
    const char *name;
    json_t *info;
    json_object_foreach(header, name, info)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct st_tensor t = {.name = pool_strdup(&r->pool, name), .file = src->path};
        TRY(pool_status(&r->pool));
        enum status status = parse_tensor(&r->pool, src, info, &t);
        if (status != OK)
            return at_tensor(status, src, name);
        TRY(vec_push(&r->tensors, t));
    }
    size_t n = r->tensors.n - first;
    if (n == 0)
        return check_cover(src, NULL, 0);
    struct st_tensor *t = r->tensors.items + first;
    qsort(t, n, sizeof(*t), compare_offset);
    TRY(check_cover(src, t, n));
    for (size_t i = 0; i < n; i++) {
        t[i].data = src->data + t[i].offset;
        t[i].offset += src->data_offset;
    }
    return OK;
}

/* Finds the header's JSON in the bytes of a file. */
static enum status find_header(const char *path, const uint8_t *bytes, size_t n_bytes,
                               int64_t *n_header)
{
    static const char lfs[] = "version https://git-lfs";
    if (n_bytes >= sizeof(lfs) - 1 && memcmp(bytes, lfs, sizeof(lfs) - 1) == 0)
        return FAIL(ERR_DATA, "%s: a Git LFS pointer, not the weights; run `git lfs pull` there",
                    path);
    if (n_bytes < ST_PREFIX_BYTES)
        return FAIL(ERR_DATA,
                    "%s: %zu bytes are too few for a safetensors file; it is truncated, copy it "
                    "again",
                    path, n_bytes);
    uint64_t n = 0;
    for (int i = ST_PREFIX_BYTES - 1; i >= 0; i--)
        n = n << 8 | bytes[i];
    if (n > (uint64_t)ST_MAX_HEADER_BYTES)
        return FAIL(ERR_DATA,
                    "%s: header length %llu is over the format's limit of 100000000; this is not "
                    "a safetensors file, or it is damaged",
                    path, (unsigned long long)n);
    if (n > n_bytes - ST_PREFIX_BYTES)
        return FAIL(ERR_DATA,
                    "%s: header length %llu runs past the end of the file (%zu bytes); it is "
                    "truncated, copy it again",
                    path, (unsigned long long)n, n_bytes);
    if (n == 0 || bytes[ST_PREFIX_BYTES] != '{')
        return FAIL(ERR_DATA,
                    "%s: the header does not start with '{'; this is not a safetensors file, or "
                    "it is damaged",
                    path);
    *n_header = (int64_t)n;
    return OK;
}

/* Adds the tensors of one file whose bytes are given; `path` lives in the pool. */
static enum status parse_bytes_of(struct st_reader *r, const char *path, const uint8_t *bytes,
                                  size_t n_bytes)
{
    int64_t n_header = 0;
    TRY(find_header(path, bytes, n_bytes, &n_header));
    struct source src = {.path = path, .data_offset = ST_PREFIX_BYTES + n_header};
    src.data = bytes + src.data_offset;
    src.n_data = (int64_t)n_bytes - src.data_offset;

    json_t *header;
    enum status status = json_read_text(&header, (const char *)bytes + ST_PREFIX_BYTES,
                                        (size_t)n_header, "header", ERR_DATA);
    if (status == ERR_DATA)
        return status_prefix(status, "%s: damaged header, copy the file again", path);
    if (status != OK)
        return status_prefix(status, "%s", path);
    json_t *metadata = json_object_get(header, "__metadata__");
    if (metadata)
        TRY_GOTO(parse_metadata(r, &src, metadata), out);
    TRY_GOTO(parse_entries(r, &src, header), out);
out:
    json_decref(header);
    return status;
}

/* ---- the reader ---- */

enum status st_reader_new(struct st_reader **out)
{
    TRY(mem_try_array(out, 1, sizeof(**out)));
    pool_init(&(*out)->pool);
    return OK;
}

void st_reader_close(struct st_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->maps.n; i++)
        file_map_close(&r->maps.items[i]);
    vec_release(&r->maps);
    vec_release(&r->tensors);
    vec_release(&r->metadata);
    mem_free(r->by_name);
    pool_release(&r->pool);
    mem_free(r);
}

enum status st_reader_add_file(struct st_reader *r, const char *path)
{
    char *kept = pool_strdup(&r->pool, path);
    TRY(pool_status(&r->pool));
    TRY(vec_reserve(&r->maps, 1));
    struct file_map map;
    TRY(file_map_open(&map, path));
    TRY(vec_push(&r->maps, map)); /* cannot fail: room was made */
    return parse_bytes_of(r, kept, map.data, map.n_bytes);
}

static int compare_name(const void *a, const void *b)
{
    return strcmp(((const struct st_name *)a)->name, ((const struct st_name *)b)->name);
}

enum status st_reader_index(struct st_reader *r)
{
    size_t n = r->tensors.n;
    TRY(mem_try_array(&r->by_name, n, sizeof(*r->by_name)));
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *t = &r->tensors.items[i];
        r->by_name[i] = (struct st_name){t->name, t};
        r->n_bytes += t->n_bytes;
    }
    qsort(r->by_name, n, sizeof(*r->by_name), compare_name);
    for (size_t i = 1; i < n; i++)
        BUG_ON(strcmp(r->by_name[i - 1].name, r->by_name[i].name) == 0);
    return OK;
}

enum status st_reader_open_file(struct st_reader **out, const char *path)
{
    struct st_reader *r;
    *out = NULL;
    TRY(st_reader_new(&r));
    enum status status;
    TRY_GOTO(st_reader_add_file(r, path), out);
    TRY_GOTO(st_reader_index(r), out);
    *out = r;
    return OK;
out:
    st_reader_close(r);
    return status;
}

enum status st_reader_open_memory(struct st_reader **out, const void *data, size_t n_bytes,
                                  const char *what)
{
    struct st_reader *r;
    *out = NULL;
    TRY(st_reader_new(&r));
    char *kept = pool_strdup(&r->pool, what);
    enum status status;
    TRY_GOTO(pool_status(&r->pool), out);
    TRY_GOTO(parse_bytes_of(r, kept, data, n_bytes), out);
    TRY_GOTO(st_reader_index(r), out);
    *out = r;
    return OK;
out:
    st_reader_close(r);
    return status;
}

size_t st_reader_count(const struct st_reader *r)
{
    return r->tensors.n;
}

const struct st_tensor *st_reader_at(const struct st_reader *r, size_t i)
{
    return &r->tensors.items[i];
}

int64_t st_reader_bytes(const struct st_reader *r)
{
    return r->n_bytes;
}

const struct st_tensor *st_reader_find(const struct st_reader *r, const char *name)
{
    const struct st_name key = {.name = name};
    const struct st_name *found =
        bsearch(&key, r->by_name, r->tensors.n, sizeof(key), compare_name);
    return found ? found->tensor : NULL;
}

enum status st_reader_get(const struct st_reader *r, const char *name, const struct st_tensor **out)
{
    *out = st_reader_find(r, name);
    if (*out)
        return OK;
    const char *where = r->tensors.n ? r->tensors.items[0].file : "(no tensors)";
    const char **names;
    TRY(mem_try_array(&names, r->tensors.n, sizeof(*names)));
    for (size_t i = 0; i < r->tensors.n; i++)
        names[i] = r->tensors.items[i].name;
    const char *near = suggest(name, names, r->tensors.n);
    mem_free(names);
    return FAIL(ERR_DATA,
                "%s: no tensor '%.200s' among %zu%s%.200s%s; do config.json and weights "
                "belong together?",
                where, name, r->tensors.n, near ? " (nearest: '" : "", near ? near : "",
                near ? "')" : "");
}

const char *st_reader_metadata(const struct st_reader *r, const char *key)
{
    for (size_t i = 0; i < r->metadata.n; i++)
        if (strcmp(r->metadata.items[i].key, key) == 0)
            return r->metadata.items[i].value;
    return NULL;
}
