/* tokenizer_internal.h: what the parts of the tokenizer share. Not for other folders.
 *
 *     text ── added tokens (raw) ── normalise ── added tokens (normalised) ── split ── BPE ── ids
 *             tokenizer_added.c     tokenizer_normalize.c                     _split.c  _bpe.c
 *
 * tokenizer_json.c and tokenizer_steps.c fill struct tokenizer; tokenizer_encode.c runs the line
 * above, tokenizer_part.c the same over a text that comes in parts. Pieces are bytes (byte-level
 * files) or characters, and a space is a space in both: see tokenizer_steps.c.
 */
#ifndef SNUG_DATA_TOKENIZER_INTERNAL_H
#define SNUG_DATA_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/pool.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What stands for a space in files that are not byte-level: U+2581. */
#define SPACE_MARK "\xE2\x96\x81"

struct token_text {
    const char *bytes; /* NULL: no token has this id */
    uint32_t n_bytes;
    uint8_t is_special;
    uint8_t no_lookup; /* bytes of ordinary text never become this token */
};

/* Pair of adjacent tokens -> their merge. Open addressing, a power of two slots. */
struct merge_slot {
    uint32_t left, right;
    uint32_t rank_plus_1; /* 0: empty slot */
    uint32_t merged;
};

struct added_token {
    const char *text; /* normalised when `normalized` */
    uint32_t n_bytes;
    int32_t id;
    uint8_t lstrip, rstrip, single_word, normalized, special;
};

/* Added tokens that are looked for in one pass, ordered by first byte, then longest first. */
struct added_set {
    struct added_token *tokens;
    size_t n;
    uint32_t first[257]; /* tokens[first[b] .. first[b + 1]) begin with byte b */
    uint32_t longest;    /* bytes of the longest */
    int any_lstrip, any_single_word;
};

enum split_kind {
    SPLIT_REGEX,         /* matches, and what lies between them, are pieces */
    SPLIT_REGEX_MATCHES, /* only the matches are (Removed + invert) */
    SPLIT_PREFIX_SPACE,  /* a space in front of a piece that has none */
    SPLIT_SPACES,        /* the same, perhaps; then pieces begin at spaces, perhaps (Metaspace) */
};

enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS }; /* first: where the text begins */

struct split_stage {
    enum split_kind kind;
    pcre2_code *code;
    const char *pattern;  /* for messages */
    int looks_back;       /* a match depends on what stands before it */
    enum prepend prepend; /* of SPLIT_SPACES, */
    int at_spaces;        /* and whether it cuts */
};

/* What decoding takes away at the front. */
enum strip { STRIP_NOTHING, STRIP_FIRST_SPACE, STRIP_FIRST_TOKEN /* all its spaces */ };

enum { MAX_SPLIT_STAGES = 16, MAX_TEMPLATE = 16 };

struct tokenizer {
    struct pool pool;
    const char *what; /* the file, for messages */
    uint64_t fingerprint;

    struct token_text *tokens; /* [n_ids] */
    int64_t n_ids;
    uint32_t *by_bytes; /* id + 1, hashed by bytes; 0 = empty */
    size_t by_bytes_mask;
    int32_t byte_ids[256]; /* -1: this byte has no token */

    struct merge_slot *merges;
    size_t merges_mask, n_merges;
    uint8_t joins[256][32]; /* bit r of joins[l]: some merge joins ...l with r... (bytes) */
    int all_known;          /* no text has an unknown character */

    int32_t unk_id;
    int fuse_unk, ignore_merges;
    int characters;    /* pieces begin as characters, not as bytes */
    int byte_fallback; /* a character without a token is the tokens of its bytes */

    int normalizer;  /* utf8proc options; 0 = none */
    int marks_early; /* it marks spaces: after it there are none for a pattern to find */
    int prepend;     /* and puts one in front */
    enum strip strip;
    struct added_set added_raw, added_normalized;
    struct split_stage stages[MAX_SPLIT_STAGES];
    int n_stages;

    int32_t prefix[MAX_TEMPLATE], suffix[MAX_TEMPLATE];
    int n_prefix, n_suffix;
    int32_t bos, eos, pad;
};

/* A piece's ids as they came out last time. Direct-mapped by hash. */
enum { CACHED_BYTES = 30, CACHED_IDS = 8 };
struct cache_slot {
    uint8_t n_bytes, n_ids; /* n_bytes 0: empty */
    char bytes[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
};

struct symbol {
    int32_t id;
    int32_t previous, next; /* -1 at the ends */
};

struct merge_candidate {
    uint32_t rank;
    int32_t at; /* index of the left symbol */
    int32_t left, right;
};

/* What lies in front of a piece of text. */
enum place_kind {
    PLACE_TEXT, /* nothing: the text begins */
    PLACE_RUN,  /* something that ends before it: an added token, a byte that is no UTF-8 */
    PLACE_PART, /* more of the same, cut inside the pieces of the first `depth` stages */
};
struct part_place {
    enum place_kind kind;
    int depth;
};

struct encoder {
    const struct tokenizer *t;
    pcre2_match_data *match;
    pcre2_match_context *match_context;
    struct cache_slot *cache; /* NULL: none */
    size_t cache_mask;
    struct {
        struct symbol *items;
        size_t n, capacity;
    } symbols;
    struct {
        struct merge_candidate *items;
        size_t n, capacity;
    } heap;
    struct {
        int32_t *items;
        size_t n, capacity;
    } codepoints;
    struct str prefixed[MAX_SPLIT_STAGES];
    struct str spaced;       /* normalised text with its spaces */
    const char *text_start;  /* where the text begins, when the part at hand is its first */
    const char *resumed;     /* where text goes on in the middle of a piece, */
    int resumed_depth;       /* of this many stages: they have seen its beginning */
    struct part_place place; /* where the next part of a text goes on (tokenizer_part.c) */
};

/* tokenizer_table.c: the vocabulary's tables. */
uint64_t bytes_hash(const char *bytes, size_t n_bytes);
/* Code point that stands for each byte in a byte-level vocabulary. */
void byte_level_alphabet(uint32_t code_points[256]);
/* Byte that a code point stands for, or -1. */
int byte_level_byte(uint32_t code_point);
/* `text` written in the byte-level alphabet -> its bytes; false when a character is not in it. */
int byte_level_decode(const char *text, size_t n, char *out, size_t *n_out);
/* Bytes of the character that well-formed text begins with; 1 at its end. */
size_t character_length(const char *text, size_t n_bytes);
/* The byte that a token's name "<0x0A>" stands for, or -1. */
int byte_token_byte(const char *name);
/* Text with spaces for its SPACE_MARKs, at most as long; returns its length. `out` may be `text`.
 */
size_t unmark_spaces(const char *text, size_t n_bytes, char *out);
enum status tokenizer_index_bytes(struct tokenizer *t) MUST_CHECK;
int32_t tokenizer_find_bytes(const struct tokenizer *t, const char *bytes, size_t n);
enum status tokenizer_reserve_merges(struct tokenizer *t, size_t n) MUST_CHECK;
void tokenizer_add_merge(struct tokenizer *t, uint32_t left, uint32_t right, uint32_t rank,
                         uint32_t merged);
const struct merge_slot *tokenizer_find_merge(const struct tokenizer *t, uint32_t left,
                                              uint32_t right);

/* tokenizer_added.c */
struct added_match {
    int32_t id;        /* -1: nothing more */
    size_t start, end; /* with the space it strips, but for what the one before it took */
    size_t searched;   /* where it ends by itself: space that it strips may hold another token, */
};                     /* which then ends before it does */
enum status added_set_build(struct added_set *set, struct pool *pool,
                            const struct added_token *tokens, size_t n) MUST_CHECK;
/* The next one after `before`, at first all zero. */
struct added_match added_set_find(const struct added_set *set, const char *text, size_t n_bytes,
                                  const struct added_match *before, int skip_special);
/* Whether a match stays the same whatever comes behind text[0..n_bytes). */
int added_match_is_final(const struct added_set *set, struct added_match m, size_t n_bytes);
/* End of the text from `from` on that is part of no added token whatever comes behind it, when none
 * was found in it. */
size_t added_set_clear(const struct added_set *set, const char *text, size_t n_bytes, size_t from);
/* The begin of a token that has to stand alone and, cut at `cut`, would lose sight of what is
 * around it; SIZE_MAX: there is none. */
size_t added_set_around(const struct added_set *set, const char *text, size_t n_bytes, size_t cut);

/* tokenizer_normalize.c */
/* *out points into `text` or the encoder's scratch. `begins`: what goes in front does. */
enum status normalize(struct encoder *e, const char *text, size_t n_bytes, int begins,
                      const char **out, size_t *n_out) MUST_CHECK;
/* The last place in (0, n_bytes) where well-formed text can be cut so that its two sides, each
 * normalised, are the whole normalised; 0: none. */
size_t normal_boundary(const struct tokenizer *t, const char *text, size_t n_bytes);

/* tokenizer_split.c */
enum pattern_kind {
    PATTERN_REGEX,   /* as in tokenizer.json: see regex.h */
    PATTERN_STRING,  /* a text */
    PATTERN_NUMERIC, /* a digit, and the quantifier behind it */
};
enum status split_stage_compile(struct split_stage *stage, struct pool *pool, const char *pattern,
                                enum pattern_kind kind) MUST_CHECK;
enum status split_and_encode(struct encoder *e, const char *text, size_t n_bytes,
                             struct token_list *out) MUST_CHECK;
/* The same for text behind which more will come: encodes what that cannot change, *n_done bytes,
 * and says in *depth inside the pieces of how many stages it was cut. */
enum status split_and_encode_open(struct encoder *e, const char *text, size_t n_bytes,
                                  struct token_list *out, size_t *n_done, int *depth) MUST_CHECK;

/* tokenizer_bpe.c */
enum status bpe_encode_piece(struct encoder *e, const char *piece, size_t n_bytes,
                             struct token_list *out) MUST_CHECK;
/* The last place in (0, n_bytes) of a piece that no merge crosses; 0: none. */
size_t bpe_boundary(const struct tokenizer *t, const char *piece, size_t n_bytes);
enum status bpe_encode_byte(struct encoder *e, uint8_t byte, struct token_list *out) MUST_CHECK;

/* tokenizer_encode.c */
enum status encode_valid(struct encoder *e, const char *text, size_t n_bytes,
                         struct part_place place, unsigned flags,
                         struct token_list *out) MUST_CHECK;
enum status encode_normalized(struct encoder *e, const char *text, size_t n_bytes,
                              struct part_place place, unsigned flags,
                              struct token_list *out) MUST_CHECK;
/* Sets what the stages need to know of where `text` stands. */
void encoder_set_place(struct encoder *e, const char *text, struct part_place place);
enum status encoder_init(struct encoder *e, const struct tokenizer *t, size_t n_cache) MUST_CHECK;
void encoder_release(struct encoder *e);

/* tokenizer_json.c: fills a zeroed tokenizer from the file's text. */
enum status tokenizer_parse(struct tokenizer *t, const char *json, size_t n_bytes) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
