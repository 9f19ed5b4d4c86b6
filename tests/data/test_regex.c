/* Split patterns: each is cut as the engine they are written for cuts (tests/golden/tokenizer/
 * patterns.json, made by tools/make_tokenizer_golden.py), or refused by the name of what it has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "data/regex.h"
#include "data/tokenizer_internal.h"
#include "support/scratch.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/tokenizer/patterns.json"

/* Lengths of the pieces that a compiled pattern cuts a text into. */
static json_t *cut(const struct split_stage *stage, const char *text, size_t n_bytes)
{
    json_t *lengths = json_array();
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    size_t done = 0;
    for (size_t from = 0; from <= n_bytes;) {
        if (pcre2_match(stage->code, (PCRE2_SPTR)text, n_bytes, from, 0, match, NULL) < 0)
            break;
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
        const size_t bounds[] = {MAX(found[0], done), found[1]};
        for (int i = 0; i < 2; i++) {
            if (bounds[i] > done)
                (void)json_array_append_new(lengths, json_integer((json_int_t)(bounds[i] - done)));
            done = MAX(done, bounds[i]);
        }
        from = done + (bounds[0] == bounds[1] ? character_length(text + done, n_bytes - done) : 0);
    }
    if (n_bytes > done)
        (void)json_array_append_new(lengths, json_integer((json_int_t)(n_bytes - done)));
    pcre2_match_data_free(match);
    return lengths;
}

static void check_pattern(const char *pattern, const json_t *texts, const json_t *expected)
{
    struct pool pool;
    struct split_stage stage = {0};
    pool_init(&pool);
    if (split_stage_compile(&stage, &pool, pattern, PATTERN_REGEX) != OK)
        fail_msg("%s", status_message());
    assert_int_equal(json_array_size(expected), json_array_size(texts));
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        json_t *got = cut(&stage, json_string_value(text), json_string_length(text));
        if (!json_equal(got, json_array_get(expected, i)))
            fail_msg("'%s' on text %zu '%s': expected %s, got %s", pattern, i,
                     json_string_value(text), json_dumps(json_array_get(expected, i), JSON_COMPACT),
                     json_dumps(got, JSON_COMPACT));
        json_decref(got);
    }
    pcre2_code_free(stage.code);
    pool_release(&pool);
}

static void patterns_cut_as_the_reference_does(void **state)
{
    (void)state;
    json_t *all, *expected;
    const char *pattern;
    assert_int_equal(json_read_file(&all, GOLDEN, ERR_DATA), OK);
    json_t *patterns = json_object_get(all, "patterns");
    assert_true(json_object_size(patterns) > 100);
    json_object_foreach(patterns, pattern, expected)
    {
        check_pattern(pattern, json_object_get(all, "texts"), expected);
    }
    json_decref(all);
}

static void what_has_no_translation_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        enum status status;
        const char *says;
    } cases[] = {
        {"(a)\\1", ERR_UNSUPPORTED, "character 4: a back reference (\\1)"},
        {"(?<n>a)\\k<n>", ERR_UNSUPPORTED, "\\k is"},
        {"\\X", ERR_UNSUPPORTED, "\\X is"},
        {"\\M-a", ERR_UNSUPPORTED, "\\M is"},
        {"\\xE9", ERR_UNSUPPORTED, "single byte"},
        {"\\x{110000}", ERR_UNSUPPORTED, "code of a character"},
        {"\\p{Nonsense}", ERR_UNSUPPORTED, "\"nonsense\" is not known"},
        {"\\p{InBasicLatin}", ERR_UNSUPPORTED, "inbasiclatin"},
        {"[[:foo:]]", ERR_UNSUPPORTED, ":foo"},
        {"(?W:\\w)", ERR_UNSUPPORTED, "(?W:"},
        {"(?s).", ERR_UNSUPPORTED, "(?s)"},
        {"(?P<n>a)", ERR_UNSUPPORTED, "(?P<"},
        {"(?~a)", ERR_UNSUPPORTED, "(?~a"},
        {"(*FAIL)", ERR_UNSUPPORTED, "callout"},
        {"(?<=a+)b", ERR_UNSUPPORTED, "lookbehind"},
        {"[a&&]", ERR_UNSUPPORTED, "empty class"},
        {"a{3,1}", ERR_UNSUPPORTED, "interval"},
        {"(?i:ss)", ERR_UNSUPPORTED, "U+00DF"},
        {"(?i:\xC3\x9F)", ERR_UNSUPPORTED, "U+00DF"},
        {"(?i)[\xC3\x80-\xC3\xBF]", ERR_UNSUPPORTED, "U+00DF"},
        {"(?i)\\p{Lu}", ERR_UNSUPPORTED, "\"lu\" under (?i)"},
        {"(a", ERR_DATA, "group that is not closed"},
        {"a)", ERR_DATA, "without its '('"},
        {"[a", ERR_DATA, "class that is not closed"},
        {"[b-a]", ERR_DATA, "before it begins"},
        {"[a-\\d]", ERR_DATA, "ends with a set"},
        {"*a", ERR_DATA, "character 0: nothing here can be repeated"},
        {"^*", ERR_DATA, "nothing here can be repeated"},
        {"a\\", ERR_DATA, "backslash at the end"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pool pool;
        struct split_stage stage = {0};
        pool_init(&pool);
        enum status got = split_stage_compile(&stage, &pool, cases[i].pattern, PATTERN_REGEX);
        if (got != cases[i].status)
            fail_msg("'%s': %s", cases[i].pattern, got == OK ? "accepted" : status_message());
        expect_message(cases[i].says);
        pool_release(&pool);
    }
}

static void nesting_without_end_is_refused(void **state)
{
    (void)state;
    char pattern[1001] = {0};
    for (int i = 0; i < 2; i++) {
        struct str out = {0};
        memset(pattern, "(["[i], sizeof(pattern) - 1);
        assert_int_equal(regex_translate(pattern, &out), ERR_UNSUPPORTED);
        expect_message("levels");
        str_release(&out);
    }
}

static void running_out_of_memory_is_a_clean_error(void **state)
{
    (void)state;
    static const char pattern[] =
        "(?i:'s|'t)|[\\p{L}&&[^\\p{Han}x[^y]]]{1,2}+|\\b[^\\S\\n]*|\\p{C}|(?<=a|b)\\w+";
    for (int64_t n = 1;; n++) {
        int64_t live = mem_live();
        struct str out = {0};
        mem_fail_after(n, 0);
        enum status status = regex_translate(pattern, &out);
        mem_fail_after(0, 0);
        str_release(&out);
        assert_int_equal(mem_live(), live);
        if (status == OK) {
            assert_true(n > 20);
            return;
        }
        assert_int_equal(status, ERR_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_cut_as_the_reference_does),
        cmocka_unit_test(what_has_no_translation_is_refused_by_name),
        cmocka_unit_test(nesting_without_end_is_refused),
        cmocka_unit_test(running_out_of_memory_is_a_clean_error),
    };
    return cmocka_run_group_tests_name("regex", tests, NULL, NULL);
}
