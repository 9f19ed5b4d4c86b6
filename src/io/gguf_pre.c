/* gguf_pre.c: see gguf_pre.h. */
#include "io/gguf_pre.h"

#include <string.h>

#include "base/compiler.h"
#include "base/json.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define MARKS        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE       "[^\\r\\n\\p{L}\\p{N}]?"
#define SLASHES      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Patterns by the names of models that have them. */
static const struct {
    const char *pattern, *name;
    bool whole_words; /* a word that is a token is that, whatever the merges (ignore_merges) */
} patterns[] = {
    {CONTRACTIONS "|" WORDS "|\\p{N}{1,3}|" MARKS, "llama-bpe", true},
    {CONTRACTIONS "|" WORDS "|\\p{N}{1,3}|" MARKS, "dbrx", false},
    {CONTRACTIONS "|" WORDS "|\\p{N}|" MARKS, "qwen2", false},
    {BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}|" SLASHES, "tekken", true},
    {BEFORE UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE UPPER "+" LOWER "*" CONTRACTIONS
                  "?|\\p{N}{1,3}|" SLASHES,
     "gpt-4o", false},
};

static bool is(const json_t *step, const char *type)
{
    const char *text = json_text(json_object_get(step, "type"));
    return text && strcmp(text, type) == 0;
}

/* ByteLevel as GPT-2 has it, with its own pattern. */
static bool is_gpt2(const json_t *step)
{
    const json_t *regex = json_object_get(step, "use_regex");
    return is(step, "ByteLevel") && !json_is_true(json_object_get(step, "add_prefix_space")) &&
           (!regex || json_is_true(regex));
}

static const char *named_pattern(const json_t *split, bool whole_words)
{
    const char *pattern = json_text(json_object_get(json_object_get(split, "pattern"), "Regex"));
    for (size_t i = 0; pattern && i < ARRAY_LEN(patterns); i++)
        if (strcmp(patterns[i].pattern, pattern) == 0 && patterns[i].whole_words == whole_words)
            return patterns[i].name;
    return NULL;
}

static const char *name_of(const json_t *root)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const json_t *steps = json_object_get(pre, "pretokenizers");
    const json_t *first = json_array_get(steps, 0), *last = json_array_get(steps, 1);
    bool whole_words =
        json_is_true(json_object_get(json_object_get(root, "model"), "ignore_merges"));
    if (is_gpt2(pre))
        return "gpt-2";
    if (!is(pre, "Sequence") || json_array_size(steps) != 2 || !is(last, "ByteLevel"))
        return NULL;
    if (is(first, "Digits") && json_is_true(json_object_get(first, "individual_digits")))
        return is_gpt2(last) ? "smollm" : NULL;
    return is(first, "Split") && !is_gpt2(last) ? named_pattern(first, whole_words) : NULL;
}

enum status gguf_pre_tokenizer(const char **name, const json_t *root, const char *path)
{
    *name = name_of(root);
    return *name ? OK
                 : FAIL(ERR_UNSUPPORTED,
                        "%s: pre_tokenizer: GGUF has names for the ways of GPT-2, Llama 3, Qwen, "
                        "OLMo, Mistral, SmolLM and GPT-4o to split text, and this is none of them; "
                        "export a folder instead (-o DIR)",
                        path);
}

static bool prepends(const json_t *step)
{
    size_t i;
    const json_t *inner;
    json_array_foreach(json_object_get(step, "normalizers"), i, inner)
    {
        if (prepends(inner))
            return true;
    }
    return is(step, "Prepend");
}

bool gguf_adds_space(const json_t *root)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const char *scheme = json_text(json_object_get(pre, "prepend_scheme"));
    if (is(pre, "Metaspace"))
        return !scheme || strcmp(scheme, "never") != 0;
    return prepends(json_object_get(root, "normalizer"));
}
