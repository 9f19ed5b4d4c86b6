/* The tokenizer against what the `tokenizers` package gives (tests/golden/tokenizer, made by
 * tools/make_tokenizer_golden.py), against a slow merge written from the definition, and with
 * broken files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "data/tokenizer.h"
#include "data/tokenizer_internal.h"
#include "support/failures.h"
#include "support/scratch.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/tokenizer/"

static struct tokenizer *open_golden(const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof(path), GOLDEN "%s.json", name);
    struct tokenizer *t;
    enum status status = tokenizer_open(&t, path);
    if (status != OK)
        fail_msg("%s", status_message());
    return t;
}

static void check_ids(const char *name, const char *text, const json_t *expected,
                      const struct token_list *got)
{
    int same = json_array_size(expected) == got->n;
    for (size_t i = 0; same && i < got->n; i++)
        same = json_integer_value(json_array_get(expected, i)) == got->items[i];
    if (same)
        return;
    char *want = json_dumps(expected, JSON_COMPACT);
    print_message("%s: '%s'\nexpected %s\ngot      [", name, text, want);
    for (size_t i = 0; i < got->n; i++)
        print_message("%d,", got->items[i]);
    print_message("]\n");
    fail();
}

/* "decoded" is a text, or true: the text that was encoded. */
static void check_decoded(const struct tokenizer *t, const char *name, const json_t *c,
                          const struct token_list *ids)
{
    const json_t *decoded = json_object_get(c, "decoded");
    if (!decoded)
        return;
    const json_t *expected = json_is_true(decoded) ? json_object_get(c, "text") : decoded;
    struct str text = {0};
    assert_int_equal(tokenizer_decode(t, ids->items, ids->n, 0, &text), OK);
    if (text.n != json_string_length(expected) ||
        memcmp(str_text(&text), json_string_value(expected), text.n) != 0)
        fail_msg("%s: '%s' was encoded; expected '%s', decoded '%s'", name,
                 json_string_value(json_object_get(c, "text")), json_string_value(expected),
                 str_text(&text));
    str_release(&text);
}

static void check_cases(const char *name)
{
    json_t *all;
    assert_int_equal(json_read_file(&all, GOLDEN "cases.json", ERR_DATA), OK);
    const json_t *cases = json_object_get(all, name);
    assert_true(json_array_size(cases) > 100);
    struct tokenizer *t = open_golden(name);
    struct encoder *e;
    assert_int_equal(encoder_new(&e, t), OK);
    struct token_list ids = {0};
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const char *text = json_string_value(json_object_get(c, "text"));
        ids.n = 0;
        assert_int_equal(tokenizer_encode(t, text, strlen(text), 0, &ids), OK);
        check_ids(name, text, json_object_get(c, "ids"), &ids);
        for (int again = 0; again < 2; again++) { /* the second time from the cache */
            ids.n = 0;
            assert_int_equal(encoder_encode(e, text, strlen(text), 0, &ids), OK);
            check_ids(name, text, json_object_get(c, "ids"), &ids);
        }
        check_decoded(t, name, c, &ids);
        const json_t *template = json_object_get(c, "template");
        if (template) {
            ids.n = 0;
            assert_int_equal(tokenizer_encode(t, text, strlen(text), ENCODE_TEMPLATE, &ids), OK);
            check_ids(name, text, template, &ids);
        }
    }
    token_list_release(&ids);
    encoder_free(e);
    tokenizer_free(t);
    json_decref(all);
}

static void gpt2_ids_equal_the_reference(void **state)
{
    (void)state;
    check_cases("gpt2");
}

static void llama3_ids_equal_the_reference(void **state)
{
    (void)state;
    check_cases("llama3");
}

static void qwen2_ids_equal_the_reference(void **state)
{
    (void)state;
    check_cases("qwen2");
}

static void prefix_space_and_digits_equal_the_reference(void **state)
{
    (void)state;
    check_cases("prefix_space");
}

static void added_tokens_among_spaces_and_words_equal_the_reference(void **state)
{
    (void)state;
    check_cases("added");
}

static void ids_of_marked_spaces_equal_the_reference(void **state)
{
    (void)state;
    check_cases("llama2");
    check_cases("mistral");
    check_cases("gemma");
    check_cases("words");
}

/* Random bytes, weighted so that well-formed, broken and ASCII text all occur. */
static size_t random_bytes(struct rng *r, char *out, size_t capacity)
{
    size_t n = rng_below(r, capacity + 1);
    for (size_t i = 0; i < n; i++) {
        uint64_t kind = rng_below(r, 4);
        if (kind == 0)
            out[i] = (char)rng_below(r, 256);
        else if (kind == 1)
            out[i] = " \n'\xC3\xA9"[rng_below(r, 5)];
        else
            out[i] = (char)('a' + rng_below(r, 26));
    }
    return n;
}

static void decoding_an_encoding_gives_the_same_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"bytes", GOLDEN "gpt2.json", GOLDEN "llama3.json",
                                        GOLDEN "gemma.json"};
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        struct tokenizer *t;
        assert_int_equal(tokenizer_open(&t, names[k]), OK);
        struct rng r = {.key = 11, .stream = k};
        for (int trial = 0; trial < 3000; trial++) {
            char bytes[120];
            size_t n = random_bytes(&r, bytes, sizeof(bytes));
            struct token_list ids = {0};
            struct str text = {0};
            assert_int_equal(tokenizer_encode(t, bytes, n, 0, &ids), OK);
            assert_int_equal(tokenizer_decode(t, ids.items, ids.n, 0, &text), OK);
            assert_int_equal(text.n, n);
            if (n)
                assert_memory_equal(text.text, bytes, n);
            token_list_release(&ids);
            str_release(&text);
        }
        tokenizer_free(t);
    }
}

/* The definition: while there is a mergeable pair, merge the lowest rank, leftmost first. */
static size_t merge_slowly(const struct tokenizer *t, int32_t *ids, size_t n)
{
    for (;;) {
        size_t best = n;
        const struct merge_slot *merge = NULL;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct merge_slot *m =
                tokenizer_find_merge(t, (uint32_t)ids[i], (uint32_t)ids[i + 1]);
            if (m && (!merge || m->rank_plus_1 < merge->rank_plus_1)) {
                merge = m;
                best = i;
            }
        }
        if (!merge)
            return n;
        ids[best] = (int32_t)merge->merged;
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof(*ids));
        n--;
    }
}

static void merging_with_a_heap_equals_the_definition(void **state)
{
    (void)state;
    struct tokenizer *t = open_golden("gpt2");
    struct encoder e;
    assert_int_equal(encoder_init(&e, t, 0), OK);
    struct rng r = {.key = 5};
    for (int trial = 0; trial < 2000; trial++) {
        char piece[64];
        int32_t slow[64];
        size_t n = 1 + rng_below(&r, sizeof(piece));
        for (size_t i = 0; i < n; i++) {
            piece[i] = "thesngoureabilw "[rng_below(&r, 16)];
            slow[i] = t->byte_ids[(uint8_t)piece[i]];
        }
        size_t n_slow = merge_slowly(t, slow, n);
        struct token_list ids = {0};
        assert_int_equal(bpe_encode_piece(&e, piece, n, &ids), OK);
        assert_int_equal(ids.n, n_slow);
        assert_memory_equal(ids.items, slow, n_slow * sizeof(*slow));
        token_list_release(&ids);
    }
    encoder_release(&e);
    tokenizer_free(t);
}

static void a_long_piece_takes_no_quadratic_time(void **state)
{
    (void)state;
    struct tokenizer *t = open_golden("gpt2");
    enum { N = 4 << 20 }; /* quadratic would be hours, and the test's time limit catches it */
    char *text = mem_alloc(N);
    assert_non_null(text);
    for (size_t i = 0; i < N; i++)
        text[i] = "thousands"[i % 9];
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, text, N, 0, &ids), OK);
    assert_in_range(ids.n, N / 9, N / 2);
    token_list_release(&ids);
    mem_free(text);
    tokenizer_free(t);
}

static void special_tokens_are_found_and_can_be_skipped(void **state)
{
    (void)state;
    struct tokenizer *t;
    assert_int_equal(tokenizer_open(&t, "bytes"), OK);
    assert_int_equal(tokenizer_vocab_size(t), 257);
    assert_int_equal(tokenizer_find(t, "<|endoftext|>"), 256);
    assert_int_equal(tokenizer_find(t, "A"), 'A');
    assert_int_equal(tokenizer_find(t, "AB"), -1);
    assert_int_equal(tokenizer_eos(t), 256);
    assert_true(tokenizer_is_special(t, 256));
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, "a<|endoftext|>\0b", 16, 0, &ids), OK);
    assert_int_equal(ids.n, 4);
    assert_int_equal(ids.items[1], 256);
    assert_int_equal(ids.items[2], 0);
    struct str text = {0};
    assert_int_equal(tokenizer_decode(t, ids.items, ids.n, DECODE_SKIP_SPECIAL, &text), OK);
    assert_int_equal(text.n, 3);
    assert_memory_equal(text.text, "a\0b", 3);
    ids.n = 0;
    assert_int_equal(tokenizer_encode(t, "<|endoftext|>", 13, ENCODE_PLAIN_TEXT, &ids), OK);
    assert_int_equal(ids.n, 13);
    const int32_t outside[] = {3, 257};
    assert_int_equal(tokenizer_decode(t, outside, 2, 0, &text), ERR_DATA);
    assert_non_null(strstr(status_message(), "257 at position 1"));
    str_release(&text);
    token_list_release(&ids);
    tokenizer_free(t);
}

static void a_byte_that_is_not_utf8_is_its_own_token(void **state)
{
    (void)state;
    struct tokenizer *t = open_golden("gpt2");
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, "\xFF\xC3", 2, 0, &ids), OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.items[0], t->byte_ids[0xFF]);
    assert_int_equal(ids.items[1], t->byte_ids[0xC3]);
    token_list_release(&ids);
    tokenizer_free(t);
}

static void documents_begin_and_end_as_the_template_says(void **state)
{
    (void)state;
    int32_t ids[DOCUMENT_IDS];
    struct tokenizer *t = open_golden("llama3");
    assert_int_equal(tokenizer_document_begin(t, ids), 1);
    assert_int_equal(ids[0], tokenizer_find(t, "<|begin_of_text|>"));
    assert_int_equal(tokenizer_document_end(t, ids), 1);
    assert_int_equal(ids[0], tokenizer_find(t, "<|end_of_text|>"));
    tokenizer_free(t);
    t = open_golden("gpt2");
    assert_int_equal(tokenizer_document_begin(t, ids), 0);
    assert_int_equal(tokenizer_document_end(t, ids), 1);
    tokenizer_set_eos(t, -1);
    assert_int_equal(tokenizer_document_end(t, ids), 0);
    tokenizer_free(t);
}

static void a_folder_is_opened_with_its_config(void **state)
{
    (void)state;
    struct scratch scratch;
    char path[SCRATCH_PATH];
    scratch_init(&scratch);
    const char *folder = scratch.folder;
    struct tokenizer *t;
    assert_int_equal(tokenizer_open(&t, folder), ERR_CONFIG);
    assert_non_null(strstr(status_message(), "tokenizer.json"));

    char *text;
    size_t n;
    assert_int_equal(file_read(GOLDEN "qwen2.json", &text, &n), OK);
    (void)snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    assert_int_equal(file_write_atomic(path, text, n), OK);
    mem_free(text);
    static const char config[] = "{\"eos_token\":{\"content\":\"<|im_end|>\"},\"bos_token\":null,"
                                 "\"model_max_length\":1000000000000000019884624838656,"
                                 "\"pad_token\":\"<|endoftext|>\"}";
    (void)snprintf(path, sizeof(path), "%s/tokenizer_config.json", folder);
    assert_int_equal(file_write_atomic(path, config, strlen(config)), OK);
    assert_int_equal(tokenizer_open(&t, folder), OK);
    assert_int_equal(tokenizer_eos(t), tokenizer_find(t, "<|im_end|>"));
    assert_int_equal(tokenizer_pad(t), tokenizer_find(t, "<|endoftext|>"));
    assert_int_equal(tokenizer_bos(t), -1);
    assert_true(tokenizer_eos(t) > 0);
    tokenizer_free(t);

    static const char adds[] = "{\"bos_token\":\"<|im_start|>\",\"eos_token\":\"<|im_end|>\","
                               "\"add_bos_token\":true,\"add_eos_token\":true}";
    int32_t ids[DOCUMENT_IDS];
    assert_int_equal(file_write_atomic(path, adds, strlen(adds)), OK);
    assert_int_equal(tokenizer_open(&t, folder), OK);
    assert_int_equal(tokenizer_document_begin(t, ids), 1);
    assert_int_equal(ids[0], tokenizer_find(t, "<|im_start|>"));
    assert_int_equal(tokenizer_document_end(t, ids), 1); /* not twice */
    assert_int_equal(ids[0], tokenizer_find(t, "<|im_end|>"));
    tokenizer_free(t);

    static const char wrong[] = "{\"eos_token\":\"<|nope|>\"}";
    assert_int_equal(file_write_atomic(path, wrong, strlen(wrong)), OK);
    assert_int_equal(tokenizer_open(&t, folder), ERR_DATA);
    assert_non_null(strstr(status_message(), "<|nope|>"));
    scratch_release(&scratch);
}

#define BYTE_LEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define MODEL \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

#define METASPACE "\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\""
#define MARKS     "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}"

static void broken_files_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        enum status status;
        const char *says;
    } cases[] = {
        {"", ERR_DATA, "not valid JSON"},
        {"{", ERR_DATA, "not valid JSON"},
        {"[]", ERR_DATA, "no \"model\""},
        {"{\"model\":{\"type\":\"Unigram\"}}", ERR_UNSUPPORTED, "Unigram"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", ERR_UNSUPPORTED, "WordPiece"},
        {"{\"model\":{\"type\":\"BPE\"}}", ERR_DATA, "model.vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", ERR_DATA, "empty"},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", ERR_DATA, "\"a\""},
        {"{\"model\":{\"vocab\":{\"a\":99999999999},\"merges\":[]}}", ERR_DATA, "\"a\""},
        {"{\"model\":{\"vocab\":{\"a\":\"x\"},\"merges\":[]}}", ERR_DATA, "not an integer"},
        {"{\"model\":{\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", ERR_DATA, "id 1"},
        {"{\"model\":{\"vocab\":{\"a\":1,\"b\":2},\"merges\":[\"a b\"]}}", ERR_DATA, "\"ab\""},
        {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[\"a\"]}}", ERR_DATA, "merges[0]"},
        {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[[\"a\",3]]}}", ERR_DATA, "merges[0]"},
        {"{" BYTE_LEVEL ",\"model\":{\"vocab\":{\"a\":1},\"merges\":[],\"byte_fallback\":true}}",
         ERR_UNSUPPORTED, "byte_fallback"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":3,\"content\":\"<\\u0000>\"}]}", ERR_DATA, "U+0000"},
        {"{" MODEL "}", ERR_UNSUPPORTED, "without ByteLevel or Metaspace"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}}",
         ERR_UNSUPPORTED, "another replacement"},
        {"{" MODEL ",\"pre_tokenizer\":{" METASPACE ",\"prepend_scheme\":\"often\"}}",
         ERR_UNSUPPORTED, "often"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{" METASPACE
         "},{\"type\":\"Digits\"}]}}",
         ERR_UNSUPPORTED, "Digits after Metaspace"},
        {"{" MODEL ",\"pre_tokenizer\":{" METASPACE "},\"normalizer\":{\"type\":\"Prepend\","
         "\"prepend\":\"\xE2\x96\x81\"}}",
         ERR_UNSUPPORTED, "Prepend without Replace"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
         "\"content\":\"b\"}}",
         ERR_UNSUPPORTED, "Replace"},
        {"{" MODEL ",\"normalizer\":" MARKS ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":"
         "{\"Regex\":\"x\"},\"behavior\":\"Isolated\"}}",
         ERR_UNSUPPORTED, "after a normalizer of spaces"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" MARKS
         ",{\"type\":\"NFC\"}]}}",
         ERR_UNSUPPORTED, "not the first \"NFC\""},
        {"{" MODEL ",\"normalizer\":" MARKS ",\"decoder\":{\"type\":\"Strip\",\"content\":\" \","
         "\"start\":2,\"stop\":0}}",
         ERR_UNSUPPORTED, "Strip"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
         "\"behavior\":\"Isolated\"}}",
         ERR_DATA, "not closed"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},"
         "\"behavior\":\"MergedWithNext\"}}",
         ERR_UNSUPPORTED, "MergedWithNext"},
        {"{" MODEL "," BYTE_LEVEL ",\"normalizer\":{\"type\":\"Lowercase\"}}", ERR_UNSUPPORTED,
         "Lowercase"},
        {"{" MODEL "," BYTE_LEVEL ",\"decoder\":{\"type\":\"WordPiece\"}}", ERR_UNSUPPORTED,
         "WordPiece"},
        {"{" MODEL "," BYTE_LEVEL ",\"post_processor\":{\"type\":\"BertProcessing\"}}",
         ERR_UNSUPPORTED, "BertProcessing"},
        {"{" MODEL "," BYTE_LEVEL ",\"added_tokens\":[{\"id\":3}]}", ERR_DATA, "added_tokens[0]"},
        {"{" MODEL "," BYTE_LEVEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
         "[{\"SpecialToken\":{\"id\":\"x\"}}],\"special_tokens\":{\"x\":{\"ids\":[7]}}}}",
         ERR_DATA, "outside the vocabulary"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tokenizer *t;
        enum status status =
            tokenizer_open_text(&t, cases[i].json, strlen(cases[i].json), "broken.json");
        if (status != cases[i].status || !strstr(status_message(), cases[i].says) ||
            !strstr(status_message(), "broken.json"))
            fail_msg("case %zu: %s: %s", i, status_name(status), status_message());
        assert_null(t);
    }
}

static void a_character_without_a_token_is_its_bytes_or_unk_or_an_error(void **state)
{
    (void)state;
    static const char bytes[] =
        "{\"normalizer\":" MARKS ",\"model\":{\"vocab\":{\"?\":0,\"a\":1,\"<0xC3>\":2,"
        "\"<0xA9>\":3,\"<0x0A>\":4},\"merges\":[],\"unk_token\":\"?\",\"fuse_unk\":true,"
        "\"byte_fallback\":true}}";
    static const char none[] =
        "{\"normalizer\":" MARKS ",\"model\":{\"vocab\":{\"a\":1},\"merges\":[]}}";
    struct tokenizer *t;
    struct token_list ids = {0};
    struct str text = {0};
    assert_int_equal(tokenizer_open_text(&t, bytes, strlen(bytes), "small"), OK);
    assert_int_equal(tokenizer_encode(t, "a\xC3\xA9xy\xC3\xAA\n", 8, 0, &ids), OK);
    assert_int_equal(ids.n, 5); /* a, two bytes, the newline, and behind all what is unknown */
    const int32_t expected[] = {1, 2, 3, 4, 0};
    assert_memory_equal(ids.items, expected, sizeof(expected));
    assert_int_equal(tokenizer_decode(t, ids.items, 4, 0, &text), OK);
    assert_string_equal(str_text(&text), "a\xC3\xA9\n");
    str_release(&text);
    tokenizer_free(t);

    assert_int_equal(tokenizer_open_text(&t, none, strlen(none), "small"), OK);
    assert_int_equal(tokenizer_encode(t, "ab", 2, 0, &ids), ERR_DATA);
    assert_non_null(strstr(status_message(), "\"b\" has no token"));
    tokenizer_free(t);
    token_list_release(&ids);
}

static void a_byte_without_a_token_is_an_error_or_unk(void **state)
{
    (void)state;
    static const char plain[] = "{" MODEL "," BYTE_LEVEL "}";
    struct tokenizer *t;
    struct token_list ids = {0};
    assert_int_equal(tokenizer_open_text(&t, plain, strlen(plain), "small"), OK);
    assert_int_equal(tokenizer_encode(t, "ab", 2, 0, &ids), OK);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.items[0], 2);
    assert_int_equal(tokenizer_encode(t, "abc", 3, 0, &ids), ERR_DATA);
    assert_non_null(strstr(status_message(), "0x63"));
    tokenizer_free(t);

    static const char with_unk[] =
        "{" BYTE_LEVEL ",\"model\":{\"vocab\":{\"a\":0,\"?\":1},\"merges\":[],\"unk_token\":\"?\","
        "\"fuse_unk\":true}}";
    ids.n = 0;
    assert_int_equal(tokenizer_open_text(&t, with_unk, strlen(with_unk), "small"), OK);
    assert_int_equal(tokenizer_encode(t, "acca", 4, 0, &ids), OK);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.items[1], 1);
    tokenizer_free(t);
    token_list_release(&ids);
}

/* Opens and encodes with the n-th allocation failing, until none does. */
static void run_out_of_memory(const char *path)
{
    static const char text[] = "The whole caf\xC3\xA9 <tool> 123 <|endoftext|> b\xCC\x81 thousands";
    for (int64_t n = 1;; n = next_failure(n)) {
        int64_t before = mem_live();
        struct tokenizer *t = NULL;
        struct token_list ids = {0};
        mem_fail_after(n, 0);
        enum status status = tokenizer_open(&t, path);
        if (status == OK)
            status = tokenizer_encode(t, text, strlen(text), 0, &ids);
        mem_fail_after(0, 0);
        token_list_release(&ids);
        tokenizer_free(t);
        assert_int_equal(mem_live(), before);
        if (status == OK) {
            assert_true(n > 20);
            return;
        }
        assert_int_equal(status, ERR_MEMORY);
    }
}

static void running_out_of_memory_anywhere_is_a_clean_error(void **state)
{
    (void)state;
    run_out_of_memory(GOLDEN "qwen2.json");
    run_out_of_memory(GOLDEN "llama2.json");
    run_out_of_memory(GOLDEN "mistral.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_ids_equal_the_reference),
        cmocka_unit_test(llama3_ids_equal_the_reference),
        cmocka_unit_test(qwen2_ids_equal_the_reference),
        cmocka_unit_test(prefix_space_and_digits_equal_the_reference),
        cmocka_unit_test(ids_of_marked_spaces_equal_the_reference),
        cmocka_unit_test(added_tokens_among_spaces_and_words_equal_the_reference),
        cmocka_unit_test(decoding_an_encoding_gives_the_same_bytes),
        cmocka_unit_test(merging_with_a_heap_equals_the_definition),
        cmocka_unit_test(a_long_piece_takes_no_quadratic_time),
        cmocka_unit_test(special_tokens_are_found_and_can_be_skipped),
        cmocka_unit_test(a_byte_that_is_not_utf8_is_its_own_token),
        cmocka_unit_test(documents_begin_and_end_as_the_template_says),
        cmocka_unit_test(a_folder_is_opened_with_its_config),
        cmocka_unit_test(broken_files_are_refused_with_the_reason),
        cmocka_unit_test(a_byte_without_a_token_is_an_error_or_unk),
        cmocka_unit_test(a_character_without_a_token_is_its_bytes_or_unk_or_an_error),
        cmocka_unit_test(running_out_of_memory_anywhere_is_a_clean_error),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
