/* Data in which not every token is a label: batches without any are passed over, and nothing is a
 * mean over none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/str.h"
#include "support/process.h"

enum { WINDOW = 33 }; /* a sequence of 32 tokens and the token after it */

static char config[SCRATCH_PATH];
static struct scratch scratch;

static const char *in_scratch(const char *name)
{
    static char paths[8][SCRATCH_PATH];
    static int next;
    return scratch_path(&scratch, name, paths[next++ % 8]);
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* One line a letter: the window of that letter, all labels; of a small letter one token in the
 * middle of its capital's window is; "-" is a window without any. */
static int token_of(char letter, int i)
{
    char capital = letter >= 'a' ? (char)(letter - 'a' + 'A') : letter;
    return (capital * 7 + i * i) % 256;
}

static int label_of(char letter, int i)
{
    bool is_label = letter >= 'a' ? i == WINDOW / 2 : letter != '-';
    return is_label ? token_of(letter, i) : -100;
}

static void write_windows(const char *name, const char *letters)
{
    struct str text = {0};
    for (const char *c = letters; *c; c++) {
        str_add(&text, "{\"input_ids\": [");
        for (int i = 0; i < WINDOW; i++)
            str_addf(&text, "%s%d", i ? "," : "", token_of(*c, i));
        str_add(&text, "], \"labels\": [");
        for (int i = 0; i < WINDOW; i++)
            str_addf(&text, "%s%d", i ? "," : "", label_of(*c, i));
        str_add(&text, "]}\n");
    }
    scratch_write_text(&scratch, name, str_text(&text));
    str_release(&text);
}

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml",
                      "shuffle: false\nreport_to: none\nper_device_eval_batch_size: 1\n"
                      "num_train_epochs: 1\n",
                      config);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

/* Once, at the first of them. */
static void expect_told_once(const struct process *p)
{
    static const char told[] = "no token of its batch is a label";
    const char *first = strstr(p->err, told);
    assert_non_null(first);
    assert_null(strstr(first + 1, told));
}

/* The losses of a run over these windows; an object of the caller's. */
static json_t *train(const char *letters, const char *batch, const char *more, const char *said)
{
    struct process p;
    char data[SCRATCH_PATH + 16];
    write_windows("data.jsonl", letters);
    (void)snprintf(data, sizeof(data), "datasets=%s", in_scratch("data.jsonl"));
    PROCESS_RUN(&p, &scratch, "train", config, data, "per_device_train_batch_size=1", batch, more,
                "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, said);
    if (strstr(said, "no labels"))
        expect_told_once(&p);
    json_t *j = expect_json(&p);
    json_t *losses = json_incref(json_object_get(j, "losses"));
    json_decref(j);
    process_release(&p);
    return losses;
}

static bool same_loss(const json_t *a, size_t i, const json_t *b, size_t k)
{
    const json_t *x = json_array_get(a, i), *y = json_array_get(b, k);
    return json_is_real(x) && json_equal(x, y);
}

static void a_step_without_labels_updates_nothing(void **state)
{
    (void)state;
    json_t *plain = train("ABCD", "gradient_accumulation_steps=1", "save_steps=100", "done: 4");
    json_t *some = train("-AB--CD", "gradient_accumulation_steps=1", "save_steps=4",
                         "3 of 7 steps had no labels and updated nothing");
    assert_int_equal(json_array_size(some), 7);
    assert_true(json_is_null(json_array_get(some, 0)));
    assert_true(same_loss(some, 1, plain, 0));
    assert_true(same_loss(some, 2, plain, 1));
    assert_true(json_is_null(json_array_get(some, 3)));
    assert_true(same_loss(some, 5, plain, 2));
    assert_true(same_loss(some, 6, plain, 3));
    /* From the middle of it on. */
    json_t *rest = train("-AB--CD", "resume_from_checkpoint=checkpoint-4", "save_steps=100",
                         "1 of 3 steps had no labels");
    assert_true(same_loss(rest, 1, plain, 2));
    assert_true(same_loss(rest, 2, plain, 3));
    json_decref(plain);
    json_decref(some);
    json_decref(rest);
}

static void micro_batches_without_labels_add_nothing(void **state)
{
    (void)state;
    json_t *plain = train("ABC", "gradient_accumulation_steps=1", "save_steps=100", "done: 3");
    json_t *some = train("A---B--C", "gradient_accumulation_steps=2", "save_steps=100",
                         "1 of 4 steps had no labels");
    assert_int_equal(json_array_size(some), 4);
    assert_true(same_loss(some, 0, plain, 0));
    assert_true(json_is_null(json_array_get(some, 1)));
    assert_true(same_loss(some, 2, plain, 1));
    assert_true(same_loss(some, 3, plain, 2));
    json_t *groups = train("A---B--C", "gradient_accumulation_steps=2", "micro_batch_group=2",
                           "1 of 4 steps had no labels");
    assert_true(json_equal(groups, some));
    json_decref(groups);
    json_decref(plain);
    json_decref(some);
}

/* One label is enough for a step: its loss is that token's, whatever the batch it is in, and the
 * weights move. */
static void a_batch_with_one_label_is_a_step(void **state)
{
    (void)state;
    json_t *one = train("aB", "gradient_accumulation_steps=1", "save_steps=100", "done: 2");
    json_t *among = train("a--B", "gradient_accumulation_steps=2", "save_steps=100", "done: 2");
    json_t *without = train("BA", "gradient_accumulation_steps=1", "save_steps=100", "done: 2");
    json_t *all = train("AB", "gradient_accumulation_steps=1", "save_steps=100", "done: 2");
    assert_true(same_loss(one, 0, among, 0) && same_loss(one, 1, among, 1));
    assert_false(same_loss(one, 0, all, 0));
    assert_false(same_loss(one, 1, without, 0)); /* the first step has moved the weights */
    json_decref(one);
    json_decref(among);
    json_decref(without);
    json_decref(all);
}

static void data_without_any_label_is_refused_before_the_first_step(void **state)
{
    (void)state;
    struct process p;
    char data[SCRATCH_PATH + 16], eval[SCRATCH_PATH + 32];
    write_windows("none.jsonl", "---");
    write_windows("some.jsonl", "ABC");
    (void)snprintf(data, sizeof(data), "datasets=%s", in_scratch("none.jsonl"));
    PROCESS_RUN(&p, &scratch, "train", config, data, "--json");
    expect_exit(&p, 5);
    expect_stderr(&p, "no token of datasets is a label");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "eval", config, data, "--json");
    expect_exit(&p, 5);
    expect_stderr(&p, "no labels in the evaluation data");
    process_release(&p);
    (void)snprintf(data, sizeof(data), "datasets=%s", in_scratch("some.jsonl"));
    (void)snprintf(eval, sizeof(eval), "eval_datasets=%s", in_scratch("none.jsonl"));
    PROCESS_RUN(&p, &scratch, "train", config, data, eval, "eval_strategy=epoch", "--json");
    expect_exit(&p, 5);
    expect_stderr(&p, "no token of eval_datasets is a label");
    process_release(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_step_without_labels_updates_nothing),
        TEST(micro_batches_without_labels_add_nothing),
        TEST(a_batch_with_one_label_is_a_step),
        TEST(data_without_any_label_is_refused_before_the_first_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
