/* source_cache.c: tokenised text kept as a token file between runs.
 *
 * The name is a hash of everything that decides the ids: the text file (path, size, time of last
 * change), the tokenizer, the JSONL field. So a stale one is never found, only left behind.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "data/source_internal.h"

enum { CACHE_VERSION = 1 }; /* goes up whenever the same text would give other ids */

int source_cache_path(const struct source_options *options, const char *path, enum source_kind kind,
                      char out[CACHE_PATH])
{
    struct stat st;
    if (!options->cache_folder || stat(path, &st) != 0)
        return 0;
    const char *field = options->text_field ? options->text_field : "text";
    uint64_t facts[] = {CACHE_VERSION,
                        (uint64_t)kind,
                        (uint64_t)st.st_size,
                        (uint64_t)st.st_mtim.tv_sec,
                        (uint64_t)st.st_mtim.tv_nsec,
                        (uint64_t)st.st_ino,
                        tokenizer_fingerprint(options->tokenizer),
                        (uint64_t)tokenizer_eos(options->tokenizer),
                        XXH3_64bits(path, strlen(path)),
                        XXH3_64bits(field, strlen(field))};
    XXH128_hash_t hash = XXH3_128bits(facts, sizeof(facts));
    return snprintf(out, CACHE_PATH, "%s/tokens-%016" PRIx64 "%016" PRIx64 ".bin",
                    options->cache_folder, (uint64_t)hash.high64,
                    (uint64_t)hash.low64) < CACHE_PATH;
}

enum status source_cache_write(const struct source_options *options,
                               const struct token_store *store, const char *path)
{
    enum { CHUNK = 4096 };
    int32_t ids[CHUNK];
    struct token_array array = {
        .what = path, .data = store->data, .dtype = store->dtype, .n_tokens = store->n_tokens};
    int64_t n_ids = tokenizer_vocab_size(options->tokenizer);
    struct token_writer *w;
    TRY(file_make_folders(options->cache_folder));
    TRY(token_writer_open(&w, path, n_ids));
    for (int64_t i = 0; i < store->n_tokens; i += CHUNK) {
        int64_t n = MIN(store->n_tokens - i, CHUNK);
        enum status status = token_array_read(&array, i, n, n_ids, ids, NULL);
        if (status == OK)
            status = token_writer_add(w, ids, (size_t)n);
        if (status != OK) {
            token_writer_abandon(w);
            return status;
        }
    }
    return token_writer_commit(w);
}
