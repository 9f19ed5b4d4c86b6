#include "data/source_survey.h"

#include <xxhash.h>

#include "base/alloc.h"

enum { PIECE = 1 << 14 };

static enum status add_piece(const struct source *s, int64_t first, int32_t *buffer,
                             struct source_survey *out)
{
    int64_t n = MIN((int64_t)PIECE, out->n_tokens - first);
    int32_t *labels = buffer + PIECE;
    TRY(source_read(s, first, n, buffer, labels));
    size_t n_bytes = (size_t)n * sizeof(*buffer);
    out->hash = XXH3_64bits_withSeed(buffer, n_bytes, out->hash);
    out->hash = XXH3_64bits_withSeed(labels, n_bytes, out->hash);
    for (int64_t i = 0; i < n; i++)
        out->n_labels += labels[i] != LABEL_IGNORED;
    return OK;
}

/* Where piece i of n_read begins: the first at the start, the last where it reaches the end. */
static int64_t piece_start(int64_t i, int64_t n_read, int64_t n_tokens, bool is_whole)
{
    if (is_whole)
        return i * PIECE;
    double share = (double)i / (double)MAX(n_read - 1, (int64_t)1);
    return MIN((int64_t)(share * (double)(n_tokens - PIECE)), n_tokens - PIECE);
}

enum status source_survey(const struct source *s, int64_t most, struct source_survey *out)
{
    int64_t n_tokens = source_n_tokens(s);
    int64_t n_pieces = (MIN(n_tokens, most) + PIECE - 1) / PIECE;
    *out = (struct source_survey){.n_tokens = n_tokens, .is_whole = n_tokens <= most};
    int32_t *buffer;
    TRY(mem_try_array(&buffer, (size_t)2 * PIECE, sizeof(*buffer)));
    enum status status = OK;
    for (int64_t i = 0; i < n_pieces && status == OK; i++)
        status = add_piece(s, piece_start(i, n_pieces, n_tokens, out->is_whole), buffer, out);
    mem_free(buffer);
    return status;
}
