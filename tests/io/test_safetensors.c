/* Reading and writing one safetensors file: round trips, every way a file can be malformed,
 * truncation at every byte, and failures of memory and disk at every call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "io/safetensors.h"
#include "support/scratch.h"

/* Bytes of a file: length prefix, header text, n_data bytes counting up. */
static char *make_file(const char *header, size_t n_data, size_t *n_bytes)
{
    size_t n = strlen(header);
    char *bytes = test_malloc(8 + n + n_data);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)n >> (8 * i) & 0xff);
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < n_data; i++)
        bytes[8 + n + i] = (char)i;
    *n_bytes = 8 + n + n_data;
    return bytes;
}

/* Opens a file made of header and data in memory. */
static enum status open_made(struct st_reader **r, char **bytes, const char *header, size_t n_data)
{
    size_t n_bytes;
    *bytes = make_file(header, n_data, &n_bytes);
    return st_reader_open_memory(r, *bytes, n_bytes, "made.safetensors");
}

/* The file must be refused as bad data, with file name and `part` in the message, no leak. */
static void refuse(const char *header, size_t n_data, const char *part)
{
    int64_t live = mem_live();
    struct st_reader *r = (struct st_reader *)&live; /* must be overwritten */
    char *bytes;
    enum status s = open_made(&r, &bytes, header, n_data);
    if (s != ERR_DATA)
        fail_msg("%s gave %s", header, status_name(s));
    assert_null(r);
    expect_message("made.safetensors");
    expect_message(part);
    assert_int_equal(mem_live(), live);
    test_free(bytes);
}

static void every_dtype_has_its_name_and_width(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int bits;
    } want[] = {{"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F4", 4},
                {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"F8_E5M2", 8},     {"F8_E4M3", 8},
                {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
                {"U16", 16},    {"F16", 16},        {"BF16", 16},       {"I32", 32},
                {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},
                {"I64", 64},    {"U64", 64}};
    assert_int_equal(ARRAY_LEN(want), ST_DTYPE_COUNT);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        enum st_dtype dtype;
        assert_true(st_dtype_parse(want[i].name, &dtype));
        assert_string_equal(st_dtype_name(dtype), want[i].name);
        assert_int_equal(st_dtype_bits(dtype), want[i].bits);
    }
    enum st_dtype dtype;
    assert_false(st_dtype_parse("f32", &dtype));
    assert_false(st_dtype_parse("", &dtype));
}

/* Byte k of tensor number i in the round trips. */
static uint8_t pattern(int64_t i, size_t k)
{
    return (uint8_t)(17 * i + 31 * (int64_t)k + 5);
}

/* Declares one [2, 3, 4] tensor of every dtype, a scalar, and two empty ones. */
static enum status declare_all(struct st_writer *w)
{
    static const int64_t dims[] = {2, 3, 4}, empty[] = {0}, empty_2d[] = {5, 0};
    char name[64];
    for (int i = 0; i < ST_DTYPE_COUNT; i++) {
        (void)snprintf(name, sizeof(name), "t.%s", st_dtype_name((enum st_dtype)i));
        TRY(st_writer_add(w, name, (enum st_dtype)i, 3, dims));
    }
    TRY(st_writer_add(w, "scalar \"quoted\" \xc3\xa9", ST_F32, 0, NULL));
    TRY(st_writer_add(w, "empty", ST_F16, 1, empty));
    TRY(st_writer_add(w, "empty_2d", ST_I64, 2, empty_2d));
    return OK;
}

/* The size of declared tensor number i of declare_all. */
static size_t declared_bytes(int64_t i)
{
    return i < ST_DTYPE_COUNT ? 24 * (size_t)st_dtype_bits((enum st_dtype)i) / 8 : 4;
}

/* Writes everything declared, in two appends where there is room for two. */
static enum status fill_all(struct st_writer *w)
{
    uint8_t bytes[24 * 8];
    for (int64_t i; (i = st_writer_next(w)) >= 0;) {
        size_t n = declared_bytes(i);
        for (size_t k = 0; k < n; k++)
            bytes[k] = pattern(i, k);
        TRY(st_writer_append(w, bytes, n / 3));
        TRY(st_writer_append(w, bytes + n / 3, n - n / 3));
    }
    return OK;
}

static enum status write_all(const char *path)
{
    struct st_writer *w;
    TRY(st_writer_new(&w));
    enum status status;
    TRY_GOTO(st_writer_metadata(w, "made by", "a test"), out);
    TRY_GOTO(declare_all(w), out);
    TRY_GOTO(st_writer_open_file(w, path), out);
    TRY_GOTO(fill_all(w), out);
    TRY_GOTO(st_writer_finish(w, 1), out);
out:
    st_writer_free(w);
    return status;
}

static void check_tensor(const struct st_reader *r, int64_t i, const char *name, int rank)
{
    const struct st_tensor *t;
    assert_int_equal(st_reader_get(r, name, &t), OK);
    assert_string_equal(t->name, name);
    assert_int_equal(t->rank, rank);
    assert_int_equal(t->n_bytes, declared_bytes(i));
    assert_int_equal(t->n_elems, rank == 0 ? 1 : 24);
    for (size_t k = 0; k < (size_t)t->n_bytes; k++)
        assert_int_equal(t->data[k], pattern(i, k));
    int width = st_dtype_bits(t->dtype) / 8;
    if (width > 1)
        assert_int_equal(t->offset % width, 0);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    int64_t live = mem_live();
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH], name[64];
    assert_int_equal(write_all(scratch_path(&s, "a.safetensors", path)), OK);

    struct st_reader *r;
    assert_int_equal(st_reader_open_file(&r, path), OK);
    assert_int_equal(st_reader_count(r), ST_DTYPE_COUNT + 3);
    for (int i = 0; i < ST_DTYPE_COUNT; i++) {
        (void)snprintf(name, sizeof(name), "t.%s", st_dtype_name((enum st_dtype)i));
        check_tensor(r, i, name, 3);
        const struct st_tensor *t = st_reader_find(r, name);
        assert_int_equal(t->dtype, i);
        assert_int_equal(t->dims[0], 2);
        assert_int_equal(t->dims[1], 3);
        assert_int_equal(t->dims[2], 4);
        assert_string_equal(t->file, path);
    }
    check_tensor(r, ST_DTYPE_COUNT, "scalar \"quoted\" \xc3\xa9", 0);
    assert_int_equal(st_reader_find(r, "empty")->n_bytes, 0);
    assert_int_equal(st_reader_find(r, "empty_2d")->dims[0], 5);
    assert_int_equal(st_reader_find(r, "empty_2d")->n_elems, 0);
    assert_string_equal(st_reader_metadata(r, "format"), "pt");
    assert_string_equal(st_reader_metadata(r, "made by"), "a test");
    assert_null(st_reader_metadata(r, "other"));

    int64_t total = 0;
    for (size_t i = 0; i < st_reader_count(r); i++)
        total += st_reader_at(r, i)->n_bytes;
    assert_int_equal(st_reader_bytes(r), total);
    st_reader_close(r);
    scratch_release(&s);
    assert_int_equal(mem_live(), live);
}

static void header_is_padded_to_eight_and_starts_with_a_brace(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH], name[40];
    for (size_t n_name = 1; n_name <= 9; n_name++) {
        struct st_writer *w;
        assert_int_equal(st_writer_new(&w), OK);
        memset(name, 'n', n_name);
        name[n_name] = '\0';
        assert_int_equal(st_writer_add(w, name, ST_U8, 0, NULL), OK);
        assert_int_equal(st_writer_open_file(w, scratch_path(&s, "p", path)), OK);
        assert_int_equal(st_writer_append(w, "x", 1), OK);
        assert_int_equal(st_writer_finish(w, 0), OK);
        st_writer_free(w);
        char *text;
        size_t n;
        assert_int_equal(file_read(path, &text, &n), OK);
        assert_int_equal((n - 1) % 8, 0);
        assert_int_equal((uint8_t)text[0], n - 9);
        assert_int_equal(text[8], '{');
        assert_int_equal(text[n - 1], 'x');
        mem_free(text);
    }
    scratch_release(&s);
}

static void a_file_without_tensors_is_fine(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    struct st_writer *w;
    assert_int_equal(st_writer_new(&w), OK);
    assert_int_equal(st_writer_open_file(w, scratch_path(&s, "none", path)), OK);
    assert_int_equal(st_writer_next(w), -1);
    assert_int_equal(st_writer_finish(w, 0), OK);
    st_writer_free(w);
    struct st_reader *r;
    assert_int_equal(st_reader_open_file(&r, path), OK);
    assert_int_equal(st_reader_count(r), 0);
    assert_null(st_reader_find(r, "x"));
    const struct st_tensor *t;
    assert_int_equal(st_reader_get(r, "x", &t), ERR_DATA);
    st_reader_close(r);
    scratch_release(&s);
}

static void tensors_come_in_order_of_their_bytes(void **state)
{
    (void)state;
    struct st_reader *r;
    char *bytes;
    assert_int_equal(
        open_made(&r, &bytes,
                  "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]},"
                  "\"z\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                  "\"e\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[4,4],\"new\":1}}  ",
                  6),
        OK);
    assert_string_equal(st_reader_at(r, 0)->name, "z");
    assert_string_equal(st_reader_at(r, 1)->name, "e");
    assert_string_equal(st_reader_at(r, 2)->name, "a");
    assert_int_equal(st_reader_find(r, "a")->data[1], 5);
    assert_ptr_equal(bytes + st_reader_find(r, "a")->offset, st_reader_find(r, "a")->data);
    st_reader_close(r);
    test_free(bytes);
}

static void a_missing_tensor_is_named_with_its_nearest(void **state)
{
    (void)state;
    struct st_reader *r;
    char *bytes;
    assert_int_equal(
        open_made(&r, &bytes,
                  "{\"lm_head.weight\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1),
        OK);
    const struct st_tensor *t;
    assert_int_equal(st_reader_get(r, "lm_head.weigth", &t), ERR_DATA);
    assert_null(t);
    expect_message("no tensor 'lm_head.weigth'");
    expect_message("nearest: 'lm_head.weight'");
    st_reader_close(r);
    test_free(bytes);
}

#define T(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void malformed_headers_are_refused_by_name(void **state)
{
    (void)state;
    refuse("[1]", 0, "does not start with '{'");
    refuse("", 0, "does not start with '{'");
    refuse(" {}", 0, "does not start with '{'");
    refuse("{", 0, "not valid JSON");
    refuse("{} x", 0, "not valid JSON");
    refuse("{\"a\":\"\xff\"}", 0, "not valid JSON");
    refuse("{\"a\":" T("U8", "[1]", 0, 1) ",\"a\":" T("U8", "[1]", 0, 1) "}", 1, "duplicate");
    refuse("{\"a\":" T("U8", "[1]", 0, 1) ",\"\\u0061\":" T("U8", "[1]", 1, 2) "}", 2, "duplicate");
    refuse("{\"a\":7}", 0, "tensor 'a': its entry is not an object");
    refuse("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    refuse("{\"__metadata__\":{\"k\":1}}", 0, "__metadata__ value of 'k' is not a string");
}

static void malformed_tensors_are_refused_by_name(void **state)
{
    (void)state;
    refuse("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor 'a': no \"dtype\"");
    refuse("{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "'a': no \"dtype\"");
    refuse("{\"a\":" T("F23", "[1]", 0, 4) "}", 4, "tensor 'a': unknown dtype \"F23\"");
    refuse("{\"a\":" T("f32", "[1]", 0, 4) "}", 4, "nearest is F32");
    refuse("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "tensor 'a': no \"shape\"");
    refuse("{\"a\":" T("U8", "{}", 0, 1) "}", 1, "tensor 'a': no \"shape\"");
    refuse("{\"a\":" T("U8", "[1.0]", 0, 1) "}", 1, "'a': \"shape\"[0] is not an integer");
    refuse("{\"a\":" T("U8", "[1,\"1\"]", 0, 1) "}", 1, "'a': \"shape\"[1] is not an integer");
    refuse("{\"a\":" T("U8", "[1,-1]", 0, 1) "}", 1, "'a': dimension 1 is -1");
    refuse("{\"a\":" T("U8", "[4294967296,4294967296]", 0, 1) "}", 1, "overflows at dimension 1");
    refuse("{\"a\":" T("U8", "[4294967296,4294967296,0]", 0, 0) "}", 0, "overflows");
    refuse("{\"a\":" T("U8", "[9223372036854775808]", 0, 1) "}", 1, "not an integer");
    refuse("{\"a\":" T("F64", "[2305843009213693952]", 0, 1) "}", 1, "overflow the byte count");
    refuse("{\"a\":" T("F4", "[3]", 0, 1) "}", 1, "do not fill whole bytes");
}

static void malformed_offsets_are_refused_by_name(void **state)
{
    (void)state;
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "'a': \"data_offsets\" is not");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "is not [begin");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "is not [begin");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.0]}}", 1, "is not [begin");
    refuse("{\"a\":" T("U8", "[1]", -1, 0) "}", 1, "tensor 'a': data_offsets [-1, 0]");
    refuse("{\"a\":" T("U8", "[1]", 2, 1) "}", 2, "do not go from begin to end");
    refuse("{\"a\":" T("U8", "[9]", 0, 9) "}", 8, "run past the 8 bytes of data");
    refuse("{\"a\":" T("U8", "[1]", 9223372036854775806, 9223372036854775807) "}", 8, "run past");
    refuse("{\"a\":" T("F32", "[2]", 0, 7) "}", 7, "hold 7 bytes, but its shape of F32 needs 8");
    refuse("{\"a\":" T("F32", "[2]", 0, 9) "}", 9, "hold 9 bytes, but its shape of F32 needs 8");
}

static void overlaps_and_holes_are_refused_by_name(void **state)
{
    (void)state;
    refuse("{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 3, 7) "}", 7,
           "tensor 'b': its data at byte 3 overlaps tensor 'a', which ends at 4");
    refuse("{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 0, 4) "}", 4, "overlaps");
    refuse("{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[0]", 2, 2) "}", 4, "overlaps");
    refuse("{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[2]", 6, 8) "}", 8,
           "tensor 'b': 2 bytes before its data belong to no tensor (a hole at byte 4)");
    refuse("{\"a\":" T("U8", "[2]", 2, 4) "}", 4, "a hole at byte 0");
    refuse("{\"a\":" T("U8", "[2]", 0, 2) "}", 4, "2 bytes after tensor 'a' belong to no tensor");
    refuse("{}", 1, "1 bytes after tensor '(none)' belong to no tensor");
}

static void impossible_header_lengths_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *part;
    } cases[] = {
        {100000001, "over the format's limit of 100000000"},
        {UINT64_MAX, "over the format's limit of 100000000"},
        {UINT64_MAX - 7, "over the format's limit of 100000000"},
        {100000000, "runs past the end of the file (10 bytes)"},
        {3, "runs past the end of the file (10 bytes)"},
        {0, "does not start with '{'"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char bytes[10] = "........{}";
        for (int k = 0; k < 8; k++)
            bytes[k] = (char)(cases[i].length >> (8 * k) & 0xff);
        struct st_reader *r;
        assert_int_equal(st_reader_open_memory(&r, bytes, sizeof(bytes), "m"), ERR_DATA);
        assert_null(r);
        expect_message(cases[i].part);
    }
}

static void a_git_lfs_pointer_is_recognised(void **state)
{
    (void)state;
    static const char text[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    struct st_reader *r;
    assert_int_equal(st_reader_open_memory(&r, text, sizeof(text) - 1, "model.safetensors"),
                     ERR_DATA);
    expect_message("git lfs pull");
}

static void deep_nesting_is_refused_not_followed(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *header = test_malloc(2 * DEPTH + 16);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEPTH);
    memset(header + 5 + DEPTH, ']', DEPTH);
    memcpy(header + 5 + 2 * DEPTH, "}", 2);
    refuse(header, 0, "not valid JSON");
    test_free(header);
}

static void truncation_at_every_byte_is_an_error(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    assert_int_equal(write_all(scratch_path(&s, "whole", path)), OK);
    char *text;
    size_t n;
    assert_int_equal(file_read(path, &text, &n), OK);
    int64_t live = mem_live();
    for (size_t cut = 0; cut < n; cut++) {
        /* A fresh block of exactly that size, so that a sanitizer sees any read past it. */
        char *part = test_malloc(cut ? cut : 1);
        memcpy(part, text, cut);
        struct st_reader *r;
        assert_int_equal(st_reader_open_memory(&r, part, cut, "cut"), ERR_DATA);
        assert_null(r);
        expect_message("cut");
        assert_int_equal(mem_live(), live);
        test_free(part);
    }
    struct st_reader *r;
    assert_int_equal(st_reader_open_memory(&r, text, n, "whole"), OK);
    st_reader_close(r);
    mem_free(text);

    /* The same through files, at a few places. */
    for (size_t cut = 0; cut < 16; cut++) {
        scratch_write(&s, "part", "\x08\0\0\0\0\0\0\0{      }", cut);
        enum status status = st_reader_open_file(&r, scratch_path(&s, "part", path));
        assert_int_equal(status, ERR_DATA);
        expect_message(path);
    }
    scratch_release(&s);
}

static void a_missing_file_is_an_input_error_with_its_path(void **state)
{
    (void)state;
    struct st_reader *r;
    assert_int_equal(st_reader_open_file(&r, "/nowhere/x.safetensors"), ERR_IO);
    assert_null(r);
    expect_message("/nowhere/x.safetensors");
}

static void the_writer_refuses_what_it_cannot_write(void **state)
{
    (void)state;
    static const int64_t negative[] = {-1}, huge[] = {INT64_MAX, 2}, half[] = {INT64_MAX / 8};
    int64_t live = mem_live();
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    struct st_writer *w;
    assert_int_equal(st_writer_new(&w), OK);
    assert_int_equal(st_writer_add(w, "__metadata__", ST_U8, 0, NULL), ERR_DATA);
    assert_int_equal(st_writer_add(w, "n", ST_U8, 1, negative), ERR_DATA);
    expect_message("tensor 'n'");
    assert_int_equal(st_writer_add(w, "h", ST_U8, 2, huge), ERR_DATA);
    for (int i = 0; i < 8; i++) {
        char name[2] = {(char)('a' + i), 0};
        assert_int_equal(st_writer_add(w, name, ST_U8, 1, half), OK);
    }
    assert_int_equal(st_writer_add(w, "i", ST_U8, 1, half), ERR_DATA);
    expect_message("together overflow");
    assert_int_equal(st_writer_add(w, "a", ST_U8, 0, NULL), OK);
    assert_int_equal(st_writer_open_file(w, scratch_path(&s, "x", path)), ERR_DATA);
    expect_message("'a' is declared twice");
    st_writer_free(w);

    assert_int_equal(st_writer_new(&w), OK);
    assert_int_equal(st_writer_add(w, "bad \xff", ST_U8, 0, NULL), OK);
    assert_int_equal(st_writer_open_file(w, path), ERR_DATA);
    expect_message("not UTF-8");
    st_writer_free(w);
    assert_false(file_exists(path));
    scratch_release(&s);
    assert_int_equal(mem_live(), live);
}

static void the_writer_counts_every_byte(void **state)
{
    (void)state;
    static const int64_t two[] = {2};
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    struct st_writer *w;
    assert_int_equal(st_writer_new(&w), OK);
    assert_int_equal(st_writer_add(w, "narrow", ST_U8, 1, two), OK);
    assert_int_equal(st_writer_add(w, "wide", ST_F32, 1, two), OK);
    assert_int_equal(st_writer_open_file(w, scratch_path(&s, "x", path)), OK);
    assert_int_equal(st_writer_next(w), 1);
    assert_int_equal(st_writer_append(w, "123456789", 9), ERR_INTERNAL);
    expect_message("'wide' has 8 bytes");
    assert_int_equal(st_writer_append(w, "12345678", 8), OK);
    assert_int_equal(st_writer_next(w), 0);
    assert_int_equal(st_writer_append(w, "1", 1), OK);
    assert_int_equal(st_writer_finish(w, 0), ERR_INTERNAL);
    expect_message("'narrow' is not completely written");
    assert_int_equal(st_writer_append(w, "2", 1), OK);
    assert_int_equal(st_writer_next(w), -1);
    assert_int_equal(st_writer_append(w, "", 0), OK);
    assert_int_equal(st_writer_append(w, "3", 1), ERR_INTERNAL);
    assert_int_equal(st_writer_finish(w, 0), OK);
    st_writer_free(w);
    scratch_release(&s);
}

static void the_reader_survives_every_failed_allocation(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    assert_int_equal(write_all(scratch_path(&s, "a", path)), OK);
    int64_t live = mem_live();
    int64_t n = 1;
    json_malloc_t before_alloc;
    json_free_t before_free;
    json_get_alloc_funcs(&before_alloc, &before_free);
    json_set_alloc_funcs(mem_alloc, mem_free); /* Jansson's fail with ours */
    for (;; n++) {
        struct st_reader *r;
        mem_fail_after(n, n % 2 == 0);
        enum status status = st_reader_open_file(&r, path);
        mem_fail_after(0, 0);
        if (status == OK) {
            st_reader_close(r);
            break;
        }
        assert_int_equal(status, ERR_MEMORY);
        assert_null(strstr(status_message(), "damaged"));
        assert_null(r);
        assert_int_equal(mem_live(), live);
    }
    json_set_alloc_funcs(before_alloc, before_free);
    assert_true(n > 20);
    assert_int_equal(mem_live(), live);
    scratch_release(&s);
}

static void the_writer_survives_every_failed_allocation(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    scratch_path(&s, "a", path);
    int64_t live = mem_live();
    int64_t n = 1;
    for (;; n++) {
        mem_fail_after(n, n % 2 == 0);
        enum status status = write_all(path);
        mem_fail_after(0, 0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_MEMORY);
    }
    assert_true(n > 4);
    scratch_release(&s);
}

static void the_writer_reports_every_failed_write(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char path[SCRATCH_PATH];
    scratch_path(&s, "a", path);
    int64_t live = mem_live();
    int64_t n = 1;
    for (;; n++) {
        file_fail_after(n);
        enum status status = write_all(path);
        file_fail_after(0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_IO);
        expect_message(path);
        expect_message("disk is full");
    }
    assert_true(n > ST_DTYPE_COUNT); /* header, data and the sync were all tried */
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_has_its_name_and_width),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(header_is_padded_to_eight_and_starts_with_a_brace),
        cmocka_unit_test(a_file_without_tensors_is_fine),
        cmocka_unit_test(tensors_come_in_order_of_their_bytes),
        cmocka_unit_test(a_missing_tensor_is_named_with_its_nearest),
        cmocka_unit_test(malformed_headers_are_refused_by_name),
        cmocka_unit_test(malformed_tensors_are_refused_by_name),
        cmocka_unit_test(malformed_offsets_are_refused_by_name),
        cmocka_unit_test(overlaps_and_holes_are_refused_by_name),
        cmocka_unit_test(impossible_header_lengths_are_refused),
        cmocka_unit_test(a_git_lfs_pointer_is_recognised),
        cmocka_unit_test(deep_nesting_is_refused_not_followed),
        cmocka_unit_test(truncation_at_every_byte_is_an_error),
        cmocka_unit_test(a_missing_file_is_an_input_error_with_its_path),
        cmocka_unit_test(the_writer_refuses_what_it_cannot_write),
        cmocka_unit_test(the_writer_counts_every_byte),
        cmocka_unit_test(the_reader_survives_every_failed_allocation),
        cmocka_unit_test(the_writer_survives_every_failed_allocation),
        cmocka_unit_test(the_writer_reports_every_failed_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
