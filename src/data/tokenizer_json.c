/* tokenizer_json.c: tokenizer.json into struct tokenizer.
 *
 * One function per top-level key. A piece that would change the ids and that we do not know is
 * refused by name (ERR_UNSUPPORTED); a piece that is broken is ERR_DATA. The file is trusted with
 * nothing: ids, counts and references are checked before they are used.
 */
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/json.h"
#include "data/tokenizer_internal.h"

/* The largest vocabularies in use have 262,144 ids; a file with a larger one than this is broken,
 * and its table is not worth allocating. */
enum { MAX_IDS = 1 << 22 };

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const char *type_of(const json_t *piece)
{
    const char *type = json_string_value(json_object_get(piece, "type"));
    return type ? type : "(no type)";
}

static enum status unsupported(const struct tokenizer *t, const char *key, const char *piece)
{
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s \"%s\" is not supported: Snug reads byte-level BPE tokenizers (GPT-2, "
                "Llama 3, Qwen); tokenise with other software into a token file, or use "
                "`tokenizer: bytes`",
                t->what, key, piece);
}

/* ---- vocabulary and merges ---- */

static enum status check_id(const struct tokenizer *t, const json_t *id, const char *token)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= MAX_IDS)
        return FAIL(ERR_DATA, "%s: token \"%s\": its id is not an integer in 0..%d", t->what, token,
                    (int)MAX_IDS - 1);
    return OK;
}

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
        const char *content = json_string_value(json_object_get(entry, "content"));
        if (!content)
            return FAIL(ERR_DATA, "%s: added_tokens[%zu] has no content", t->what, i);
        TRY(check_id(t, json_object_get(entry, "id"), content));
        *n_ids = MAX(*n_ids, json_integer_value(json_object_get(entry, "id")) + 1);
    }
    if (*n_ids == 0)
        return FAIL(ERR_DATA, "%s: the vocabulary is empty", t->what);
    return OK;
}

/* Tokens are stored as the bytes they stand for. One that is not written in the byte-level
 * alphabet stands for its own UTF-8, and no text is ever encoded to it. */
static enum status read_vocab(struct tokenizer *t, const json_t *vocab)
{
    const char *token;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, token, value)
    {
        size_t n = strlen(token), n_bytes;
        struct token_text *entry = &t->tokens[json_integer_value(value)];
        if (entry->bytes)
            return FAIL(ERR_DATA, "%s: id %lld is given to \"%s\" and to another token", t->what,
                        (long long)json_integer_value(value), token);
        char *bytes;
        TRY(pool_try(&t->pool, &bytes, n + 1));
        if (!byte_level_decode(token, n, bytes, &n_bytes)) {
            memcpy(bytes, token, n);
            n_bytes = n;
            entry->no_lookup = 1;
        }
        entry->bytes = bytes;
        entry->n_bytes = (uint32_t)n_bytes;
    }
    uint32_t alphabet[256];
    byte_level_alphabet(alphabet);
    for (int byte = 0; byte < 256; byte++) {
        utf8proc_uint8_t name[5] = {0};
        (void)utf8proc_encode_char((utf8proc_int32_t)alphabet[byte], name);
        const json_t *id = json_object_get(vocab, (const char *)name);
        t->byte_ids[byte] = id ? (int32_t)json_integer_value(id) : -1;
    }
    return OK;
}

/* "left right" or ["left", "right"]; the strings are put into the two (reused) buffers. */
static enum status merge_parts(const struct tokenizer *t, const json_t *merge, size_t i,
                               struct str parts[2])
{
    str_clear(&parts[0]);
    str_clear(&parts[1]);
    const char *text = json_string_value(merge);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (space && !strchr(space + 1, ' ')) {
        str_add_n(&parts[0], text, (size_t)(space - text));
        str_add(&parts[1], space + 1);
    } else if (json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0)) &&
               json_is_string(json_array_get(merge, 1))) {
        str_add(&parts[0], json_string_value(json_array_get(merge, 0)));
        str_add(&parts[1], json_string_value(json_array_get(merge, 1)));
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
        if (i == 0 && json_is_string(merge) &&
            str_starts_with(json_string_value(merge), "#version"))
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
    if (json_object_get(model, "type") && strcmp(type_of(model), "BPE") != 0)
        return unsupported(t, "model", type_of(model));
    if (!json_is_object(vocab) || !json_is_array(merges))
        return FAIL(ERR_DATA, "%s: model.vocab is not an object or model.merges not an array",
                    t->what);
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return unsupported(t, "model", "BPE with byte_fallback");
    if (json_number_value(json_object_get(model, "dropout")) > 0.0)
        return unsupported(t, "model", "BPE with dropout");
    const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < ARRAY_LEN(affixes); i++)
        if (json_string_length(json_object_get(model, affixes[i])) > 0)
            return unsupported(t, "model", affixes[i]);

    TRY(largest_id(t, vocab, added, &t->n_ids));
    TRY(mem_try_array(&t->tokens, (size_t)t->n_ids, sizeof(*t->tokens)));
    TRY(read_vocab(t, vocab));
    TRY(read_merges(t, vocab, merges));
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    t->fuse_unk = json_is_true(json_object_get(model, "fuse_unk"));
    const char *unk = json_string_value(json_object_get(model, "unk_token"));
    const json_t *unk_id = unk ? json_object_get(vocab, unk) : NULL;
    if (unk_id)
        t->unk_id = (int32_t)json_integer_value(unk_id);
    return OK;
}

/* ---- added tokens ---- */

static int flag(const json_t *entry, const char *name, int otherwise)
{
    const json_t *value = json_object_get(entry, name);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static enum status read_added_token(struct tokenizer *t, const json_t *entry,
                                    struct added_token *out)
{
    const char *content = json_string_value(json_object_get(entry, "content"));
    size_t n = strlen(content);
    int32_t id = (int32_t)json_integer_value(json_object_get(entry, "id"));
    char *text = pool_strndup(&t->pool, content, n);
    TRY(pool_status(&t->pool));
    *out = (struct added_token){.text = text, .n_bytes = (uint32_t)n, .id = id};
    out->special = (uint8_t)flag(entry, "special", 0);
    out->normalized = (uint8_t)flag(entry, "normalized", !out->special);
    out->lstrip = (uint8_t)flag(entry, "lstrip", 0);
    out->rstrip = (uint8_t)flag(entry, "rstrip", 0);
    out->single_word = (uint8_t)flag(entry, "single_word", 0);
    t->tokens[id] = (struct token_text){
        .bytes = text, .n_bytes = (uint32_t)n, .is_special = out->special, .no_lookup = 1};
    if (!out->normalized)
        return OK;

    struct encoder scratch = {.t = t};
    const char *normal;
    size_t n_normal;
    enum status status = normalize(&scratch, text, n, &normal, &n_normal);
    if (status == OK) {
        out->text = pool_strndup(&t->pool, normal, n_normal);
        out->n_bytes = (uint32_t)n_normal;
        status = pool_status(&t->pool);
    }
    mem_free(scratch.codepoints.items);
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

/* ---- normalizer ---- */

static enum status read_normalizer(struct tokenizer *t, const json_t *normalizer)
{
    static const struct {
        const char *name;
        int options;
    } forms[] = {
        {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
        {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
        {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
        {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
    };
    if (!normalizer || json_is_null(normalizer))
        return OK;
    const char *type = type_of(normalizer);
    const json_t *list = json_object_get(normalizer, "normalizers");
    if (strcmp(type, "Sequence") == 0 && json_array_size(list) <= 1)
        return read_normalizer(t, json_array_get(list, 0));
    if (strcmp(type, "Sequence") == 0)
        return unsupported(t, "normalizer", "Sequence of several");
    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        if (strcmp(type, forms[i].name) == 0) {
            t->normalizer = forms[i].options;
            return OK;
        }
    return unsupported(t, "normalizer", type);
}

/* ---- pre-tokenizer ---- */

static enum status add_stage(struct tokenizer *t, enum split_kind kind, const char *pattern,
                             int literal)
{
    if (t->n_stages == MAX_SPLIT_STAGES)
        return FAIL(ERR_UNSUPPORTED, "%s: pre_tokenizer: more than %d steps", t->what,
                    (int)MAX_SPLIT_STAGES);
    struct split_stage *stage = &t->stages[t->n_stages++];
    stage->kind = kind;
    if (!pattern)
        return OK;
    enum status status = split_stage_compile(stage, &t->pool, pattern, literal);
    return status == OK ? OK : status_prefix(status, "%s: pre_tokenizer", t->what);
}

static enum status read_split(struct tokenizer *t, const json_t *split)
{
    const json_t *pattern = json_object_get(split, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *string = json_string_value(json_object_get(pattern, "String"));
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    int invert = json_is_true(json_object_get(split, "invert"));
    if (!regex && !string)
        return FAIL(ERR_DATA, "%s: pre_tokenizer Split has no pattern", t->what);
    if (!behavior)
        return FAIL(ERR_DATA, "%s: pre_tokenizer Split has no behavior", t->what);
    enum split_kind kind = SPLIT_REGEX;
    if (strcmp(behavior, "Removed") == 0 && invert)
        kind = SPLIT_REGEX_MATCHES;
    else if (strcmp(behavior, "Isolated") != 0)
        return unsupported(t, "pre_tokenizer Split behavior", behavior);
    return add_stage(t, kind, regex ? regex : string, regex == NULL);
}

static enum status read_byte_level(struct tokenizer *t, const json_t *piece, int *seen)
{
    *seen = 1;
    if (flag(piece, "add_prefix_space", 1))
        TRY(add_stage(t, SPLIT_PREFIX_SPACE, NULL, 0));
    if (flag(piece, "use_regex", 1))
        TRY(add_stage(t, SPLIT_REGEX, gpt2_pattern, 0));
    return OK;
}

/* ByteLevel changes the alphabet, so nothing can follow it; *seen says it was there. */
static enum status read_pre_tokenizer(struct tokenizer *t, const json_t *piece, int *seen)
{
    const char *type = type_of(piece);
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(piece, "pretokenizers");
        for (size_t i = 0; i < json_array_size(list); i++)
            TRY(read_pre_tokenizer(t, json_array_get(list, i), seen));
        return OK;
    }
    if (*seen)
        return unsupported(t, "pre_tokenizer after ByteLevel", type);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, piece, seen);
    if (strcmp(type, "Split") == 0)
        return read_split(t, piece);
    if (strcmp(type, "Digits") == 0)
        return add_stage(t, SPLIT_REGEX, flag(piece, "individual_digits", 0) ? "\\p{N}" : "\\p{N}+",
                         0);
    return unsupported(t, "pre_tokenizer", type);
}

/* ---- post-processor and decoder ---- */

static enum status add_template_ids(struct tokenizer *t, const json_t *special, const char *name,
                                    int32_t *list, int *n)
{
    const json_t *ids = json_object_get(json_object_get(special, name), "ids");
    if (!json_is_array(ids))
        return FAIL(ERR_DATA, "%s: post_processor: special token \"%s\" has no ids", t->what, name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        TRY(check_id(t, id, name));
        if (json_integer_value(id) >= t->n_ids || !t->tokens[json_integer_value(id)].bytes ||
            *n == MAX_TEMPLATE)
            return FAIL(ERR_DATA,
                        "%s: post_processor: \"%s\": an id outside the vocabulary, or "
                        "more than %d ids",
                        t->what, name, (int)MAX_TEMPLATE);
        list[(*n)++] = (int32_t)json_integer_value(id);
    }
    return OK;
}

/* single: what stands before the text, {"Sequence"}, what stands after it. */
static enum status read_template(struct tokenizer *t, const json_t *piece)
{
    const json_t *single = json_object_get(piece, "single");
    const json_t *special = json_object_get(piece, "special_tokens");
    int after_text = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *token = json_object_get(item, "SpecialToken");
        const char *name = json_string_value(json_object_get(token, "id"));
        if (json_object_get(item, "Sequence") && !after_text)
            after_text = 1;
        else if (name && after_text)
            TRY(add_template_ids(t, special, name, t->suffix, &t->n_suffix));
        else if (name)
            TRY(add_template_ids(t, special, name, t->prefix, &t->n_prefix));
        else
            return FAIL(ERR_DATA, "%s: post_processor: single[%zu] is not understood", t->what, i);
    }
    return OK;
}

static enum status read_post_processor(struct tokenizer *t, const json_t *piece)
{
    if (!piece || json_is_null(piece) || strcmp(type_of(piece), "ByteLevel") == 0)
        return OK;
    if (strcmp(type_of(piece), "TemplateProcessing") == 0)
        return read_template(t, piece);
    if (strcmp(type_of(piece), "Sequence") != 0)
        return unsupported(t, "post_processor", type_of(piece));
    const json_t *list = json_object_get(piece, "processors");
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(read_post_processor(t, json_array_get(list, i)));
    return OK;
}

static enum status check_decoder(const struct tokenizer *t, const json_t *piece)
{
    if (!piece || json_is_null(piece) || strcmp(type_of(piece), "ByteLevel") == 0)
        return OK;
    if (strcmp(type_of(piece), "Sequence") != 0)
        return unsupported(t, "decoder", type_of(piece));
    const json_t *list = json_object_get(piece, "decoders");
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(check_decoder(t, json_array_get(list, i)));
    return OK;
}

static enum status read_root(struct tokenizer *t, const json_t *root)
{
    const json_t *added = json_object_get(root, "added_tokens");
    const json_t *pre_tokenizer = json_object_get(root, "pre_tokenizer");
    int byte_level = 0;
    TRY(read_model(t, json_object_get(root, "model"), added));
    TRY(read_normalizer(t, json_object_get(root, "normalizer")));
    TRY(read_added(t, added));
    if (!pre_tokenizer || json_is_null(pre_tokenizer))
        return unsupported(t, "pre_tokenizer", "none");
    TRY(read_pre_tokenizer(t, pre_tokenizer, &byte_level));
    if (!byte_level)
        return unsupported(t, "pre_tokenizer", "without ByteLevel");
    TRY(read_post_processor(t, json_object_get(root, "post_processor")));
    TRY(check_decoder(t, json_object_get(root, "decoder")));
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
