/* document.h: documents into a token file, in pieces: memory does not grow with them.
 *
 *     struct document d;
 *     TRY(document_init(&d, tokenizer, writer, most_bytes));
 *     for each text: document_add(&d, piece, n) as often as it takes; document_end(&d)
 *     document_release(&d);
 */
#ifndef SNUG_DATA_DOCUMENT_H
#define SNUG_DATA_DOCUMENT_H

#include "base/str.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct document {
    const struct tokenizer *tokenizer;
    struct token_writer *writer;
    struct encoder *encoder; /* NULL until the first text */
    char *text;              /* what is not encoded yet */
    size_t n, capacity;
    int begun;     /* the ids that it begins with are written */
    size_t enough; /* bytes at which it is tried */
    size_t most;   /* bytes that may wait for a place to cut at */
    struct token_list ids;
};

/* `most_bytes` is what a text that cannot be cut may take of memory beyond document_bytes(). */
void document_init(struct document *d, const struct tokenizer *t, struct token_writer *w,
                   int64_t most_bytes);
void document_release(struct document *d);

enum status document_add(struct document *d, const char *text, size_t n_bytes) MUST_CHECK;
/* The rest of it, then what ends a document: tokenizer_document_end(). */
enum status document_end(struct document *d) MUST_CHECK;

/* Memory that documents take while they are read. */
int64_t document_bytes(void);

#ifdef __cplusplus
}
#endif
#endif
