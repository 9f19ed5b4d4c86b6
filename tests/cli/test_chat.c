/* Records trained on, shown by `snug data`, answered by `snug chat`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/process.h"

static struct scratch scratch;
static char config[SCRATCH_PATH], input[SCRATCH_PATH];

#define CHAT(question, answer)                                         \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"" question "\"}," \
    "{\"role\":\"assistant\",\"content\":\"" answer "\"}]}\n"

/* A model that has learnt two answers by heart. */
static int train(void **state)
{
    struct process p;
    char more[2 * SCRATCH_PATH], data[SCRATCH_PATH];
    (void)state;
    scratch_init(&scratch);
    scratch_write_text(&scratch, "chats.jsonl", CHAT("one", "a cat") CHAT("two", "dogs!"));
    (void)snprintf(more, sizeof(more),
                   "datasets: [{path: %s}]\nchat_template: zephyr\n"
                   "max_steps: 150\nreport_to: none\n"
                   "logging_steps: 50\n",
                   scratch_path(&scratch, "chats.jsonl", data));
    write_tiny_config(&scratch, "chat.yaml", more, config);
    PROCESS_RUN(&p, &scratch, "train", config, "max_seq_length=48", "learning_rate=1e-2");
    expect_exit(&p, 0);
    expect_stderr(&p, "2 examples of");
    process_release(&p);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void run_with_input(struct process *p, const char *text, const char *const *args)
{
    scratch_write_text(&scratch, "input", text);
    const struct process_options o = {.input = scratch_path(&scratch, "input", input)};
    process_run(p, &scratch, &o, args);
    expect_exit(p, 0);
}

static void one_message_is_answered(void **state)
{
    struct process p;
    (void)state;
    PROCESS_RUN(&p, &scratch, "chat", config, "-p", "two", "-t", "0");
    expect_exit(&p, 0);
    assert_string_equal(p.out, "dogs!\n");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "chat", config, "-p", "one", "-t", "0", "--json");
    json_t *root = expect_json(&p);
    assert_string_equal(json_text_at(root, "text"), "a cat");
    assert_true(json_is_true(json_object_get(root, "ended")));
    json_decref(root);
    process_release(&p);
}

static void lines_of_standard_input_are_messages(void **state)
{
    struct process p;
    (void)state;
    run_with_input(&p, "one\n/reset\n\ntwo\n/reset\none",
                   (const char *const[]){"chat", config, "-t", "0", NULL});
    assert_string_equal(p.out, "a cat\ndogs!\na cat\n");
    process_release(&p);
    run_with_input(&p, "one\n/quit\ntwo\n", (const char *const[]){"chat", config, "-t", "0", NULL});
    assert_string_equal(p.out, "a cat\n");
    process_release(&p);
}

static void a_conversation_that_is_too_long_is_said_and_goes_on(void **state)
{
    struct process p;
    (void)state;
    run_with_input(&p,
                   "one\nand what would be a message that is far too long for it?\n/reset\ntwo\n",
                   (const char *const[]){"chat", config, "-t", "0", "--context", "70", NULL});
    assert_string_equal(p.out, "a cat\ndogs!\n");
    expect_stderr(&p, "begin anew (/reset)");
    process_release(&p);
}

static void a_prompt_can_be_standard_input_and_a_text_can_end_it(void **state)
{
    struct process p;
    (void)state;
    run_with_input(&p, "two\n", (const char *const[]){"chat", config, "-p", "-", "-t", "0", NULL});
    assert_string_equal(p.out, "dogs!\n");
    process_release(&p);
    run_with_input(
        &p, "two\n",
        (const char *const[]){"chat", config, "-p", "-", "-t", "0", "--stop", "gs", NULL});
    assert_string_equal(p.out, "do\n");
    process_release(&p);
    run_with_input(&p, "<|user|>\none<|endoftext|>\n<|assistant|>\n\n",
                   (const char *const[]){"generate", config, "-p", "-", "-t", "0", "--no-echo",
                                         "--stop", " c", NULL});
    assert_string_equal(p.out, "a\n");
    process_release(&p);
}

static void data_shows_what_is_learnt(void **state)
{
    struct process p;
    (void)state;
    PROCESS_RUN(&p, &scratch, "data", config, "max_seq_length=48", "--samples", "1");
    expect_exit(&p, 0);
    assert_non_null(strstr(p.out, "<|assistant|>\n[[a cat<|endoftext|>]]\n"));
    assert_null(strchr(p.out, '\x1b')); /* no colours outside of terminals */
    assert_null(strstr(p.out, "dogs"));
    expect_stderr(&p, "chat template: zephyr");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "data", config, "max_seq_length=160", "packing=true");
    expect_exit(&p, 0);
    expect_stderr(&p, "packed into 1 rows of 160 tokens");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "data", config, "max_seq_length=32", "--json");
    json_t *root = expect_json(&p);
    assert_int_equal(json_int_at(root, "n_rows"), 0);
    assert_int_equal(json_int_at(root, "n_samples"), 2);
    assert_int_equal(json_int_at(root, "n_truncated"), 2);
    assert_int_equal(json_int_at(root, "longest"), 32);
    const json_t *samples = json_object_get(root, "samples");
    assert_int_equal(json_array_size(samples), 2);
    assert_int_equal(json_array_size(json_object_get(json_array_get(samples, 0), "ids")), 32);
    json_decref(root);
    process_release(&p);
}

/* Sequences cut out of a text are all of one length: one line, with all of them. */
static void the_lengths_of_sequences_are_counted_once(void **state)
{
    struct process p;
    char text[SCRATCH_PATH + 32], path[SCRATCH_PATH];
    (void)state;
    scratch_write_text(&scratch, "ten.txt", "0123456789 0123456789 0123456789");
    (void)snprintf(text, sizeof(text), "datasets=%s", scratch_path(&scratch, "ten.txt", path));
    PROCESS_RUN(&p, &scratch, "data", config, text, "max_seq_length=8", "--samples", "0");
    expect_exit(&p, 0);
    const char *first = strstr(p.err, " tokens  #");
    assert_non_null(first);
    assert_null(strstr(first + 1, " tokens  #"));
    assert_non_null(strstr(first, "# 3\n"));
    process_release(&p);
}

static void what_is_wrong_with_records_ends_the_command(void **state)
{
    struct process p;
    char bad[SCRATCH_PATH + 32], path[SCRATCH_PATH];
    (void)state;
    scratch_write_text(&scratch, "bad.jsonl", CHAT("q", "a") "{\"messages\": [}\n");
    (void)snprintf(bad, sizeof(bad), "datasets.0.path=%s",
                   scratch_path(&scratch, "bad.jsonl", path));
    PROCESS_RUN(&p, &scratch, "data", config, bad);
    assert_true(p.exit_code > 0);
    expect_stderr(&p, "bad.jsonl: line 2");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "chat", config, "-p", "x", "chat_template=tokenizer_default");
    expect_exit(&p, 2);
    expect_stderr(&p, "chat_template: chatml");
    process_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_message_is_answered),
        cmocka_unit_test(lines_of_standard_input_are_messages),
        cmocka_unit_test(a_conversation_that_is_too_long_is_said_and_goes_on),
        cmocka_unit_test(a_prompt_can_be_standard_input_and_a_text_can_end_it),
        cmocka_unit_test(data_shows_what_is_learnt),
        cmocka_unit_test(the_lengths_of_sequences_are_counted_once),
        cmocka_unit_test(what_is_wrong_with_records_ends_the_command),
    };
    return cmocka_run_group_tests(tests, train, drop);
}
