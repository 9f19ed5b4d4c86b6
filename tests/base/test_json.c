/* Reading JSON: what other software writes is read, what is broken is refused where it is broken,
 * and running out of memory anywhere in reading, printing and building is a clean error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"

static json_t *read_json(const char *text)
{
    json_t *value;
    if (json_read_text(&value, text, strlen(text), "text", ERR_DATA) != OK)
        fail_msg("%s", status_message());
    return value;
}

static void integers_beyond_64_bits_are_reals(void **state)
{
    (void)state;
    json_t *all = read_json("[1000000000000000019884624838656, 9223372036854775808, "
                            "-9223372036854775809, 9223372036854775807, -9223372036854775808]");
    const double expected[] = {1e30, 9223372036854775808.0, -9223372036854775808.0};
    for (size_t i = 0; i < 3; i++) {
        assert_true(json_is_real(json_array_get(all, i)));
        assert_true(json_real_value(json_array_get(all, i)) == expected[i]);
    }
    assert_int_equal(json_integer_value(json_array_get(all, 3)), INT64_MAX);
    assert_int_equal(json_integer_value(json_array_get(all, 4)), INT64_MIN);
    json_decref(all);
}

static void digits_in_strings_stay_as_they_are(void **state)
{
    (void)state;
    json_t *o = read_json("{\"1000000000000000019884624838656\": \"99999999999999999999\\\"\"}");
    const char *text = json_text(json_object_get(o, "1000000000000000019884624838656"));
    assert_string_equal(text, "99999999999999999999\"");
    json_decref(o);
}

static void strings_may_hold_the_character_zero(void **state)
{
    (void)state;
    json_t *all = read_json("[\"a\\u0000b\\u0000\"]");
    const json_t *string = json_array_get(all, 0);
    assert_int_equal(json_string_length(string), 4);
    assert_memory_equal(json_string_value(string), "a\0b\0", 4);
    assert_null(json_text(string)); /* not to be taken for "a" */
    json_decref(all);
}

static void a_byte_order_mark_is_passed_over(void **state)
{
    (void)state;
    json_t *o = read_json("\xEF\xBB\xBF{\"a\": 1}");
    assert_int_equal(json_integer_value(json_object_get(o, "a")), 1);
    json_decref(o);
}

static void escapes_are_their_characters(void **state)
{
    (void)state;
    json_t *all = read_json("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E9\\ud83d\\uDE00 \xC3\xA9\"]");
    assert_string_equal(json_text(json_array_get(all, 0)),
                        "\"\\/\b\f\n\r\t\xC3\xA9\xF0\x9F\x98\x80 \xC3\xA9");
    json_decref(all);
}

static void what_is_broken_is_refused_at_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "text:1:1: not valid JSON: expected '{' or '['"},
        {"3", "1:1"},
        {"{} x", "1:4: not valid JSON: more text"},
        {"[1,\n  \xC3\xA9]", "2:3: not valid JSON: expected a value"},
        {"[\"\xC3\xA9\", x]", "1:7"},
        {"[1,]", "1:4"},
        {"[1 2]", "1:4: not valid JSON: expected ',' or ']'"},
        {"[", "expected a value"},
        {"[tru]", "expected a value"},
        {"{\"a\" 1}", "expected ':'"},
        {"{\"a\":1,}", "expected a key"},
        {"{a:1}", "expected a key"},
        {"{\"a\":1,\"a\":2}", "duplicate key \"a\""},
        {"{\"\\u0000\":1}", "U+0000 in a key"},
        {"[\"a", "not closed"},
        {"[\"a\\", "backslash"},
        {"[\"\\x\"]", "backslash"},
        {"[\"\\u12g4\"]", "four hexadecimal digits"},
        {"[\"\\ud800\"]", "\\uD800 is half"},
        {"[\"\\ud800\\u0041\"]", "\\uD800 is half"},
        {"[\"\\udc00\"]", "\\uDC00 is half"},
        {"[\"\n\"]", "control character 0x0A"},
        {"[\"\xFF\"]", "0xFF in a string is not UTF-8"},
        {"[\"\xED\xA0\x80\"]", "not UTF-8"},
        {"[-]", "minus sign"},
        {"[01]", "begins with 0"},
        {"[1.]", "decimal point"},
        {"[1e+]", "exponent"},
        {"[-1e999]", "range of a double"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *value;
        const char *text = cases[i].text;
        assert_int_equal(json_read_text(&value, text, strlen(text), "text", ERR_CONFIG),
                         ERR_CONFIG);
        assert_null(value);
        if (!strstr(status_message(), cases[i].says))
            fail_msg("'%s': '%s' is not in '%s'", text, cases[i].says, status_message());
    }
}

static int dump_into_str(const char *text, size_t n, void *str)
{
    str_add_n(str, text, n);
    return ((struct str *)str)->failed;
}

/* Reads, copies, merges, builds and prints; whatever was made is released. */
static enum status use_json(const char *text, struct str *printed)
{
    json_t *copy = NULL, *built = NULL, *value = NULL;
    enum status status = json_read_text(&value, text, strlen(text), "text", ERR_DATA);
    if (status != OK)
        return status;
    copy = json_deep_copy(value);
    built = json_pack("{s:s, s:[I, f, s?], s:{s:o*}}", "name", "a name", "list", (json_int_t)7, 0.5,
                      NULL, "inner", "null", json_null());
    str_clear(printed);
    if (!copy || !built || json_object_update(copy, built) != 0 ||
        json_dump_callback(copy, dump_into_str, printed, JSON_INDENT(2) | JSON_SORT_KEYS) != 0)
        status = ERR_MEMORY;
    json_decref(built);
    json_decref(copy);
    json_decref(value);
    return status;
}

static void running_out_of_memory_is_a_clean_error_everywhere(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\": \"llama\", \"a_rather_long_key_that_makes_buffers_grow\": "
        "[1000000000000000019884624838656, 1.5, -3, true, null, {}, []], "
        "\"escaped\": \"\\u00e9 and a text long enough to be moved once or twice \\ud83d\\ude00\", "
        "\"k0\":0, \"k1\":1, \"k2\":2, \"k3\":3, \"k4\":4, \"k5\":5, \"k6\":6, \"k7\":7, \"k8\":8}";
    struct str whole = {0};
    assert_int_equal(use_json(text, &whole), OK);
    for (int sticky = 0; sticky < 2; sticky++) {
        for (int64_t n = 1;; n++) {
            int64_t live = mem_live();
            struct str printed = {0};
            mem_fail_after(n, sticky);
            enum status status = use_json(text, &printed);
            mem_fail_after(0, 0);
            if (status == OK)
                assert_string_equal(str_text(&printed), str_text(&whole));
            str_release(&printed);
            assert_int_equal(mem_live(), live);
            if (status == OK) {
                assert_true(n > 50); /* Jansson's allocations are among them */
                break;
            }
            assert_int_equal(status, ERR_MEMORY);
        }
    }
    str_release(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_beyond_64_bits_are_reals),
        cmocka_unit_test(digits_in_strings_stay_as_they_are),
        cmocka_unit_test(strings_may_hold_the_character_zero),
        cmocka_unit_test(a_byte_order_mark_is_passed_over),
        cmocka_unit_test(escapes_are_their_characters),
        cmocka_unit_test(what_is_broken_is_refused_at_its_place),
        cmocka_unit_test(running_out_of_memory_is_a_clean_error_everywhere),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
