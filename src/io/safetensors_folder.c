/* safetensors_folder.c: a folder of weights as one reader.
 *
 * The index, {"metadata": {...}, "weight_map": {tensor: file}}, is the authority: each tensor is
 * taken from the file it names, and a shard's other tensors are left out.
 */
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "io/safetensors_internal.h"

/* A shard named by the index must be a plain name in the same folder: an index may come from
 * anywhere, and must not make us read ../../something. */
static int is_plain_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && !strchr(name, '/');
}

/* Adds the tensors of `file` that the map says come from it. */
static enum status add_shard(struct st_reader *r, const char *path, const char *file,
                             const json_t *weight_map)
{
    size_t kept = r->tensors.n;
    TRY(st_reader_add_file(r, path));
    for (size_t i = kept; i < r->tensors.n; i++) {
        const struct st_tensor *t = &r->tensors.items[i];
        const char *home = json_text(json_object_get(weight_map, t->name));
        if (home && strcmp(home, file) == 0)
            r->tensors.items[kept++] = *t;
    }
    r->tensors.n = kept;
    return OK;
}

/* Opens the shard that the map names for this tensor. */
static enum status add_entry(struct st_reader *r, const char *folder, const char *index_path,
                             const json_t *weight_map, const char *tensor, const char *file)
{
    const char *path = pool_printf(&r->pool, "%s/%s", folder, file);
    TRY(pool_status(&r->pool));
    if (!file_exists(path))
        return FAIL(ERR_DATA,
                    "%s: missing, but %s says it holds tensor '%.200s'; the download or copy "
                    "is incomplete",
                    path, index_path, tensor);
    return add_shard(r, path, file, weight_map);
}

/* A map has an entry per tensor, many of them for one shard: `opened` holds the names of shards,
 * also of those that gave no tensor. */
static enum status add_mapped(struct st_reader *r, const char *folder, const char *index_path,
                              json_t *weight_map, json_t *opened)
{
    const char *name;
    json_t *value;
    json_object_foreach(weight_map, name, value)
    {
        const char *file = json_text(value);
        if (!file || !is_plain_name(file))
            return FAIL(ERR_DATA,
                        "%s: weight_map of '%.200s' is not the name of a file beside it; write "
                        "the index again",
                        index_path, name);
        if (json_object_get(opened, file))
            continue;
        if (json_object_set_new(opened, file, json_true()) != 0)
            return FAIL(ERR_MEMORY, "%s: out of memory for the names of its files", index_path);
        TRY(add_entry(r, folder, index_path, weight_map, name, file));
    }
    return OK;
}

/* Every tensor the map promises was found. */
static enum status check_mapped(const struct st_reader *r, const char *index_path,
                                json_t *weight_map)
{
    const char *name;
    json_t *value;
    json_object_foreach(weight_map, name, value)
    {
        if (!st_reader_find(r, name))
            return FAIL(ERR_DATA,
                        "%s: says that tensor '%.200s' is in %.200s, which does not hold it; "
                        "index and shards are of different versions, fetch them together",
                        index_path, name, json_string_value(value));
    }
    return OK;
}

static enum status open_index(struct st_reader **out, const char *folder, const char *index_path)
{
    json_t *index = NULL, *opened = json_object();
    struct st_reader *r = NULL;
    enum status status;
    TRY_GOTO(json_read_file(&index, index_path, ERR_DATA), out);
    json_t *weight_map = json_object_get(index, "weight_map");
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0) {
        status = FAIL(ERR_DATA, "%s: no \"weight_map\" object with tensors; write the index again",
                      index_path);
        goto out;
    }
    TRY_GOTO(st_reader_new(&r), out);
    TRY_GOTO(add_mapped(r, folder, index_path, weight_map, opened), out);
    TRY_GOTO(st_reader_index(r), out);
    TRY_GOTO(check_mapped(r, index_path, weight_map), out);
    *out = r;
    r = NULL;
out:
    st_reader_close(r);
    json_decref(opened);
    json_decref(index);
    return status;
}

enum status st_reader_open_folder(struct st_reader **out, const char *folder)
{
    *out = NULL;
    struct str path = {0};
    enum status status;
    str_addf(&path, "%s/model.safetensors", folder);
    TRY_GOTO(str_status(&path), out);
    if (file_exists(path.text)) {
        status = st_reader_open_file(out, path.text);
        goto out;
    }
    str_add(&path, ".index.json");
    TRY_GOTO(str_status(&path), out);
    if (!file_exists(path.text)) {
        status = FAIL(ERR_DATA,
                      "%s: neither model.safetensors nor model.safetensors.index.json is there; "
                      "is this a model folder, and is it complete?",
                      folder);
        goto out;
    }
    status = open_index(out, folder, path.text);
out:
    str_release(&path);
    return status;
}
