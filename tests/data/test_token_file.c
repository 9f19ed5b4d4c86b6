/* Token files: each format read back, and every way a header can disagree with its file. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/vec.h"
#include "data/token_file.h"
#include "support/scratch.h"

/* A file being put together in memory. */
struct bytes {
    uint8_t *items;
    size_t n, capacity;
};

static void put(struct bytes *b, const void *data, size_t n)
{
    assert_int_equal(vec_reserve(b, n + 1), OK);
    memcpy(b->items + b->n, data, n);
    b->n += n;
}

static void put_int(struct bytes *b, int64_t value, size_t width)
{
    uint8_t out[8];
    for (size_t i = 0; i < width; i++)
        out[i] = (uint8_t)((uint64_t)value >> (8 * i));
    put(b, out, width);
}

static void pad_to(struct bytes *b, size_t n)
{
    while (b->n < n)
        put_int(b, 0, 1);
}

static struct bytes llmc(int32_t magic, int32_t version, int32_t count, int n, size_t width)
{
    struct bytes b = {0};
    put_int(&b, magic, 4);
    put_int(&b, version, 4);
    put_int(&b, count, 4);
    pad_to(&b, 1024);
    for (int i = 0; i < n; i++)
        put_int(&b, 3 * i + 1, width);
    return b;
}

static struct bytes llmq(int32_t version, int32_t width, int32_t count, int32_t masks)
{
    struct bytes b = {0};
    put(&b, "BIN.TOK\n", 8);
    const int32_t header[] = {version, width, count, 500, masks};
    for (int i = 0; i < 5; i++)
        put_int(&b, header[i], 4);
    pad_to(&b, 1024);
    for (int i = 0; i < 10; i++)
        put_int(&b, 3 * i + 1, 4);
    return b;
}

static struct bytes npy(const char *descr, const char *shape, int n, size_t width)
{
    struct bytes b = {0};
    char header[119];
    int length = snprintf(header, sizeof(header),
                          "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    memset(header + length, ' ', sizeof(header) - (size_t)length);
    header[117] = '\n';
    put(&b, "\x93NUMPY\x01\x00", 8);
    put_int(&b, 118, 2);
    put(&b, header, 118);
    for (int i = 0; i < n; i++)
        put_int(&b, 3 * i + 1, width);
    return b;
}

static void expect_tokens(struct bytes b, enum token_dtype headerless, const char *format, int n)
{
    struct token_file f;
    enum status status = token_file_parse(&f, b.items, b.n, "x.bin", headerless);
    if (status != OK)
        fail_msg("%s", status_message());
    assert_string_equal(f.format, format);
    assert_int_equal(f.tokens.n_tokens, n);
    int32_t tokens[64], labels[64];
    assert_int_equal(token_array_read(&f.tokens, 0, n, 1000, tokens, labels), OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(tokens[i], 3 * i + 1);
        if (!f.tokens.mask)
            assert_int_equal(labels[i], 3 * i + 1);
    }
    vec_release(&b);
}

static void expect_refusal(struct bytes b, enum token_dtype headerless, const char *says)
{
    struct token_file f;
    enum status status = token_file_parse(&f, b.items, b.n, "x.bin", headerless);
    if (status != ERR_DATA || !strstr(status_message(), says) || !strstr(status_message(), "x.bin"))
        fail_msg("expected '%s', got %s: %s", says, status_name(status), status_message());
    vec_release(&b);
}

static void each_format_is_recognised_and_read(void **state)
{
    (void)state;
    expect_tokens(llmc(20240520, 1, 10, 10, 2), TOKEN_NONE, "llm.c", 10);
    expect_tokens(llmc(20240801, 7, 10, 10, 4), TOKEN_NONE, "llm.c", 10);
    expect_tokens(llmq(2, 4, 10, 0), TOKEN_NONE, "LLMQ", 10);
    expect_tokens(npy("<u2", "(10,)", 10, 2), TOKEN_NONE, "npy", 10);
    expect_tokens(npy("<u4", "(10,)", 10, 4), TOKEN_NONE, "npy", 10);
    expect_tokens(npy("<i4", "(10,)", 10, 4), TOKEN_NONE, "npy", 10);
    expect_tokens(npy("<i8", "(10,)", 10, 8), TOKEN_NONE, "npy", 10);
    struct bytes bare = {0};
    for (int i = 0; i < 10; i++)
        put_int(&bare, 3 * i + 1, 2);
    expect_tokens(bare, TOKEN_U16, "headerless", 10);
    struct bytes wide = {0};
    for (int i = 0; i < 10; i++)
        put_int(&wide, 3 * i + 1, 4);
    expect_tokens(wide, TOKEN_U32, "headerless", 10);
}

static void masks_say_which_tokens_are_labels(void **state)
{
    (void)state;
    struct bytes b = llmq(2, 4, 10, 1);
    put_int(&b, 0x0205, 2); /* tokens 0, 2 and 9 */
    struct token_file f;
    assert_int_equal(token_file_parse(&f, b.items, b.n, "x.bin", TOKEN_NONE), OK);
    assert_int_equal(f.vocab_size, 500);
    int32_t tokens[8], labels[8];
    assert_int_equal(token_array_read(&f.tokens, 2, 8, 500, tokens, labels), OK);
    assert_int_equal(labels[0], 7);
    for (int i = 1; i < 7; i++)
        assert_int_equal(labels[i], LABEL_IGNORED);
    assert_int_equal(labels[7], 28);
    assert_int_equal(tokens[3], 16);
    vec_release(&b);
}

static struct bytes cut(struct bytes b, size_t n)
{
    b.n = n;
    return b;
}

static void headers_that_disagree_with_the_file_are_refused(void **state)
{
    (void)state;
    expect_refusal((struct bytes){0}, TOKEN_U16, "empty");
    expect_refusal(cut(llmc(20240520, 1, 10, 10, 2), 100), TOKEN_U16, "truncated");
    expect_refusal(cut(llmc(20240520, 1, 10, 10, 2), 1040), TOKEN_NONE, "1044 bytes; it has 1040");
    expect_refusal(llmc(20240520, 1, 9, 10, 2), TOKEN_NONE, "1042 bytes; it has 1044");
    expect_refusal(llmc(20240520, 1, -1, 10, 2), TOKEN_NONE, "-1 tokens");
    expect_refusal(llmc(20240520, 1, INT32_MAX, 10, 2), TOKEN_NONE, "truncated");
    expect_refusal(llmc(20240520, 2, 10, 10, 2), TOKEN_NONE, "version 2");
    expect_refusal(llmc(20240801, 1, 10, 10, 4), TOKEN_NONE, "version 1");
    expect_refusal(llmq(1, 4, 10, 0), TOKEN_NONE, "version 1");
    expect_refusal(llmq(2, 2, 10, 0), TOKEN_NONE, "2 bytes per token");
    expect_refusal(llmq(2, 4, 10, 1), TOKEN_NONE, "truncated");
    expect_refusal(llmq(2, 4, 10, 7), TOKEN_NONE, "7");
    expect_refusal(llmq(2, 4, 11, 0), TOKEN_NONE, "1068 bytes");
    expect_refusal(cut(llmq(2, 4, 10, 0), 30), TOKEN_NONE, "truncated");
    expect_refusal(npy("<f4", "(10,)", 10, 4), TOKEN_NONE, "<f4");
    expect_refusal(npy(">u2", "(10,)", 10, 2), TOKEN_NONE, ">u2");
    expect_refusal(npy("<u2", "(5, 2)", 10, 2), TOKEN_NONE, "one dimension");
    expect_refusal(npy("<u2", "()", 10, 2), TOKEN_NONE, "one dimension");
    expect_refusal(npy("<u2", "(11,)", 10, 2), TOKEN_NONE, "truncated");
    expect_refusal(npy("<u2", "(99999999999999999999,)", 10, 2), TOKEN_NONE, "one dimension");
    expect_refusal(cut(npy("<u2", "(10,)", 10, 2), 60), TOKEN_NONE, "truncated");
    expect_refusal(cut(npy("<u2", "(10,)", 10, 2), 9), TOKEN_NONE, "truncated");
    struct bytes odd = {0};
    put(&odd, "abcde", 5);
    expect_refusal(odd, TOKEN_U16, "5 bytes");
    struct bytes unknown = {0};
    put(&unknown, "abcd", 4);
    expect_refusal(unknown, TOKEN_NONE, "token_dtype");
}

static void ids_outside_the_vocabulary_are_named(void **state)
{
    (void)state;
    const int64_t ids[] = {5, 6, 70000, -3, (int64_t)1 << 40, INT64_MAX};
    struct token_array a = {
        .what = "x.npy", .memory = (const uint8_t *)ids, .dtype = TOKEN_I64, .n_tokens = 6};
    int32_t tokens[5];
    assert_int_equal(token_array_read(&a, 0, 2, 7, tokens, NULL), OK);
    assert_int_equal(token_array_read(&a, 1, 2, 50257, tokens, NULL), ERR_DATA);
    assert_string_equal(
        status_message(),
        "x.npy: token 70000 at position 2 is outside the vocabulary of 50257: use "
        "the tokenizer that belongs to the model, or a model whose vocab_size is at "
        "least the tokenizer's");
    assert_int_equal(token_array_check(&a, 3, 1, 50257), ERR_DATA);
    assert_non_null(strstr(status_message(), "negative"));
    for (int i = 4; i < 6; i++) {
        assert_int_equal(token_array_check(&a, i, 1, 50257), ERR_DATA);
        assert_non_null(strstr(status_message(), "too large"));
    }
    assert_int_equal(token_array_check(&a, 0, 3, 70001), OK);
}

static int count_files(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *entry = readdir(d); entry; entry = readdir(d))
        n += entry->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    struct scratch scratch;
    char path[SCRATCH_PATH];
    scratch_init(&scratch);
    (void)scratch_path(&scratch, "x.bin", path);
    for (int wide = 0; wide < 2; wide++) {
        enum { N = 100000 };
        int64_t vocab = wide ? 65537 : 65536;
        int32_t *ids = mem_alloc(N * sizeof(*ids)), *back = mem_alloc(N * sizeof(*ids));
        assert_true(ids && back);
        struct rng r = {.key = 3, .stream = (uint64_t)wide};
        for (int i = 0; i < N; i++)
            ids[i] = (int32_t)rng_below(&r, (uint64_t)vocab);
        struct token_writer *w;
        assert_int_equal(token_writer_open(&w, path, TOKEN_FORMAT_LLMC, vocab), OK);
        assert_int_equal(token_writer_add(w, ids, NULL, 1), OK);
        assert_int_equal(token_writer_add(w, ids + 1, NULL, N - 1), OK);
        assert_int_equal(token_writer_commit(w), OK);
        struct token_file f;
        assert_int_equal(token_file_open(&f, path, TOKEN_NONE), OK);
        assert_int_equal(f.tokens.dtype, wide ? TOKEN_U32 : TOKEN_U16);
        assert_int_equal(f.tokens.n_tokens, N);
        assert_int_equal(token_array_read(&f.tokens, 0, N, vocab, back, NULL), OK);
        assert_memory_equal(ids, back, N * sizeof(*ids));
        token_file_close(&f);
        mem_free(ids);
        mem_free(back);
    }
    scratch_release(&scratch);
}

/* Labels begin to matter in the middle of a byte of the mask and far behind its first buffer. */
static void labels_are_written_and_read_back(void **state)
{
    (void)state;
    enum { N = 150000, FIRST = 70003 };
    struct scratch scratch;
    char path[SCRATCH_PATH];
    scratch_init(&scratch);
    (void)scratch_path(&scratch, "x.bin", path);
    int32_t *ids = mem_calloc(4 * N, sizeof(*ids));
    assert_non_null(ids);
    int32_t *labels = ids + N, *back = labels + N, *back_labels = back + N;
    for (int i = 0; i < N; i++) {
        ids[i] = i % 60000;
        labels[i] = i >= FIRST && i % 3 ? LABEL_IGNORED : ids[i];
    }
    struct token_writer *w;
    struct token_file f;
    assert_int_equal(token_writer_open(&w, path, TOKEN_FORMAT_SNUG, 60000), OK);
    assert_int_equal(token_writer_add(w, ids, NULL, 5), OK);
    for (int i = 5; i < N; i += 1000)
        assert_int_equal(token_writer_add(w, ids + i, labels + i, (size_t)MIN(1000, N - i)), OK);
    assert_int_equal(token_writer_n_tokens(w), N);
    assert_int_equal(token_writer_commit(w), OK);
    assert_int_equal(count_files(scratch.folder), 1);
    assert_int_equal(token_file_open(&f, path, TOKEN_NONE), OK);
    assert_string_equal(f.format, "snug");
    assert_int_equal(f.vocab_size, 60000);
    assert_int_equal(token_array_read(&f.tokens, 3, N - 3, 60000, back, back_labels), OK);
    assert_memory_equal(ids + 3, back, (N - 3) * sizeof(*ids));
    assert_memory_equal(labels + 3, back_labels, (N - 3) * sizeof(*ids));
    token_file_close(&f);
    mem_free(ids);
    scratch_release(&scratch);
}

static void a_full_disk_leaves_the_old_file_and_no_rest(void **state)
{
    (void)state;
    struct scratch scratch;
    char path[SCRATCH_PATH];
    scratch_init(&scratch);
    (void)scratch_path(&scratch, "x.bin", path);
    assert_int_equal(file_write_atomic(path, "old", 3), OK);
    const int32_t id = 7, ignored = LABEL_IGNORED, outside = 100;
    int n_failures = 0;
    for (int64_t n = 1;; n++) {
        int64_t before = mem_live();
        struct token_writer *w = NULL;
        file_fail_after(n);
        enum status status = token_writer_open(&w, path, TOKEN_FORMAT_SNUG, 100);
        if (status == OK)
            status = token_writer_add(w, &id, &ignored, 1);
        if (status == OK)
            status = token_writer_commit(w);
        else if (w)
            token_writer_abandon(w);
        file_fail_after(0);
        assert_int_equal(mem_live(), before);
        assert_int_equal(count_files(scratch.folder), 1);
        if (status == OK)
            break;
        n_failures++;
        assert_int_equal(status, ERR_IO);
        char *text;
        size_t n_bytes;
        assert_int_equal(file_read(path, &text, &n_bytes), OK);
        assert_int_equal(n_bytes, 3);
        mem_free(text);
    }
    assert_true(n_failures >= 5);
    struct token_writer *w;
    assert_int_equal(token_writer_open(&w, path, TOKEN_FORMAT_SNUG, 100), OK);
    assert_int_equal(token_writer_add(w, &outside, NULL, 1), ERR_DATA);
    token_writer_abandon(w);
    assert_int_equal(count_files(scratch.folder), 1);
    scratch_release(&scratch);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    struct token_file f;
    assert_int_equal(token_file_open(&f, "/tmp/snug-no-such-file.bin", TOKEN_U16), ERR_IO);
    assert_non_null(strstr(status_message(), "/tmp/snug-no-such-file.bin"));
    token_file_close(&f);
}

static void dtype_names_are_understood(void **state)
{
    (void)state;
    assert_int_equal(token_dtype_parse("uint16"), TOKEN_U16);
    assert_int_equal(token_dtype_parse("u32"), TOKEN_U32);
    assert_int_equal(token_dtype_parse("float"), TOKEN_NONE);
    assert_int_equal(token_dtype_for_vocab(65536), TOKEN_U16);
    assert_int_equal(token_dtype_for_vocab(65537), TOKEN_U32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_format_is_recognised_and_read),
        cmocka_unit_test(masks_say_which_tokens_are_labels),
        cmocka_unit_test(headers_that_disagree_with_the_file_are_refused),
        cmocka_unit_test(ids_outside_the_vocabulary_are_named),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(labels_are_written_and_read_back),
        cmocka_unit_test(a_full_disk_leaves_the_old_file_and_no_rest),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(dtype_names_are_understood),
    };
    return cmocka_run_group_tests_name("token_file", tests, NULL, NULL);
}
