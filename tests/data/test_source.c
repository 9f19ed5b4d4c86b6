/* Sources: text, JSONL, token files, folders, the cache, synthetic streams, and bad input. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "base/vec.h"
#include "data/source.h"
#include "support/scratch.h"

enum { EOS = 256, IGNORED = LABEL_IGNORED };

struct fixture {
    struct scratch scratch, cache;
    char path[SCRATCH_PATH];
    struct tokenizer *bytes;
};

static int fixture_open(void **state)
{
    struct fixture *s = mem_calloc(1, sizeof(*s));
    assert_non_null(s);
    scratch_init(&s->scratch);
    scratch_init(&s->cache);
    assert_int_equal(tokenizer_open(&s->bytes, "bytes"), OK);
    *state = s;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *s = *state;
    tokenizer_free(s->bytes);
    scratch_release(&s->scratch);
    scratch_release(&s->cache);
    mem_free(s);
    return 0;
}

static const char *write_file(struct fixture *s, const char *name, const char *text)
{
    scratch_write_text(&s->scratch, name, text);
    return scratch_path(&s->scratch, name, s->path);
}

static enum status open_path(struct fixture *s, const char *path, struct source **out)
{
    const char *paths[] = {path};
    struct source_options o = {.paths = paths,
                               .n_paths = 1,
                               .tokenizer = s->bytes,
                               .vocab_size = 257,
                               .cache_folder = s->cache.folder};
    return source_open(out, &o);
}

static void expect_stream(const struct source *source, const int32_t *tokens, const int32_t *labels,
                          int64_t n)
{
    int32_t got[64], got_labels[64];
    assert_int_equal(source_n_tokens(source), n);
    assert_int_equal(source_read(source, 0, n, got, got_labels), OK);
    assert_memory_equal(got, tokens, (size_t)n * sizeof(*got));
    assert_memory_equal(got_labels, labels, (size_t)n * sizeof(*got));
    for (int64_t first = 0; first < n; first++) /* any part alone is the same */
        for (int64_t length = 0; length <= n - first; length++) {
            assert_int_equal(source_read(source, first, length, got, got_labels), OK);
            assert_memory_equal(got, tokens + first, (size_t)length * sizeof(*got));
            assert_memory_equal(got_labels, labels + first, (size_t)length * sizeof(*got));
        }
}

static void text_is_a_document_and_its_end(void **state)
{
    struct source *source;
    assert_int_equal(open_path(*state, write_file(*state, "a.txt", "Hi!\n"), &source), OK);
    const int32_t expected[] = {'H', 'i', '!', '\n', EOS};
    expect_stream(source, expected, expected, 5);
    source_free(source);
}

static void a_document_begins_with_what_its_tokenizer_adds(void **state)
{
    struct fixture *s = *state;
    struct tokenizer *t;
    struct source *source;
    int32_t tokens[4], labels[4];
    assert_int_equal(tokenizer_open(&t, SNUG_SOURCE_DIR "/tests/golden/tokenizer/llama3.json"), OK);
    const char *paths[] = {write_file(s, "a.jsonl", "{\"text\":\"\"}\n{\"text\":\"\"}\n")};
    struct source_options o = {.paths = paths,
                               .n_paths = 1,
                               .tokenizer = t,
                               .vocab_size = tokenizer_vocab_size(t),
                               .cache_folder = s->cache.folder};
    assert_int_equal(source_open(&source, &o), OK);
    assert_int_equal(source_n_tokens(source), 4);
    assert_int_equal(source_read(source, 0, 4, tokens, labels), OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tokens[i],
                         tokenizer_find(t, i % 2 ? "<|end_of_text|>" : "<|begin_of_text|>"));
    source_free(source);
    tokenizer_free(t);
}

static void folders_and_patterns_join_files_by_name(void **state)
{
    struct fixture *s = *state;
    (void)write_file(s, "b.txt", "b");
    (void)write_file(s, "a.txt", "a");
    (void)write_file(s, "c.jsonl", "{\"text\":\"c\"}\n");
    (void)write_file(s, "notes.log", "not data");
    const int32_t expected[] = {'a', EOS, 'b', EOS, 'c', EOS};
    struct source *source;
    assert_int_equal(open_path(s, s->scratch.folder, &source), OK);
    expect_stream(source, expected, expected, 6);
    source_free(source);
    char pattern[128];
    (void)snprintf(pattern, sizeof(pattern), "%s/[ab].t?t", s->scratch.folder);
    assert_int_equal(open_path(s, pattern, &source), OK);
    expect_stream(source, expected, expected, 4);
    source_free(source);
    (void)snprintf(pattern, sizeof(pattern), "%s/*.nothing", s->scratch.folder);
    assert_int_equal(open_path(s, pattern, &source), ERR_DATA);
    assert_non_null(strstr(status_message(), "no file matches"));
}

static void jsonl_gives_documents_and_labels(void **state)
{
    static const char text[] =
        "{\"text\":\"ab\",\"other\":1}\n\n"
        "{\"input_ids\":[5,6,7,0],\"labels\":[-100,-100,7,-100],\"attention_mask\":[1,1,1,0]}\r\n"
        "{\"input_ids\":[8,9]}\n"
        "{\"text\":\"\"}";
    const int32_t tokens[] = {'a', 'b', EOS, 5, 6, 7, 8, 9, EOS};
    const int32_t labels[] = {'a', 'b', EOS, IGNORED, IGNORED, 7, IGNORED, 9, EOS};
    struct source *source;
    assert_int_equal(open_path(*state, write_file(*state, "a.jsonl", text), &source), OK);
    expect_stream(source, tokens, labels, 9);
    source_free(source);
}

static void jsonl_as_other_software_writes_it_is_read(void **state)
{
    static const char text[] =
        "\xEF\xBB\xBF{\"text\":\"a\\u0000b\",\"id\":340282366920938463463374607}\n"
        "{\"text\":\"c\",\"hash\":[-99999999999999999999,\"\\u0000\"]}\n";
    const int32_t tokens[] = {'a', 0, 'b', EOS, 'c', EOS};
    struct source *source;
    assert_int_equal(open_path(*state, write_file(*state, "a.jsonl", text), &source), OK);
    expect_stream(source, tokens, tokens, 6);
    source_free(source);
}

static void another_text_field_can_be_named(void **state)
{
    struct fixture *s = *state;
    const char *paths[] = {write_file(s, "a.jsonl", "{\"content\":\"x\"}\n")};
    struct source_options o = {.paths = paths,
                               .n_paths = 1,
                               .tokenizer = s->bytes,
                               .vocab_size = 257,
                               .cache_folder = s->cache.folder,
                               .text_field = "content"};
    const int32_t expected[] = {'x', EOS};
    struct source *source;
    assert_int_equal(source_open(&source, &o), OK);
    expect_stream(source, expected, expected, 2);
    source_free(source);
}

static void bad_input_names_the_place(void **state)
{
    static const struct {
        const char *name, *text;
        enum status status;
        const char *says;
    } cases[] = {
        {"a.txt", "", ERR_DATA, "empty"},
        {"a.jsonl", "", ERR_DATA, "empty"},
        {"a.jsonl", "\n\n", ERR_DATA, "no tokens"},
        {"a.jsonl", "{\"text\":\"x\"}\n[1]\n", ERR_DATA, "line 2: not a JSON object"},
        {"a.jsonl", "{\"text\":\"x\"}\n\n{\"text\":\n", ERR_DATA, "line 3"},
        {"a.jsonl", "{\"messages\":[]}\n", ERR_DATA, "messages"},
        {"a.jsonl", "{}\n", ERR_DATA, "line 1"},
        {"a.jsonl", "{\"text\":5}\n", ERR_DATA, "not a string"},
        {"a.jsonl", "{\"input_ids\":5}\n", ERR_DATA, "not an array"},
        {"a.jsonl", "{\"input_ids\":[1,\"x\"]}\n", ERR_DATA, "input_ids[1]"},
        {"a.jsonl", "{\"input_ids\":[1,257]}\n", ERR_DATA, "257, outside the vocabulary of 257"},
        {"a.jsonl", "{\"input_ids\":[-1]}\n", ERR_DATA, "-1, outside"},
        {"a.jsonl", "{\"input_ids\":[1,2],\"labels\":[1]}\n", ERR_DATA, "labels has 1"},
        {"a.jsonl", "{\"input_ids\":[1,2],\"labels\":[1,3]}\n", ERR_DATA, "labels[1]"},
        {"a.bin", "abcd", ERR_DATA, "`type: nanogpt`, and `token_dtype: u32`"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct source *source;
        const char *path = write_file(*state, cases[i].name, cases[i].text);
        enum status status = open_path(*state, path, &source);
        if (status != cases[i].status || !strstr(status_message(), cases[i].says) ||
            !strstr(status_message(), path))
            fail_msg("case %zu: %s: %s", i, status_name(status), status_message());
        assert_null(source);
    }
}

static void missing_files_and_settings_are_named(void **state)
{
    struct fixture *s = *state;
    struct source *source;
    assert_int_equal(open_path(s, "/tmp/snug-no-such-file.txt", &source), ERR_DATA);
    assert_non_null(strstr(status_message(), "/tmp/snug-no-such-file.txt"));
    assert_int_equal(open_path(s, s->scratch.folder, &source), ERR_DATA);
    assert_non_null(strstr(status_message(), "no data files"));
    const char *paths[] = {write_file(s, "a.txt", "x")};
    struct source_options o = {
        .paths = paths, .n_paths = 1, .vocab_size = 257, .cache_folder = s->cache.folder};
    assert_int_equal(source_open(&source, &o), ERR_CONFIG);
    assert_non_null(strstr(status_message(), "tokenizer"));
    o.n_paths = 0;
    assert_int_equal(source_open(&source, &o), ERR_CONFIG);
    o.vocab_size = 0;
    assert_int_equal(source_open(&source, &o), ERR_CONFIG);
    o = (struct source_options){.kind = SOURCE_SYNTHETIC, .vocab_size = 10};
    assert_int_equal(source_open(&source, &o), ERR_CONFIG);
}

static void ids_beyond_the_models_vocabulary_are_refused_at_open(void **state)
{
    struct fixture *s = *state;
    const char *paths[] = {write_file(s, "a.txt", "a\xC3\xA9")};
    struct source_options o = {.paths = paths,
                               .n_paths = 1,
                               .tokenizer = s->bytes,
                               .vocab_size = 128,
                               .cache_folder = s->cache.folder};
    struct source *source;
    assert_int_equal(source_open(&source, &o), ERR_DATA);
    assert_non_null(strstr(status_message(), "token 195 at position 1"));
    assert_non_null(strstr(status_message(), "vocabulary of 128"));
}

/* The file was last changed so many seconds ago. */
static void set_age(const char *path, time_t seconds)
{
    const struct timespec then = {.tv_sec = time(NULL) - seconds};
    const struct timespec times[] = {then, then};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* The same size and the same time, as when two changes come in one tick of the clock. */
static void a_change_within_a_tick_is_seen(void **state)
{
    struct fixture *s = *state;
    const int32_t before[] = {'a', 'b', EOS}, after[] = {'x', 'y', EOS};
    struct source *source;
    const char *path = write_file(s, "a.txt", "ab");
    set_age(path, 0);
    assert_int_equal(open_path(s, path, &source), OK);
    expect_stream(source, before, before, 3);
    source_free(source);
    path = write_file(s, "a.txt", "xy");
    set_age(path, 0);
    assert_int_equal(open_path(s, path, &source), OK);
    expect_stream(source, after, after, 3);
    source_free(source);
}

static void the_cache_is_found_again_and_never_stale(void **state)
{
    struct fixture *s = *state;
    char cache[128];
    (void)snprintf(cache, sizeof(cache), "%s/cache/tokens", s->scratch.folder);
    const char *paths[] = {write_file(s, "a.txt", "abc")};
    struct source_options o = {.paths = paths,
                               .n_paths = 1,
                               .tokenizer = s->bytes,
                               .vocab_size = 257,
                               .cache_folder = cache};
    const int32_t expected[] = {'a', 'b', 'c', EOS}, changed[] = {'x', 'y', EOS};
    struct source *source;
    set_age(paths[0], 10);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(source_open(&source, &o), OK);
        expect_stream(source, expected, expected, 4);
        source_free(source);
        file_fail_after(1); /* the second time nothing is written */
    }
    file_fail_after(0);
    (void)write_file(s, "a.txt", "xy");
    assert_int_equal(source_open(&source, &o), OK);
    expect_stream(source, changed, changed, 3);
    source_free(source);
}

/* ---- long texts -------------------------------------------------------------------------------
 */

static struct tokenizer *open_gpt2(void)
{
    struct tokenizer *t;
    assert_int_equal(tokenizer_open(&t, SNUG_SOURCE_DIR "/tests/golden/tokenizer/gpt2.json"), OK);
    return t;
}

static struct source_options long_options(struct fixture *s, const struct tokenizer *t,
                                          const char *const *path)
{
    return (struct source_options){.paths = path,
                                   .n_paths = 1,
                                   .tokenizer = t,
                                   .vocab_size = tokenizer_vocab_size(t),
                                   .cache_folder = s->cache.folder};
}

static void expect_ids(const struct source *source, const struct token_list *ids)
{
    int64_t n = source_n_tokens(source);
    assert_int_equal(n, ids->n);
    int32_t *got = mem_calloc(2 * (size_t)n, sizeof(*got));
    assert_non_null(got);
    assert_int_equal(source_read(source, 0, n, got, got + n), OK);
    assert_memory_equal(got, ids->items, ids->n * sizeof(*got));
    mem_free(got);
}

/* Several parts long, without a line break, as a text file and as one line of JSONL. */
static void a_long_document_gives_the_ids_of_the_whole(void **state)
{
    struct fixture *s = *state;
    struct tokenizer *t = open_gpt2();
    struct str text = {0}, json = {0};
    struct token_list ids = {0};
    for (int i = 0; text.n < 700000; i++)
        str_addf(&text,
                 "It's the %dth   (or so) word, \xC3\xA9t\xC3\xA9: \xE4\xB8\xAD\xE6\x96\x87 ", i);
    str_addf(&json, "{\"id\":1,\"text\":\"%s\"}\n", text.text);
    assert_int_equal(str_status(&json), OK);
    assert_int_equal(tokenizer_encode(t, text.text, text.n, 0, &ids), OK);
    if (tokenizer_eos(t) >= 0)
        assert_int_equal(vec_push(&ids, tokenizer_eos(t)), OK);
    const struct str *const texts[] = {&text, &json};
    const char *const file_names[] = {"long.txt", "long.jsonl"};
    for (size_t i = 0; i < 2; i++) {
        struct source *source;
        const char *path = write_file(s, file_names[i], texts[i]->text);
        struct source_options o = long_options(s, t, &path);
        assert_int_equal(source_open(&source, &o), OK);
        expect_ids(source, &ids);
        source_free(source);
    }
    str_release(&text);
    str_release(&json);
    token_list_release(&ids);
    tokenizer_free(t);
}

static void a_word_without_an_end_needs_memory_to_spare(void **state)
{
    enum { N = 1 << 20 };
    struct fixture *s = *state;
    struct tokenizer *t = open_gpt2();
    struct source *source;
    char *word = mem_alloc(N + 1);
    assert_non_null(word);
    memset(word, 'a', N);
    word[N] = '\0';
    const char *path = write_file(s, "word.txt", word);
    struct source_options o = long_options(s, t, &path);
    assert_int_equal(source_open(&source, &o), ERR_FIT);
    expect_message("word.txt");
    expect_message("Raise host_memory");
    o.spare_bytes = (int64_t)1 << 30;
    assert_int_equal(source_open(&source, &o), OK);
    source_free(source);
    mem_free(word);
    tokenizer_free(t);
}

static void a_cache_that_cannot_be_written_is_named_and_leaves_nothing(void **state)
{
    struct fixture *s = *state;
    const char *path = write_file(s, "a.jsonl", "{\"text\":\"some\"}\n{\"input_ids\":[1,2]}\n");
    for (int64_t n = 1;; n++) {
        struct source *source;
        file_fail_after(n);
        enum status status = open_path(s, path, &source);
        file_fail_after(0);
        if (status == OK) {
            assert_true(n > 5);
            source_free(source);
            return;
        }
        assert_int_equal(status, ERR_IO);
        expect_message("dataset_prepared_path");
        expect_message("disk is full");
        assert_int_equal(rmdir(s->cache.folder), 0); /* empty */
    }
}

/* The only file of a folder. */
static void only_file(const char *folder, char path[SCRATCH_PATH])
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    path[0] = '\0';
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (e->d_name[0] != '.')
            (void)snprintf(path, SCRATCH_PATH, "%s/%s", folder, e->d_name);
    closedir(d);
    assert_true(path[0] != '\0');
}

/* A writer would wait for whoever reads from it. */
static void a_pipe_in_the_place_of_tokens_is_named(void **state)
{
    struct fixture *s = *state;
    struct source *source;
    char tokens[SCRATCH_PATH];
    const char *path = write_file(s, "a.txt", "some text");
    assert_int_equal(open_path(s, path, &source), OK);
    source_free(source);
    only_file(s->cache.folder, tokens);
    assert_int_equal(unlink(tokens), 0);
    assert_int_equal(mkfifo(tokens, 0600), 0);
    alarm(10);
    assert_int_equal(open_path(s, path, &source), ERR_IO);
    alarm(0);
    expect_message("is not a regular file: remove it");
    expect_message("dataset_prepared_path");
}

static void synthetic_streams_are_functions_of_seed_and_position(void **state)
{
    (void)state;
    enum { N = 5000 };
    static int32_t a[N], labels[N], b[N];
    for (int random = 0; random < 2; random++) {
        struct source_options o = {.kind = random ? SOURCE_RANDOM : SOURCE_SYNTHETIC,
                                   .vocab_size = 1000,
                                   .n_tokens = (int64_t)1 << 40,
                                   .seed = 9};
        struct source *source;
        assert_int_equal(source_open(&source, &o), OK);
        int64_t far = ((int64_t)1 << 39) + 77;
        assert_int_equal(source_read(source, far, N, a, labels), OK);
        assert_memory_equal(a, labels, sizeof(a));
        for (int i = 0; i < N; i += 7) {
            assert_in_range(a[i], 0, random ? 999 : 255);
            assert_int_equal(source_read(source, far + i, 1, b, labels), OK);
            assert_int_equal(a[i], b[0]);
        }
        source_free(source);
        o.seed = 10;
        assert_int_equal(source_open(&source, &o), OK);
        assert_int_equal(source_read(source, far, N, b, labels), OK);
        assert_memory_not_equal(a, b, sizeof(a));
        source_free(source);
    }
}

/* Counts pairs: in the chain an id is followed by few others, in random ids by many. */
static void the_synthetic_chain_can_be_learned(void **state)
{
    (void)state;
    enum { N = 200000, V = 256 };
    static int32_t ids[N], labels[N];
    static uint8_t seen[V][V];
    struct source_options o = {.kind = SOURCE_SYNTHETIC, .vocab_size = V, .n_tokens = N, .seed = 1};
    struct source *source;
    assert_int_equal(source_open(&source, &o), OK);
    assert_int_equal(source_read(source, 0, N, ids, labels), OK);
    source_free(source);
    int n_pairs = 0, n_in_table = 0;
    for (int i = 0; i + 1 < N; i++)
        if ((i + 1) % 256 != 0) {
            n_pairs++;
            n_in_table += !seen[ids[i]][ids[i + 1]];
            seen[ids[i]][ids[i + 1]] = 1;
        }
    assert_true(n_pairs > 100000);
    assert_true(n_in_table <= 4 * V);
}

static void running_out_of_memory_anywhere_is_a_clean_error(void **state)
{
    struct fixture *s = *state;
    (void)write_file(s, "a.txt", "some text");
    (void)write_file(s, "b.jsonl", "{\"input_ids\":[1,2,3]}\n{\"text\":\"x\"}\n");
    for (int64_t n = 1;; n++) {
        int64_t before = mem_live();
        struct source *source;
        assert_int_equal(file_remove_tree(s->cache.folder), OK);
        mem_fail_after(n, 0);
        enum status status = open_path(s, s->scratch.folder, &source);
        mem_fail_after(0, 0);
        source_free(source);
        assert_int_equal(mem_live(), before);
        if (status == OK) {
            assert_true(n > 10);
            return;
        }
        assert_int_equal(status, ERR_MEMORY);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(text_is_a_document_and_its_end),
        TEST(a_document_begins_with_what_its_tokenizer_adds),
        TEST(folders_and_patterns_join_files_by_name),
        TEST(jsonl_gives_documents_and_labels),
        TEST(jsonl_as_other_software_writes_it_is_read),
        TEST(another_text_field_can_be_named),
        TEST(bad_input_names_the_place),
        TEST(missing_files_and_settings_are_named),
        TEST(ids_beyond_the_models_vocabulary_are_refused_at_open),
        TEST(the_cache_is_found_again_and_never_stale),
        TEST(a_change_within_a_tick_is_seen),
        TEST(a_long_document_gives_the_ids_of_the_whole),
        TEST(a_word_without_an_end_needs_memory_to_spare),
        TEST(a_cache_that_cannot_be_written_is_named_and_leaves_nothing),
        TEST(a_pipe_in_the_place_of_tokens_is_named),
        TEST(synthetic_streams_are_functions_of_seed_and_position),
        TEST(the_synthetic_chain_can_be_learned),
        TEST(running_out_of_memory_anywhere_is_a_clean_error),
    };
    return cmocka_run_group_tests_name("source", tests, NULL, NULL);
}
