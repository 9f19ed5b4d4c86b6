/* tokenizer_table.c: the tables of a vocabulary: bytes to id, pair of ids to merge, and the
 * alphabet in which byte-level vocabularies spell their tokens.
 *
 * Both hash tables use open addressing with linear probing and are at most half full. They are
 * built once, from data whose size is known, and only read afterwards.
 */
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "data/tokenizer_internal.h"

uint64_t bytes_hash(const char *bytes, size_t n_bytes)
{
    return XXH3_64bits(bytes, n_bytes);
}

static int stands_for_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
           (byte >= 0xAE && byte <= 0xFF);
}

void byte_level_alphabet(uint32_t code_points[256])
{
    uint32_t n_moved = 0;
    for (uint32_t byte = 0; byte < 256; byte++)
        code_points[byte] = stands_for_itself(byte) ? byte : 0x100 + n_moved++;
}

/* The moved bytes are 0x00..0x20, 0x7F..0xA0 and 0xAD, in this order from U+0100 on. */
int byte_level_byte(uint32_t code_point)
{
    if (code_point < 0x100)
        return stands_for_itself(code_point) ? (int)code_point : -1;
    uint32_t i = code_point - 0x100;
    if (i < 0x21)
        return (int)i;
    if (i < 0x21 + 0x22)
        return (int)(0x7F + (i - 0x21));
    return i == 0x21 + 0x22 ? 0xAD : -1;
}

int byte_level_decode(const char *text, size_t n, char *out, size_t *n_out)
{
    *n_out = 0;
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t code_point;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text + i,
                                                   (utf8proc_ssize_t)(n - i), &code_point);
        int byte = length > 0 ? byte_level_byte((uint32_t)code_point) : -1;
        if (byte < 0)
            return 0;
        out[(*n_out)++] = (char)byte;
        i += (size_t)length;
    }
    return 1;
}

size_t character_length(const char *text, size_t n_bytes)
{
    size_t n = 1;
    while (n < n_bytes && ((uint8_t)text[n] & 0xC0) == 0x80)
        n++;
    return n;
}

int byte_token_byte(const char *name)
{
    static const char digits[] = "0123456789ABCDEF";
    if (strlen(name) != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>')
        return -1;
    const char *high = strchr(digits, name[3]), *low = strchr(digits, name[4]);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

size_t unmark_spaces(const char *text, size_t n_bytes, char *out)
{
    const size_t n_mark = sizeof(SPACE_MARK) - 1;
    size_t n_out = 0;
    for (size_t i = 0; i < n_bytes;) {
        int mark = n_bytes - i >= n_mark && memcmp(text + i, SPACE_MARK, n_mark) == 0;
        out[n_out++] = mark ? ' ' : text[i];
        i += mark ? n_mark : 1;
    }
    return n_out;
}

static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

/* Added tokens stay out: ordinary text must not turn into one by its bytes alone. */
enum status tokenizer_index_bytes(struct tokenizer *t)
{
    size_t size = table_size((size_t)t->n_ids);
    TRY(mem_try_array(&t->by_bytes, size, sizeof(*t->by_bytes)));
    t->by_bytes_mask = size - 1;
    for (int64_t id = 0; id < t->n_ids; id++) {
        const struct token_text *token = &t->tokens[id];
        if (!token->bytes || token->no_lookup)
            continue;
        size_t i = (size_t)bytes_hash(token->bytes, token->n_bytes) & t->by_bytes_mask;
        while (t->by_bytes[i])
            i = (i + 1) & t->by_bytes_mask;
        t->by_bytes[i] = (uint32_t)id + 1;
    }
    t->all_known = !t->characters || t->byte_fallback;
    for (int byte = 0; byte < 256; byte++)
        t->all_known = t->all_known && t->byte_ids[byte] >= 0;
    return OK;
}

int32_t tokenizer_find_bytes(const struct tokenizer *t, const char *bytes, size_t n)
{
    size_t i = (size_t)bytes_hash(bytes, n) & t->by_bytes_mask;
    for (; t->by_bytes[i]; i = (i + 1) & t->by_bytes_mask) {
        const struct token_text *token = &t->tokens[t->by_bytes[i] - 1];
        if (token->n_bytes == n && memcmp(token->bytes, bytes, n) == 0)
            return (int32_t)(t->by_bytes[i] - 1);
    }
    return -1;
}

enum status tokenizer_reserve_merges(struct tokenizer *t, size_t n)
{
    size_t size = table_size(n);
    TRY(mem_try_array(&t->merges, size, sizeof(*t->merges)));
    t->merges_mask = size - 1;
    return OK;
}

static struct merge_slot *merge_slot_of(const struct tokenizer *t, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(key >> 32) & t->merges_mask;
    struct merge_slot *slot = &t->merges[i];
    while (slot->rank_plus_1 && (slot->left != left || slot->right != right)) {
        i = (i + 1) & t->merges_mask;
        slot = &t->merges[i];
    }
    return slot;
}

/* A pair listed twice keeps its later rank, as in the format's own implementation. */
void tokenizer_add_merge(struct tokenizer *t, uint32_t left, uint32_t right, uint32_t rank,
                         uint32_t merged)
{
    *merge_slot_of(t, left, right) = (struct merge_slot){
        .left = left, .right = right, .rank_plus_1 = rank + 1, .merged = merged};
    t->n_merges++;
    const struct token_text *l = &t->tokens[left], *r = &t->tokens[right];
    if (l->n_bytes == 0 || r->n_bytes == 0) {
        memset(t->joins, 0xFF, sizeof(t->joins)); /* a token of nothing is next to anything */
        return;
    }
    uint8_t byte = (uint8_t)r->bytes[0];
    t->joins[(uint8_t)l->bytes[l->n_bytes - 1]][byte / 8] |= (uint8_t)(1u << (byte % 8));
}

const struct merge_slot *tokenizer_find_merge(const struct tokenizer *t, uint32_t left,
                                              uint32_t right)
{
    const struct merge_slot *slot = merge_slot_of(t, left, right);
    return slot->rank_plus_1 ? slot : NULL;
}
