/* tokenizer_bpe.c: byte-pair merging of one piece.
 *
 * The piece starts as its bytes' tokens, or as its characters'. As long as some adjacent pair has a
 * merge, the pair with the lowest rank (the leftmost of equals) becomes one token. A heap holds the
 * pairs, a doubly linked list the tokens, so a piece of n bytes takes O(n log n): a megabyte
 * without a space in it is no problem. Pairs that were overtaken by a merge stay in the heap and
 * are recognised when they come out, because one of their two tokens has changed.
 *
 * A merge joins two tokens, so it needs what the left one ends with beside what the right one
 * begins with. Between two bytes that no merge has so, none ever crosses, and the two sides are
 * pieces of their own: words, mostly, also where a file's pieces are whole texts. They are short,
 * and found again in the cache.
 */
#include <string.h>

#include "base/vec.h"
#include "data/tokenizer_internal.h"

static int comes_first(const struct merge_candidate *a, const struct merge_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static enum status heap_push(struct encoder *e, struct merge_candidate candidate)
{
    TRY(vec_reserve(&e->heap, 1));
    size_t i = e->heap.n++;
    while (i > 0 && comes_first(&candidate, &e->heap.items[(i - 1) / 2])) {
        e->heap.items[i] = e->heap.items[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->heap.items[i] = candidate;
    return OK;
}

static struct merge_candidate heap_pop(struct encoder *e)
{
    struct merge_candidate top = e->heap.items[0], last = e->heap.items[--e->heap.n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= e->heap.n)
            break;
        if (child + 1 < e->heap.n && comes_first(&e->heap.items[child + 1], &e->heap.items[child]))
            child++;
        if (!comes_first(&e->heap.items[child], &last))
            break;
        e->heap.items[i] = e->heap.items[child];
        i = child;
    }
    e->heap.items[i] = last;
    return top;
}

/* Queues the pair that starts at symbol `at`, if it has a merge. */
static enum status consider(struct encoder *e, int32_t at)
{
    if (at < 0 || e->symbols.items[at].next < 0)
        return OK;
    int32_t left = e->symbols.items[at].id;
    int32_t right = e->symbols.items[e->symbols.items[at].next].id;
    const struct merge_slot *merge = tokenizer_find_merge(e->t, (uint32_t)left, (uint32_t)right);
    if (!merge)
        return OK;
    return heap_push(e,
                     (struct merge_candidate){
                         .rank = merge->rank_plus_1 - 1, .at = at, .left = left, .right = right});
}

/* Id of a byte on its own; -1 with ERR_DATA's message set when it has none. */
static enum status byte_id(const struct tokenizer *t, uint8_t byte, int32_t *id)
{
    *id = t->byte_ids[byte] >= 0 ? t->byte_ids[byte] : t->unk_id;
    if (*id < 0)
        return FAIL(ERR_DATA,
                    "%s: byte 0x%02X has no token and there is no unk_token: this vocabulary "
                    "cannot encode the text; use a tokenizer with all 256 bytes",
                    t->what, byte);
    return OK;
}

static void add_symbol(struct encoder *e, int32_t id)
{
    int32_t at = (int32_t)e->symbols.n++;
    e->symbols.items[at] = (struct symbol){.id = id, .previous = at - 1, .next = at + 1};
}

static enum status start_with_bytes(struct encoder *e, const char *piece, size_t n_bytes)
{
    const struct tokenizer *t = e->t;
    int last_was_unknown = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        uint8_t byte = (uint8_t)piece[i];
        int unknown = t->byte_ids[byte] < 0;
        int32_t id;
        TRY(byte_id(t, byte, &id));
        if (unknown && last_was_unknown && t->fuse_unk)
            continue;
        last_was_unknown = unknown;
        add_symbol(e, id);
    }
    return OK;
}

static int all_bytes_have_tokens(const struct tokenizer *t, const char *bytes, size_t n)
{
    int all = t->byte_fallback;
    for (size_t i = 0; i < n; i++)
        all = all && t->byte_ids[(uint8_t)bytes[i]] >= 0;
    return all;
}

/* The unknown token waits for the next character that has a token: with fuse_unk, for all that have
 * none. Bytes do not end its wait; the format's own implementation has it so. */
static enum status start_with_characters(struct encoder *e, const char *piece, size_t n_bytes)
{
    const struct tokenizer *t = e->t;
    int waiting = 0;
    for (size_t i = 0, n; i < n_bytes; i += n) {
        n = character_length(piece + i, n_bytes - i);
        int32_t id = tokenizer_find_bytes(t, piece + i, n);
        if (id < 0 && all_bytes_have_tokens(t, piece + i, n)) {
            for (size_t k = 0; k < n; k++)
                add_symbol(e, t->byte_ids[(uint8_t)piece[i + k]]);
            continue;
        }
        if (id < 0 && t->unk_id < 0)
            return FAIL(ERR_DATA,
                        "%s: \"%.*s\" has no token, and there are no bytes' tokens and no "
                        "unk_token: this vocabulary cannot encode the text",
                        t->what, (int)n, piece + i);
        if (waiting && (id >= 0 || !t->fuse_unk))
            add_symbol(e, t->unk_id);
        if (id >= 0)
            add_symbol(e, id);
        waiting = id < 0;
    }
    if (waiting)
        add_symbol(e, t->unk_id);
    return OK;
}

static enum status start_symbols(struct encoder *e, const char *piece, size_t n_bytes)
{
    e->symbols.n = 0;
    e->heap.n = 0;
    TRY(vec_reserve(&e->symbols, n_bytes));
    if (e->t->characters)
        TRY(start_with_characters(e, piece, n_bytes));
    else
        TRY(start_with_bytes(e, piece, n_bytes));
    e->symbols.items[e->symbols.n - 1].next = -1;
    return OK;
}

static enum status merge_symbols(struct encoder *e)
{
    struct symbol *symbols = e->symbols.items;
    for (size_t i = 0; i + 1 < e->symbols.n; i++)
        TRY(consider(e, (int32_t)i));
    while (e->heap.n > 0) {
        struct merge_candidate c = heap_pop(e);
        struct symbol *left = &symbols[c.at];
        if (left->id != c.left || left->next < 0 || symbols[left->next].id != c.right)
            continue;
        struct symbol *right = &symbols[left->next];
        left->id = (int32_t)tokenizer_find_merge(e->t, (uint32_t)c.left, (uint32_t)c.right)->merged;
        left->next = right->next;
        right->id = -1; /* dead: no candidate has this id */
        if (left->next >= 0)
            symbols[left->next].previous = c.at;
        TRY(consider(e, left->previous));
        TRY(consider(e, c.at));
    }
    return OK;
}

static struct cache_slot *cache_slot_of(struct encoder *e, const char *piece, size_t n_bytes)
{
    if (!e->cache || n_bytes > CACHED_BYTES)
        return NULL;
    return &e->cache[(size_t)bytes_hash(piece, n_bytes) & e->cache_mask];
}

static void cache_store(struct cache_slot *slot, const char *piece, size_t n_bytes,
                        const int32_t *ids, size_t n_ids)
{
    if (!slot || n_ids > CACHED_IDS)
        return;
    slot->n_bytes = (uint8_t)n_bytes;
    slot->n_ids = (uint8_t)n_ids;
    memcpy(slot->bytes, piece, n_bytes);
    memcpy(slot->ids, ids, n_ids * sizeof(*ids));
}

/* Without merges a piece, which may be a whole file, is its bytes. */
static enum status encode_bytes(struct encoder *e, const char *piece, size_t n_bytes,
                                struct token_list *out)
{
    const int32_t *ids = e->t->byte_ids;
    TRY(vec_reserve(out, n_bytes));
    for (size_t i = 0; i < n_bytes; i++) {
        int32_t id = ids[(uint8_t)piece[i]];
        if (id < 0)
            TRY(byte_id(e->t, (uint8_t)piece[i], &id));
        out->items[out->n++] = id;
    }
    return OK;
}

/* The byte that a character counts as beside its neighbours: its first one or its last. */
static uint8_t edge_byte(const struct tokenizer *t, const char *character, size_t n, int last)
{
    const size_t n_mark = sizeof(SPACE_MARK) - 1;
    if (t->characters && n == n_mark && memcmp(character, SPACE_MARK, n_mark) == 0)
        return ' '; /* which it will be when it is merged */
    return (uint8_t)character[last ? n - 1 : 0];
}

/* Whether no merge crosses the place between piece[left..at) and piece[at..right), two characters,
 * and no unknown token either: several unknown characters may be one. */
static int is_boundary(const struct tokenizer *t, const char *piece, size_t left, size_t at,
                       size_t right)
{
    uint8_t l = edge_byte(t, piece + left, at - left, 1);
    uint8_t r = edge_byte(t, piece + at, right - at, 0);
    if (t->joins[l][r / 8] >> (r % 8) & 1)
        return 0;
    if (t->all_known)
        return 1;
    return t->characters ? tokenizer_find_bytes(t, piece + left, at - left) >= 0
                         : t->byte_ids[(uint8_t)piece[at - 1]] >= 0;
}

static size_t symbol_length(const struct tokenizer *t, const char *text, size_t n_bytes)
{
    return t->characters ? character_length(text, n_bytes) : 1;
}

static size_t symbol_before(const struct tokenizer *t, const char *text, size_t end)
{
    size_t start = end - 1;
    while (t->characters && start > 0 && ((uint8_t)text[start] & 0xC0) == 0x80)
        start--;
    return start;
}

size_t bpe_boundary(const struct tokenizer *t, const char *piece, size_t n_bytes)
{
    if (t->ignore_merges || n_bytes == 0) /* a piece may be a token as a whole */
        return 0;
    size_t right = n_bytes, at = symbol_before(t, piece, n_bytes);
    while (at > 0) {
        size_t left = symbol_before(t, piece, at);
        if (is_boundary(t, piece, left, at, right))
            return at;
        right = at;
        at = left;
    }
    return 0;
}

/* Bytes up to the first boundary, or all. */
static size_t word_length(const struct tokenizer *t, const char *piece, size_t n_bytes)
{
    size_t left = 0, at = symbol_length(t, piece, n_bytes);
    while (at < n_bytes) {
        size_t right = at + symbol_length(t, piece + at, n_bytes - at);
        if (is_boundary(t, piece, left, at, right))
            return at;
        left = at;
        at = right;
    }
    return n_bytes;
}

static enum status encode_word(struct encoder *e, const char *piece, size_t n_bytes,
                               struct token_list *out)
{
    if (n_bytes > INT32_MAX)
        return FAIL(ERR_DATA, "%s: a single piece of text has %zu bytes; split the text into lines",
                    e->t->what, n_bytes);
    struct cache_slot *slot = cache_slot_of(e, piece, n_bytes);
    if (slot && slot->n_bytes == n_bytes && memcmp(slot->bytes, piece, n_bytes) == 0) {
        TRY(vec_reserve(out, slot->n_ids));
        memcpy(out->items + out->n, slot->ids, slot->n_ids * sizeof(*slot->ids));
        out->n += slot->n_ids;
        return OK;
    }
    TRY(start_symbols(e, piece, n_bytes));
    TRY(merge_symbols(e));
    size_t first = out->n;
    TRY(vec_reserve(out, e->symbols.n));
    for (int32_t i = 0; i >= 0; i = e->symbols.items[i].next)
        out->items[out->n++] = e->symbols.items[i].id;
    cache_store(slot, piece, n_bytes, out->items + first, out->n - first);
    return OK;
}

enum status bpe_encode_piece(struct encoder *e, const char *piece, size_t n_bytes,
                             struct token_list *out)
{
    const struct tokenizer *t = e->t;
    if (n_bytes == 0)
        return OK;
    if (t->n_merges == 0 && !t->fuse_unk && !t->ignore_merges && !t->characters)
        return encode_bytes(e, piece, n_bytes, out);
    if (t->ignore_merges) {
        int32_t id = tokenizer_find_bytes(t, piece, n_bytes);
        if (id >= 0)
            return vec_push(out, id);
    }
    if (n_bytes <= CACHED_BYTES)
        return encode_word(e, piece, n_bytes, out);
    for (size_t at = 0; at < n_bytes;) {
        size_t n = word_length(t, piece + at, n_bytes - at);
        TRY(encode_word(e, piece + at, n, out));
        at += n;
    }
    return OK;
}

enum status bpe_encode_byte(struct encoder *e, uint8_t byte, struct token_list *out)
{
    int32_t id;
    TRY(byte_id(e->t, byte, &id));
    return vec_push(out, id);
}
