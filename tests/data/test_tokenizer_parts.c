/* A text in parts gives the ids of the whole text, wherever the parts end, for every tokenizer
 * there is a golden file of; and text with places to cut at never has to wait for long. */
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
#include "data/tokenizer.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/tokenizer/"

static const char *const names[] = {"gpt2",    "llama3", "qwen2", "prefix_space", "llama2",
                                    "mistral", "gemma",  "words", "bytes"};

static struct tokenizer *open_named(const char *name)
{
    char path[512];
    struct tokenizer *t;
    (void)snprintf(path, sizeof(path), GOLDEN "%s.json", name);
    assert_int_equal(tokenizer_open(&t, strcmp(name, "bytes") == 0 ? name : path), OK);
    return t;
}

/* ---- texts ------------------------------------------------------------------------------------
 */

/* The texts of the golden cases in random order, with something or nothing between them. */
static void add_golden_texts(struct rng *r, const json_t *cases, size_t n_bytes, struct str *out)
{
    static const char *const joints[] = {
        "", " ", "\n", "\n\n", "  ", "\xE2\x96\x81", "<|endoftext|>", "\xFF", " </s> ", "1"};
    while (out->n < n_bytes) {
        const json_t *c = json_array_get(cases, rng_below(r, json_array_size(cases)));
        const json_t *text = json_object_get(c, "text");
        str_add_n(out, json_string_value(text), json_string_length(text));
        str_add(out, joints[rng_below(r, ARRAY_LEN(joints))]);
    }
}

/* Pieces that patterns, normal forms and added tokens care about, in any order. */
static void add_fragments(struct rng *r, size_t n_bytes, struct str *out)
{
    static const char *const pieces[] = {" ",
                                         "  ",
                                         "\t",
                                         "\n",
                                         "\r\n",
                                         "a",
                                         "the",
                                         "'s",
                                         "'ll",
                                         "1",
                                         "23",
                                         "4567",
                                         ".",
                                         "...",
                                         "!?",
                                         "\xC3\xA9",
                                         "e\xCC\x81",
                                         "\xCC\x88\xCC\x81",
                                         "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8",
                                         "\xE3\x84\xB1\xE3\x85\x8F",
                                         "\xE4\xB8\xAD\xE6\x96\x87",
                                         "\xEF\xAC\x81",
                                         "\xF0\x9F\x91\xA9",
                                         "\xE2\x80\x8D",
                                         "\xC2\xA0",
                                         "\xE2\x96\x81",
                                         "<|",
                                         "endoftext",
                                         "|>",
                                         "<|endoftext|>",
                                         "<s>",
                                         "</s>",
                                         "<|begin_of_text|>",
                                         "<|im_start|>",
                                         "<unk>",
                                         "\xC3",
                                         "\xF0\x9F",
                                         "\xFF",
                                         "\\",
                                         "_"};
    while (out->n < n_bytes)
        str_add(out, pieces[rng_below(r, ARRAY_LEN(pieces))]);
}

/* ---- parts ------------------------------------------------------------------------------------
 */

/* Encodes a text as it comes, up to `most` bytes at a time; the most that had to wait. */
static size_t encode_parts(struct encoder *e, struct rng *r, const struct str *text, size_t most,
                           struct token_list *out)
{
    size_t from = 0, to = 0, waited = 0;
    while (to < text->n) {
        size_t n_done, n = 1 + rng_below(r, most);
        to = MIN(to + n, text->n);
        assert_int_equal(
            encoder_encode_part(e, text->text + from, to - from, to == text->n, out, &n_done), OK);
        assert_true(n_done <= to - from);
        from += n_done;
        waited = MAX(waited, to - from);
    }
    assert_int_equal(from, text->n);
    return waited;
}

/* The ids around a place, for messages. */
static void show(const char *what, const struct token_list *ids, size_t at)
{
    print_message("%s", what);
    for (size_t i = at < 6 ? 0 : at - 6; i < ids->n && i < at + 6; i++)
        print_message(" %d", (int)ids->items[i]);
    print_message("\n");
}

static void expect_same(const char *name, const struct str *text, size_t most,
                        const struct token_list *whole, const struct token_list *parts)
{
    size_t i = 0;
    while (i < whole->n && i < parts->n && whole->items[i] == parts->items[i])
        i++;
    if (i == whole->n && i == parts->n)
        return;
    show("whole:", whole, i);
    show("parts:", parts, i);
    fail_msg("%s, parts of up to %zu bytes of %zu: ids differ at %zu of %zu and %zu", name, most,
             text->n, i, whole->n, parts->n);
}

/* The most that had to wait over all sizes of parts. */
static size_t check_text(const char *name, const struct tokenizer *t, struct rng *r,
                         const struct str *text)
{
    static const size_t sizes[] = {1, 2, 3, 5, 9, 17, 40, 100, 333, 2000};
    struct token_list whole = {0}, parts = {0};
    struct encoder *e;
    size_t waited = 0;
    assert_int_equal(str_status((struct str *)(uintptr_t)text), OK);
    assert_int_equal(encoder_new(&e, t), OK);
    assert_int_equal(tokenizer_encode(t, text->text, text->n, 0, &whole), OK);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        parts.n = 0;
        size_t here = encode_parts(e, r, text, sizes[i], &parts);
        expect_same(name, text, sizes[i], &whole, &parts);
        waited = MAX(waited, here);
    }
    token_list_release(&whole);
    token_list_release(&parts);
    encoder_free(e);
    return waited;
}

static void ids_of_parts_are_those_of_the_whole(void **state)
{
    (void)state;
    json_t *all;
    struct rng r = {.key = 11, .stream = 1};
    assert_int_equal(json_read_file(&all, GOLDEN "cases.json", ERR_DATA), OK);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct tokenizer *t = open_named(names[i]);
        const json_t *cases = json_object_get(all, names[i]);
        for (int round = 0; round < 6; round++) {
            struct str text = {0};
            if (round % 2 == 0)
                add_golden_texts(&r, cases ? cases : json_object_get(all, "gpt2"), 6000, &text);
            else
                add_fragments(&r, 4000, &text);
            (void)check_text(names[i], t, &r, &text);
            str_release(&text);
        }
        tokenizer_free(t);
    }
    json_decref(all);
}

/* Words, numbers, punctuation and some lines: no tokenizer waits for more than a few words. */
static void ordinary_text_does_not_wait(void **state)
{
    (void)state;
    static const char *const words[] = {"the ",  "quick ",  "brown",        ", ",
                                        "fox\n", "1984 ",   "caf\xC3\xA9 ", "it's ",
                                        "(so) ", "...\n\n", "and "};
    struct rng r = {.key = 11, .stream = 2};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct tokenizer *t = open_named(names[i]);
        struct str text = {0};
        while (text.n < 20000)
            str_add(&text, words[rng_below(&r, ARRAY_LEN(words))]);
        size_t waited = check_text(names[i], t, &r, &text);
        if (waited > 200)
            fail_msg("%s: %zu bytes had to wait", names[i], waited);
        str_release(&text);
        tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_parts_are_those_of_the_whole),
        cmocka_unit_test(ordinary_text_does_not_wait),
    };
    return cmocka_run_group_tests_name("tokenizer parts", tests, NULL, NULL);
}
