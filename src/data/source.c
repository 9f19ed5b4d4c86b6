/* source.c: a source as a list of segments, one token file each; or none, when it is synthetic. */
#include "data/source.h"

#include <inttypes.h>
#include <string.h>

#include "base/vec.h"
#include "data/document.h"
#include "data/source_internal.h"

/* Token files are looked through when opened, as far as takes well under a second. */
enum { CHECKED_AT_OPEN = 1 << 26 };

struct segment {
    int64_t first;         /* its first token's position in the source */
    int64_t first_example; /* and that of its first example */
    struct token_file file;
};

struct source {
    enum source_kind kind;
    int64_t vocab_size, n_tokens, n_examples;
    struct example_counts counts;
    uint64_t seed;
    struct path_list paths; /* segments borrow their names */
    VEC(struct segment) segments;
};

/* ---- kinds ------------------------------------------------------------------------------------
 */

static enum source_kind kind_of(const struct source_options *options, const char *path)
{
    if (options->kind != SOURCE_AUTO)
        return options->kind;
    if (str_ends_with(path, ".jsonl") || str_ends_with(path, ".ndjson") ||
        str_ends_with(path, ".json"))
        return SOURCE_JSONL;
    if (str_ends_with(path, ".bin") || str_ends_with(path, ".npy"))
        return SOURCE_TOKENS;
    return token_file_has_header(path) ? SOURCE_TOKENS : SOURCE_TEXT;
}

static int is_synthetic(enum source_kind kind)
{
    return kind == SOURCE_SYNTHETIC || kind == SOURCE_RANDOM;
}

int64_t source_open_bytes(const struct source_options *options)
{
    struct path_list paths = {0};
    int reads_text = 0;
    if (is_synthetic(options->kind))
        return 0;
    if (source_expand_paths(options, &paths) == OK)
        for (size_t i = 0; i < paths.n; i++)
            reads_text |= kind_of(options, paths.items[i]) != SOURCE_TOKENS;
    path_list_release(&paths);
    int64_t n_bytes = options->kind == SOURCE_EXAMPLES ? source_examples_bytes()
                                                       : document_bytes() + source_jsonl_bytes();
    return reads_text ? n_bytes + (int64_t)token_writer_bytes() : 0;
}

enum status source_open_file(struct file_in *f, const char *path)
{
    return file_in_open(f, path) == OK ? OK : ERR_DATA;
}

enum status source_tokenize(const struct source_options *options, const char *path,
                            enum source_kind kind, struct token_writer *w)
{
    if (kind == SOURCE_TEXT && !options->tokenizer)
        return FAIL(ERR_CONFIG,
                    "%s: text needs a tokenizer: set `tokenizer` to a folder, a "
                    "tokenizer.json, or bytes",
                    path);
    return kind == SOURCE_EXAMPLES ? source_read_examples(options, path, w)
           : kind == SOURCE_JSONL  ? source_read_jsonl(options, path, w)
                                   : source_read_text(options, path, w);
}

/* ---- opening ----------------------------------------------------------------------------------
 */

static enum status open_segment(struct source *s, const char *path,
                                const struct source_options *options)
{
    char cached[CACHE_PATH];
    const char *tokens = path;
    enum source_kind kind = kind_of(options, path);
    const struct segment empty = {.first = s->n_tokens, .first_example = s->n_examples};
    TRY(vec_push(&s->segments, empty));
    struct token_file *file = &s->segments.items[s->segments.n - 1].file;
    if (kind != SOURCE_TOKENS) {
        TRY(source_cache(options, path, kind, cached));
        tokens = cached;
    }
    enum status status = token_file_open(file, tokens, options->headerless);
    if (status != OK)
        return status == ERR_IO ? ERR_DATA : status; /* data that cannot be read is bad data */
    file->file->path = file->tokens.what = path;
    TRY(token_array_check(&file->tokens, 0, MIN(file->tokens.n_tokens, CHECKED_AT_OPEN),
                          options->vocab_size));
    s->n_tokens += file->tokens.n_tokens;
    s->n_examples += file->n_examples;
    s->counts.n_read += file->counts.n_read;
    s->counts.n_truncated += file->counts.n_truncated;
    s->counts.n_dropped += file->counts.n_dropped;
    s->counts.n_unlabelled += file->counts.n_unlabelled;
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
    if (!is_synthetic(s->kind)) {
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
    return status;
}

void source_free(struct source *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->segments.n; i++)
        token_file_close(&s->segments.items[i].file);
    vec_release(&s->segments);
    path_list_release(&s->paths);
    mem_free(s);
}

int64_t source_n_tokens(const struct source *s)
{
    return s->n_tokens;
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

int64_t source_n_examples(const struct source *s)
{
    return s->kind == SOURCE_EXAMPLES ? s->n_examples : 0;
}

struct example_counts source_counts(const struct source *s)
{
    return s->counts;
}

enum status source_example(const struct source *s, int64_t i, int64_t *first, int64_t *n)
{
    size_t k = 0;
    BUG_ON(i < 0 || i >= s->n_examples);
    while (k + 1 < s->segments.n && s->segments.items[k + 1].first_example <= i)
        k++;
    const struct segment *segment = &s->segments.items[k];
    TRY(token_file_example(&segment->file, i - segment->first_example, first, n));
    *first += segment->first;
    return OK;
}

enum status source_read(const struct source *s, int64_t first, int64_t n, int32_t *tokens,
                        int32_t *labels)
{
    BUG_ON(first < 0 || n < 0 || first > s->n_tokens - n);
    if (is_synthetic(s->kind)) {
        if (s->kind == SOURCE_SYNTHETIC)
            synthetic_read(s->seed, s->vocab_size, first, n, tokens);
        else
            random_read(s->seed, s->vocab_size, first, n, tokens);
        memcpy(labels, tokens, (size_t)n * sizeof(*labels));
        return OK;
    }
    for (size_t i = segment_of(s, first); n > 0; i++) {
        const struct segment *segment = &s->segments.items[i];
        const struct token_array *array = &segment->file.tokens;
        int64_t offset = first - segment->first;
        int64_t here = MIN(n, array->n_tokens - offset);
        TRY(token_array_read(array, offset, here, s->vocab_size, tokens, labels));
        tokens += here;
        labels += here;
        first += here;
        n -= here;
    }
    return OK;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

enum { COPY_TOKENS = 1 << 12 };

static enum status copy_tokens(const struct source_options *options, const char *path,
                               struct token_writer *w)
{
    int32_t tokens[COPY_TOKENS], labels[COPY_TOKENS];
    struct token_file f;
    enum status status = OK;
    TRY(token_file_open(&f, path, options->headerless));
    for (int64_t at = 0; at < f.tokens.n_tokens; at += COPY_TOKENS) {
        int64_t n = MIN(f.tokens.n_tokens - at, (int64_t)COPY_TOKENS);
        TRY_GOTO(token_array_read(&f.tokens, at, n, options->vocab_size, tokens, labels), out);
        TRY_GOTO(token_writer_add(w, tokens, labels, (size_t)n), out);
    }
out:
    token_file_close(&f);
    return status;
}

enum status source_write(const struct source_options *options, struct token_writer *w)
{
    struct path_list paths = {0};
    enum status status = source_expand_paths(options, &paths);
    if (status == OK)
        status = refuse_output(&paths, options->output);
    for (size_t i = 0; i < paths.n && status == OK; i++) {
        enum source_kind kind = kind_of(options, paths.items[i]);
        status = kind == SOURCE_TOKENS ? copy_tokens(options, paths.items[i], w)
                                       : source_tokenize(options, paths.items[i], kind, w);
    }
    if (status == OK && token_writer_n_tokens(w) == 0)
        status = FAIL(ERR_DATA, "%s: no tokens in it", paths.items[0]);
    path_list_release(&paths);
    return status;
}
