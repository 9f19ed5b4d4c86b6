/* source.h: one long stream of token ids to train on, with random access.
 *
 * It is the concatenation, in order, of what the paths name:
 *   text      a plain text file is one document: BOS where the tokenizer adds one, its tokens,
 *             then end-of-text
 *   JSONL     one object a line: {"text": "..."} is a document as above;
 *             {"input_ids": [...], "labels": [...]} is taken as it is, a label of -100 does not
 *             count, positions whose "attention_mask" is 0 are left out, and the first token of a
 *             line is never a label (nothing of the same line comes before it)
 *   examples  records to fine-tune on (records.h, example.h): texts of their own, of which some
 *             tokens are labels
 *   tokens    a token file (token_file.h), read where it lies on disk
 *   synthetic no file: a stream that is a function of the seed
 *
 * Text is tokenised when the source is opened, piece by piece, into a token file in the cache
 * folder that the next run finds again. So a source holds no tokens: they are read from files as
 * they are asked for. Once open it does not change and does not allocate: any number of threads may
 * read it.
 */
#ifndef SNUG_DATA_SOURCE_H
#define SNUG_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/example.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum source_kind {
    SOURCE_AUTO, /* by the name's ending, then by the first bytes */
    SOURCE_TEXT,
    SOURCE_JSONL,
    SOURCE_TOKENS,
    SOURCE_EXAMPLES,
    SOURCE_SYNTHETIC, /* a Markov chain over (up to) 256 ids: a model can get down to 1.75 bits */
    SOURCE_RANDOM,    /* every id of the vocabulary equally likely: nothing to learn */
};

struct source_options {
    enum source_kind kind;
    const char *const *paths; /* files, folders, or patterns with * and ? */
    size_t n_paths;
    const struct tokenizer *tokenizer;      /* for text and JSONL; only used while opening */
    int64_t vocab_size;                     /* of the model: no id reaches it */
    enum token_dtype headerless;            /* of token files without a header */
    const char *text_field;                 /* of JSONL; NULL: "text" */
    const struct example_options *examples; /* of SOURCE_EXAMPLES; only used while opening */
    const char *cache_folder;               /* of tokenised text */
    int64_t spare_bytes;                    /* memory that a text which cannot be cut may take */
    int64_t n_tokens;                       /* of a synthetic source */
    uint64_t seed;                          /* of a synthetic source */
    const char *output; /* will be written: refused among the files; NULL: none */
};

struct source;

/* ERR_DATA for files that cannot be read and for what is wrong in them (with file, line or
 * position), ERR_IO for a cache that cannot be written, ERR_FIT for text that cannot be cut and is
 * more than spare_bytes allow. Ids of token files are checked here up to the first 64 Mi tokens of
 * each file, the rest when they are read. */
enum status source_open(struct source **out, const struct source_options *options) MUST_CHECK;
void source_free(struct source *s);

/* Everything the paths name into one token file, without the cache. */
enum status source_write(const struct source_options *options, struct token_writer *w) MUST_CHECK;

/* Memory that opening a source takes beyond the tokenizer, before `spare_bytes`; 0 when there is no
 * text to read, or nothing to be found. */
int64_t source_open_bytes(const struct source_options *options);

int64_t source_n_tokens(const struct source *s);

/* The examples that it consists of; 0: it is one stream. What became of the records they were. */
int64_t source_n_examples(const struct source *s);
struct example_counts source_counts(const struct source *s);
/* Example i: the position of its first token, and how many it has. */
enum status source_example(const struct source *s, int64_t i, int64_t *first,
                           int64_t *n) MUST_CHECK;

/* Are the first path's records examples, by the first of them? No for texts, and for what cannot be
 * read. */
bool source_has_examples(const struct source_options *options, const struct example_fields *f);

/* tokens[0..n) and labels[0..n) from position `first` on; labels are the same ids, or LABEL_IGNORED
 * (not shifted). ERR_DATA for an id outside the vocabulary. */
enum status source_read(const struct source *s, int64_t first, int64_t n, int32_t *tokens,
                        int32_t *labels) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
