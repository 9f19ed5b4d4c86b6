/* tokenizer.h: text to token ids and back, as Hugging Face's tokenizer.json describes it.
 *
 *     struct tokenizer *t;
 *     TRY(tokenizer_open(&t, "models/gpt2"));
 *     struct token_list ids = {0};
 *     TRY(tokenizer_encode(t, text, n_bytes, 0, &ids));
 *     ...
 *     token_list_release(&ids);
 *     tokenizer_free(t);
 *
 * What is read: BPE, byte-level (GPT-2, Llama 3, Qwen, ...) or with "\u2581" for a space and bytes
 * for characters without a token (Llama 2, Mistral, Gemma, ...): vocab, merges in both spellings,
 * ignore_merges, ByteLevel / Metaspace / Split / Digits / Sequence pre-tokenizers, NFC / NFD / NFKC
 * / NFKD normalizers and those of spaces, added tokens, TemplateProcessing. Anything else in the
 * file that would change the ids is ERR_UNSUPPORTED and named. `truncation` and `padding` are not
 * ours to do and are ignored. The name "bytes" opens a built-in tokenizer: ids 0..255 are bytes,
 * 256 is "<|endoftext|>".
 *
 * Bytes that are not UTF-8: the text is cut into its longest well-formed runs, each run is encoded
 * as a text of its own, and every byte between them becomes the token of that byte alone. So
 * decode(encode(x)) == x for any bytes x, as long as there is no normalizer, no prefix space and
 * no added token that strips the space around it.
 *
 * A tokenizer does not change after it was opened: any number of threads may use one.
 */
#ifndef SNUG_DATA_TOKENIZER_H
#define SNUG_DATA_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tokenizer;

/* Token ids; the caller zero-initialises it and releases it. Works with vec_push(). */
struct token_list {
    int32_t *items;
    size_t n, capacity;
};

void token_list_release(struct token_list *list);

enum tokenizer_flags {
    ENCODE_TEMPLATE = 1,     /* add what the post-processor adds (BOS of Llama 3) */
    ENCODE_PLAIN_TEXT = 2,   /* "<|endoftext|>" in the text is ordinary text, not the token */
    DECODE_SKIP_SPECIAL = 4, /* special tokens decode to nothing */
};

/* `name` is "bytes", a tokenizer.json file, or a folder that holds one. The tokenizer_config.json
 * beside it, when there is one, says which tokens are BOS, EOS and padding, and with add_bos_token
 * and add_eos_token whether texts begin and end with them. */
enum status tokenizer_open(struct tokenizer **out, const char *name) MUST_CHECK;
/* The same from the file's text; `what` names it in messages. */
enum status tokenizer_open_text(struct tokenizer **out, const char *json, size_t n_bytes,
                                const char *what) MUST_CHECK;
void tokenizer_free(struct tokenizer *t);

int64_t tokenizer_vocab_size(const struct tokenizer *t);   /* largest id + 1 */
uint64_t tokenizer_fingerprint(const struct tokenizer *t); /* hash of the file it came from */

/* Id of a token by its text, -1 when there is none. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text);
/* -1 when the tokenizer has none. Without a tokenizer_config.json, EOS is the first of the usual
 * names ("<|endoftext|>", "<|end_of_text|>", ...) that is in the vocabulary. */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
int32_t tokenizer_pad(const struct tokenizer *t);
/* Before the tokenizer is used: the EOS of one that knows none itself. */
void tokenizer_set_eos(struct tokenizer *t, int32_t id);

/* Ids that a document begins with (BOS, where the post-processor or add_bos_token says so) and ends
 * with: what the post-processor adds, and EOS, which parts it from the next. */
enum { DOCUMENT_IDS = 17 };
size_t tokenizer_document_begin(const struct tokenizer *t, int32_t ids[DOCUMENT_IDS]);
size_t tokenizer_document_end(const struct tokenizer *t, int32_t ids[DOCUMENT_IDS]);

/* Appends the ids of a text to `out`. */
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n_bytes,
                             unsigned flags, struct token_list *out) MUST_CHECK;

/* The bytes of one token (borrowed; not NUL-terminated), for printing as it comes: a character may
 * be spread over several tokens. NULL for an id that no token has. */
const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *n_bytes);
int tokenizer_is_special(const struct tokenizer *t, int32_t id);

/* Appends the bytes of ids to `out`; ERR_DATA for an id outside the vocabulary. */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n,
                             unsigned flags, struct str *out) MUST_CHECK;

/* An encoder keeps scratch memory and a cache of recent pieces between texts: several times faster
 * than tokenizer_encode() over many texts, with the same result. One thread at a time. */
struct encoder;
enum status encoder_new(struct encoder **out, const struct tokenizer *t) MUST_CHECK;
void encoder_free(struct encoder *e);
enum status encoder_encode(struct encoder *e, const char *text, size_t n_bytes, unsigned flags,
                           struct token_list *out) MUST_CHECK;

/* The same without a template, and where in the text the tokens lie: tokens[i] = the place in `out`
 * of the token that the character at bytes[i] belongs to; bytes ascend and begin characters.
 * ERR_UNSUPPORTED where that cannot be told. */
enum status encoder_encode_marked(struct encoder *e, const char *text, size_t n_bytes,
                                  const size_t *bytes, size_t n_marks, size_t *tokens,
                                  struct token_list *out) MUST_CHECK;

/* The same for a text that comes in parts. Encodes as much of text[0..n_bytes) as what follows it
 * cannot change, and says how much in *n_done: the rest comes again, with more behind it, in the
 * next call. With `is_last` nothing follows, all is encoded, and the next call begins a new text.
 * *n_done may be 0 (one long word): then more has to come at once. */
enum status encoder_encode_part(struct encoder *e, const char *text, size_t n_bytes, int is_last,
                                struct token_list *out, size_t *n_done) MUST_CHECK;
/* Bytes of memory that an encoder takes for parts of at most so many bytes, its ids included, as
 * long as no word in them is longer than a few hundred. */
size_t encoder_bytes(size_t part_bytes);

#ifdef __cplusplus
}
#endif
#endif
