/* source_internal.h: what the parts of a source share. Not for other folders. */
#ifndef SNUG_DATA_SOURCE_INTERNAL_H
#define SNUG_DATA_SOURCE_INTERNAL_H

#include "data/source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* source_text.c, source_jsonl.c: the tokens of a file, in pieces, into a writer. */
enum status source_read_text(const struct source_options *options, const char *path,
                             struct token_writer *w) MUST_CHECK;
enum status source_read_jsonl(const struct source_options *options, const char *path,
                              struct token_writer *w) MUST_CHECK;
int64_t source_jsonl_bytes(void); /* memory that the second of them takes; the first takes less */

/* source_examples.c: the examples of a file; memory that this takes; what they depend on. */
enum status source_read_examples(const struct source_options *options, const char *path,
                                 struct token_writer *w) MUST_CHECK;
int64_t source_examples_bytes(void);
uint64_t source_examples_hash(const struct example_options *o);

/* source_paths.c: every file the paths name, in order. */
struct path_list {
    char **items;
    size_t n, capacity;
};
void path_list_release(struct path_list *list);
enum status source_expand_paths(const struct source_options *options,
                                struct path_list *out) MUST_CHECK;

/* source_cache.c: the token file of a text: found, or made by `read`; its name into `out`. */
enum { CACHE_PATH = 4096 };
enum status source_cache(const struct source_options *options, const char *path,
                         enum source_kind kind, char out[CACHE_PATH]) MUST_CHECK;

/* source.c: the tokens of a text or JSONL file into a writer. */
enum status source_tokenize(const struct source_options *options, const char *path,
                            enum source_kind kind, struct token_writer *w) MUST_CHECK;

/* A file of data: one that cannot be opened is bad data (ERR_DATA). */
enum status source_open_file(struct file_in *f, const char *path) MUST_CHECK;

/* source_synthetic.c: ids of positions [first, first + n). */
void synthetic_read(uint64_t seed, int64_t vocab_size, int64_t first, int64_t n, int32_t *out);
void random_read(uint64_t seed, int64_t vocab_size, int64_t first, int64_t n, int32_t *out);

#ifdef __cplusplus
}
#endif
#endif
