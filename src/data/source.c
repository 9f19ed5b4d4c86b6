/* source.c: a source as a list of segments, one per file, each an array of tokens in memory or in a
 * mapped file; or none, when it is synthetic. */
#include "data/source.h"

#include <inttypes.h>
#include <string.h>

#include "base/vec.h"
#include "data/source_internal.h"

/* Token files are looked through when opened, as far as takes well under a second. */
enum { CHECKED_AT_OPEN = 1 << 26 };

struct segment {
    int64_t first;             /* its first token's position in the source */
    struct token_array tokens; /* in `file` or in `store` */
    struct token_file file;
    struct token_store store;
};

struct source {
    enum source_kind kind;
    int64_t vocab_size, n_tokens;
    uint64_t seed;
    struct path_list paths; /* segments borrow their names */
    VEC(struct segment) segments;
};

static enum source_kind kind_of(const char *path)
{
    if (str_ends_with(path, ".jsonl") || str_ends_with(path, ".ndjson") ||
        str_ends_with(path, ".json"))
        return SOURCE_JSONL;
    if (str_ends_with(path, ".bin") || str_ends_with(path, ".npy"))
        return SOURCE_TOKENS;
    struct file_map map;
    int has_header = 0;
    if (file_map_open(&map, path) == OK) {
        has_header = token_file_has_header(map.data, map.n_bytes);
        file_map_close(&map);
    }
    return has_header ? SOURCE_TOKENS : SOURCE_TEXT;
}

static enum status open_tokens(struct segment *segment, const char *path,
                               const struct source_options *options)
{
    TRY(token_file_open(&segment->file, path, options->headerless));
    segment->tokens = segment->file.tokens;
    return OK;
}

/* Finds the tokenised text in the cache, or makes it and puts it there. */
static enum status open_text(struct segment *segment, const char *path, enum source_kind kind,
                             const struct source_options *options)
{
    char cached[CACHE_PATH];
    int has_cache = options->tokenizer && source_cache_path(options, path, kind, cached);
    if (has_cache && file_exists(cached) && open_tokens(segment, cached, options) == OK) {
        segment->tokens.what = path;
        return OK;
    }
    int64_t n_ids = options->tokenizer ? tokenizer_vocab_size(options->tokenizer) : 0;
    struct token_store *store = &segment->store;
    store->dtype = token_dtype_for_vocab(MAX(n_ids, options->vocab_size));
    TRY(kind == SOURCE_JSONL ? source_read_jsonl(options, path, store)
                             : source_read_text(options, path, store));
    if (has_cache && !store->mask && store->n_tokens < INT32_MAX) {
        TRY(source_cache_write(options, store, cached));
        TRY(open_tokens(segment, cached, options));
        segment->tokens.what = path;
        token_store_release(store);
        return OK;
    }
    token_store_trim(store);
    segment->tokens = (struct token_array){.what = path,
                                           .data = store->data,
                                           .dtype = store->dtype,
                                           .n_tokens = store->n_tokens,
                                           .mask = store->mask};
    return OK;
}

static enum status open_segment(struct source *s, const char *path,
                                const struct source_options *options)
{
    const struct segment empty = {.first = s->n_tokens};
    TRY(vec_push(&s->segments, empty));
    struct segment *segment = &s->segments.items[s->segments.n - 1];
    enum source_kind kind = options->kind == SOURCE_AUTO ? kind_of(path) : options->kind;
    if (kind == SOURCE_TOKENS) {
        TRY(open_tokens(segment, path, options));
    } else {
        if (kind == SOURCE_TEXT && !options->tokenizer)
            return FAIL(ERR_CONFIG,
                        "%s: text needs a tokenizer: set `tokenizer` to a folder, a "
                        "tokenizer.json, or bytes",
                        path);
        TRY(open_text(segment, path, kind, options));
    }
    TRY(token_array_check(&segment->tokens, 0, MIN(segment->tokens.n_tokens, CHECKED_AT_OPEN),
                          options->vocab_size));
    s->n_tokens += segment->tokens.n_tokens;
    return OK;
}

/* Writing over what is being read would destroy it. */
static enum status refuse_output(const struct path_list *paths, const char *output)
{
    for (size_t i = 0; output && i < paths->n; i++) {
        if (file_is_same(paths->items[i], output))
            return FAIL(ERR_USAGE, "%s: the output is one of the inputs (%s); give another name",
                        output, paths->items[i]);
    }
    return OK;
}

static enum status open_files(struct source *s, const struct source_options *options)
{
    TRY(source_expand_paths(options, &s->paths));
    TRY(refuse_output(&s->paths, options->output));
    for (size_t i = 0; i < s->paths.n; i++)
        TRY(open_segment(s, s->paths.items[i], options));
    if (s->n_tokens == 0)
        return FAIL(ERR_DATA, "%s: no tokens in it", s->paths.items[0]);
    return OK;
}

enum status source_open(struct source **out, const struct source_options *options)
{
    *out = NULL;
    if (options->vocab_size < 1 || options->vocab_size > INT32_MAX)
        return FAIL(ERR_CONFIG, "vocab_size is %" PRId64 "; it must be in 1..2^31-1",
                    options->vocab_size);
    struct source *s;
    TRY(mem_try_array(&s, 1, sizeof(*s)));
    s->kind = options->kind;
    s->vocab_size = options->vocab_size;
    s->seed = options->seed;
    enum status status = OK;
    if (s->kind != SOURCE_SYNTHETIC && s->kind != SOURCE_RANDOM) {
        TRY_GOTO(open_files(s, options), out);
    } else if (options->n_tokens < 1) {
        TRY_GOTO(FAIL(ERR_CONFIG, "synthetic data of %" PRId64 " tokens; ask for at least 1",
                      options->n_tokens),
                 out);
    } else {
        s->n_tokens = options->n_tokens;
    }
out:
    if (status != OK)
        source_free(s);
    else
        *out = s;
    return status == ERR_IO ? ERR_DATA : status; /* data that cannot be read is bad data */
}

void source_free(struct source *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->segments.n; i++) {
        token_file_close(&s->segments.items[i].file);
        token_store_release(&s->segments.items[i].store);
    }
    vec_release(&s->segments);
    path_list_release(&s->paths);
    mem_free(s);
}

int64_t source_n_tokens(const struct source *s)
{
    return s->n_tokens;
}

int64_t source_n_bytes(const struct source *s)
{
    int64_t n_bytes = 0;
    for (size_t i = 0; i < s->segments.n; i++) {
        const struct token_store *store = &s->segments.items[i].store;
        n_bytes += store->capacity * token_dtype_bytes(store->dtype);
        n_bytes += store->mask ? store->capacity / 8 + 1 : 0;
    }
    return n_bytes;
}

/* The segment that holds a position: the last one that starts at or before it. Empty segments
 * share their start with the next one, which comes later and so is the one found. */
static size_t segment_of(const struct source *s, int64_t position)
{
    size_t low = 0, high = s->segments.n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->segments.items[middle].first <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

enum status source_read(const struct source *s, int64_t first, int64_t n, int32_t *tokens,
                        int32_t *labels)
{
    BUG_ON(first < 0 || n < 0 || first > s->n_tokens - n);
    if (s->kind == SOURCE_SYNTHETIC || s->kind == SOURCE_RANDOM) {
        if (s->kind == SOURCE_SYNTHETIC)
            synthetic_read(s->seed, s->vocab_size, first, n, tokens);
        else
            random_read(s->seed, s->vocab_size, first, n, tokens);
        memcpy(labels, tokens, (size_t)n * sizeof(*labels));
        return OK;
    }
    for (size_t i = segment_of(s, first); n > 0; i++) {
        const struct segment *segment = &s->segments.items[i];
        int64_t offset = first - segment->first;
        int64_t here = MIN(n, segment->tokens.n_tokens - offset);
        TRY(token_array_read(&segment->tokens, offset, here, s->vocab_size, tokens, labels));
        tokens += here;
        labels += here;
        first += here;
        n -= here;
    }
    return OK;
}
