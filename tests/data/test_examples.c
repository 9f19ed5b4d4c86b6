/* Examples: forms of records, what is learnt of them, lengths, weights and what is held out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "data/examples.h"
#include "data/windows.h"
#include "support/scratch.h"

enum { EOS = 256, VOCAB = 257, LENGTH = 16, MOST = 64 };

struct fixture {
    struct scratch scratch, cache;
    struct tokenizer *bytes;
    struct chat_template *chatml;
};

static int fixture_open(void **state)
{
    struct fixture *s = mem_calloc(1, sizeof(*s));
    assert_non_null(s);
    scratch_init(&s->scratch);
    scratch_init(&s->cache);
    assert_int_equal(tokenizer_open(&s->bytes, "bytes"), OK);
    assert_int_equal(chat_template_open(&s->chatml, "chatml", "bytes", s->bytes), OK);
    *state = s;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *s = *state;
    chat_template_free(s->chatml);
    tokenizer_free(s->bytes);
    scratch_release(&s->scratch);
    scratch_release(&s->cache);
    mem_free(s);
    return 0;
}

/* ---- one record ------------------------------------------------------------------------------ */

static enum status make(struct fixture *s, const char *json, const struct example_options *o,
                        struct example *x)
{
    json_t *record;
    struct encoder *e;
    assert_int_equal(json_read_text(&record, json, strlen(json), "test", ERR_DATA), OK);
    assert_int_equal(encoder_new(&e, s->bytes), OK);
    enum status status = example_make(x, record, o, s->bytes, e);
    encoder_free(e);
    json_decref(record);
    return status;
}

/* The text of an example with [ ] around what is learnt; $ is end of text. */
static void expect_learnt(struct fixture *s, const char *json, const struct example_options *o,
                          const char *expected)
{
    struct example x = {0};
    struct str got = {0};
    int learning = 0;
    assert_int_equal(make(s, json, o, &x), OK);
    for (size_t i = 0; i < x.ids.n; i++) {
        int is_label = x.labels.items[i] != LABEL_IGNORED;
        char c = (char)(x.ids.items[i] == EOS ? '$' : x.ids.items[i]);
        if (is_label)
            assert_int_equal(x.labels.items[i], x.ids.items[i]);
        if (is_label != learning)
            str_add(&got, is_label ? "[" : "]");
        learning = is_label;
        str_add_n(&got, &c, 1);
    }
    str_add(&got, learning ? "]" : "");
    assert_string_equal(str_text(&got), expected);
    str_release(&got);
    example_release(&x);
}

#define ANSWERED                                                       \
    "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n" \
    "<|im_start|>assistant\n[A<|im_end|>]\n"

static void conversations_are_read_in_the_spellings_there_are(void **state)
{
    struct fixture *s = *state;
    struct example_options o = {.chat = s->chatml};
    expect_learnt(s,
                  "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
                  "\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"A\"}]}",
                  &o, ANSWERED);
    expect_learnt(s,
                  "{\"system\":\"S\",\"conversations\":[{\"from\":\"human\",\"value\":\"Q\"},"
                  "{\"from\":\"gpt\",\"value\":\"A\"}]}",
                  &o, ANSWERED);
    expect_learnt(s,
                  "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":"
                  "\"S\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Q\"}]},"
                  "{\"role\":\"model\",\"content\":\"A\"}]}",
                  &o, ANSWERED);
    expect_learnt(
        s,
        "{\"prompt\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
        "\"content\":\"Q\"}],\"completion\":[{\"role\":\"assistant\",\"content\":\"A\"}]}",
        &o, ANSWERED);
    o.fields = (struct example_fields){.messages = "chat", .role = "who", .content = "what"};
    expect_learnt(s,
                  "{\"chat\":[{\"who\":\"system\",\"what\":\"S\"},{\"who\":\"user\",\"what\":"
                  "\"Q\"},{\"who\":\"bot\",\"what\":\"A\"}]}",
                  &o, ANSWERED);
}

static void messages_that_say_so_are_not_learnt(void **state)
{
    struct fixture *s = *state;
    const struct example_options o = {.chat = s->chatml};
    expect_learnt(s,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\","
                  "\"content\":\"A\",\"weight\":0},{\"role\":\"user\",\"content\":\"R\"},"
                  "{\"role\":\"assistant\",\"content\":\"B\",\"train\":true}]}",
                  &o,
                  "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
                  "<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n[B<|im_end|>]\n");
}

static void other_forms_are_learnt_where_they_answer(void **state)
{
    struct fixture *s = *state;
    struct example_options o = {.chat = s->chatml};
    expect_learnt(s, "{\"prompt\":\"2+2=\",\"completion\":\"4\"}", &o, "2+2=[4$]");
    expect_learnt(s,
                  "{\"segments\":[{\"label\":false,\"text\":\"ab\"},{\"label\":true,\"text\":"
                  "\"cd\"},{\"label\":false,\"text\":\"e\"}]}",
                  &o, "ab[cd]e");
    expect_learnt(s, "{\"text\":\"abc\"}", &o, "a[bc$]");
    expect_learnt(s, "{\"input_ids\":[97,98,99],\"labels\":[97,-100,99]}", &o, "ab[c]");
    expect_learnt(s, "{\"instruction\":\"I\",\"input\":\"\",\"output\":\"O\"}", &o,
                  "Below is an instruction that describes a task. Write a response that "
                  "appropriately completes the request.\n\n### Instruction:\nI\n\n### "
                  "Response:\n[O$]");
    expect_learnt(s, "{\"instruction\":\"I\",\"input\":\"N\",\"output\":\"O\"}", &o,
                  "Below is an instruction that describes a task, paired with an input that "
                  "provides further context. Write a response that appropriately completes the "
                  "request.\n\n### Instruction:\nI\n\n### Input:\nN\n\n### Response:\n[O$]");
    o.form = EXAMPLE_ALPACA_CHAT;
    expect_learnt(s, "{\"system\":\"S\",\"instruction\":\"Q\",\"output\":\"A\"}", &o, ANSWERED);
    o = (struct example_options){.train_on_inputs = 1};
    expect_learnt(s, "{\"prompt\":\"2+2=\",\"completion\":\"4\"}", &o, "2[+2=4$]");
}

static void expect_wrong(struct fixture *s, const char *json, const char *part)
{
    const struct example_options o = {.chat = s->chatml};
    struct example x = {0};
    assert_int_equal(make(s, json, &o, &x), ERR_DATA);
    expect_message(part);
    example_release(&x);
}

static void what_is_wrong_with_a_record_is_said(void **state)
{
    struct fixture *s = *state;
    expect_wrong(s, "{}", "is none of the forms known");
    expect_wrong(s, "{\"foo\":1}", "its first key is \"foo\"");
    expect_wrong(s, "{\"messages\":[]}", "the conversation has no messages");
    expect_wrong(s, "{\"messages\":{}}", "its messages are not a list");
    expect_wrong(s, "{\"messages\":[7]}", "message 0");
    expect_wrong(s,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"tool\","
                 "\"content\":\"\"}]}",
                 "message 1: is the \"tool\"'s");
    expect_wrong(s, "{\"messages\":[{\"role\":\"user\",\"content\":7}]}",
                 "message 0: has no content that is a string");
    expect_wrong(s, "{\"messages\":[{\"role\":\"user\",\"content\":null}]}", "no content");
    expect_wrong(s, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}",
                 "part 0 of its content is not text");
    expect_wrong(s, "{\"instruction\":\"I\"}", "has no \"output\"");
    expect_wrong(s, "{\"instruction\":\"I\",\"output\":[]}", "\"output\" is not a string");
    expect_wrong(s, "{\"prompt\":1,\"completion\":\"\"}", "\"prompt\" is not a string");
    expect_wrong(s, "{\"segments\":[{\"label\":1,\"text\":\"\"}]}", "segment 0 is not");
    expect_wrong(s, "{\"input_ids\":[1,2],\"labels\":[1]}", "labels is not a list of as many");
    expect_wrong(s, "{\"input_ids\":[1,999]}", "input_ids[1] is not a token");
    expect_wrong(s, "{\"input_ids\":[1],\"labels\":[2]}", "labels[0] is neither");
}

/* ---- files ----------------------------------------------------------------------------------- */

static struct source *open_source(struct fixture *s, const char *name, const char *text,
                                  const struct example_options *e)
{
    char path[SCRATCH_PATH];
    struct source *source;
    scratch_write_text(&s->scratch, name, text);
    const char *paths[] = {scratch_path(&s->scratch, name, path)};
    const struct source_options o = {.kind = SOURCE_EXAMPLES,
                                     .paths = paths,
                                     .n_paths = 1,
                                     .tokenizer = s->bytes,
                                     .vocab_size = VOCAB,
                                     .examples = e,
                                     .cache_folder = s->cache.folder};
    assert_int_equal(source_open(&source, &o), OK);
    return source;
}

/* Texts of one letter, n of them. */
static struct source *open_letters(struct fixture *s, const char *name, char first, int n)
{
    struct example_options e = {.form = EXAMPLE_TEXT, .max_tokens = LENGTH};
    struct str text = {0};
    for (int i = 0; i < n; i++)
        str_addf(&text, "{\"text\":\"%c%c\"}\n", first + i, first + i);
    struct source *source = open_source(s, name, str_text(&text), &e);
    str_release(&text);
    assert_int_equal(source_n_examples(source), n);
    return source;
}

static void long_records_are_cut_or_left_out_and_counted(void **state)
{
    static const char text[] = "{\"text\":\"ab\"}\n{\"text\":\"abcdefgh\"}\n"
                               "{\"prompt\":\"abcdefgh\",\"completion\":\"x\"}\n{\"text\":\"\"}\n";
    struct fixture *s = *state;
    struct example_options e = {.max_tokens = 5};
    int64_t first, n;
    for (int again = 0; again < 2; again++) { /* the second time from the cache */
        struct source *source = open_source(s, "a.jsonl", text, &e);
        struct example_counts c = source_counts(source);
        assert_int_equal(c.n_read, 4);
        assert_int_equal(c.n_truncated, 2);
        assert_int_equal(c.n_unlabelled, 2); /* nothing but a prompt is left of one */
        assert_int_equal(source_n_examples(source), 2);
        assert_int_equal(source_example(source, 1, &first, &n), OK);
        assert_int_equal(first, 3);
        assert_int_equal(n, 5);
        source_free(source);
    }
    e.drops_long = 1;
    struct source *source = open_source(s, "a.jsonl", text, &e);
    assert_int_equal(source_counts(source).n_dropped, 2);
    assert_int_equal(source_n_examples(source), 1);
    source_free(source);
    e.max_records = 1;
    source = open_source(s, "a.jsonl", text, &e);
    assert_int_equal(source_counts(source).n_read, 1);
    source_free(source);
}

static void a_bad_record_names_file_and_line(void **state)
{
    struct fixture *s = *state;
    const struct example_options e = {.form = EXAMPLE_AUTO};
    char path[SCRATCH_PATH];
    struct source *source;
    scratch_write_text(&s->scratch, "bad.jsonl", "{\"text\":\"a\"}\n\n{\"messages\":[]}\n");
    const char *paths[] = {scratch_path(&s->scratch, "bad.jsonl", path)};
    const struct source_options o = {.kind = SOURCE_EXAMPLES,
                                     .paths = paths,
                                     .n_paths = 1,
                                     .tokenizer = s->bytes,
                                     .vocab_size = VOCAB,
                                     .examples = &e,
                                     .cache_folder = s->cache.folder};
    assert_true(source_open(&source, &o) != OK);
    expect_message("bad.jsonl: line 3");
}

/* ---- rows ------------------------------------------------------------------------------------ */

static struct dataset open_examples(struct examples **x, const struct example_set *sets,
                                    size_t n_sets, double held_out, int wants_held)
{
    const struct examples_options o = {.sets = sets,
                                       .n_sets = n_sets,
                                       .seq_len = LENGTH,
                                       .padding = 7,
                                       .held_out = held_out,
                                       .wants_held = wants_held,
                                       .seed = 3};
    assert_int_equal(examples_open(x, &o), OK);
    return examples_dataset(*x);
}

/* How often each letter is seen in an epoch. */
static void count_letters(const struct dataset *d, int seen[128])
{
    struct batch b = {0};
    int32_t memory[2 * LENGTH + 2 * BATCH_ALIGN] __attribute__((aligned(BATCH_ALIGN)));
    windows_describe(&b, 1, LENGTH, false);
    batch_place(&b, memory);
    memset(seen, 0, 128 * sizeof(*seen));
    for (int64_t i = 0; i < d->n_samples; i++) {
        b.n_valid = 0;
        assert_int_equal(d->read(d->user, i, &b, 0), OK);
        const int32_t *tokens = b.items[0].tensor.data, *targets = b.items[1].tensor.data;
        assert_int_equal(b.n_valid, 2); /* the second letter and the end */
        assert_int_equal(tokens[0], tokens[1]);
        assert_int_equal(targets[0], tokens[1]);
        assert_int_equal(targets[1], EOS);
        for (int k = 3; k < LENGTH; k++) {
            assert_int_equal(tokens[k], 7);
            assert_int_equal(targets[k - 1], LABEL_IGNORED);
        }
        seen[tokens[0]]++;
    }
}

static void every_example_is_a_row_seen_as_often_as_its_weight(void **state)
{
    struct fixture *s = *state;
    struct examples *x;
    int seen[128], n_half = 0;
    struct source *a = open_letters(s, "a.jsonl", 'a', 10), *b = open_letters(s, "b.jsonl", 'A', 4);
    const struct example_set sets[] = {{a, 0.5}, {b, 2}};
    struct dataset d = open_examples(&x, sets, 2, 0, 0);
    assert_int_equal(d.n_samples, 5 + 8);
    count_letters(&d, seen);
    for (int c = 'a'; c < 'a' + 10; c++) {
        assert_in_range(seen[c], 0, 1);
        n_half += seen[c];
    }
    assert_int_equal(n_half, 5);
    for (int c = 'A'; c < 'A' + 4; c++)
        assert_int_equal(seen[c], 2);
    examples_free(x);
    source_free(a);
    source_free(b);
}

static void what_is_held_out_is_not_trained_on(void **state)
{
    struct fixture *s = *state;
    struct examples *x;
    int trained[128], held[128], n_held = 0;
    struct source *a = open_letters(s, "a.jsonl", 'a', 10), *b = open_letters(s, "b.jsonl", 'A', 5);
    const struct example_set sets[] = {{a, 1}, {b, 3}};
    struct dataset d = open_examples(&x, sets, 2, 4, 0);
    count_letters(&d, trained);
    examples_free(x);
    d = open_examples(&x, sets, 2, 4, 1);
    count_letters(&d, held);
    assert_int_equal(d.n_samples, 4);
    examples_free(x);
    for (int c = 'A'; c < 128; c++) {
        assert_false(trained[c] && held[c]);
        assert_in_range(held[c], 0, 1);
        n_held += held[c];
    }
    assert_int_equal(n_held, 4);
    const struct examples_options all = {
        .sets = sets, .n_sets = 2, .seq_len = LENGTH, .held_out = 15};
    assert_int_equal(examples_open(&x, &all), ERR_DATA);
    expect_message("val_set_size");
    source_free(a);
    source_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_are_read_in_the_spellings_there_are),
        cmocka_unit_test(messages_that_say_so_are_not_learnt),
        cmocka_unit_test(other_forms_are_learnt_where_they_answer),
        cmocka_unit_test(what_is_wrong_with_a_record_is_said),
        cmocka_unit_test(long_records_are_cut_or_left_out_and_counted),
        cmocka_unit_test(a_bad_record_names_file_and_line),
        cmocka_unit_test(every_example_is_a_row_seen_as_often_as_its_weight),
        cmocka_unit_test(what_is_held_out_is_not_trained_on),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
