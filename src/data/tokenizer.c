/* tokenizer.c: opening a tokenizer: the built-in one, a file, or a folder; and its special ids. */
#include "data/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer_internal.h"

static const char end_of_text[] = "<|endoftext|>";

static enum status tokenizer_new(struct tokenizer **out, const char *what)
{
    *out = NULL;
    struct tokenizer *t;
    TRY(mem_try_array(&t, 1, sizeof(*t)));
    pool_init(&t->pool);
    t->bos = t->eos = t->pad = t->unk_id = -1;
    t->what = pool_strdup(&t->pool, what);
    if (!t->what) {
        tokenizer_free(t);
        return FAIL(ERR_MEMORY, "%s: out of memory", what);
    }
    *out = t;
    return OK;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_stages; i++)
        pcre2_code_free(t->stages[i].code);
    mem_free(t->tokens);
    mem_free(t->by_bytes);
    mem_free(t->merges);
    pool_release(&t->pool);
    mem_free(t);
}

/* 256 bytes and an end-of-text token; no merges, no pieces. */
static enum status fill_bytes(struct tokenizer *t)
{
    t->n_ids = 257;
    t->fingerprint = bytes_hash("bytes", 5);
    TRY(mem_try_array(&t->tokens, (size_t)t->n_ids, sizeof(*t->tokens)));
    char *bytes;
    TRY(pool_try(&t->pool, &bytes, 256));
    for (int32_t byte = 0; byte < 256; byte++) {
        bytes[byte] = (char)byte;
        t->tokens[byte] = (struct token_text){.bytes = bytes + byte, .n_bytes = 1};
        t->byte_ids[byte] = byte;
    }
    t->tokens[256] = (struct token_text){
        .bytes = end_of_text, .n_bytes = sizeof(end_of_text) - 1, .is_special = 1, .no_lookup = 1};
    t->eos = 256;
    const struct added_token added = {
        .text = end_of_text, .n_bytes = sizeof(end_of_text) - 1, .id = 256, .special = 1};
    TRY(added_set_build(&t->added_raw, &t->pool, &added, 1));
    TRY(tokenizer_reserve_merges(t, 0));
    return tokenizer_index_bytes(t);
}

static int32_t find_added(const struct added_set *set, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < set->n; i++)
        if (set->tokens[i].n_bytes == n && memcmp(set->tokens[i].text, text, n) == 0)
            return set->tokens[i].id;
    return -1;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text)
{
    int32_t id = find_added(&t->added_raw, text);
    if (id < 0)
        id = find_added(&t->added_normalized, text);
    return id >= 0 ? id : tokenizer_find_bytes(t, text, strlen(text));
}

static void guess_special_ids(struct tokenizer *t)
{
    static const char *const eos_names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                            "<|im_end|>"};
    static const char *const bos_names[] = {"<|begin_of_text|>", "<s>", "<bos>"};
    for (size_t i = 0; i < ARRAY_LEN(eos_names) && t->eos < 0; i++)
        t->eos = tokenizer_find(t, eos_names[i]);
    for (size_t i = 0; i < ARRAY_LEN(bos_names) && t->bos < 0; i++)
        t->bos = tokenizer_find(t, bos_names[i]);
}

enum status tokenizer_open_text(struct tokenizer **out, const char *json, size_t n_bytes,
                                const char *what)
{
    struct tokenizer *t;
    *out = NULL;
    TRY(tokenizer_new(&t, what));
    t->fingerprint = bytes_hash(json, n_bytes);
    enum status status = tokenizer_parse(t, json, n_bytes);
    if (status != OK) {
        tokenizer_free(t);
        return status;
    }
    guess_special_ids(t);
    *out = t;
    return OK;
}

/* Sets *id from "eos_token": "</s>" or {"content": "</s>", ...}; absent and null leave it. */
static enum status read_special(const struct tokenizer *t, const json_t *config, const char *key,
                                const char *path, int32_t *id)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (!value || json_is_null(value))
        return OK;
    if (!json_text(value))
        return FAIL(ERR_DATA, "%s: %s is not a string without U+0000", path, key);
    int32_t found = tokenizer_find(t, json_text(value));
    if (found < 0)
        return FAIL(ERR_DATA, "%s: %s \"%s\" is not in the vocabulary of %s", path, key,
                    json_text(value), t->what);
    *id = found;
    return OK;
}

/* "add_bos_token" says whether `id` is the one end of the template; absent and null leave it. */
static void read_add(const json_t *config, const char *key, int32_t id, int32_t *ids, int *n)
{
    const json_t *value = json_object_get(config, key);
    if (!json_is_boolean(value) || id < 0)
        return;
    int is_there = *n == 1 && ids[0] == id;
    if (json_is_false(value) && is_there)
        *n = 0;
    if (json_is_true(value) && *n == 0)
        ids[(*n)++] = id;
}

static enum status read_config(struct tokenizer *t, const char *path)
{
    json_t *config;
    TRY(json_read_file(&config, path, ERR_DATA));
    enum status status = OK;
    if (!json_is_object(config)) {
        status = FAIL(ERR_DATA, "%s: not a JSON object", path);
        goto out;
    }
    TRY_GOTO(read_special(t, config, "bos_token", path, &t->bos), out);
    TRY_GOTO(read_special(t, config, "eos_token", path, &t->eos), out);
    TRY_GOTO(read_special(t, config, "pad_token", path, &t->pad), out);
    read_add(config, "add_bos_token", t->bos, t->prefix, &t->n_prefix);
    read_add(config, "add_eos_token", t->eos, t->suffix, &t->n_suffix);
out:
    json_decref(config);
    return status;
}

static enum status open_file(struct tokenizer **out, const char *path, const char *config_path)
{
    char *text = NULL;
    size_t n_bytes;
    struct tokenizer *t = NULL;
    TRY(file_read(path, &text, &n_bytes));
    enum status status = tokenizer_open_text(&t, text, n_bytes, path);
    mem_free(text);
    if (status == OK && file_exists(config_path))
        status = read_config(t, config_path);
    if (status != OK) {
        tokenizer_free(t);
        return status;
    }
    *out = t;
    return OK;
}

enum status tokenizer_open(struct tokenizer **out, const char *name)
{
    *out = NULL;
    if (strcmp(name, "bytes") == 0) {
        struct tokenizer *t;
        TRY(tokenizer_new(&t, "bytes"));
        enum status status = fill_bytes(t);
        if (status != OK)
            tokenizer_free(t);
        else
            *out = t;
        return status;
    }
    int is_folder = file_is_folder(name);
    const char *slash = strrchr(name, '/');
    int n_folder = is_folder ? (int)strlen(name) : slash ? (int)(slash - name) : 1;
    const char *folder = is_folder || slash ? name : ".";
    char path[4096], config[4096];
    int n_path = is_folder ? snprintf(path, sizeof(path), "%s/tokenizer.json", name)
                           : snprintf(path, sizeof(path), "%s", name);
    int n_config = snprintf(config, sizeof(config), "%.*s/tokenizer_config.json", n_folder, folder);
    if (n_path >= (int)sizeof(path) || n_config >= (int)sizeof(config))
        return FAIL(ERR_IO, "%s: path too long", name);
    if (!file_exists(path))
        return FAIL(ERR_CONFIG,
                    "%s: no such file; `tokenizer` is a tokenizer.json, a folder with one, "
                    "or \"bytes\"",
                    path);
    return open_file(out, path, config);
}

int64_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->n_ids;
}

uint64_t tokenizer_fingerprint(const struct tokenizer *t)
{
    return t->fingerprint;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

int32_t tokenizer_pad(const struct tokenizer *t)
{
    return t->pad;
}

void tokenizer_set_eos(struct tokenizer *t, int32_t id)
{
    t->eos = id;
}

size_t tokenizer_document_begin(const struct tokenizer *t, int32_t ids[DOCUMENT_IDS])
{
    memcpy(ids, t->prefix, (size_t)t->n_prefix * sizeof(*ids));
    return (size_t)t->n_prefix;
}

size_t tokenizer_document_end(const struct tokenizer *t, int32_t ids[DOCUMENT_IDS])
{
    size_t n = (size_t)t->n_suffix;
    memcpy(ids, t->suffix, n * sizeof(*ids));
    if (t->eos >= 0 && (n == 0 || ids[n - 1] != t->eos))
        ids[n++] = t->eos;
    return n;
}
