/* token_array.c: reading ids out of an array of any of the id types, checked as they are read. */
#include <inttypes.h>
#include <string.h>

#include "data/token_file.h"

int token_dtype_bytes(enum token_dtype dtype)
{
    static const int n_bytes[] = {
        [TOKEN_NONE] = 0, [TOKEN_U16] = 2, [TOKEN_U32] = 4, [TOKEN_I32] = 4, [TOKEN_I64] = 8};
    return n_bytes[dtype];
}

enum token_dtype token_dtype_parse(const char *name)
{
    static const struct {
        const char *name;
        enum token_dtype dtype;
    } names[] = {{"uint16", TOKEN_U16}, {"u16", TOKEN_U16},   {"uint32", TOKEN_U32},
                 {"u32", TOKEN_U32},    {"int32", TOKEN_I32}, {"i32", TOKEN_I32},
                 {"int64", TOKEN_I64},  {"i64", TOKEN_I64}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i].name) == 0)
            return names[i].dtype;
    return TOKEN_NONE;
}

enum token_dtype token_dtype_for_vocab(int64_t vocab_size)
{
    return vocab_size <= 65536 ? TOKEN_U16 : TOKEN_U32;
}

static int64_t token_at(const struct token_array *a, int64_t i)
{
    const uint8_t *p = a->data + i * token_dtype_bytes(a->dtype);
    uint16_t u16;
    uint32_t u32;
    int64_t i64;
    switch (a->dtype) {
    case TOKEN_U16:
        memcpy(&u16, p, sizeof(u16));
        return u16;
    case TOKEN_U32:
        memcpy(&u32, p, sizeof(u32));
        return u32;
    case TOKEN_I32:
        memcpy(&u32, p, sizeof(u32));
        return (int32_t)u32;
    case TOKEN_I64:
        memcpy(&i64, p, sizeof(i64));
        return i64;
    case TOKEN_NONE:
        break;
    }
    return -1;
}

static enum status outside(const struct token_array *a, int64_t i, int64_t vocab_size)
{
    int64_t token = token_at(a, i);
    if (token < 0)
        return FAIL(ERR_DATA,
                    "%s: token %" PRId64 " at position %" PRId64
                    " is negative: not a file of token ids, or another token_dtype",
                    a->what, token, i);
    return FAIL(ERR_DATA,
                "%s: token %" PRId64 " at position %" PRId64
                " is outside the vocabulary of %" PRId64
                ": use the tokenizer that belongs to the model, or a model with vocab_size of at "
                "least %" PRId64,
                a->what, token, i, vocab_size, token + 1);
}

enum status token_array_read(const struct token_array *a, int64_t first, int64_t n,
                             int64_t vocab_size, int32_t *tokens, int32_t *labels)
{
    BUG_ON(first < 0 || n < 0 || first > a->n_tokens - n);
    for (int64_t k = 0; k < n; k++) {
        int64_t i = first + k, token = token_at(a, i);
        if (token < 0 || token >= vocab_size)
            return outside(a, i, vocab_size);
        tokens[k] = (int32_t)token;
        if (labels)
            labels[k] =
                !a->mask || (a->mask[i / 8] >> (i % 8) & 1) ? (int32_t)token : LABEL_IGNORED;
    }
    return OK;
}

enum status token_array_check(const struct token_array *a, int64_t first, int64_t n,
                              int64_t vocab_size)
{
    BUG_ON(first < 0 || n < 0 || first > a->n_tokens - n);
    for (int64_t i = first; i < first + n; i++)
        if (token_at(a, i) < 0 || token_at(a, i) >= vocab_size)
            return outside(a, i, vocab_size);
    return OK;
}
