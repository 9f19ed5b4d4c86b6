/* token_file.h: files of token ids, read where they lie: nothing of them stays in memory.
 *
 * Formats, recognised by their first bytes (all little-endian):
 *   llm.c     256 int32 of header: 20240520, 1, n, ... then n uint16;
 *             or 20240801, 7, n, ... then n uint32
 *   LLMQ      "BIN.TOK\n", int32 version 2, 4 bytes per token, n, vocabulary, has masks; n int32
 *             from byte 1024 on; then n bits, lowest first: 0 = this token is not a label
 *   .npy      one dimension of <u2, <u4, <i4 or <i8
 *   snug      "SNUG.TOK", int32 version 1, int32 bytes per token, int64 n, int64 vocabulary, int32
 *             has masks; n uint16 or uint32 from byte 1024 on; then n bits as above; version 2 also
 *             int64 examples at byte 40 and four counts behind it: where each of the examples ends,
 *             as so many int64, stands behind the bits
 *   nanoGPT   no header: nothing but uint16 or uint32; the caller has to say which
 *
 * A header that does not agree with the size of the file is ERR_DATA, with what was found and what
 * was expected. Ids are checked against the vocabulary as they are read.
 */
#ifndef SNUG_DATA_TOKEN_FILE_H
#define SNUG_DATA_TOKEN_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Targets with this value do not count in the loss. */
enum { LABEL_IGNORED = -100 };

enum token_dtype { TOKEN_NONE, TOKEN_U16, TOKEN_U32, TOKEN_I32, TOKEN_I64 };

int token_dtype_bytes(enum token_dtype dtype);
/* "uint16", "u32", ... TOKEN_NONE for anything else. */
enum token_dtype token_dtype_parse(const char *name);
/* The smaller of uint16 and uint32 that holds every id of a vocabulary. */
enum token_dtype token_dtype_for_vocab(int64_t vocab_size);

/* Tokens in a file or in somebody else's memory, at any alignment. */
struct token_array {
    const char *what; /* for messages */
    enum token_dtype dtype;
    int64_t n_tokens;
    const struct file_in *file; /* NULL: in `memory` */
    const uint8_t *memory;
    int64_t first; /* byte of the first id */
    int64_t mask;  /* byte of the mask; its bit i (lowest first): token i is a label. 0: all are */
};

/* tokens[0..n) = the ids from `first` on; labels[0..n) (may be NULL) the same with LABEL_IGNORED
 * where masked. ERR_DATA for an id outside 0..vocab_size-1: names token, place and fix. */
enum status token_array_read(const struct token_array *a, int64_t first, int64_t n,
                             int64_t vocab_size, int32_t *tokens, int32_t *labels) MUST_CHECK;
/* The same check on a range without the copy. */
enum status token_array_check(const struct token_array *a, int64_t first, int64_t n,
                              int64_t vocab_size) MUST_CHECK;

/* What became of the records that examples were made of. */
struct example_counts {
    int64_t n_read;
    int64_t n_truncated;  /* cut to the length allowed */
    int64_t n_dropped;    /* for being longer */
    int64_t n_unlabelled; /* left out: nothing in them is a label */
};

struct token_file {
    struct file_in *file; /* NULL: over bytes of the caller */
    struct token_array tokens;
    const char *format; /* "llm.c", "LLMQ", "npy", "snug", "headerless" */
    int64_t vocab_size; /* as the file says; 0 when it does not */
    int64_t n_examples; /* that the tokens are cut into; 0: they are one stream */
    int64_t ends;       /* byte of the list of their ends */
    struct example_counts counts;
};

/* `headerless` is the type of a file without a header; TOKEN_NONE makes such a file an error.
 * `path` is borrowed until the file is closed. */
enum status token_file_open(struct token_file *f, const char *path,
                            enum token_dtype headerless) MUST_CHECK;
/* The same over bytes that the caller keeps. */
enum status token_file_parse(struct token_file *f, const void *data, size_t n_bytes,
                             const char *what, enum token_dtype headerless) MUST_CHECK;
void token_file_close(struct token_file *f);
/* Example i: its first token and how many it has. */
enum status token_file_example(const struct token_file *f, int64_t i, int64_t *first,
                               int64_t *n) MUST_CHECK;
/* Does the file start as one of the formats with a header? No when it cannot be read. */
int token_file_has_header(const char *path);

/* Writes a token file: uint16 when the vocabulary fits, uint32 otherwise. Nothing appears under
 * `path` before token_writer_commit(); until then the tokens lie in a file beside it that is this
 * process's own. The writer is gone after commit (also a failed one) or abandon. */
enum token_format {
    TOKEN_FORMAT_LLMC, /* what other programs read: fewer than 2^31 tokens, no masks */
    TOKEN_FORMAT_SNUG, /* without these limits */
};
struct token_writer;
enum status token_writer_open(struct token_writer **out, const char *path, enum token_format format,
                              int64_t vocab_size) MUST_CHECK;
/* labels[i] is ids[i] or LABEL_IGNORED; NULL: all count. */
enum status token_writer_add(struct token_writer *w, const int32_t *ids, const int32_t *labels,
                             size_t n) MUST_CHECK;
/* An example ends with the last token added. TOKEN_FORMAT_SNUG only. */
enum status token_writer_end_example(struct token_writer *w) MUST_CHECK;
void token_writer_set_counts(struct token_writer *w, const struct example_counts *counts);
int64_t token_writer_n_tokens(const struct token_writer *w);
int64_t token_writer_n_ignored(const struct token_writer *w); /* of these, no labels */
size_t token_writer_bytes(void);                              /* of memory that a writer takes */
enum status token_writer_commit(struct token_writer *w) MUST_CHECK;
void token_writer_abandon(struct token_writer *w);

#ifdef __cplusplus
}
#endif
#endif
