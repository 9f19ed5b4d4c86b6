/* Bad input: the message names the place and the fix, the exit code is the right one, --json says
 * the same, and nothing is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "support/process.h"

static char config[SCRATCH_PATH];
static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml",
                      "datasets:\n  - type: synthetic\n    n_tokens: 20000\nmax_steps: 4\n",
                      config);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static const char *in_scratch(const char *name)
{
    static char paths[8][SCRATCH_PATH];
    static int next;
    return scratch_path(&scratch, name, paths[next++ % 8]);
}

/* Runs twice, for people and with --json, and expects the same of both. */
static void expect_error(int code, const char *status, const char *part, const char *const *args)
{
    const char *with_json[MAX_ARGS + 1] = {0};
    struct process p;
    size_t n = 0;
    for (; args[n]; n++)
        with_json[n] = args[n];
    with_json[n] = "--json";
    process_run(&p, &scratch, NULL, args);
    expect_exit(&p, code);
    expect_stderr(&p, "error: ");
    expect_stderr(&p, part);
    assert_string_equal(p.out, "");
    process_release(&p);
    process_run(&p, &scratch, NULL, with_json);
    expect_exit(&p, code);
    json_t *j = expect_json(&p);
    assert_int_equal(json_int_at(j, "error.exit_code"), code);
    assert_string_equal(json_text_at(j, "error.status"), status);
    if (!strstr(json_text_at(j, "error.message"), part))
        fail_msg("'%s' is not in: %s", part, json_text_at(j, "error.message"));
    json_decref(j);
    process_release(&p);
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void bad_usage_is_2(void **state)
{
    (void)state;
    expect_error(2, "ERR_USAGE", "did you mean 'train'?", ARGS("trian"));
    expect_error(2, "ERR_USAGE", "did you mean --dry-run?", ARGS("train", config, "--dry-rum"));
    expect_error(2, "ERR_USAGE", "did you mean --learning_rate?",
                 ARGS("train", config, "--learning-rte", "1"));
    expect_error(2, "ERR_USAGE", "snug train CONFIG", ARGS("train"));
    expect_error(2, "ERR_USAGE", "one word too many", ARGS("plan", config, "another.yaml"));
    expect_error(2, "ERR_USAGE", "--svg needs a value", ARGS("plan", config, "--svg"));
    expect_error(2, "ERR_USAGE", "whole number",
                 ARGS("generate", config, "--max-new-tokens", "many"));
    expect_error(2, "ERR_USAGE", "top_p", ARGS("generate", config, "--top-p", "1.5"));
    expect_error(2, "ERR_USAGE", "temperature", ARGS("generate", config, "--temperature", "-1"));
    expect_error(2, "ERR_USAGE", "-o FILE", ARGS("tokenize", config, config));
    expect_error(2, "ERR_USAGE", "takes no value", ARGS("train", config, "--resume=last"));
    expect_error(2, "ERR_USAGE", "bf16 or f16",
                 ARGS("export", config, "-o", in_scratch("x"), "--dtype", "f8"));
}

static void no_command_is_2(void **state)
{
    (void)state;
    struct process p;
    process_run(&p, &scratch, NULL, ARGS(NULL));
    expect_exit(&p, 2);
    expect_stderr(&p, "snug help");
    process_release(&p);
}

static void bad_config_is_2(void **state)
{
    (void)state;
    char bad[SCRATCH_PATH];
    write_tiny_config(&scratch, "unknown.yaml", "max_stepps: 4\n", bad);
    expect_error(2, "ERR_CONFIG", "did you mean", ARGS("train", bad));
    expect_error(2, "ERR_CONFIG", "unknown.yaml:20", ARGS("train", bad));
    expect_error(2, "ERR_CONFIG", "max_steps", ARGS("train", config, "max_steps=soon"));
    expect_error(2, "ERR_CONFIG", "train_batch_size",
                 ARGS("train", config, "train_batch_size=7", "gradient_accumulation_steps=2"));
    expect_error(2, "ERR_CONFIG", "max_seq_length", ARGS("plan", config, "max_seq_length=1000"));
    expect_error(2, "ERR_CONFIG", "val_set_size", ARGS("train", config, "eval_strategy=steps"));
    expect_error(2, "ERR_CONFIG", "fp16: true", ARGS("train", config, "loss_scale=128"));
    expect_error(2, "ERR_CONFIG", "bf16: true", ARGS("train", config, "master_dtype=bf16"));
    expect_error(2, "ERR_CONFIG", "no block of the network has attention",
                 ARGS("plan", SNUG_SOURCE_DIR "/configs/mlp.yaml", "device=cpu",
                      "gradient_checkpointing=attention"));
}

static void what_this_build_lacks_is_2(void **state)
{
    (void)state;
    expect_error(2, "ERR_UNSUPPORTED", "fp8: not available in this version",
                 ARGS("train", config, "fp8=true"));
}

static void missing_files_are_named(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", "no/such.yaml");
    assert_int_not_equal(p.exit_code, 0);
    expect_stderr(&p, "no/such.yaml");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "datasets=[{type: text, path: no/such.txt}]");
    assert_int_not_equal(p.exit_code, 0);
    expect_stderr(&p, "no/such.txt");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "model=", "model_name_or_path=no/such/model");
    expect_exit(&p, 2);
    expect_stderr(&p, "no/such/model");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "datasets=README.md", "tokenizer=no/such.json");
    expect_exit(&p, 2);
    expect_stderr(&p, "no/such.json");
    process_release(&p);
}

static void data_that_is_missing_is_5_for_every_command(void **state)
{
    (void)state;
    const char *out = in_scratch("tokens.bin");
    expect_error(5, "ERR_DATA", "no/such.txt: no such file",
                 ARGS("train", config, "datasets=no/such.txt"));
    expect_error(5, "ERR_DATA", "no/such.txt: no such file",
                 ARGS("eval", config, "datasets=no/such.txt"));
    expect_error(5, "ERR_DATA", "no/such.txt: no such file",
                 ARGS("tokenize", config, "no/such.txt", "-o", out));
    assert_false(file_exists(out));
}

static void errors_name_the_path_that_was_given(void **state)
{
    (void)state;
    const char *input = in_scratch("text.txt");
    scratch_write_text(&scratch, "text.txt", "some text");
    expect_error(1, "ERR_IO", "no/such/x.svg: cannot open for writing",
                 ARGS("plan", config, "--svg", "no/such/x.svg"));
    expect_error(1, "ERR_IO", "no/such/x.bin: cannot open for writing",
                 ARGS("tokenize", config, input, "-o", "no/such/x.bin"));
}

static void a_model_shorter_than_the_default_sequence_says_what_to_set(void **state)
{
    (void)state;
    expect_error(2, "ERR_CONFIG", "set max_seq_length=64", ARGS("train", "tests/golden/llama"));
    expect_error(2, "ERR_CONFIG", "command line: max_seq_length is 65, but the model",
                 ARGS("train", "tests/golden/llama", "max_seq_length=65"));
}

static void exporting_without_a_checkpoint_is_told(void **state)
{
    (void)state;
    struct process p;
    const char *out = in_scratch("exported");
    expect_error(5, "ERR_CHECKPOINT", "no complete checkpoint in it; train first",
                 ARGS("export", config, "-o", out, "--checkpoint", "last"));
    PROCESS_RUN(&p, &scratch, "export", config, "-o", out, "--checkpoint", "none");
    expect_exit(&p, 0);
    assert_null(strstr(p.err, "warning"));
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "export", config, "-o", out, "--force");
    expect_exit(&p, 0);
    expect_stderr(&p, "warning: there is no checkpoint in ");
    process_release(&p);
}

/* Each mistake has a line of its own on the terminal. */
static void several_mistakes_are_several_lines(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, "sed=1", "model.num_hiden_layers=2", "optim=lomo");
    expect_exit(&p, 2);
    expect_stderr(&p, "error: command line: sed: unknown key; did you mean seed?\n");
    expect_stderr(&p, "error: command line: key 'num_hiden_layers' is not known here");
    expect_stderr(&p, "error: command line: optim: lomo is not in this version");
    process_release(&p);
}

static void log_level_says_how_much_is_shown_unless_the_command_line_does(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, "log_level=error");
    expect_exit(&p, 0);
    assert_string_equal(p.err, "");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "log_level=error", "--verbose");
    expect_stderr(&p, "step 4/4");
    process_release(&p);
}

/* Whatever is looked at for a change that would fit takes half as long. */
#define SHALLOW "model.num_hidden_layers=1"

static void what_does_not_fit_is_3_and_says_what_would(void **state)
{
    (void)state;
    expect_error(3, "ERR_FIT", "  device_memory=1MiB   (",
                 ARGS("plan", config, SHALLOW, "device_memory=10KiB"));
    expect_error(3, "ERR_FIT", "  device_memory=1MiB   (",
                 ARGS("train", config, SHALLOW, "device_memory=10KiB", "--dry-run"));
    expect_error(3, "ERR_FIT", "device memory needs",
                 ARGS("train", config, SHALLOW, "device_memory=10KiB"));
    expect_error(3, "ERR_FIT", "device memory",
                 ARGS("generate", config, SHALLOW, "device_memory=10KiB"));
    assert_false(file_exists(in_scratch("out")));
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, "per_device_train_batch_size=8",
                "gradient_checkpointing=false", "--json");
    json_t *j = expect_json(&p);
    char budget[64];
    (void)snprintf(budget, sizeof(budget), "device_memory=%lld",
                   (long long)json_int_at(j, "predicted.arena_bytes") - 1);
    json_decref(j);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "plan", config, "per_device_train_batch_size=8", budget, "--json");
    expect_exit(&p, 0);
    j = expect_json(&p);
    assert_true(json_bool_at(j, "fits"));
    json_decref(j);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "plan", config, "per_device_train_batch_size=8", budget,
                "gradient_checkpointing=false", "activation_offloading=false",
                "offload_optimizer=false", "offload_param=false", "--json");
    expect_exit(&p, 3);
    expect_stderr(&p, "it fits with");
    expect_stderr(&p, "\n  gradient_checkpointing=auto activation_offloading=auto");
    j = expect_json(&p);
    assert_false(json_bool_at(j, "fits"));
    assert_string_equal(json_text_at(j, "binding"), "device");
    json_decref(j);
    process_release(&p);
}

static void a_loss_that_is_no_number_is_1(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, "learning_rate=1000", "optim=sgd", "max_grad_norm=0",
                "max_steps=20", "--json");
    expect_exit(&p, 1);
    expect_stderr(&p, "learning_rate");
    json_t *j = expect_json(&p);
    assert_string_equal(json_text_at(j, "error.status"), "ERR_NUMERIC");
    size_t n = json_array_size(json_object_get(j, "losses"));
    assert_int_equal(n, json_int_at(j, "steps"));
    assert_in_range(n, 1, 19);
    json_decref(j);
    process_release(&p);
}

static void copy_file(const char *from, const char *to, size_t keep)
{
    char *data;
    size_t n;
    assert_int_equal(file_read(from, &data, &n), OK);
    scratch_write(&scratch, to, data, MIN(n, keep));
    mem_free(data);
}

static void truncated_weights_are_5(void **state)
{
    (void)state;
    copy_file("tests/golden/llama/config.json", "cut/config.json", SIZE_MAX);
    copy_file("tests/golden/llama/model.safetensors", "cut/model.safetensors", 20000);
    expect_error(5, "ERR_DATA", "model.safetensors",
                 ARGS("eval", in_scratch("cut"), "max_seq_length=8", "num_threads=1",
                      "datasets=[{type: synthetic}]"));
    expect_error(5, "ERR_DATA", "model.safetensors",
                 ARGS("train", config, "model=", "model_name_or_path=tests/golden/nothing",
                      "--model-name-or-path", in_scratch("cut"), "max_seq_length=8"));
}

static void damaged_and_foreign_checkpoints_are_5(void **state)
{
    (void)state;
    struct process p;
    expect_error(5, "ERR_CHECKPOINT", "no complete checkpoint", ARGS("train", config, "--resume"));
    expect_error(5, "ERR_CHECKPOINT", "no such checkpoint",
                 ARGS("eval", config, "--checkpoint", "nowhere"));
    PROCESS_RUN(&p, &scratch, "train", config, "-q");
    expect_exit(&p, 0);
    process_release(&p);
    char *data;
    size_t n;
    assert_int_equal(file_read(in_scratch("out/checkpoint-4/model.safetensors"), &data, &n), OK);
    data[n - 5] = (char)(data[n - 5] ^ 1);
    scratch_write(&scratch, "out/checkpoint-4/model.safetensors", data, n);
    mem_free(data);
    expect_error(5, "ERR_CHECKPOINT", "model.safetensors",
                 ARGS("eval", config, "--checkpoint", "checkpoint-4"));
    expect_error(5, "ERR_CHECKPOINT", "no complete checkpoint", ARGS("train", config, "--resume"));
    expect_error(5, "ERR_CHECKPOINT", "checkpoint-4",
                 ARGS("train", config, "resume_from_checkpoint=checkpoint-4"));
}

static void tokens_outside_the_vocabulary_are_5(void **state)
{
    (void)state;
    scratch_write_text(&scratch, "text.txt", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz");
    char data[SCRATCH_PATH + 32];
    (void)snprintf(data, sizeof(data), "datasets=[{type: text, path: %s}]", in_scratch("text.txt"));
    expect_error(5, "ERR_DATA", "vocab",
                 ARGS("train", config, data, "model.vocab_size=100", "max_seq_length=8"));
    expect_error(5, "ERR_DATA", "vocab",
                 ARGS("generate", config, "model.vocab_size=100", "-p", "zzz"));
}

static void too_little_data_is_5(void **state)
{
    (void)state;
    scratch_write_text(&scratch, "text.txt", "short");
    char data[SCRATCH_PATH + 32];
    (void)snprintf(data, sizeof(data), "datasets=[{type: text, path: %s}]", in_scratch("text.txt"));
    expect_error(5, "ERR_DATA", "tokens", ARGS("train", config, data));
}

static void an_output_folder_that_cannot_be_made_is_1(void **state)
{
    (void)state;
    scratch_write_text(&scratch, "file", "not a folder");
    char out[SCRATCH_PATH + 32];
    (void)snprintf(out, sizeof(out), "output_dir=%s/inside", in_scratch("file"));
    expect_error(1, "ERR_IO", "file", ARGS("train", config, out));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_usage_is_2),
        TEST(no_command_is_2),
        TEST(bad_config_is_2),
        TEST(what_this_build_lacks_is_2),
        TEST(missing_files_are_named),
        TEST(data_that_is_missing_is_5_for_every_command),
        TEST(errors_name_the_path_that_was_given),
        TEST(a_model_shorter_than_the_default_sequence_says_what_to_set),
        TEST(exporting_without_a_checkpoint_is_told),
        TEST(several_mistakes_are_several_lines),
        TEST(log_level_says_how_much_is_shown_unless_the_command_line_does),
        TEST(what_does_not_fit_is_3_and_says_what_would),
        TEST(a_loss_that_is_no_number_is_1),
        TEST(truncated_weights_are_5),
        TEST(damaged_and_foreign_checkpoints_are_5),
        TEST(tokens_outside_the_vocabulary_are_5),
        TEST(too_little_data_is_5),
        TEST(an_output_folder_that_cannot_be_made_is_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
