/* token_file.c: recognising and checking token files. Every number in a header is held against the
 * size of the file before anything is read through it. */
#include "data/token_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum {
    HEADER_BYTES = 1024,
    HEAD_BYTES = 65536, /* read to see what a file is; no header is longer */
    LLMC_MAGIC_U16 = 20240520,
    LLMC_MAGIC_U32 = 20240801,
};
static const char llmq_magic[] = "BIN.TOK\n";
static const char snug_magic[] = "SNUG.TOK";
static const char npy_magic[] = "\x93NUMPY";

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int64_t read_i64(const uint8_t *p)
{
    return (int64_t)((uint64_t)read_u32(p) | (uint64_t)read_u32(p + 4) << 32);
}

/* The beginning of a file. */
struct head {
    const uint8_t *data;
    size_t n;       /* bytes there are of it */
    size_t n_bytes; /* of the file */
    const char *what;
};

static int starts_with(const uint8_t *data, size_t n_bytes, const char *magic, size_t n_magic)
{
    return n_bytes >= n_magic && memcmp(data, magic, n_magic) == 0;
}

static int is_llmc(const uint8_t *data, size_t n_bytes)
{
    return n_bytes >= 4 && (read_u32(data) == LLMC_MAGIC_U16 || read_u32(data) == LLMC_MAGIC_U32);
}

int token_file_has_header(const char *path)
{
    struct file_in f;
    uint8_t data[8];
    size_t n;
    if (file_in_open(&f, path) != OK)
        return 0;
    n = MIN((size_t)f.n_bytes, sizeof(data));
    int known = file_in_read(&f, 0, data, n) == OK &&
                (is_llmc(data, n) || starts_with(data, n, llmq_magic, 8) ||
                 starts_with(data, n, snug_magic, 8) || starts_with(data, n, npy_magic, 6));
    file_in_close(&f);
    return known;
}

static enum status check_header_fits(const char *what, const char *format, size_t n_bytes)
{
    if (n_bytes < HEADER_BYTES)
        return FAIL(ERR_DATA,
                    "%s: %s token file of %zu bytes is shorter than its header of %d: truncated",
                    what, format, n_bytes, (int)HEADER_BYTES);
    return OK;
}

static enum status check_size(const char *what, const char *format, size_t n_bytes,
                              int64_t n_tokens, uint64_t expected)
{
    if (n_tokens < 0)
        return FAIL(ERR_DATA, "%s: %s header says %" PRId64 " tokens", what, format, n_tokens);
    if ((uint64_t)n_bytes != expected)
        return FAIL(ERR_DATA,
                    "%s: %s header says %" PRId64 " tokens, so the file should have %" PRIu64
                    " bytes; it has %zu%s",
                    what, format, n_tokens, expected, n_bytes,
                    (uint64_t)n_bytes < expected ? ": truncated" : "");
    return OK;
}

static enum status parse_llmc(struct token_file *f, const struct head *h)
{
    const uint8_t *data = h->data;
    const char *what = h->what;
    size_t n_bytes = h->n_bytes;
    TRY(check_header_fits(what, "llm.c", n_bytes));
    int wide = read_u32(data) == LLMC_MAGIC_U32;
    int32_t version = (int32_t)read_u32(data + 4), expected = wide ? 7 : 1;
    if (version != expected)
        return FAIL(ERR_DATA, "%s: llm.c token file of version %d; %d is expected with magic %d",
                    what, (int)version, (int)expected,
                    wide ? (int)LLMC_MAGIC_U32 : (int)LLMC_MAGIC_U16);
    int64_t n_tokens = (int32_t)read_u32(data + 8);
    TRY(check_size(what, "llm.c", n_bytes, n_tokens,
                   HEADER_BYTES + (uint64_t)n_tokens * (wide ? 4 : 2)));
    f->format = "llm.c";
    f->tokens = (struct token_array){.what = what,
                                     .first = HEADER_BYTES,
                                     .dtype = wide ? TOKEN_U32 : TOKEN_U16,
                                     .n_tokens = n_tokens};
    return OK;
}

static enum status parse_llmq(struct token_file *f, const struct head *h)
{
    const uint8_t *data = h->data;
    const char *what = h->what;
    size_t n_bytes = h->n_bytes;
    TRY(check_header_fits(what, "LLMQ", n_bytes));
    int32_t header[5];
    for (int i = 0; i < 5; i++)
        header[i] = (int32_t)read_u32(data + 8 + 4 * i);
    if (header[0] != 2)
        return FAIL(ERR_DATA, "%s: LLMQ token file of version %d; 2 is expected", what,
                    (int)header[0]);
    if (header[1] != 4)
        return FAIL(ERR_DATA, "%s: LLMQ token file with %d bytes per token; 4 are expected", what,
                    (int)header[1]);
    if (header[4] != 0 && header[4] != 1)
        return FAIL(ERR_DATA, "%s: LLMQ header says %d where 0 or 1 (masks) is expected", what,
                    (int)header[4]);
    int64_t n_tokens = header[2];
    uint64_t n_ids = (uint64_t)n_tokens * 4;
    uint64_t n_mask = header[4] ? ((uint64_t)n_tokens + 7) / 8 : 0;
    TRY(check_size(what, "LLMQ", n_bytes, n_tokens, HEADER_BYTES + n_ids + n_mask));
    f->format = "LLMQ";
    f->vocab_size = header[3] > 0 ? header[3] : 0;
    f->tokens = (struct token_array){.what = what,
                                     .first = HEADER_BYTES,
                                     .dtype = TOKEN_I32,
                                     .n_tokens = n_tokens,
                                     .mask = header[4] ? HEADER_BYTES + (int64_t)n_ids : 0};
    return OK;
}

static enum status parse_snug(struct token_file *f, const struct head *h)
{
    TRY(check_header_fits(h->what, "snug", h->n_bytes));
    uint32_t version = read_u32(h->data + 8), width = read_u32(h->data + 12);
    int64_t n_tokens = read_i64(h->data + 16);
    uint32_t masks = read_u32(h->data + 32);
    int64_t n_examples = version == 2 ? read_i64(h->data + 40) : 0;
    if (version < 1 || version > 2 || n_examples < 0 || n_examples > INT64_MAX / 16 ||
        (width != 2 && width != 4) || masks > 1 || n_tokens > INT64_MAX / 8)
        return FAIL(ERR_DATA,
                    "%s: snug token file of version %" PRIu32 " with %" PRIu32
                    " bytes per token; version 1 or 2 with 2 or 4 is expected",
                    h->what, version, width);
    uint64_t n_ids = (uint64_t)n_tokens * width;
    uint64_t n_mask = masks ? ((uint64_t)n_tokens + 7) / 8 : 0;
    uint64_t ends = HEADER_BYTES + n_ids + n_mask;
    TRY(check_size(h->what, "snug", h->n_bytes, n_tokens, ends + (uint64_t)n_examples * 8));
    f->format = "snug";
    f->n_examples = n_examples;
    f->ends = (int64_t)ends;
    f->counts = (struct example_counts){.n_read = read_i64(h->data + 48),
                                        .n_truncated = read_i64(h->data + 56),
                                        .n_dropped = read_i64(h->data + 64),
                                        .n_unlabelled = read_i64(h->data + 72)};
    f->vocab_size = MAX(read_i64(h->data + 24), (int64_t)0);
    f->tokens = (struct token_array){.what = h->what,
                                     .first = HEADER_BYTES,
                                     .dtype = width == 2 ? TOKEN_U16 : TOKEN_U32,
                                     .n_tokens = n_tokens,
                                     .mask = masks ? HEADER_BYTES + (int64_t)n_ids : 0};
    return OK;
}

/* Copies what follows `'key':` up to any of `stops` into out; false when it is not there. */
static int npy_field(const char *header, size_t n, const char *key, const char *stops, char *out,
                     size_t capacity)
{
    const char *at = memmem(header, n, key, strlen(key));
    if (!at)
        return 0;
    const char *end = header + n;
    size_t length = 0;
    for (at += strlen(key); at < end && *at == ' '; at++)
        ;
    while (at < end && !strchr(stops, *at) && length + 1 < capacity)
        out[length++] = *at++;
    out[length] = '\0';
    return at < end && *at != '\0' && strchr(stops, *at) != NULL;
}

static enum token_dtype npy_dtype(const char *descr)
{
    static const struct {
        const char *descr;
        enum token_dtype dtype;
    } known[] = {
        {"'<u2'", TOKEN_U16}, {"'<u4'", TOKEN_U32}, {"'<i4'", TOKEN_I32}, {"'<i8'", TOKEN_I64}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(descr, known[i].descr) == 0)
            return known[i].dtype;
    return TOKEN_NONE;
}

/* "(123,": one dimension, nothing else. */
static int npy_length(const char *shape, int64_t *n)
{
    if (shape[0] != '(' || shape[1] < '0' || shape[1] > '9')
        return 0;
    char *end;
    *n = strtoll(shape + 1, &end, 10);
    return *n >= 0 && *n < INT64_MAX / 8 && strcmp(end, ",") == 0;
}

static enum status parse_npy(struct token_file *f, const struct head *h)
{
    const uint8_t *data = h->data;
    const char *what = h->what;
    size_t n_bytes = h->n_bytes;
    if (n_bytes < 12)
        return FAIL(ERR_DATA, "%s: npy file of %zu bytes has no room for its header: truncated",
                    what, n_bytes);
    int version = data[6];
    if (version < 1 || version > 3)
        return FAIL(ERR_DATA, "%s: npy version %d; 1 to 3 are known", what, version);
    size_t start = version == 1 ? 10 : 12;
    size_t n_header = version == 1 ? (size_t)data[8] | (size_t)data[9] << 8 : read_u32(data + 8);
    if (n_header > n_bytes - start)
        return FAIL(ERR_DATA, "%s: npy header of %zu bytes in a file of %zu: truncated", what,
                    n_header, n_bytes);
    if (n_header > h->n - start)
        return FAIL(ERR_DATA, "%s: npy header of %zu bytes; at most %d are expected", what,
                    n_header, (int)HEAD_BYTES);
    const char *header = (const char *)data + start;
    char descr[32], shape[32], order[16];
    int64_t n_tokens;
    if (!npy_field(header, n_header, "'descr':", ",}", descr, sizeof(descr)) ||
        !npy_field(header, n_header, "'fortran_order':", ",}", order, sizeof(order)) ||
        !npy_field(header, n_header, "'shape':", ")", shape, sizeof(shape)))
        return FAIL(ERR_DATA, "%s: npy header lacks descr, fortran_order or shape", what);
    enum token_dtype dtype = npy_dtype(descr);
    if (dtype == TOKEN_NONE)
        return FAIL(ERR_DATA,
                    "%s: npy array of %s; token ids are '<u2', '<u4', '<i4' or '<i8' "
                    "(save it with .astype(np.uint16) or np.uint32)",
                    what, descr);
    if (!npy_length(shape, &n_tokens))
        return FAIL(ERR_DATA, "%s: npy shape %s); one dimension is expected (use .ravel())", what,
                    shape);
    TRY(check_size(what, "npy", n_bytes, n_tokens,
                   start + n_header + (uint64_t)n_tokens * (uint64_t)token_dtype_bytes(dtype)));
    f->format = "npy";
    f->tokens = (struct token_array){
        .what = what, .first = (int64_t)(start + n_header), .dtype = dtype, .n_tokens = n_tokens};
    return OK;
}

static enum status parse_headerless(struct token_file *f, const struct head *h,
                                    enum token_dtype dtype)
{
    const char *what = h->what;
    size_t n_bytes = h->n_bytes;
    if (dtype == TOKEN_NONE)
        return FAIL(ERR_DATA,
                    "%s: not a token file with a known header (llm.c, LLMQ, npy); if it is bare "
                    "ids, as nanoGPT writes them, give its dataset `type: nanogpt`, and "
                    "`token_dtype: u32` where they have 4 bytes",
                    what);
    size_t width = (size_t)token_dtype_bytes(dtype);
    if (n_bytes % width != 0)
        return FAIL(ERR_DATA,
                    "%s: %zu bytes is not a whole number of %zu-byte tokens: truncated, or another "
                    "token_dtype",
                    what, n_bytes, width);
    f->format = "headerless";
    f->tokens =
        (struct token_array){.what = what, .dtype = dtype, .n_tokens = (int64_t)(n_bytes / width)};
    return OK;
}

static enum status parse(struct token_file *f, const struct head *h, enum token_dtype headerless)
{
    *f = (struct token_file){0};
    if (h->n_bytes == 0)
        return FAIL(ERR_DATA, "%s: the token file is empty", h->what);
    if (is_llmc(h->data, h->n))
        return parse_llmc(f, h);
    if (starts_with(h->data, h->n, llmq_magic, 8))
        return parse_llmq(f, h);
    if (starts_with(h->data, h->n, snug_magic, 8))
        return parse_snug(f, h);
    if (starts_with(h->data, h->n, npy_magic, 6))
        return parse_npy(f, h);
    return parse_headerless(f, h, headerless);
}

enum status token_file_parse(struct token_file *f, const void *data, size_t n_bytes,
                             const char *what, enum token_dtype headerless)
{
    const struct head h = {data, n_bytes, n_bytes, what};
    TRY(parse(f, &h, headerless));
    f->tokens.memory = data;
    return OK;
}

enum status token_file_open(struct token_file *f, const char *path, enum token_dtype headerless)
{
    struct file_in *file = NULL;
    uint8_t *data = NULL;
    enum status status;
    *f = (struct token_file){0};
    TRY_GOTO(mem_try_array(&file, 1, sizeof(*file)), out);
    file->fd = -1;
    TRY_GOTO(file_in_open(file, path), out);
    struct head h = {.n = MIN((size_t)file->n_bytes, (size_t)HEAD_BYTES),
                     .n_bytes = (size_t)file->n_bytes,
                     .what = path};
    TRY_GOTO(mem_try_array(&data, h.n + 1, 1), out);
    TRY_GOTO(file_in_read(file, 0, data, h.n), out);
    h.data = data;
    TRY_GOTO(parse(f, &h, headerless), out);
    f->file = file;
    f->tokens.file = file;
out:
    mem_free(data);
    if (status != OK && file) {
        file_in_close(file);
        mem_free(file);
    }
    return status;
}

static enum status read_end(const struct token_file *f, int64_t i, int64_t *end)
{
    uint8_t bytes[8];
    *end = 0;
    if (i < 0)
        return OK;
    if (!f->file)
        memcpy(bytes, f->tokens.memory + f->ends + 8 * i, sizeof(bytes));
    else if (file_in_read(f->file, f->ends + 8 * i, bytes, sizeof(bytes)) != OK)
        return ERR_DATA; /* data that cannot be read is bad data */
    *end = read_i64(bytes);
    return OK;
}

enum status token_file_example(const struct token_file *f, int64_t i, int64_t *first, int64_t *n)
{
    int64_t end;
    BUG_ON(i < 0 || i >= f->n_examples);
    TRY(read_end(f, i - 1, first));
    TRY(read_end(f, i, &end));
    if (*first < 0 || end < *first || end > f->tokens.n_tokens)
        return FAIL(ERR_DATA,
                    "%s: example %" PRId64 " goes from token %" PRId64 " to %" PRId64 " of %" PRId64
                    ": damaged; remove it, and it is made again",
                    f->tokens.what, i, *first, end, f->tokens.n_tokens);
    *n = end - *first;
    return OK;
}

void token_file_close(struct token_file *f)
{
    if (f->file)
        file_in_close(f->file);
    mem_free(f->file);
    *f = (struct token_file){0};
}
