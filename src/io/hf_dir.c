/* hf_dir.c: see hf_dir.h. */
#include "io/hf_dir.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"

/* What an export copies from the source model. */
static const char *const extras[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
};

/* Made of what the hub allows in one part of a name; excludes "", "." and "..". */
static int is_name_part(const char *text, size_t n)
{
    if (n == 0 || text[0] == '.')
        return 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i]))
            return 0;
    return 1;
}

/* NAME or ORG/NAME. */
static int is_hub_name(const char *model)
{
    const char *slash = strchr(model, '/');
    if (!slash)
        return is_name_part(model, strlen(model));
    return is_name_part(model, (size_t)(slash - model)) &&
           is_name_part(slash + 1, strlen(slash + 1));
}

/* *revision = what refs/main says; the caller frees it, after a failure too. */
static enum status read_revision(const char *cached, char **revision)
{
    struct str path = {0};
    str_addf(&path, "%s/refs/main", cached);
    enum status status = str_status(&path);
    if (status == OK)
        status = file_read(path.text, revision, NULL);
    str_release(&path);
    TRY(status);
    size_t n = strlen(*revision);
    while (n > 0 && isspace((unsigned char)(*revision)[n - 1]))
        (*revision)[--n] = '\0';
    if (is_name_part(*revision, n))
        return OK;
    return FAIL(ERR_CONFIG, "%s/refs/main: does not hold the name of a snapshot", cached);
}

/* The snapshot of a cached model; `cached` is its folder in the hub. */
static enum status resolve_cached(char **folder, const char *model, const char *cached)
{
    if (!file_is_folder(cached))
        return FAIL(ERR_CONFIG,
                    "model '%s': no folder of that name here, and no %s; Snug does not download: "
                    "fetch it first (`hf download %s`) or give a local folder",
                    model, cached, model);
    char *revision = NULL;
    struct str path = {0};
    enum status status;
    TRY_GOTO(read_revision(cached, &revision), out);
    str_addf(&path, "%s/snapshots/%s", cached, revision);
    TRY_GOTO(str_status(&path), out);
    if (!file_is_folder(path.text)) {
        status = FAIL(ERR_CONFIG, "%s: missing, though refs/main names it", path.text);
        goto out;
    }
    *folder = str_take(&path);
out:
    if (status != OK && status != ERR_MEMORY)
        status = status_prefix(ERR_CONFIG,
                               "model '%s' is incomplete in the cache, and Snug does not download: "
                               "fetch it again (`hf download %s`)",
                               model, model);
    str_release(&path);
    mem_free(revision);
    return status;
}

enum status hf_dir_resolve(char **folder, const char *model, const char *hub_folder)
{
    *folder = NULL;
    if (file_is_folder(model)) {
        *folder = mem_strdup(model);
        return *folder ? OK : FAIL(ERR_MEMORY, "%s: out of memory", model);
    }
    if (file_exists(model))
        return FAIL(ERR_CONFIG,
                    "model '%s' is a file; give the folder that holds config.json and the weights",
                    model);
    if (!is_hub_name(model))
        return FAIL(ERR_CONFIG,
                    "model '%s': no such folder, and not a name ORG/NAME either; check the path",
                    model);
    if (!hub_folder)
        return FAIL(ERR_CONFIG,
                    "model '%s': no folder of that name here, and no Hugging Face cache is known; "
                    "Snug does not download: give a local folder",
                    model);
    struct str cached = {0};
    const char *slash = strchr(model, '/');
    str_addf(&cached, "%s/models--", hub_folder);
    if (slash) {
        str_add_n(&cached, model, (size_t)(slash - model));
        str_add(&cached, "--");
    }
    str_add(&cached, slash ? slash + 1 : model);
    enum status status = str_status(&cached);
    if (status == OK)
        status = resolve_cached(folder, model, cached.text);
    str_release(&cached);
    return status;
}

enum status hf_dir_read_config(json_t **config, const char *folder)
{
    *config = NULL;
    struct str path = {0};
    enum status status;
    str_addf(&path, "%s/config.json", folder);
    TRY_GOTO(str_status(&path), out);
    if (!file_exists(path.text)) {
        status = FAIL(ERR_DATA, "%s: missing; a model folder needs it to say what the weights are",
                      path.text);
        goto out;
    }
    TRY_GOTO(json_read_file(config, path.text, ERR_DATA), out);
    if (!json_is_object(*config)) {
        json_decref(*config);
        *config = NULL;
        status = FAIL(ERR_DATA, "%s: not a JSON object", path.text);
    }
out:
    str_release(&path);
    return status;
}

/* *found = whether folder/name exists. */
static enum status has_file(const char *folder, const char *name, int *found)
{
    struct str path = {0};
    str_addf(&path, "%s/%s", folder, name);
    enum status status = str_status(&path);
    *found = status == OK && file_exists(path.text);
    str_release(&path);
    return status;
}

enum status hf_dir_open_weights(struct st_reader **weights, const char *folder)
{
    *weights = NULL;
    int one, index, pickle, pickle_index;
    TRY(has_file(folder, "model.safetensors", &one));
    TRY(has_file(folder, "model.safetensors.index.json", &index));
    TRY(has_file(folder, "pytorch_model.bin", &pickle));
    TRY(has_file(folder, "pytorch_model.bin.index.json", &pickle_index));
    if (!one && !index && (pickle || pickle_index))
        return FAIL(ERR_DATA,
                    "%s: only pytorch_model.bin is there, a pickle, which Snug does not read; "
                    "convert it once: python3 -c \"from transformers import AutoModelForCausalLM "
                    "as M; M.from_pretrained('%s').save_pretrained('%s')\"",
                    folder, folder, folder);
    return st_reader_open_folder(weights, folder);
}

static enum status copy_file(const char *from, const char *to, const char *name)
{
    struct str src = {0}, dst = {0};
    struct file_map map = {0};
    enum status status;
    str_addf(&src, "%s/%s", from, name);
    str_addf(&dst, "%s/%s", to, name);
    TRY_GOTO(str_status(&src), out);
    TRY_GOTO(str_status(&dst), out);
    if (!file_exists(src.text))
        goto out;
    TRY_GOTO(file_map_open(&map, src.text), out);
    TRY_GOTO(file_write_atomic(dst.text, map.data, map.n_bytes), out);
out:
    file_map_close(&map);
    str_release(&src);
    str_release(&dst);
    return status;
}

enum status hf_dir_copy_extras(const char *from, const char *to)
{
    for (size_t i = 0; i < ARRAY_LEN(extras); i++)
        TRY(copy_file(from, to, extras[i]));
    return OK;
}
