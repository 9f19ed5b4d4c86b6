/* safetensors_write.c: streaming writer of one file or of shards and their index.
 *
 * Declared tensors are cut into shards in order of declaration; inside a shard they are laid out
 * by width of the dtype, widest first. As the header is padded to 8 bytes, every tensor is then
 * aligned to its element: readers that view the mapping as typed memory refuse anything else.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "base/utf8.h"
#include "io/safetensors_internal.h"

struct declared {
    const char *name; /* in the pool */
    enum st_dtype dtype;
    int rank;
    const int64_t *dims;
    int64_t n_bytes;
    int64_t number; /* of the declaration; the array is later sorted into file order */
    int64_t shard;
};

struct st_writer {
    struct pool pool;
    VEC(struct declared) tensors; /* order of declaration until opened, then file order */
    VEC(struct st_pair) metadata;
    const char *folder; /* NULL when writing one file */
    const char *path;   /* of the open file; in the pool because file_out borrows it */
    int64_t n_shards;
    int64_t n_bytes; /* of all tensors */
    struct file_out file;
    size_t at;         /* tensor being written */
    int64_t n_written; /* of its bytes */
    enum { DECLARING, WRITING, ENDED } state;
};

enum status st_writer_new(struct st_writer **out)
{
    TRY(mem_try_array(out, 1, sizeof(**out)));
    pool_init(&(*out)->pool);
    (*out)->file.fd = -1;
    enum status status = st_writer_metadata(*out, "format", "pt");
    if (status != OK) {
        st_writer_free(*out);
        *out = NULL;
    }
    return status;
}

void st_writer_free(struct st_writer *w)
{
    if (!w)
        return;
    (void)!file_out_close(&w->file);
    vec_release(&w->tensors);
    vec_release(&w->metadata);
    pool_release(&w->pool);
    mem_free(w);
}

enum status st_writer_metadata(struct st_writer *w, const char *key, const char *value)
{
    BUG_ON(w->state != DECLARING);
    struct st_pair pair = {pool_strdup(&w->pool, key), pool_strdup(&w->pool, value)};
    TRY(pool_status(&w->pool));
    for (size_t i = 0; i < w->metadata.n; i++)
        if (strcmp(w->metadata.items[i].key, key) == 0) {
            w->metadata.items[i] = pair;
            return OK;
        }
    return vec_push(&w->metadata, pair);
}

enum status st_writer_add(struct st_writer *w, const char *name, enum st_dtype dtype, int rank,
                          const int64_t *dims)
{
    BUG_ON(w->state != DECLARING || rank < 0);
    if (strcmp(name, "__metadata__") == 0)
        return FAIL(ERR_DATA, "no tensor can be named __metadata__: safetensors reserves it");
    struct declared t = {.dtype = dtype, .rank = rank, .number = (int64_t)w->tensors.n};
    int64_t n_elems;
    enum status status = st_tensor_bytes(dtype, rank, dims, &n_elems, &t.n_bytes);
    if (status != OK)
        return status_prefix(status, "tensor '%.200s'", name);
    if (t.n_bytes > INT64_MAX - w->n_bytes)
        return FAIL(ERR_DATA, "tensor '%.200s': the tensors together overflow the byte count",
                    name);
    int64_t *copy = NULL;
    if (rank > 0) {
        TRY(pool_try(&w->pool, &copy, (size_t)rank * sizeof(*copy)));
        memcpy(copy, dims, (size_t)rank * sizeof(*copy));
    }
    t.dims = copy;
    t.name = pool_strdup(&w->pool, name);
    TRY(pool_status(&w->pool));
    TRY(vec_push(&w->tensors, t));
    w->n_bytes += t.n_bytes;
    return OK;
}

/* ---- headers ---- */

static int dump_into_str(const char *text, size_t n, void *str)
{
    str_add_n(str, text, n);
    return ((struct str *)str)->failed;
}

/* Compact JSON of a value at the end of a string. */
static enum status dump_json(struct str *out, const json_t *value)
{
    if (json_dump_callback(value, dump_into_str, out, JSON_COMPACT) != 0)
        return FAIL(ERR_MEMORY, "out of memory while writing a header");
    return str_status(out);
}

/* `value` is taken; NULL: memory ran out. */
static enum status set_json(json_t *object, const char *key, json_t *value)
{
    if (value && json_object_set_new_nocheck(object, key, value) == 0)
        return OK;
    return FAIL(ERR_MEMORY, "'%.200s': out of memory while writing a header", key);
}

static enum status check_text(const char *key, const char *text)
{
    if (utf8_prefix(text, strlen(text)) != strlen(text))
        return FAIL(ERR_DATA, "'%.200s': the name or value is not UTF-8 text", key);
    return OK;
}

static enum status tensor_json(const struct declared *t, int64_t begin, json_t *header)
{
    TRY(check_text(t->name, t->name));
    json_t *shape = json_array();
    enum status status = OK;
    for (int i = 0; i < t->rank && status == OK; i++)
        if (json_array_append_new(shape, json_integer(t->dims[i])) != 0)
            status = FAIL(ERR_MEMORY, "out of memory while writing a header");
    if (status != OK) {
        json_decref(shape);
        return status;
    }
    const json_int_t first = begin, last = first + t->n_bytes;
    return set_json(header, t->name,
                    json_pack("{s:s, s:o, s:[I,I]}", "dtype", st_dtype_name(t->dtype), "shape",
                              shape, "data_offsets", first, last));
}

static enum status metadata_json(const struct st_writer *w, json_t *header)
{
    json_t *metadata = json_object();
    enum status status;
    for (size_t i = 0; i < w->metadata.n; i++) {
        const char *key = w->metadata.items[i].key, *value = w->metadata.items[i].value;
        TRY_GOTO(check_text(key, key), out);
        TRY_GOTO(check_text(key, value), out);
        TRY_GOTO(set_json(metadata, key, json_string(value)), out);
    }
    return set_json(header, "__metadata__", metadata);
out:
    json_decref(metadata);
    return status;
}

/* Length prefix and padded JSON of the shard that starts at tensor `first`. */
static enum status build_header(const struct st_writer *w, size_t first, struct str *out)
{
    json_t *header = json_object();
    enum status status;
    TRY_GOTO(metadata_json(w, header), out);
    int64_t begin = 0;
    for (size_t i = first; i < w->tensors.n; i++) {
        const struct declared *t = &w->tensors.items[i];
        if (t->shard != w->tensors.items[first].shard)
            break;
        TRY_GOTO(tensor_json(t, begin, header), out);
        begin += t->n_bytes;
    }
    str_add_n(out, "\0\0\0\0\0\0\0\0", ST_PREFIX_BYTES);
    TRY_GOTO(dump_json(out, header), out);
    while (out->n % 8 != 0 && !out->failed)
        str_add(out, " ");
    TRY_GOTO(str_status(out), out);
    uint64_t n = out->n - ST_PREFIX_BYTES;
    if (n > (uint64_t)ST_MAX_HEADER_BYTES) {
        status = FAIL(ERR_DATA,
                      "the header would be %llu bytes, over the format's limit of 100000000; "
                      "write fewer tensors per file",
                      (unsigned long long)n);
        goto out;
    }
    for (int i = 0; i < ST_PREFIX_BYTES; i++)
        out->text[i] = (char)(n >> (8 * i) & 0xff);
out:
    json_decref(header);
    return status;
}

static const char *shard_file(struct pool *pool, int64_t shard, int64_t n_shards)
{
    if (n_shards == 1)
        return pool_strdup(pool, "model.safetensors");
    return pool_printf(pool, "model-%05lld-of-%05lld.safetensors", (long long)shard + 1,
                       (long long)n_shards);
}

/* Opens the file of the current tensor's shard and writes its header. */
static enum status start_file(struct st_writer *w)
{
    if (w->folder) {
        int64_t shard = w->at < w->tensors.n ? w->tensors.items[w->at].shard : 0;
        const char *file = shard_file(&w->pool, shard, w->n_shards);
        TRY(pool_status(&w->pool));
        w->path = pool_printf(&w->pool, "%s/%s", w->folder, file);
        TRY(pool_status(&w->pool));
    }
    struct str header = {0};
    enum status status = build_header(w, w->at, &header);
    if (status != OK) {
        status = status_prefix(status, "%s", w->path);
        goto out;
    }
    TRY_GOTO(file_out_open(&w->file, w->path), out);
    TRY_GOTO(file_out_write(&w->file, header.text, header.n), out);
out:
    str_release(&header);
    return status;
}

/* ---- opening ---- */

static int compare_name(const void *a, const void *b)
{
    return strcmp(((const struct declared *)a)->name, ((const struct declared *)b)->name);
}

static int compare_layout(const void *a, const void *b)
{
    const struct declared *x = a, *y = b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    int bits_x = st_dtype_bits(x->dtype), bits_y = st_dtype_bits(y->dtype);
    if (bits_x != bits_y)
        return bits_x > bits_y ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Numbers the shards, greedily in order of declaration. */
static void cut_shards(struct st_writer *w, int64_t max_shard_bytes)
{
    int64_t shard = 0, n_bytes = 0;
    for (size_t i = 0; i < w->tensors.n; i++) {
        struct declared *t = &w->tensors.items[i];
        if (n_bytes > 0 && t->n_bytes > max_shard_bytes - n_bytes) {
            shard++;
            n_bytes = 0;
        }
        t->shard = shard;
        n_bytes += t->n_bytes;
    }
    w->n_shards = shard + 1;
}

static enum status skip_finished(struct st_writer *w);

static enum status start(struct st_writer *w, int64_t max_shard_bytes)
{
    BUG_ON(w->state != DECLARING);
    cut_shards(w, max_shard_bytes);
    struct declared *t = w->tensors.items;
    if (t) {
        qsort(t, w->tensors.n, sizeof(*t), compare_name);
        for (size_t i = 1; i < w->tensors.n; i++)
            if (strcmp(t[i - 1].name, t[i].name) == 0)
                return FAIL(ERR_DATA, "tensor '%.200s' is declared twice", t[i].name);
        qsort(t, w->tensors.n, sizeof(*t), compare_layout);
    }
    w->state = WRITING;
    TRY(start_file(w));
    return skip_finished(w);
}

enum status st_writer_open_file(struct st_writer *w, const char *path)
{
    w->path = pool_strdup(&w->pool, path);
    TRY(pool_status(&w->pool));
    return start(w, INT64_MAX);
}

enum status st_writer_open_folder(struct st_writer *w, const char *folder, int64_t max_shard_bytes)
{
    BUG_ON(max_shard_bytes <= 0);
    w->folder = pool_strdup(&w->pool, folder);
    TRY(pool_status(&w->pool));
    return start(w, max_shard_bytes);
}

/* ---- data ---- */

/* Moves past finished and empty tensors, into the next file when a shard ends there. The file
 * left behind stays unsynced until st_writer_finish asks for it. */
static enum status skip_finished(struct st_writer *w)
{
    while (w->at < w->tensors.n && w->n_written == w->tensors.items[w->at].n_bytes) {
        int64_t shard = w->tensors.items[w->at].shard;
        w->at++;
        w->n_written = 0;
        if (w->at == w->tensors.n || w->tensors.items[w->at].shard == shard)
            continue;
        TRY(file_out_close(&w->file));
        TRY(start_file(w));
    }
    return OK;
}

int64_t st_writer_next(const struct st_writer *w)
{
    BUG_ON(w->state == DECLARING);
    return w->at < w->tensors.n ? w->tensors.items[w->at].number : -1;
}

enum status st_writer_append(struct st_writer *w, const void *data, size_t n_bytes)
{
    BUG_ON(w->state != WRITING);
    if (n_bytes == 0)
        return OK;
    if (w->at == w->tensors.n)
        return FAIL(ERR_INTERNAL, "%s: data after the last tensor", w->path);
    const struct declared *t = &w->tensors.items[w->at];
    if (n_bytes > (uint64_t)(t->n_bytes - w->n_written))
        return FAIL(ERR_INTERNAL, "%s: tensor '%.200s' has %lld bytes, %lld + %zu were written",
                    w->path, t->name, (long long)t->n_bytes, (long long)w->n_written, n_bytes);
    TRY(file_out_write(&w->file, data, n_bytes));
    w->n_written += (int64_t)n_bytes;
    return skip_finished(w);
}

/* ---- ending ---- */

static enum status index_json(struct st_writer *w, json_t *index)
{
    json_t *weight_map = json_object();
    TRY(set_json(index, "weight_map", weight_map)); /* owned by index from here */
    for (size_t i = 0; i < w->tensors.n; i++) {
        const struct declared *t = &w->tensors.items[i];
        const char *file = shard_file(&w->pool, t->shard, w->n_shards);
        TRY(pool_status(&w->pool));
        TRY(set_json(weight_map, t->name, json_string(file)));
    }
    return set_json(index, "metadata", json_pack("{s:I}", "total_size", (json_int_t)w->n_bytes));
}

static enum status write_index(struct st_writer *w)
{
    json_t *index = json_object();
    struct str text = {0};
    struct str path = {0};
    enum status status;
    TRY_GOTO(index_json(w, index), out);
    if (json_dump_callback(index, dump_into_str, &text, JSON_INDENT(2) | JSON_SORT_KEYS) != 0) {
        status = FAIL(ERR_MEMORY, "%s: out of memory while writing the index", w->folder);
        goto out;
    }
    str_add(&text, "\n");
    TRY_GOTO(str_status(&text), out);
    str_addf(&path, "%s/model.safetensors.index.json", w->folder);
    TRY_GOTO(str_status(&path), out);
    TRY_GOTO(file_write_atomic(path.text, text.text, text.n), out);
out:
    str_release(&path);
    str_release(&text);
    json_decref(index);
    return status;
}

/* Shards left behind were closed without a sync, so that writing is not slowed down by waiting
 * shard after shard; opening them again syncs the same inodes. */
static enum status sync_shards(struct st_writer *w)
{
    for (int64_t i = 0; i < w->n_shards; i++) {
        const char *file = shard_file(&w->pool, i, w->n_shards);
        TRY(pool_status(&w->pool));
        const char *path = pool_printf(&w->pool, "%s/%s", w->folder, file);
        TRY(pool_status(&w->pool));
        struct file_out f;
        TRY(file_out_append(&f, path));
        enum status status = file_out_sync(&f);
        enum status closed = file_out_close(&f);
        TRY(status);
        TRY(closed);
    }
    return file_sync_folder(w->folder);
}

enum status st_writer_finish(struct st_writer *w, int sync)
{
    BUG_ON(w->state != WRITING);
    if (w->at < w->tensors.n)
        return FAIL(ERR_INTERNAL, "%s: tensor '%.200s' is not completely written (%lld bytes)",
                    w->path, w->tensors.items[w->at].name, (long long)w->n_written);
    w->state = ENDED;
    if (sync && !w->folder)
        TRY(file_out_sync(&w->file));
    TRY(file_out_close(&w->file));
    if (w->n_shards > 1)
        TRY(write_index(w));
    if (sync && w->folder)
        TRY(sync_shards(w));
    return OK;
}
