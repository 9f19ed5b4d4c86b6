/* token_array.c: reading ids out of an array of any of the id types, checked as they are read. */
#include <inttypes.h>
#include <string.h>

#include "data/token_file.h"

enum { CHUNK_TOKENS = 2048, WIDEST = 8 }; /* read at a time, on the stack */

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

static int64_t token_at(enum token_dtype dtype, const uint8_t *p)
{
    uint16_t u16;
    uint32_t u32;
    int64_t i64;
    switch (dtype) {
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

static enum status outside(const struct token_array *a, int64_t i, int64_t token,
                           int64_t vocab_size)
{
    if (token < 0 || token >= INT32_MAX) /* no vocabulary is as large */
        return FAIL(ERR_DATA,
                    "%s: token %" PRId64 " at position %" PRId64
                    " is %s: not a file of token ids, or another token_dtype",
                    a->what, token, i, token < 0 ? "negative" : "too large to be one");
    return FAIL(ERR_DATA,
                "%s: token %" PRId64 " at position %" PRId64
                " is outside the vocabulary of %" PRId64
                ": use the tokenizer that belongs to the model, or a model whose vocab_size is at "
                "least the tokenizer's",
                a->what, token, i, vocab_size);
}

static enum status take_bytes(const struct token_array *a, int64_t at, uint8_t *out, size_t n)
{
    if (a->file) /* data that cannot be read is bad data: the file was cut short, perhaps */
        return file_in_read(a->file, at, out, n) == OK ? OK : ERR_DATA;
    memcpy(out, a->memory + at, n);
    return OK;
}

/* At most CHUNK_TOKENS of them. */
static enum status read_ids(const struct token_array *a, int64_t first, int64_t n,
                            int64_t vocab_size, int32_t *tokens)
{
    uint8_t bytes[CHUNK_TOKENS * WIDEST];
    int64_t width = token_dtype_bytes(a->dtype);
    TRY(take_bytes(a, a->first + first * width, bytes, (size_t)(n * width)));
    for (int64_t k = 0; k < n; k++) {
        int64_t token = token_at(a->dtype, bytes + k * width);
        if (token < 0 || token >= vocab_size)
            return outside(a, first + k, token, vocab_size);
        tokens[k] = (int32_t)token;
    }
    return OK;
}

static enum status read_labels(const struct token_array *a, int64_t first, int64_t n,
                               const int32_t *tokens, int32_t *labels)
{
    uint8_t bits[CHUNK_TOKENS / 8 + 2];
    memcpy(labels, tokens, (size_t)n * sizeof(*labels));
    if (!a->mask)
        return OK;
    int64_t from = first / 8, to = (first + n + 7) / 8;
    TRY(take_bytes(a, a->mask + from, bits, (size_t)(to - from)));
    for (int64_t k = 0; k < n; k++) {
        int64_t bit = first + k - 8 * from;
        if (!(bits[bit / 8] >> (bit % 8) & 1))
            labels[k] = LABEL_IGNORED;
    }
    return OK;
}

enum status token_array_read(const struct token_array *a, int64_t first, int64_t n,
                             int64_t vocab_size, int32_t *tokens, int32_t *labels)
{
    BUG_ON(first < 0 || n < 0 || first > a->n_tokens - n);
    for (int64_t done = 0; done < n; done += CHUNK_TOKENS) {
        int64_t here = MIN(n - done, (int64_t)CHUNK_TOKENS);
        TRY(read_ids(a, first + done, here, vocab_size, tokens + done));
        if (labels)
            TRY(read_labels(a, first + done, here, tokens + done, labels + done));
    }
    return OK;
}

enum status token_array_check(const struct token_array *a, int64_t first, int64_t n,
                              int64_t vocab_size)
{
    int32_t tokens[CHUNK_TOKENS];
    BUG_ON(first < 0 || n < 0 || first > a->n_tokens - n);
    for (int64_t done = 0; done < n; done += CHUNK_TOKENS)
        TRY(read_ids(a, first + done, MIN(n - done, (int64_t)CHUNK_TOKENS), vocab_size, tokens));
    return OK;
}
