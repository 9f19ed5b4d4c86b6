/* tokenizer_steps.c: the steps of tokenizer.json around its model: normalizer, pre-tokenizer,
 * post-processor, decoder.
 *
 * Byte-level files end their pre-tokenizer with ByteLevel. The others, in SentencePiece's manner,
 * write "▁" (U+2581) for a space, in one of two places:
 *
 *     normalizer     [Prepend "▁",] Replace " " by "▁"     Llama 2, Mistral, Gemma
 *     pre-tokenizer  Metaspace                             newer files of the same models
 *
 * Here a space stays a space: it is the vocabulary that is read with spaces for its "▁"
 * (tokenizer_json.c), and a "▁" in a text that becomes a space.
 */
#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer_json.h"

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static int is_string(const json_t *piece, const char *key, const char *value)
{
    const char *text = json_text(json_object_get(piece, key));
    return text && strcmp(text, value) == 0;
}

/* ---- normalizer ---- */

static int replaces(const json_t *piece, const char *from, const char *to)
{
    return is_string(json_object_get(piece, "pattern"), "String", from) &&
           is_string(piece, "content", to);
}

/* Unicode's normal forms come first in every file there is: what is put in later is normal. */
static enum status read_normal_form(struct tokenizer *t, const char *type)
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
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        if (strcmp(type, forms[i].name) != 0)
            continue;
        if (t->normalizer || t->marks_early || t->prepend)
            return piece_unsupported(t, "normalizer that is not the first", type);
        t->normalizer = forms[i].options;
        return OK;
    }
    return piece_unsupported(t, "normalizer", type);
}

static enum status read_normalizer_step(struct tokenizer *t, const json_t *piece)
{
    const char *type = piece_type(piece);
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(piece, "normalizers");
        for (size_t i = 0; i < json_array_size(list); i++)
            TRY(read_normalizer_step(t, json_array_get(list, i)));
        return OK;
    }
    if (t->characters && strcmp(type, "Replace") == 0 && replaces(piece, " ", SPACE_MARK))
        t->marks_early = 1;
    else if (t->characters && strcmp(type, "Prepend") == 0 && !t->prepend &&
             is_string(piece, "prepend", SPACE_MARK))
        t->prepend = 1;
    else
        return read_normal_form(t, type);
    return OK;
}

enum status read_normalizer(struct tokenizer *t, const json_t *piece)
{
    if (!piece || json_is_null(piece))
        return OK;
    TRY(read_normalizer_step(t, piece));
    if (t->prepend && !t->marks_early)
        return piece_unsupported(t, "normalizer", "Prepend without Replace");
    return OK;
}

/* ---- pre-tokenizer ---- */

static enum status add_stage(struct tokenizer *t, enum split_kind kind, const char *pattern,
                             enum pattern_kind pattern_kind)
{
    if (t->n_stages == MAX_SPLIT_STAGES)
        return FAIL(ERR_UNSUPPORTED, "%s: pre_tokenizer: more than %d steps", t->what,
                    (int)MAX_SPLIT_STAGES);
    struct split_stage *stage = &t->stages[t->n_stages++];
    stage->kind = kind;
    if (!pattern)
        return OK;
    enum status status = split_stage_compile(stage, &t->pool, pattern, pattern_kind);
    return status == OK ? OK : status_prefix(status, "%s: pre_tokenizer", t->what);
}

static enum status read_split(struct tokenizer *t, const json_t *split)
{
    const json_t *pattern = json_object_get(split, "pattern");
    const char *regex = json_text(json_object_get(pattern, "Regex"));
    const char *string = json_text(json_object_get(pattern, "String"));
    const char *behavior = json_text(json_object_get(split, "behavior"));
    int invert = json_is_true(json_object_get(split, "invert"));
    if (!regex && !string)
        return FAIL(ERR_DATA, "%s: pre_tokenizer Split has no pattern, or U+0000 in it", t->what);
    if (!behavior)
        return FAIL(ERR_DATA, "%s: pre_tokenizer Split has no behavior", t->what);
    /* Gemma: there is no space left to split at. */
    if (t->marks_early && string && strcmp(string, " ") == 0 && !invert)
        return OK;
    if (t->marks_early)
        return piece_unsupported(t, "pre_tokenizer after a normalizer of spaces", "Split");
    enum split_kind kind = SPLIT_REGEX;
    if (strcmp(behavior, "Removed") == 0 && invert)
        kind = SPLIT_REGEX_MATCHES;
    else if (strcmp(behavior, "Isolated") != 0)
        return piece_unsupported(t, "pre_tokenizer Split behavior", behavior);
    return add_stage(t, kind, regex ? regex : string, regex ? PATTERN_REGEX : PATTERN_STRING);
}

static enum status read_byte_level(struct tokenizer *t, const json_t *piece)
{
    if (piece_flag(piece, "add_prefix_space", 1))
        TRY(add_stage(t, SPLIT_PREFIX_SPACE, NULL, PATTERN_REGEX));
    if (piece_flag(piece, "use_regex", 1))
        TRY(add_stage(t, SPLIT_REGEX, gpt2_pattern, PATTERN_REGEX));
    return OK;
}

/* Older files say add_prefix_space where newer ones say prepend_scheme. */
static enum status read_metaspace(struct tokenizer *t, const json_t *piece)
{
    const char *scheme = json_text(json_object_get(piece, "prepend_scheme"));
    if (!is_string(piece, "replacement", SPACE_MARK))
        return piece_unsupported(t, "pre_tokenizer Metaspace", "another replacement than U+2581");
    if (!scheme)
        scheme = piece_flag(piece, "add_prefix_space", 1) ? "always" : "never";
    TRY(add_stage(t, SPLIT_SPACES, NULL, PATTERN_REGEX));
    struct split_stage *stage = &t->stages[t->n_stages - 1];
    stage->at_spaces = piece_flag(piece, "split", 1);
    if (strcmp(scheme, "always") == 0)
        stage->prepend = PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        stage->prepend = PREPEND_FIRST;
    else if (strcmp(scheme, "never") != 0)
        return piece_unsupported(t, "pre_tokenizer Metaspace prepend_scheme", scheme);
    return OK;
}

/* ByteLevel and Metaspace change the alphabet, so nothing can follow them: `last` is the one that
 * was there. */
static enum status read_pre_tokenizer_step(struct tokenizer *t, const json_t *piece,
                                           const char **last)
{
    const char *type = piece_type(piece);
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(piece, "pretokenizers");
        for (size_t i = 0; i < json_array_size(list); i++)
            TRY(read_pre_tokenizer_step(t, json_array_get(list, i), last));
        return OK;
    }
    if (*last)
        return FAIL(ERR_UNSUPPORTED, "%s: pre_tokenizer %s after %s is not supported", t->what,
                    type, *last);
    if (strcmp(type, "Split") == 0)
        return read_split(t, piece);
    if (strcmp(type, "Digits") == 0)
        return add_stage(t, SPLIT_REGEX, piece_flag(piece, "individual_digits", 0) ? "" : "+",
                         PATTERN_NUMERIC);
    *last = type;
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, piece);
    if (strcmp(type, "Metaspace") == 0 && t->characters)
        return read_metaspace(t, piece);
    return piece_unsupported(t, "pre_tokenizer", type);
}

int pre_tokenizer_is_byte_level(const json_t *piece)
{
    const json_t *list = json_object_get(piece, "pretokenizers");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (pre_tokenizer_is_byte_level(json_array_get(list, i)))
            return 1;
    return strcmp(piece_type(piece), "ByteLevel") == 0;
}

enum status read_pre_tokenizer(struct tokenizer *t, const json_t *piece)
{
    const char *last = NULL;
    if (piece && !json_is_null(piece))
        TRY(read_pre_tokenizer_step(t, piece, &last));
    if (!last && !t->marks_early)
        return piece_unsupported(t, "pre_tokenizer", "without ByteLevel or Metaspace");
    return OK;
}

/* ---- post-processor ---- */

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
        const char *name = json_text(json_object_get(token, "id"));
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

enum status read_post_processor(struct tokenizer *t, const json_t *piece)
{
    if (!piece || json_is_null(piece) || strcmp(piece_type(piece), "ByteLevel") == 0)
        return OK;
    if (strcmp(piece_type(piece), "TemplateProcessing") == 0)
        return read_template(t, piece);
    if (strcmp(piece_type(piece), "Sequence") != 0)
        return piece_unsupported(t, "post_processor", piece_type(piece));
    const json_t *list = json_object_get(piece, "processors");
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(read_post_processor(t, json_array_get(list, i)));
    return OK;
}

/* ---- decoder ---- */

/* What text loses at its front that encoding put there. A Metaspace decoder takes all spaces of the
 * first token, a Strip the first space. */
static enum status read_decoder_step(struct tokenizer *t, const json_t *piece)
{
    const char *type = piece_type(piece);
    if (strcmp(type, "Metaspace") == 0) {
        const char *scheme = json_text(json_object_get(piece, "prepend_scheme"));
        if (scheme ? strcmp(scheme, "never") != 0 : piece_flag(piece, "add_prefix_space", 1))
            t->strip = STRIP_FIRST_TOKEN;
        return OK;
    }
    if (strcmp(type, "Strip") == 0 && is_string(piece, "content", " ") &&
        json_integer_value(json_object_get(piece, "start")) <= 1 &&
        json_integer_value(json_object_get(piece, "stop")) == 0) {
        if (json_integer_value(json_object_get(piece, "start")) == 1)
            t->strip = STRIP_FIRST_SPACE;
        return OK;
    }
    if ((strcmp(type, "Replace") == 0 && replaces(piece, SPACE_MARK, " ")) ||
        strcmp(type, "ByteFallback") == 0 || strcmp(type, "Fuse") == 0)
        return OK;
    return piece_unsupported(t, "decoder", type);
}

enum status read_decoder(struct tokenizer *t, const json_t *piece)
{
    if (!piece || json_is_null(piece))
        return OK;
    if (strcmp(piece_type(piece), "Sequence") == 0) {
        const json_t *list = json_object_get(piece, "decoders");
        for (size_t i = 0; i < json_array_size(list); i++)
            TRY(read_decoder(t, json_array_get(list, i)));
        return OK;
    }
    if (t->characters)
        return read_decoder_step(t, piece);
    if (strcmp(piece_type(piece), "ByteLevel") != 0)
        return piece_unsupported(t, "decoder", piece_type(piece));
    return OK;
}
