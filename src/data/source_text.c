/* source_text.c: text and JSONL files into token ids. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/vec.h"
#include "data/source_internal.h"

/* ---- the store ---- */

void token_store_release(struct token_store *store)
{
    mem_free(store->data);
    mem_free(store->mask);
    *store = (struct token_store){.dtype = store->dtype};
}

static enum status resize(struct token_store *store, int64_t capacity)
{
    size_t n_data = (size_t)capacity * (size_t)token_dtype_bytes(store->dtype);
    uint8_t *data = mem_realloc(store->data, n_data);
    if (data)
        store->data = data;
    uint8_t *mask = store->mask ? mem_realloc(store->mask, (size_t)capacity / 8 + 1) : NULL;
    if (mask)
        store->mask = mask;
    if (!data || (store->mask && !mask))
        return FAIL(ERR_MEMORY, "out of memory for %" PRId64 " tokens", capacity);
    store->capacity = capacity;
    return OK;
}

/* The mask appears with the first token that is no label; all before it are. */
static enum status start_mask(struct token_store *store)
{
    size_t n_bytes = (size_t)store->capacity / 8 + 1;
    store->mask = mem_alloc(n_bytes);
    if (!store->mask)
        return FAIL(ERR_MEMORY, "out of memory for a mask of %zu bytes", n_bytes);
    memset(store->mask, 0xFF, n_bytes);
    return OK;
}

static void put_token(struct token_store *store, int32_t id, int is_label)
{
    int64_t i = store->n_tokens++;
    if (store->dtype == TOKEN_U16) {
        uint16_t u16 = (uint16_t)id;
        memcpy(store->data + 2 * i, &u16, sizeof(u16));
    } else {
        memcpy(store->data + 4 * i, &id, sizeof(id));
    }
    if (!store->mask)
        return;
    uint8_t bit = (uint8_t)(1u << (i % 8));
    store->mask[i / 8] =
        (uint8_t)(is_label ? store->mask[i / 8] | bit : store->mask[i / 8] & (uint8_t)~bit);
}

enum status token_store_add(struct token_store *store, const int32_t *ids, const int32_t *labels,
                            size_t n)
{
    int64_t need = store->n_tokens + (int64_t)n;
    if (need > store->capacity)
        TRY(resize(store, MAX(need, 2 * store->capacity)));
    for (size_t i = 0; i < n; i++) {
        int is_label = !labels || labels[i] != LABEL_IGNORED;
        if (!is_label && !store->mask)
            TRY(start_mask(store));
        put_token(store, ids[i], is_label);
    }
    return OK;
}

void token_store_trim(struct token_store *store)
{
    if (store->n_tokens < store->capacity)
        (void)!resize(store, MAX(store->n_tokens, 1));
}

/* ---- text ---- */

static enum status add_document(const struct source_options *options, struct encoder *e,
                                const char *text, size_t n_bytes, struct token_list *ids,
                                struct token_store *store)
{
    ids->n = 0;
    TRY(encoder_encode(e, text, n_bytes, 0, ids));
    int32_t eos = tokenizer_eos(options->tokenizer);
    if (eos >= 0)
        TRY(vec_push(ids, eos));
    return token_store_add(store, ids->items, NULL, ids->n);
}

enum status source_read_text(const struct source_options *options, const char *path,
                             struct token_store *store)
{
    enum status status;
    struct file_map map = {0};
    struct encoder *e = NULL;
    struct token_list ids = {0};
    TRY_GOTO(file_map_open(&map, path), out);
    if (map.n_bytes == 0) {
        status = FAIL(ERR_DATA, "%s: the text file is empty", path);
        goto out;
    }
    TRY_GOTO(encoder_new(&e, options->tokenizer), out);
    TRY_GOTO(add_document(options, e, (const char *)map.data, map.n_bytes, &ids, store), out);
out:
    encoder_free(e);
    token_list_release(&ids);
    file_map_close(&map);
    return status;
}

/* ---- JSONL ---- */

struct jsonl_reader {
    const struct source_options *options;
    struct token_store *store;
    struct encoder *encoder;       /* NULL until the first text */
    struct token_list ids, labels; /* reused from line to line */
};

static enum status read_id(const struct source_options *options, const json_t *ids, size_t i,
                           int32_t *id)
{
    const json_t *value = json_array_get(ids, i);
    if (!json_is_integer(value))
        return FAIL(ERR_DATA, "input_ids[%zu] is not an integer", i);
    json_int_t x = json_integer_value(value);
    if (x < 0 || x >= options->vocab_size)
        return FAIL(ERR_DATA,
                    "input_ids[%zu] is %lld, outside the vocabulary of %" PRId64
                    ": tokenise with the tokenizer that belongs to the model, or use a model with "
                    "a larger vocab_size",
                    i, (long long)x, options->vocab_size);
    *id = (int32_t)x;
    return OK;
}

static enum status read_label(const json_t *labels, size_t i, int32_t id, int32_t *label)
{
    const json_t *value = json_array_get(labels, i);
    json_int_t x = json_is_integer(value) ? json_integer_value(value) : -1;
    if (x != LABEL_IGNORED && x != id)
        return FAIL(ERR_DATA, "labels[%zu] is neither input_ids[%zu] (%d) nor %d", i, i, (int)id,
                    (int)LABEL_IGNORED);
    *label = (int32_t)x;
    return OK;
}

/* An optional array beside input_ids: NULL when absent, ERR_DATA when of another length. */
static enum status side_array(const json_t *line, const char *key, size_t n, const json_t **out)
{
    *out = json_object_get(line, key);
    if (!*out || json_is_null(*out)) {
        *out = NULL;
        return OK;
    }
    if (json_array_size(*out) != n)
        return FAIL(ERR_DATA, "%s has %zu elements, input_ids %zu", key, json_array_size(*out), n);
    return OK;
}

static enum status add_tokenised(struct jsonl_reader *r, const json_t *line)
{
    const json_t *ids = json_object_get(line, "input_ids"), *labels, *attention;
    size_t n = json_array_size(ids);
    if (!json_is_array(ids))
        return FAIL(ERR_DATA, "input_ids is not an array");
    TRY(side_array(line, "labels", n, &labels));
    TRY(side_array(line, "attention_mask", n, &attention));
    r->ids.n = r->labels.n = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t id = 0, label;
        TRY(read_id(r->options, ids, i, &id));
        label = id;
        if (labels)
            TRY(read_label(labels, i, id, &label));
        if (attention && json_integer_value(json_array_get(attention, i)) == 0)
            continue;
        if (r->ids.n == 0)
            label = LABEL_IGNORED;
        TRY(vec_push(&r->ids, id));
        TRY(vec_push(&r->labels, label));
    }
    return token_store_add(r->store, r->ids.items, r->labels.items, r->ids.n);
}

static enum status add_object(struct jsonl_reader *r, const json_t *line)
{
    const char *field = r->options->text_field ? r->options->text_field : "text";
    const json_t *text = json_object_get(line, field);
    if (!json_is_object(line))
        return FAIL(ERR_DATA, "not a JSON object; each line of a JSONL file is one");
    if (json_object_get(line, "input_ids"))
        return add_tokenised(r, line);
    if (!text) {
        void *first = json_object_iter((json_t *)(uintptr_t)line);
        return FAIL(
            ERR_DATA,
            "has neither \"%s\" nor \"input_ids\" (its first key is \"%s\"); name the field "
            "with `text_field`",
            field, first ? json_object_iter_key(first) : "");
    }
    if (!json_is_string(text))
        return FAIL(ERR_DATA, "\"%s\" is not a string", field);
    if (!r->options->tokenizer)
        return FAIL(ERR_CONFIG, "text needs a tokenizer: set `tokenizer`");
    if (!r->encoder)
        TRY(encoder_new(&r->encoder, r->options->tokenizer));
    return add_document(r->options, r->encoder, json_string_value(text), json_string_length(text),
                        &r->ids, r->store);
}

static int is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", text[i]) || text[i] == '\0')
            return 0;
    return 1;
}

static enum status add_lines(struct jsonl_reader *r, const char *path, const char *text, size_t n)
{
    const char *end = text + n;
    for (int64_t number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((newline ? newline : end) - text);
        if (!is_blank(text, length)) {
            json_t *line = NULL;
            enum status status = json_read_text(&line, text, length, "JSON", ERR_DATA);
            if (status == OK)
                status = add_object(r, line);
            json_decref(line);
            if (status != OK)
                return status_prefix(status, "%s: line %" PRId64, path, number);
        }
        text += length + 1;
    }
    return OK;
}

enum status source_read_jsonl(const struct source_options *options, const char *path,
                              struct token_store *store)
{
    struct jsonl_reader r = {.options = options, .store = store};
    struct file_map map;
    TRY(file_map_open(&map, path));
    enum status status = map.n_bytes == 0
                             ? FAIL(ERR_DATA, "%s: the JSONL file is empty", path)
                             : add_lines(&r, path, (const char *)map.data, map.n_bytes);
    encoder_free(r.encoder);
    token_list_release(&r.ids);
    token_list_release(&r.labels);
    file_map_close(&map);
    return status;
}
