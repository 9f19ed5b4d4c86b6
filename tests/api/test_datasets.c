/* Every kind of dataset is read as what it is, seen in the training that follows. At a rate of 0
 * the same tokens have the same losses, whatever file they came from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/trial.h"

#define STILL "learning_rate=0", "max_steps=-1", "num_train_epochs=1", "shuffle=false"

static char *read_text(size_t *n_bytes)
{
    char path[SCRATCH_PATH], *text;
    assert_int_equal(file_read(scratch_path(trials_scratch(), "text.txt", path), &text, n_bytes),
                     OK);
    return text;
}

/* The losses of the trials' text; those of the same tokens in another form are the same. */
static void expect_losses_of_text(const char *dataset)
{
    struct trial text, other;
    TRAIN(&text, trial_text(), STILL);
    TRAIN(&other, dataset, STILL);
    assert_int_equal(text.n_steps, TRIAL_WINDOWS / TRIAL_BATCH);
    assert_true(trial_same_losses(&text, &other));
}

static const char *dataset(const char *form, const char *name)
{
    static char out[2 * SCRATCH_PATH];
    char path[SCRATCH_PATH];
    (void)snprintf(out, sizeof(out), "datasets=[{path: %s, %s}]",
                   scratch_path(trials_scratch(), name, path), form);
    return out;
}

static void a_member_of_json_lines_is_read_as_text(void **state)
{
    (void)state;
    size_t n_bytes;
    char *text = read_text(&n_bytes), line[1024];
    int n = snprintf(line, sizeof(line), "{\"text\": \"no\", \"body\": \"%s\"}\n", text);
    assert_in_range(n, 1, sizeof(line) - 1);
    scratch_write_text(trials_scratch(), "lines.jsonl", line);
    mem_free(text);
    expect_losses_of_text(dataset("type: jsonl, text_field: body", "lines.jsonl"));
    expect_losses_of_text(dataset("text_field: body", "lines.jsonl")); /* known by its name */
}

static void files_without_a_header_have_tokens_of_the_width_that_is_said(void **state)
{
    (void)state;
    size_t n_bytes;
    char *text = read_text(&n_bytes);
    uint16_t narrow[TRIAL_WINDOWS * TRIAL_WINDOW];
    uint32_t wide[TRIAL_WINDOWS * TRIAL_WINDOW];
    assert_int_equal(n_bytes, TRIAL_WINDOWS * TRIAL_WINDOW);
    for (size_t i = 0; i < n_bytes; i++)
        narrow[i] = (uint16_t)(wide[i] = (uint8_t)text[i]);
    mem_free(text);
    scratch_write(trials_scratch(), "narrow.bin", narrow, sizeof(narrow));
    scratch_write(trials_scratch(), "wide.bin", wide, sizeof(wide));
    expect_losses_of_text(dataset("type: nanogpt", "narrow.bin"));
    expect_losses_of_text(dataset("type: nanogpt, token_dtype: u16", "narrow.bin"));
    expect_losses_of_text(dataset("type: nanogpt, token_dtype: u32", "wide.bin"));
}

static void what_tokenize_writes_is_the_text(void **state)
{
    (void)state;
    char in[SCRATCH_PATH], out[SCRATCH_PATH];
    struct snug_tokenized made;
    const char *inputs[] = {scratch_path(trials_scratch(), "text.txt", in)};
    struct snug_config *config = trial_config(OVERRIDES("tokenizer=bytes"));
    assert_int_equal(snug_tokenize(config, NULL, inputs, 1,
                                   scratch_path(trials_scratch(), "made.bin", out), &made),
                     SNUG_OK);
    snug_config_free(config);
    assert_int_equal(made.n_tokens, TRIAL_WINDOWS * TRIAL_WINDOW + 1); /* and the end of text */
    expect_losses_of_text(dataset("type: tokens", "made.bin"));
    expect_losses_of_text(dataset("type: auto", "made.bin"));
}

/* Several files are one stream, in their order. */
static void several_files_follow_each_other(void **state)
{
    (void)state;
    struct trial t;
    char both[4 * SCRATCH_PATH], path[SCRATCH_PATH];
    scratch_path(trials_scratch(), "text.txt", path);
    (void)snprintf(both, sizeof(both), "datasets=[{path: %s}, {path: %s}]", path, path);
    TRAIN(&t, both, STILL);
    assert_int_equal(t.n_steps, 2 * TRIAL_WINDOWS / TRIAL_BATCH);
    (void)snprintf(both, sizeof(both), "datasets=[{path: %s}, {type: synthetic}]", path);
    REFUSED("mixes dataset types", both, "max_steps=3");
}

/* Random tokens have nothing in them to learn; synthetic ones have. */
static void made_up_tokens_have_an_end_where_one_is_asked_for(void **state)
{
    (void)state;
    struct trial t, u;
    TRAIN(&t, "datasets=[{type: synthetic, n_tokens: 340}]", STILL);
    assert_int_equal(t.n_steps, 340 / TRIAL_WINDOW / TRIAL_BATCH);
    TRAIN(&u, "datasets=[{type: random, n_tokens: 340}]", STILL);
    assert_int_equal(u.n_steps, 340 / TRIAL_WINDOW / TRIAL_BATCH);
    assert_false(trial_same_losses(&t, &u));
    REFUSED("has no end", "datasets=[{type: random}]", STILL);
}

static void data_seed_is_that_of_made_up_tokens_too(void **state)
{
    (void)state;
    struct trial a, b;
    TRAIN(&a, "datasets=[{type: random, n_tokens: 340}]", STILL, "data_seed=1");
    TRAIN(&b, "datasets=[{type: random, n_tokens: 340}]", STILL, "data_seed=2");
    assert_true(a.steps[0].loss != b.steps[0].loss);
}

static int begin(void **state)
{
    (void)state;
    trials_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    trials_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_of_json_lines_is_read_as_text),
        cmocka_unit_test(files_without_a_header_have_tokens_of_the_width_that_is_said),
        cmocka_unit_test(what_tokenize_writes_is_the_text),
        cmocka_unit_test(several_files_follow_each_other),
        cmocka_unit_test(made_up_tokens_have_an_end_where_one_is_asked_for),
        cmocka_unit_test(data_seed_is_that_of_made_up_tokens_too),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
