/* source_cache.c: tokenised text as a token file, which the next run finds again.
 *
 * The name is a hash of everything that decides the ids: the text file (path, size, time of last
 * change), the tokenizer, the JSONL field. So a stale one is never found, only left behind. Systems
 * note times in ticks: a text may have changed again in the tick in which it was read, so tokens
 * that were not written clearly later are made anew. A file appears under its name when it is
 * whole; who makes the same one at the same time makes it twice.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/log.h"
#include "data/source_internal.h"

enum { CACHE_VERSION = 4 }; /* goes up whenever the same text would give other ids */

static enum status name_file(const struct source_options *options, const char *path,
                             enum source_kind kind, char out[CACHE_PATH])
{
    struct stat st;
    const struct tokenizer *t = options->tokenizer;
    const char *field = options->text_field ? options->text_field : "text";
    if (stat(path, &st) != 0)
        return FAIL(ERR_DATA, "%s: cannot be looked at", path);
    int32_t ends[2 * DOCUMENT_IDS] = {0}; /* tokenizer_config.json has a say in these */
    size_t n_begin = t ? tokenizer_document_begin(t, ends) : 0;
    size_t n_end = t ? tokenizer_document_end(t, ends + DOCUMENT_IDS) : 0;
    uint64_t facts[] = {CACHE_VERSION,
                        (uint64_t)kind,
                        (uint64_t)st.st_size,
                        (uint64_t)st.st_mtim.tv_sec,
                        (uint64_t)st.st_mtim.tv_nsec,
                        (uint64_t)st.st_ino,
                        t ? tokenizer_fingerprint(t) : 0,
                        n_begin,
                        n_end,
                        XXH3_64bits(ends, sizeof(ends)),
                        XXH3_64bits(path, strlen(path)),
                        XXH3_64bits(field, strlen(field)),
                        kind == SOURCE_EXAMPLES ? source_examples_hash(options->examples) : 0};
    XXH128_hash_t hash = XXH3_128bits(facts, sizeof(facts));
    int n = snprintf(out, CACHE_PATH, "%s/tokens-%016" PRIx64 "%016" PRIx64 ".bin",
                     options->cache_folder, (uint64_t)hash.high64, (uint64_t)hash.low64);
    return n < CACHE_PATH ? OK : FAIL(ERR_IO, "%s: path too long", options->cache_folder);
}

static enum status make_file(const struct source_options *options, const char *path,
                             enum source_kind kind, const char *cached)
{
    struct token_writer *w;
    int64_t n_ids = options->tokenizer ? tokenizer_vocab_size(options->tokenizer) : 0;
    TRY(file_make_folders(options->cache_folder));
    TRY(token_writer_open(&w, cached, TOKEN_FORMAT_SNUG, MAX(n_ids, options->vocab_size)));
    enum status status = source_tokenize(options, path, kind, w);
    if (status == OK)
        return token_writer_commit(w);
    token_writer_abandon(w);
    return status;
}

enum { TICK_S = 1 }; /* longer than any system's */

static int is_good(const char *cached, const char *text)
{
    struct token_file f;
    struct stat made, changed;
    if (stat(cached, &made) != 0 || stat(text, &changed) != 0 ||
        made.st_mtim.tv_sec <= changed.st_mtim.tv_sec + TICK_S ||
        token_file_open(&f, cached, TOKEN_NONE) != OK)
        return 0;
    token_file_close(&f);
    return 1;
}

/* Pipes are written into where they stand, which waits for a reader. */
static enum status refuse_what_is_no_file(const char *cached)
{
    struct stat st;
    if (stat(cached, &st) == 0 && !S_ISREG(st.st_mode))
        return FAIL(ERR_IO, "%s is not a regular file: remove it", cached);
    return OK;
}

enum status source_cache(const struct source_options *options, const char *path,
                         enum source_kind kind, char out[CACHE_PATH])
{
    if (!options->cache_folder)
        return FAIL(ERR_INTERNAL, "%s: text without a folder for its tokens", path);
    TRY(name_file(options, path, kind, out));
    if (is_good(out, path))
        return OK;
    log_debug("tokenising %s into %s", path, out);
    enum status status = refuse_what_is_no_file(out);
    if (status == OK)
        status = make_file(options, path, kind, out);
    if (status == ERR_IO)
        return status_prefix(status, "tokenised text is kept in dataset_prepared_path, now %s",
                             options->cache_folder);
    return status;
}
