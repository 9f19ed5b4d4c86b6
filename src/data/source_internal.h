/* source_internal.h: what the parts of a source share. Not for other folders. */
#ifndef SNUG_DATA_SOURCE_INTERNAL_H
#define SNUG_DATA_SOURCE_INTERNAL_H

#include "data/source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Token ids being collected, in the smallest type that holds the tokenizer's vocabulary. */
struct token_store {
    enum token_dtype dtype;
    uint8_t *data; /* mem_alloc'ed */
    uint8_t *mask; /* bits, lowest first; NULL until the first token that is no label */
    int64_t n_tokens, capacity;
};

void token_store_release(struct token_store *store);
/* labels[i] is ids[i] or LABEL_IGNORED; NULL: all count. */
enum status token_store_add(struct token_store *store, const int32_t *ids, const int32_t *labels,
                            size_t n) MUST_CHECK;
void token_store_trim(struct token_store *store); /* gives back what growing left over */

/* source_text.c */
enum status source_read_text(const struct source_options *options, const char *path,
                             struct token_store *store) MUST_CHECK;
enum status source_read_jsonl(const struct source_options *options, const char *path,
                              struct token_store *store) MUST_CHECK;

/* source_paths.c: every file the paths name, in order. */
struct path_list {
    char **items;
    size_t n, capacity;
};
void path_list_release(struct path_list *list);
enum status source_expand_paths(const struct source_options *options,
                                struct path_list *out) MUST_CHECK;

/* source_cache.c: name of the cache file of a text in `out`; false when there is no cache. */
enum { CACHE_PATH = 4096 };
int source_cache_path(const struct source_options *options, const char *path, enum source_kind kind,
                      char out[CACHE_PATH]);
enum status source_cache_write(const struct source_options *options,
                               const struct token_store *store, const char *path) MUST_CHECK;

/* source_synthetic.c: ids of positions [first, first + n). */
void synthetic_read(uint64_t seed, int64_t vocab_size, int64_t first, int64_t n, int32_t *out);
void random_read(uint64_t seed, int64_t vocab_size, int64_t first, int64_t n, int32_t *out);

#ifdef __cplusplus
}
#endif
#endif
