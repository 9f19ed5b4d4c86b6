/* Records of JSONL, JSON arrays and CSV, and files that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "data/records.h"
#include "support/scratch.h"

enum { ROOM = 1 << 20 };

/* All records of a file, printed on one line each; the status of the first that is wrong. */
static enum status read_all(const char *name, const char *text, int64_t most, struct str *out)
{
    struct scratch s;
    struct records *r;
    char path[SCRATCH_PATH];
    scratch_init(&s);
    scratch_write_text(&s, name, text);
    enum status status = records_open(&r, scratch_path(&s, name, path), most);
    while (status == OK) {
        json_t *record;
        status = records_next(r, &record);
        if (!record)
            break;
        char *printed = json_dumps(record, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
        str_addf(out, "%s%s\n", strstr(records_where(r), "line "), printed);
        mem_free(printed);
        json_decref(record);
    }
    records_close(r);
    scratch_release(&s);
    return status;
}

static void expect_records(const char *name, const char *text, const char *expected)
{
    struct str got = {0};
    assert_int_equal(read_all(name, text, ROOM, &got), OK);
    assert_string_equal(str_text(&got), expected);
    str_release(&got);
}

static void expect_refused(const char *name, const char *text, enum status status, const char *part)
{
    struct str got = {0};
    assert_int_equal(read_all(name, text, ROOM, &got), status);
    expect_message(part);
    str_release(&got);
}

static void lines_are_records_and_empty_ones_are_not(void **state)
{
    (void)state;
    expect_records("a.jsonl", "{\"a\":1}\n\n  \r\n{\"b\":\"\\n\"}\r\n{\"c\":[]}",
                   "line 1{\"a\":1}\nline 4{\"b\":\"\\n\"}\nline 5{\"c\":[]}\n");
    expect_records("a.jsonl", "\xEF\xBB\xBF{\"a\":1}\n", "line 1{\"a\":1}\n");
    expect_records("a.jsonl", "", "");
}

static void an_array_is_read_element_by_element(void **state)
{
    (void)state;
    expect_records("a.json", " [\n {\"a\": \"],{\\\"\"},\n\n {\"b\": [1, {}]} ]\n",
                   "line 2{\"a\":\"],{\\\"\"}\nline 4{\"b\":[1,{}]}\n");
    expect_records("a.json", "[]", "");
    expect_records("a.jsonl", "[{}]", "line 1{}\n"); /* whatever its name */
    expect_records("a.json", "{\"a\":1}\n{\"b\":2}", "line 1{\"a\":1}\nline 2{\"b\":2}\n");
}

static void what_is_wrong_is_said_with_its_line(void **state)
{
    (void)state;
    expect_refused("a.jsonl", "{}\n\n{\"a\":}\n", ERR_DATA, "a.jsonl: line 3");
    expect_refused("a.jsonl", "{}\n[1]\n", ERR_DATA, "line 2: not a JSON object");
    expect_refused("a.jsonl", "{}\n7\n", ERR_DATA, "line 2: ");
    expect_refused("a.json", "[{},\n[]]", ERR_DATA, "line 2: not a JSON object; each element");
    expect_refused("a.json", "[{},\n{", ERR_DATA, "the array does not end");
    expect_refused("a.json", "[{}\n", ERR_DATA, "the array does not end");
    expect_refused("a.json", "[{}]\n]", ERR_DATA, "line 2: text behind the array");
}

static void csv_has_a_header_and_quotes(void **state)
{
    (void)state;
    expect_records(
        "a.csv", "q,a\r\nx,\"y, \"\"z\"\"\nw\"\r\n\n1,2",
        "line 2{\"a\":\"y, \\\"z\\\"\\nw\",\"q\":\"x\"}\nline 5{\"a\":\"2\",\"q\":\"1\"}\n");
    expect_records("a.csv", "q,a\n", "");
    expect_refused("a.csv", "q,a\n1\n", ERR_DATA, "line 2: has 1 fields; the header has 2");
    expect_refused("a.csv", "q,a\n1,2,3\n", ERR_DATA, "line 2: has more fields than the header");
    expect_refused("a.csv", "q,q\n1,2\n", ERR_DATA, "the header has \"q\" twice");
    expect_refused("a.csv", "q\n\"1\n", ERR_DATA, "does not end");
    expect_refused("a.csv", "q\n\xFF\n", ERR_DATA, "not UTF-8");
}

static void a_record_that_host_memory_has_no_room_for_is_refused(void **state)
{
    struct str text = {0}, got = {0};
    (void)state;
    str_add(&text, "{}\n{\"a\":\"");
    for (int i = 0; i < ROOM; i++)
        str_add_n(&text, "x", 1);
    str_add(&text, "\"}\n");
    assert_int_equal(read_all("a.jsonl", str_text(&text), ROOM, &got), ERR_FIT);
    expect_message("line 2: a record of more than");
    expect_message("host_memory");
    assert_int_equal(read_all("a.jsonl", str_text(&text), (int64_t)64 * ROOM, &got), OK);
    str_release(&text);
    str_release(&got);
}

static void tables_of_other_tools_are_refused_with_how_to_convert_them(void **state)
{
    (void)state;
    expect_refused("a.parquet", "PAR1....", ERR_UNSUPPORTED, "pandas.read_parquet");
    expect_refused("a.jsonl", "PAR1....", ERR_UNSUPPORTED, "Parquet files are not read");
    expect_refused("a.arrow", "ARROW1..", ERR_UNSUPPORTED, "Arrow files are not read");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_records_and_empty_ones_are_not),
        cmocka_unit_test(an_array_is_read_element_by_element),
        cmocka_unit_test(what_is_wrong_is_said_with_its_line),
        cmocka_unit_test(csv_has_a_header_and_quotes),
        cmocka_unit_test(a_record_that_host_memory_has_no_room_for_is_refused),
        cmocka_unit_test(tables_of_other_tools_are_refused_with_how_to_convert_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
