/* Lines of JSONL read in pieces: accepted and refused as a JSON library does, and the same text and
 * numbers come out, wherever they lie in the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/str.h"
#include "data/json_line.h"
#include "support/scratch.h"

struct fixture {
    struct scratch scratch;
    char path[SCRATCH_PATH];
    struct file_in file;
    struct byte_reader lines, values;
};

static int open_fixture(void **state)
{
    struct fixture *f = mem_calloc(1, sizeof(*f));
    assert_non_null(f);
    scratch_init(&f->scratch);
    (void)scratch_path(&f->scratch, "a.jsonl", f->path);
    f->file.fd = -1;
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *f = *state;
    file_in_close(&f->file);
    scratch_release(&f->scratch);
    mem_free(f);
    return 0;
}

static void load(struct fixture *f, const char *text, size_t n)
{
    scratch_write(&f->scratch, "a.jsonl", text, n);
    file_in_close(&f->file);
    assert_int_equal(file_in_open(&f->file, f->path), OK);
    f->lines = (struct byte_reader){.file = &f->file};
    f->values = (struct byte_reader){.file = &f->file};
}

static enum status scan(struct fixture *f, struct json_member *member)
{
    char first_key[JSON_KEY_BYTES];
    int is_blank;
    *member = (struct json_member){.key = "text"};
    return json_line_scan(&f->lines, member, 1, first_key, &is_blank);
}

static void read_string(struct fixture *f, const struct json_member *member, size_t piece,
                        struct str *out)
{
    char text[64];
    str_clear(out);
    json_string_begin(&f->values, member->at);
    for (size_t n; (n = json_string_read(&f->values, text, piece)) > 0;)
        str_add_n(out, text, n);
    assert_int_equal(str_status(out), OK);
}

/* ---- strings ----------------------------------------------------------------------------------
 */

/* A JSON string of plain characters, escapes and surrogates. */
static void add_string(struct rng *r, size_t n_parts, struct str *out)
{
    static const char *const parts[] = {"a",
                                        "word ",
                                        "\\n",
                                        "\\\\",
                                        "\\\"",
                                        "\\u00e9",
                                        "\\/",
                                        "\xC3\xA9",
                                        "\\ud83d\\ude00",
                                        "\\u4E2D",
                                        "\xF0\x9F\x98\x80",
                                        "\\t",
                                        "{",
                                        "]",
                                        ","};
    str_add(out, "\"");
    for (size_t i = 0; i < n_parts; i++)
        str_add(out, parts[rng_below(r, ARRAY_LEN(parts))]);
    str_add(out, "\"");
}

static void strings_are_read_as_a_json_library_reads_them(void **state)
{
    struct fixture *f = *state;
    struct rng r = {.key = 5};
    struct str text = {0}, got = {0};
    for (int i = 0; i < 200; i++) { /* over many times a reader's buffer */
        str_add(&text, "{\"id\": [1, {\"text\": 2}], \"text\" : ");
        add_string(&r, rng_below(&r, 400), &text);
        str_add(&text, i % 3 ? "}\n" : " , \"more\": -1.5e3 }\r\n");
    }
    assert_int_equal(str_status(&text), OK);
    load(f, text.text, text.n);
    const char *line = text.text;
    for (int i = 0; i < 200; i++) {
        struct json_member member;
        const char *end = strchr(line, '\n');
        json_t *expected;
        assert_int_equal(json_read_text(&expected, line, (size_t)(end - line), "x", ERR_DATA), OK);
        const json_t *value = json_object_get(expected, "text");
        assert_int_equal(scan(f, &member), OK);
        assert_int_equal(member.kind, MEMBER_STRING);
        read_string(f, &member, 4 + rng_below(&r, 60), &got);
        assert_int_equal(got.n, json_string_length(value));
        assert_memory_equal(str_text(&got), json_string_value(value), got.n);
        json_decref(expected);
        line = end + 1;
    }
    assert_int_equal(reader_at(&f->lines), (int64_t)text.n);
    str_release(&text);
    str_release(&got);
}

/* ---- what is JSON -----------------------------------------------------------------------------
 */

/* Whether both take a line for an object, with the same text in it. */
static void compare(struct fixture *f, const char *line, size_t n)
{
    json_error_t e;
    struct json_member member;
    struct str got = {0};
    json_t *expected = json_loadb(line, n, 0, &e);
    load(f, line, n);
    enum status status = scan(f, &member);
    if ((status == OK) != json_is_object(expected))
        fail_msg("%.*s: %s, the library: %s", (int)n, line, status == OK ? "OK" : status_message(),
                 json_is_object(expected) ? "OK" : e.text);
    const json_t *value = json_object_get(expected, "text");
    if (status == OK && json_is_string(value)) {
        assert_int_equal(member.kind, MEMBER_STRING);
        read_string(f, &member, 16, &got);
        assert_int_equal(got.n, json_string_length(value));
        assert_memory_equal(str_text(&got), json_string_value(value), got.n);
    }
    str_release(&got);
    json_decref(expected);
}

static void what_is_no_json_is_refused_as_a_json_library_does(void **state)
{
    static const char *const lines[] = {
        "{\"text\":\"x\"}",
        "{}",
        "{\"a\":[]}",
        "{\"a\":[1,2.5,-3e+2,true,false,null,{}]}",
        "{\"text\":}",
        "{\"text\":\"x}",
        "{\"text\" \"x\"}",
        "{text:1}",
        "{\"a\":1,}",
        "{\"a\":[1,]}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":+1}",
        "{\"a\":-}",
        "{\"a\":1e}",
        "{\"a\":tru}",
        "{\"text\":\"\\x\"}",
        "{\"text\":\"\\ud800\"}",
        "{\"text\":\"\\udc00x\"}",
        "{\"text\":\"\\u12\"}",
        "{\"text\":\"\xFF\"}",
        "{\"text\":\"\xC3\"}",
        "{\"text\":\"a\tb\"}",
        "{\"a\":1} x",
        "{\"a\":1}}",
        "{\"a\":{\"b\":{}}",
        "[1]",
        "5",
        "{",
        "{\"",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":\"b\"",
        "\xEF\xBB\xBF{}",
    };
    struct fixture *f = *state;
    struct rng r = {.key = 6};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        compare(f, lines[i], strlen(lines[i]));
    for (int i = 0; i < 4000; i++) { /* one byte of a good line changed */
        char line[] = "{\"text\":\"a\\u00e9\\nb\",\"n\":[1,-20.5e1,true],\"o\":{\"k\":null}}";
        line[rng_below(&r, sizeof(line) - 1)] =
            "\"\\{}[],:0159.eE-+untf x\xC3\xA9"[rng_below(&r, 25)];
        compare(f, line, sizeof(line) - 1);
    }
}

static void numbers_are_read_one_by_one(void **state)
{
    struct fixture *f = *state;
    static const char line[] = "{\"text\": [ 1 ,-20,300 , 9223372036854775807, 2.5, \"x\"]}";
    struct json_member member;
    int64_t value = 0;
    load(f, line, sizeof(line) - 1);
    assert_int_equal(scan(f, &member), OK);
    assert_int_equal(member.kind, MEMBER_ARRAY);
    assert_int_equal(member.n_elements, 6);
    json_array_begin(&f->values, member.at);
    const int64_t expected[] = {1, -20, 300, INT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        assert_true(json_array_next(&f->values, &value));
        assert_int_equal(value, expected[i]);
    }
    assert_false(json_array_next(&f->values, &value));
}

static void deep_nesting_and_twice_the_same_key_are_refused(void **state)
{
    struct fixture *f = *state;
    struct json_member member;
    struct str text = {0};
    str_add(&text, "{\"a\":");
    for (int i = 0; i < 100000; i++)
        str_add(&text, "[");
    load(f, text.text, text.n);
    assert_int_equal(scan(f, &member), ERR_DATA);
    expect_message("nested too deeply");
    str_release(&text);
    static const char twice[] = "{\"text\":1,\"text\":2}";
    load(f, twice, sizeof(twice) - 1);
    assert_int_equal(scan(f, &member), ERR_DATA);
    expect_message("twice");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(strings_are_read_as_a_json_library_reads_them),
        TEST(what_is_no_json_is_refused_as_a_json_library_does),
        TEST(numbers_are_read_one_by_one),
        TEST(deep_nesting_and_twice_the_same_key_are_refused),
    };
    return cmocka_run_group_tests_name("json line", tests, NULL, NULL);
}
