/* A resumed run is the run that was saved: what would make it another is named and refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "io/file_hash.h"
#include "support/process.h"

static char config[SCRATCH_PATH];
static struct scratch scratch;

enum { TEXT_BYTES = 6000 };

/* A text of that many letters; another one for each kind. */
static void write_some_text(const char *name, int kind, size_t n_bytes)
{
    char text[TEXT_BYTES];
    for (int i = 0; i < TEXT_BYTES; i++)
        text[i] = (char)('a' + (i * i + kind * (i == TEXT_BYTES / 2)) % 26);
    scratch_write(&scratch, name, text, n_bytes);
}

static void write_text(const char *name, int kind)
{
    write_some_text(name, kind, TEXT_BYTES);
}

static const char *in_scratch(const char *name)
{
    static char paths[8][SCRATCH_PATH];
    static int next;
    return scratch_path(&scratch, name, paths[next++ % 8]);
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_train(int exit_code, const char *said, const char *const *args)
{
    struct process p;
    process_run(&p, &scratch, NULL, args);
    expect_exit(&p, exit_code);
    expect_stderr(&p, said);
    process_release(&p);
}

/* Ten steps on a text. */
static int make_run(void **state)
{
    char more[2 * SCRATCH_PATH];
    (void)state;
    scratch_init(&scratch);
    write_text("text.txt", 0);
    (void)snprintf(more, sizeof(more), "datasets: %s\nsave_steps: 10\nreport_to: none\n",
                   in_scratch("text.txt"));
    write_tiny_config(&scratch, "tiny.yaml", more, config);
    expect_train(0, "done: ", ARGS("train", config, "max_steps=10"));
    return 0;
}

static int drop_run(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void settings_that_make_other_steps_are_named_and_refused(void **state)
{
    static const char *const changes[][2] = {
        {"learning_rate=2e-3", "learning_rate is 0.002 (command line), was 0.001"},
        {"seed=8", "seed is 8 (command line), was 7"},
        {"data_seed=1", "data_seed is 1"},
        {"shuffle=false", "shuffle is false (command line), was true"},
        {"per_device_train_batch_size=4", "per_device_train_batch_size is 4"},
        {"gradient_accumulation_steps=2", "gradient_accumulation_steps is 2"},
        {"max_seq_length=16", "max_seq_length is 16"},
        {"val_set_size=0.5", "val_set_size is 0.5"},
        {"lr_scheduler_type=cosine", "lr_scheduler_type is cosine (command line), was constant"},
        {"weight_decay=0.1", "weight_decay is 0.1"},
        {"adam_beta2=0.95", "adam_beta2 is 0.95"},
        {"max_grad_norm=0", "max_grad_norm is 0"},
        {"label_smoothing_factor=0.1", "label_smoothing_factor is 0.1"},
        {"optim=sgd", "optim is sgd"},
        {"optim=adamw_8bit", "optim is adamw_8bit (command line), was adamw"},
        {"bf16=true", "precision is bf16 weights"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++)
        expect_train(2, changes[i][1],
                     ARGS("train", config, "max_steps=12", "--resume", changes[i][0]));
    expect_train(2, "allow_resume_changes: true",
                 ARGS("train", config, "max_steps=12", "--resume", "seed=8"));
    expect_train(5, "another model", ARGS("train", config, "--resume", "model.rms_norm_eps=0.1"));
    assert_false(file_exists(in_scratch("out/checkpoint-12")));
}

/* allow_resume_changes is named where a run can go on with the change, and only there. */
static void what_is_offered_works(void **state)
{
    static const char *const changes[] = {"seed=8",
                                          "optim=sgd",
                                          "optim=lion",
                                          "optim=adamw_8bit",
                                          "optim=paged_adamw",
                                          "bf16=true",
                                          "ema_decay=0.9",
                                          "lookahead_steps=2",
                                          "weight_decay=0.1",
                                          "max_seq_length=8",
                                          "lr_scheduler_type=linear"};
    int n_offered = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        struct process p;
        PROCESS_RUN(&p, &scratch, "train", config, "max_steps=11", "--resume", "save_strategy=no",
                    changes[i]);
        expect_exit(&p, 2);
        bool offered = strstr(p.err, "allow_resume_changes: true") != NULL;
        n_offered += offered;
        process_release(&p);
        PROCESS_RUN(&p, &scratch, "train", config, "max_steps=11", "--resume", "save_strategy=no",
                    "allow_resume_changes=true", changes[i]);
        expect_exit(&p, offered ? 0 : 5);
        process_release(&p);
    }
    assert_in_range(n_offered, 3, ARRAY_LEN(changes) - 3);
}

static void other_text_of_the_same_length_is_refused(void **state)
{
    (void)state;
    write_text("text.txt", 1); /* one letter of it is another */
    expect_train(2, " others, or in another order",
                 ARGS("train", config, "max_steps=12", "--resume"));
}

static void text_of_another_length_is_refused_with_both_lengths(void **state)
{
    struct process p;
    (void)state;
    write_some_text("text.txt", 0, TEXT_BYTES - 1);
    process_run(&p, &scratch, NULL, ARGS("train", config, "max_steps=12", "--resume"));
    expect_exit(&p, 2);
    expect_stderr(&p, "the training data (");
    assert_null(strstr(p.err, "in another order"));
    process_release(&p);
}

static void the_same_text_elsewhere_is_the_same_data(void **state)
{
    char data[SCRATCH_PATH + 16];
    (void)state;
    write_text("elsewhere/copy.txt", 0);
    (void)snprintf(data, sizeof(data), "datasets=%s", in_scratch("elsewhere/copy.txt"));
    expect_train(0, "resumed from", ARGS("train", config, "max_steps=12", "--resume", data));
}

/* The losses of the run's steps 11 to 14. */
static json_t *resume_to_14(const char *output_dir, const char *const *more)
{
    struct process p;
    const char *args[MAX_ARGS] = {"train", config, "max_steps=14", "--json", output_dir};
    size_t n = 5;
    for (; *more; more++)
        args[n++] = *more;
    process_run(&p, &scratch, NULL, args);
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    json_t *losses = json_incref(json_object_get(j, "losses"));
    json_decref(j);
    process_release(&p);
    return losses;
}

static void what_changes_no_step_is_named_and_accepted(void **state)
{
    (void)state;
    char from[SCRATCH_PATH + 32];
    (void)snprintf(from, sizeof(from), "resume_from_checkpoint=%s",
                   in_scratch("out/checkpoint-10"));
    char plain[SCRATCH_PATH + 16], other[SCRATCH_PATH + 16];
    (void)snprintf(plain, sizeof(plain), "output_dir=%s", in_scratch("plain"));
    (void)snprintf(other, sizeof(other), "output_dir=%s", in_scratch("other"));
    json_t *a = resume_to_14(plain, ARGS(from));
    json_t *b = resume_to_14(other, ARGS(from, "logging_steps=3", "save_steps=2",
                                         "gradient_checkpointing=true", "device_memory=1GiB",
                                         "dataloader_prefetch=5", "save_total_limit=1"));
    assert_int_equal(json_array_size(a), 4);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    expect_train(0, "3 threads compute, 1 did before the checkpoint",
                 ARGS("train", config, "max_steps=11", from, other, "num_threads=3"));
    expect_train(0, "without effect on the steps: max_steps is 12 (command line), was 10",
                 ARGS("train", config, "max_steps=12", "--resume"));
    expect_train(0, "nothing is left to do", ARGS("train", config, "max_steps=12", "--resume"));
}

static void a_schedule_that_is_stretched_is_pointed_out(void **state)
{
    (void)state;
    expect_train(0, "done: ", ARGS("train", config, "max_steps=10", "lr_scheduler_type=linear"));
    expect_train(0, "the learning rate is that of a run of 20",
                 ARGS("train", config, "max_steps=20", "--resume", "lr_scheduler_type=linear"));
}

static void changes_that_are_allowed_are_made(void **state)
{
    (void)state;
    expect_train(0, "are not those of the run that was saved: learning_rate is 0.01",
                 ARGS("train", config, "max_steps=12", "--resume", "learning_rate=1e-2",
                      "allow_resume_changes=true"));
    /* What it was saved with now is what it is resumed with now. */
    expect_train(2, "learning_rate is 0.001", ARGS("train", config, "max_steps=14", "--resume"));
    expect_train(0, "it is read from its beginning",
                 ARGS("train", config, "max_steps=14", "--resume", "learning_rate=1e-2",
                      "max_seq_length=16", "allow_resume_changes=true"));
}

/* ---- states in codes ------------------------------------------------------------------------- */

static void expect_same_file(const char *a, const char *b)
{
    char *x, *y;
    size_t n_x, n_y;
    assert_int_equal(file_read(in_scratch(a), &x, &n_x), OK);
    assert_int_equal(file_read(in_scratch(b), &y, &n_y), OK);
    assert_int_equal(n_x, n_y);
    assert_memory_equal(x, y, n_x);
    mem_free(x);
    mem_free(y);
}

/* The tiny model's embedding has 8-bit states, its norms have f32 ones. */
static void states_of_8_bits_are_resumed_to_the_bit(void **state)
{
    char straight[SCRATCH_PATH + 16], halves[SCRATCH_PATH + 16];
    (void)state;
    (void)snprintf(straight, sizeof(straight), "output_dir=%s", in_scratch("straight"));
    (void)snprintf(halves, sizeof(halves), "output_dir=%s", in_scratch("halves"));
    expect_train(0,
                 "done: ", ARGS("train", config, "max_steps=14", "optim=adamw_bnb_8bit", straight));
    expect_train(0, "done: ", ARGS("train", config, "max_steps=10", "optim=adamw_8bit", halves));
    expect_train(0, "resumed from",
                 ARGS("train", config, "max_steps=14", "optim=adamw_8bit", halves, "--resume"));
    expect_same_file("straight/checkpoint-14/optimizer.safetensors",
                     "halves/checkpoint-14/optimizer.safetensors");
    expect_same_file("straight/checkpoint-14/model.safetensors",
                     "halves/checkpoint-14/model.safetensors");
}

static void states_of_another_format_are_refused_even_when_changes_are_allowed(void **state)
{
    (void)state;
    expect_train(5, "'m.embed.weight' is F32 [257, 32], this run needs u8 [257, 32]",
                 ARGS("train", config, "max_steps=12", "--resume", "optim=adamw_8bit",
                      "allow_resume_changes=true"));
}

/* ---- forged checkpoints ---------------------------------------------------------------------- */

/* Replaces a text in checkpoint-10/state.json, and makes its checksum right again. */
static void forge(const char *old, const char *new)
{
    char *text, *at, digits[HASH_TEXT];
    size_t n;
    assert_int_equal(file_read(in_scratch("out/checkpoint-10/state.json"), &text, &n), OK);
    at = strstr(text, old);
    assert_non_null(at);
    char *forged = mem_alloc(n + strlen(new) + 1);
    assert_non_null(forged);
    int length = sprintf(forged, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    memset(strstr(forged, "\"xxh64\": \"") + 10, '0', HASH_DIGITS);
    memcpy(strstr(forged, "\"xxh64\": \"") + 10,
           file_hash_text(digits, file_hash_bytes(forged, (size_t)length)), HASH_DIGITS);
    scratch_write(&scratch, "out/checkpoint-10/state.json", forged, (size_t)length);
    mem_free(forged);
    mem_free(text);
}

static void numbers_that_no_run_writes_are_a_bad_checkpoint(void **state)
{
    static const char *const forgeries[][2] = {
        {"\"step\": 10,\n  \"state\"", "\"step\": -10,\n  \"state\""},
        {"\"step\": 10,\n    \"updates\"", "\"step\": -10,\n    \"updates\""},
        {"\"step\": 10,\n    \"updates\"", "\"step\": 9,\n    \"updates\""},
        {"\"updates\": 10", "\"updates\": 11"},
        {"\"updates\": 10", "\"updates\": -1"},
        {"\"micro_steps\": 10", "\"micro_steps\": -1"},
        {"\"micro_steps\": 10", "\"micro_steps\": 9223372036854775807"},
        {"\"tokens\": 640", "\"tokens\": -9223372036854775808"},
        {"\"epoch\": 0", "\"epoch\": -1"},
        {"\"epoch\": 0", "\"epoch\": 9223372036854775807"},
        {"\"next_window\": 20", "\"next_window\": -20"},
        {"\"next_window\": 20", "\"next_window\": 9000000000"},
        {"\"next_window\": 20", "\"next_window\": 1.5"},
        {"\"run\": \"2", "\"run\": \"../../2"},
    };
    (void)state;
    char *whole;
    size_t n;
    assert_int_equal(file_read(in_scratch("out/checkpoint-10/state.json"), &whole, &n), OK);
    for (size_t i = 0; i < ARRAY_LEN(forgeries); i++) {
        struct process p;
        forge(forgeries[i][0], forgeries[i][1]);
        PROCESS_RUN(&p, &scratch, "train", config, "max_steps=12",
                    "resume_from_checkpoint=checkpoint-10", "--json");
        if (p.exit_code != 5)
            fail_msg("%s: exit code %d, signal %d: %s", forgeries[i][1], p.exit_code, p.signal,
                     p.err);
        process_release(&p);
        scratch_write(&scratch, "out/checkpoint-10/state.json", whole, n);
    }
    mem_free(whole);
    expect_train(0, "resumed", ARGS("train", config, "max_steps=12", "--resume"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_run, drop_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(settings_that_make_other_steps_are_named_and_refused),
        TEST(what_is_offered_works),
        TEST(other_text_of_the_same_length_is_refused),
        TEST(text_of_another_length_is_refused_with_both_lengths),
        TEST(the_same_text_elsewhere_is_the_same_data),
        TEST(what_changes_no_step_is_named_and_accepted),
        TEST(a_schedule_that_is_stretched_is_pointed_out),
        TEST(changes_that_are_allowed_are_made),
        TEST(states_of_8_bits_are_resumed_to_the_bit),
        TEST(states_of_another_format_are_refused_even_when_changes_are_allowed),
        TEST(numbers_that_no_run_writes_are_a_bad_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
