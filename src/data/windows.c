#include "data/windows.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"

struct windows {
    const struct source *source;
    int64_t seq_len;
    int32_t *scratch; /* [2, seq_len + 1]: a window and its labels */
};

void windows_describe(struct batch *b, int64_t n_rows, int64_t seq_len, bool packed)
{
    struct shape shape = shape_of(2, n_rows, seq_len);
    batch_add(b, "tokens", DTYPE_I32, shape);
    batch_add(b, "targets", DTYPE_I32, shape);
    if (packed)
        batch_add(b, "positions", DTYPE_I32, shape);
}

enum status windows_open(struct windows **out, const struct source *source, int64_t seq_len)
{
    int64_t n_tokens = source_n_tokens(source);
    *out = NULL;
    if (seq_len < 1 || seq_len > INT32_MAX)
        return FAIL(ERR_CONFIG, "the sequence length is %" PRId64 "; it must be in 1..2^31-1",
                    seq_len);
    if (n_tokens <= seq_len)
        return FAIL(ERR_DATA,
                    "the data has %" PRId64 " tokens, fewer than one sequence of %" PRId64
                    " + 1: use more data or a shorter sequence length",
                    n_tokens, seq_len);
    struct windows *w;
    TRY(mem_try_array(&w, 1, sizeof(*w)));
    *w = (struct windows){.source = source, .seq_len = seq_len};
    enum status status = mem_try_array(&w->scratch, 2 * ((size_t)seq_len + 1), sizeof(*w->scratch));
    if (status != OK) {
        windows_free(w);
        return status;
    }
    *out = w;
    return OK;
}

void windows_free(struct windows *w)
{
    if (!w)
        return;
    mem_free(w->scratch);
    mem_free(w);
}

/* Where other data of the run has several samples to a row, a window is one. */
static void number_tokens(const struct windows *w, struct batch *b, int64_t row)
{
    int32_t *positions = b->n_items > ITEM_POSITIONS ? batch_row(b, ITEM_POSITIONS, row) : NULL;
    for (int64_t k = 0; positions && k < w->seq_len; k++)
        positions[k] = (int32_t)k;
}

static enum status read_window(void *user, int64_t i, struct batch *b, int64_t row)
{
    const struct windows *w = user;
    const int64_t length = w->seq_len;
    int32_t *window = w->scratch, *labels = w->scratch + length + 1;
    int32_t *targets = batch_row(b, ITEM_TARGETS, row);
    TRY(source_read(w->source, i * (length + 1), length + 1, window, labels));
    memcpy(batch_row(b, ITEM_TOKENS, row), window, (size_t)length * sizeof(*window));
    memcpy(targets, labels + 1, (size_t)length * sizeof(*targets));
    for (int64_t k = 0; k < length; k++)
        b->n_valid += targets[k] != LABEL_IGNORED;
    number_tokens(w, b, row);
    return OK;
}

static void blank_window(void *user, struct batch *b, int64_t row)
{
    const struct windows *w = user;
    int32_t *tokens = batch_row(b, ITEM_TOKENS, row), *targets = batch_row(b, ITEM_TARGETS, row);
    for (int64_t k = 0; k < w->seq_len; k++) {
        tokens[k] = 0;
        targets[k] = LABEL_IGNORED;
    }
    number_tokens(w, b, row);
}

struct dataset windows_dataset(struct windows *w)
{
    return (struct dataset){
        .user = w,
        .n_samples = source_n_tokens(w->source) / (w->seq_len + 1),
        .noun = "sequences",
        .size = w->seq_len,
        .size_noun = "tokens",
        .advice = "a shorter sequence length",
        .read = read_window,
        .blank = blank_window,
    };
}
