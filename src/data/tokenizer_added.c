/* tokenizer_added.c: finding added tokens ("<|endoftext|>") in a text: the leftmost, and of those
 * that start there the longest.
 *
 * Files have a handful to a few thousand of them, nearly all starting with the same byte, so a
 * list by first byte is enough: text without that byte is passed over at one comparison a byte.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "data/tokenizer_internal.h"

static int by_first_byte_longest_first(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;
    uint8_t fx = (uint8_t)x->text[0], fy = (uint8_t)y->text[0];
    if (fx != fy)
        return fx < fy ? -1 : 1;
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes > y->n_bytes ? -1 : 1;
    int order = memcmp(x->text, y->text, x->n_bytes);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

enum status added_set_build(struct added_set *set, struct pool *pool,
                            const struct added_token *tokens, size_t n)
{
    TRY(pool_try(pool, &set->tokens, (n + 1) * sizeof(*tokens)));
    set->n = 0;
    for (size_t i = 0; i < n; i++)
        if (tokens[i].n_bytes > 0)
            set->tokens[set->n++] = tokens[i];
    qsort(set->tokens, set->n, sizeof(*tokens), by_first_byte_longest_first);
    for (size_t i = 0; i < set->n; i++) {
        const struct added_token *token = &set->tokens[i];
        set->first[(uint8_t)token->text[0] + 1]++;
        set->longest = MAX(set->longest, token->n_bytes);
        set->any_lstrip |= token->lstrip;
        set->any_single_word |= token->single_word;
    }
    for (int byte = 0; byte < 256; byte++)
        set->first[byte + 1] += set->first[byte];
    return OK;
}

static size_t code_point_at(const char *text, size_t n_bytes, size_t at, int32_t *code_point)
{
    utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                               (utf8proc_ssize_t)(n_bytes - at), code_point);
    return length > 0 ? (size_t)length : 1;
}

/* Start of the character that ends at `end` (> 0). */
static size_t character_before(const char *text, size_t end)
{
    size_t start = end - 1;
    while (start > 0 && ((uint8_t)text[start] & 0xC0) == 0x80)
        start--;
    return start;
}

static int is_space(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return (c >= 0x09 && c <= 0x0D) || c == 0x85 ||
           (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

static int is_word(int32_t c)
{
    static const struct {
        int32_t first, last;
    } ranges[] = {
#define RANGE(first, last) {first, last},
#include "data/word_characters.def"
#undef RANGE
    };
    size_t low = 0, high = ARRAY_LEN(ranges);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < ARRAY_LEN(ranges) && c >= ranges[low].first;
}

static int stands_alone(const char *text, size_t n_bytes, size_t start, size_t end)
{
    int32_t c;
    if (start > 0) {
        (void)code_point_at(text, start, character_before(text, start), &c);
        if (is_word(c))
            return 0;
    }
    if (end < n_bytes) {
        (void)code_point_at(text, n_bytes, end, &c);
        if (is_word(c))
            return 0;
    }
    return 1;
}

static size_t strip_left(const char *text, size_t from, size_t start)
{
    while (start > from) {
        int32_t c;
        size_t before = character_before(text, start);
        (void)code_point_at(text, start, before, &c);
        if (!is_space(c))
            break;
        start = before;
    }
    return start < from ? from : start;
}

static size_t strip_right(const char *text, size_t n_bytes, size_t end)
{
    while (end < n_bytes) {
        int32_t c;
        size_t length = code_point_at(text, n_bytes, end, &c);
        if (!is_space(c))
            break;
        end += length;
    }
    return end;
}

/* The longest token at `at` is what counts there, even when it is then refused: a shorter one
 * inside it is not tried, as in the format's own implementation. */
static const struct added_token *token_at(const struct added_set *set, const char *text,
                                          size_t n_bytes, size_t at)
{
    uint8_t byte = (uint8_t)text[at];
    for (uint32_t i = set->first[byte]; i < set->first[byte + 1]; i++) {
        const struct added_token *token = &set->tokens[i];
        if (token->n_bytes <= n_bytes - at && memcmp(token->text, text + at, token->n_bytes) == 0)
            return token;
    }
    return NULL;
}

struct added_match added_set_find(const struct added_set *set, const char *text, size_t n_bytes,
                                  const struct added_match *before, int skip_special)
{
    size_t at = set->n ? before->searched : n_bytes;
    while (at < n_bytes) {
        const struct added_token *token = token_at(set, text, n_bytes, at);
        if (!token) {
            at++;
            continue;
        }
        size_t start = at, end = at + token->n_bytes;
        at = end;
        if (token->special && skip_special)
            continue;
        if (token->single_word && !stands_alone(text, n_bytes, start, end))
            continue;
        if (token->lstrip)
            start = strip_left(text, before->end, start);
        if (token->rstrip)
            end = strip_right(text, n_bytes, end);
        return (struct added_match){
            .id = token->id, .start = MAX(start, before->end), .end = end, .searched = at};
    }
    return (struct added_match){.id = -1, .start = n_bytes, .end = n_bytes, .searched = n_bytes};
}

/* One that ends so far before the end that the longest token fits behind it: no longer token can
 * begin where it begins, and the space it strips has ended. */
int added_match_is_final(const struct added_set *set, struct added_match m, size_t n_bytes)
{
    return m.id >= 0 && n_bytes - m.end >= set->longest;
}

size_t added_set_clear(const struct added_set *set, const char *text, size_t n_bytes, size_t from)
{
    if (set->n == 0)
        return n_bytes;
    if (n_bytes - from < set->longest)
        return from;
    size_t end =
        n_bytes - set->longest + 1; /* a token may begin here, and end where we do not see */
    while (end > from && end < n_bytes && ((uint8_t)text[end] & 0xC0) == 0x80)
        end--;
    return set->any_lstrip ? strip_left(text, from, end) : end;
}

size_t added_set_around(const struct added_set *set, const char *text, size_t n_bytes, size_t cut)
{
    size_t at = cut > set->longest ? cut - set->longest : 0;
    for (; set->any_single_word && at <= cut && at < n_bytes; at++) {
        uint8_t byte = (uint8_t)text[at];
        for (uint32_t i = set->first[byte]; i < set->first[byte + 1]; i++) {
            const struct added_token *token = &set->tokens[i];
            if (token->single_word && at + token->n_bytes > cut && token->n_bytes <= n_bytes - at &&
                memcmp(token->text, text + at, token->n_bytes) == 0)
                return at;
        }
    }
    return SIZE_MAX;
}
