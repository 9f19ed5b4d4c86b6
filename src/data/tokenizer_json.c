/* tokenizer_json.c: tokenizer.json into struct tokenizer: the model and added tokens; the other
 * steps are in tokenizer_steps.c.
 *
 * One function per top-level key. A piece that would change the ids and that we do not know is
 * refused by name (ERR_UNSUPPORTED); a piece that is broken is ERR_DATA. The file is trusted with
 * nothing: ids, counts and references are checked before they are used.
 */
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "data/tokenizer_json.h"

/* The largest vocabularies in use have 262,144 ids; a file with a larger one than this is broken,
 * and its table is not worth allocating. */
enum { MAX_IDS = 1 << 22 };

const char *piece_type(const json_t *piece)
{
    const char *type = json_text(json_object_get(piece, "type"));
    return type ? type : "(no type)";
}

int piece_flag(const json_t *piece, const char *name, int otherwise)
{
    const json_t *value = json_object_get(piece, name);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

enum status piece_unsupported(const struct tokenizer *t, const char *key, const char *piece)
{
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s \"%s\" is not supported: Snug reads BPE tokenizers, byte-level (GPT-2, "
                "Llama 3, Qwen) or with \"\xE2\x96\x81\" for a space (Llama 2, Mistral, Gemma); "
                "tokenise with other software into a token file, or use `tokenizer: bytes`",
                t->what, key, piece);
}

enum status check_id(const struct tokenizer *t, const json_t *id, const char *token)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= MAX_IDS)
        return FAIL(ERR_DATA, "%s: token \"%s\": its id is not an integer in 0..%d", t->what, token,
                    (int)MAX_IDS - 1);
    return OK;
}

/* ---- vocabulary and merges ---- */

static enum status largest_id(const struct tokenizer *t, const json_t *vocab, const json_t *added,
                              int64_t *n_ids)
{
    const char *token;
    const json_t *id;
    *n_ids = 0;
    json_object_foreach((json_t *)(uintptr_t)vocab, token, id)
    {
        TRY(check_id(t, id, token));
        *n_ids = MAX(*n_ids, json_integer_value(id) + 1);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *entry = json_array_get(added, i);
        const char *content = json_text(json_object_get(entry, "content"));
        if (!content)
            return FAIL(ERR_DATA, "%s: added_tokens[%zu] has no content, or U+0000 in it", t->what,
                        i);
        TRY(check_id(t, json_object_get(entry, "id"), content));
        *n_ids = MAX(*n_ids, json_integer_value(json_object_get(entry, "id")) + 1);
    }
    if (*n_ids == 0)
        return FAIL(ERR_DATA, "%s: the vocabulary is empty", t->what);
    return OK;
}

/* The bytes a token decodes to. One of a byte-level file that is not written in its alphabet stands
 * for its own UTF-8, one of another file for it with spaces for "▁"; *reachable says whether text
 * can be encoded to it. */
static size_t token_bytes(const struct tokenizer *t, const char *token, char *out, int *reachable)
{
    size_t n = strlen(token), n_bytes = 0;
    if (!t->characters) {
        *reachable = byte_level_decode(token, n, out, &n_bytes);
        if (!*reachable)
            memcpy(out, token, n);
        return *reachable ? n_bytes : n;
    }
    int byte = t->byte_fallback ? byte_token_byte(token) : -1;
    *reachable = byte < 0 && !strchr(token, ' ');
    if (byte < 0)
        return unmark_spaces(token, n, out);
    out[0] = (char)byte;
    return 1;
}

static enum status read_vocab(struct tokenizer *t, const json_t *vocab)
{
    const char *token;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, token, value)
    {
        struct token_text *entry = &t->tokens[json_integer_value(value)];
        if (entry->bytes)
            return FAIL(ERR_DATA, "%s: id %lld is given to \"%s\" and to another token", t->what,
                        (long long)json_integer_value(value), token);
        char *bytes;
        int reachable;
        TRY(pool_try(&t->pool, &bytes, strlen(token) + 1));
        entry->n_bytes = (uint32_t)token_bytes(t, token, bytes, &reachable);
        entry->bytes = bytes;
        entry->no_lookup = !reachable;
    }
    return OK;
}

/* How each byte is spelled in the vocabulary, if it is there. */
static void read_byte_ids(struct tokenizer *t, const json_t *vocab)
{
    uint32_t alphabet[256];
    byte_level_alphabet(alphabet);
    for (int byte = 0; byte < 256; byte++) {
        char name[8] = {0};
        if (t->characters)
            (void)snprintf(name, sizeof(name), "<0x%02X>", (unsigned)byte);
        else
            (void)utf8proc_encode_char((utf8proc_int32_t)alphabet[byte], (utf8proc_uint8_t *)name);
        const json_t *id = t->characters && !t->byte_fallback ? NULL : json_object_get(vocab, name);
        t->byte_ids[byte] = id ? (int32_t)json_integer_value(id) : -1;
    }
}

/* "left right" or ["left", "right"]; the strings are put into the two (reused) buffers. */
static enum status merge_parts(const struct tokenizer *t, const json_t *merge, size_t i,
                               struct str parts[2])
{
    str_clear(&parts[0]);
    str_clear(&parts[1]);
    const char *text = json_text(merge);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (space && !strchr(space + 1, ' ')) {
        str_add_n(&parts[0], text, (size_t)(space - text));
        str_add(&parts[1], space + 1);
    } else if (json_array_size(merge) == 2 && json_text(json_array_get(merge, 0)) &&
               json_text(json_array_get(merge, 1))) {
        str_add(&parts[0], json_text(json_array_get(merge, 0)));
        str_add(&parts[1], json_text(json_array_get(merge, 1)));
    } else {
        return FAIL(ERR_DATA, "%s: merges[%zu] is neither \"left right\" nor [\"left\", \"right\"]",
                    t->what, i);
    }
    TRY(str_status(&parts[0]));
    return str_status(&parts[1]);
}

static enum status merge_id(const struct tokenizer *t, const json_t *vocab, const char *token,
                            size_t i, uint32_t *id)
{
    const json_t *value = json_object_get(vocab, token);
    if (!value)
        return FAIL(ERR_DATA, "%s: merges[%zu] uses \"%s\", which is not in the vocabulary",
                    t->what, i, token);
    *id = (uint32_t)json_integer_value(value);
    return OK;
}

static enum status read_merges(struct tokenizer *t, const json_t *vocab, const json_t *merges)
{
    enum status status = OK;
    struct str parts[2] = {{0}, {0}};
    TRY(tokenizer_reserve_merges(t, json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *merge = json_array_get(merges, i);
        uint32_t left = 0, right = 0, merged = 0;
        if (i == 0 && json_text(merge) && str_starts_with(json_text(merge), "#version"))
            continue;
        TRY_GOTO(merge_parts(t, merge, i, parts), out);
        TRY_GOTO(merge_id(t, vocab, str_text(&parts[0]), i, &left), out);
        TRY_GOTO(merge_id(t, vocab, str_text(&parts[1]), i, &right), out);
        str_add(&parts[0], str_text(&parts[1]));
        TRY_GOTO(str_status(&parts[0]), out);
        TRY_GOTO(merge_id(t, vocab, str_text(&parts[0]), i, &merged), out);
        tokenizer_add_merge(t, left, right, (uint32_t)i, merged);
    }
out:
    str_release(&parts[0]);
    str_release(&parts[1]);
    return status;
}

static enum status read_model(struct tokenizer *t, const json_t *model, const json_t *added)
{
    const json_t *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    if (!json_is_object(model))
        return FAIL(ERR_DATA, "%s: has no \"model\"; is this a tokenizer.json?", t->what);
    if (json_object_get(model, "type") && strcmp(piece_type(model), "BPE") != 0)
        return piece_unsupported(t, "model", piece_type(model));
    if (!json_is_object(vocab) || !json_is_array(merges))
        return FAIL(ERR_DATA, "%s: model.vocab is not an object or model.merges not an array",
                    t->what);
    t->byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    if (t->byte_fallback && !t->characters)
        return piece_unsupported(t, "model", "byte-level BPE with byte_fallback");
    if (json_number_value(json_object_get(model, "dropout")) > 0.0)
        return piece_unsupported(t, "model", "BPE with dropout");
    const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < ARRAY_LEN(affixes); i++)
        if (json_string_length(json_object_get(model, affixes[i])) > 0)
            return piece_unsupported(t, "model", affixes[i]);

    TRY(largest_id(t, vocab, added, &t->n_ids));
    TRY(mem_try_array(&t->tokens, (size_t)t->n_ids, sizeof(*t->tokens)));
    TRY(read_vocab(t, vocab));
    read_byte_ids(t, vocab);
    TRY(read_merges(t, vocab, merges));
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    t->fuse_unk = json_is_true(json_object_get(model, "fuse_unk"));
    const char *unk = json_text(json_object_get(model, "unk_token"));
    const json_t *unk_id = unk ? json_object_get(vocab, unk) : NULL;
    if (unk_id)
        t->unk_id = (int32_t)json_integer_value(unk_id);
    return OK;
}

/* ---- added tokens ---- */

static enum status read_added_token(struct tokenizer *t, const json_t *entry,
                                    struct added_token *out)
{
    const char *content = json_text(json_object_get(entry, "content"));
    size_t n = strlen(content);
    int32_t id = (int32_t)json_integer_value(json_object_get(entry, "id"));
    char *text = pool_strndup(&t->pool, content, n), *bytes = pool_strndup(&t->pool, content, n);
    TRY(pool_status(&t->pool));
    *out = (struct added_token){.text = text, .n_bytes = (uint32_t)n, .id = id};
    out->special = (uint8_t)piece_flag(entry, "special", 0);
    out->normalized = (uint8_t)piece_flag(entry, "normalized", !out->special);
    out->lstrip = (uint8_t)piece_flag(entry, "lstrip", 0);
    out->rstrip = (uint8_t)piece_flag(entry, "rstrip", 0);
    out->single_word = (uint8_t)piece_flag(entry, "single_word", 0);
    size_t n_bytes = t->characters ? unmark_spaces(bytes, n, bytes) : n;
    t->tokens[id] = (struct token_text){
        .bytes = bytes, .n_bytes = (uint32_t)n_bytes, .is_special = out->special, .no_lookup = 1};
    if (!out->normalized)
        return OK;

    struct encoder scratch = {.t = t};
    const char *normal;
    size_t n_normal;
    enum status status = normalize(&scratch, text, n, 1, &normal, &n_normal);
    if (status == OK) {
        out->text = pool_strndup(&t->pool, normal, n_normal);
        out->n_bytes = (uint32_t)n_normal;
        status = pool_status(&t->pool);
    }
    if (status == OK && t->marks_early) { /* with the space that was found in front of it */
        t->tokens[id].bytes = out->text;
        t->tokens[id].n_bytes = out->n_bytes;
    }
    mem_free(scratch.codepoints.items);
    str_release(&scratch.spaced);
    return status;
}

static enum status read_added(struct tokenizer *t, const json_t *added)
{
    size_t n = json_array_size(added), n_raw = 0, n_normalized = 0;
    enum status status = OK;
    struct added_token *raw = NULL, *normalized = NULL;
    TRY_GOTO(mem_try_array(&raw, n, sizeof(*raw)), out);
    TRY_GOTO(mem_try_array(&normalized, n, sizeof(*normalized)), out);
    for (size_t i = 0; i < n; i++) {
        struct added_token token;
        TRY_GOTO(read_added_token(t, json_array_get(added, i), &token), out);
        if (token.normalized)
            normalized[n_normalized++] = token;
        else
            raw[n_raw++] = token;
    }
    TRY_GOTO(added_set_build(&t->added_raw, &t->pool, raw, n_raw), out);
    TRY_GOTO(added_set_build(&t->added_normalized, &t->pool, normalized, n_normalized), out);
out:
    mem_free(raw);
    mem_free(normalized);
    return status;
}

/* ---- the file ---- */

static enum status read_root(struct tokenizer *t, const json_t *root)
{
    const json_t *added = json_object_get(root, "added_tokens");
    const json_t *pre_tokenizer = json_object_get(root, "pre_tokenizer");
    t->characters = !pre_tokenizer_is_byte_level(pre_tokenizer);
    TRY(read_model(t, json_object_get(root, "model"), added));
    TRY(read_normalizer(t, json_object_get(root, "normalizer")));
    TRY(read_added(t, added));
    TRY(read_pre_tokenizer(t, pre_tokenizer));
    TRY(read_post_processor(t, json_object_get(root, "post_processor")));
    TRY(read_decoder(t, json_object_get(root, "decoder")));
    return tokenizer_index_bytes(t);
}

enum status tokenizer_parse(struct tokenizer *t, const char *json, size_t n_bytes)
{
    json_t *root;
    TRY(json_read_text(&root, json, n_bytes, t->what, ERR_DATA));
    enum status status = read_root(t, root);
    json_decref(root);
    return status;
}
