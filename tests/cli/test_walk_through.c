/* The walk-through of docs/FINETUNING.md, command by command, at a small size: a model, a dozen
 * conversations, an adapter, a chat, a GGUF file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/gguf_file.h"
#include "support/golden.h"
#include "support/process.h"

static struct scratch scratch;
static char base[SCRATCH_PATH], run[SCRATCH_PATH];

static const char *at(const char *name, char out[SCRATCH_PATH])
{
    return scratch_path(&scratch, name, out);
}

/* What the config says, but for the folders and the sizes. */
static void run_lora(struct process *p, const char *command, const char *const *more)
{
    char model[SCRATCH_PATH + 32], output[SCRATCH_PATH + 32];
    const char *args[MAX_ARGS] = {command,
                                  SNUG_SOURCE_DIR "/configs/chat-lora.yaml",
                                  model,
                                  output,
                                  "datasets.0.path=" SNUG_SOURCE_DIR "/configs/chats.jsonl",
                                  "max_steps=3",
                                  "report_to=none"};
    int n = 7;
    (void)snprintf(model, sizeof(model), "model_name_or_path=%s/checkpoint-2", base);
    (void)snprintf(output, sizeof(output), "output_dir=%s", run);
    for (; *more; more++)
        args[n++] = *more;
    process_run(p, &scratch, NULL, args);
    expect_exit(p, 0);
}
#define RUN_LORA(p, command, ...) run_lora(p, command, (const char *const[]){__VA_ARGS__, NULL})

static int make_model_and_adapter(void **state)
{
    struct process p;
    char output[SCRATCH_PATH + 32];
    (void)state;
    scratch_init(&scratch);
    at("base", base);
    at("chat", run);
    (void)snprintf(output, sizeof(output), "output_dir=%s", base);
    PROCESS_RUN(&p, &scratch, "train", SNUG_SOURCE_DIR "/configs/demo.yaml",
                "datasets=" SNUG_SOURCE_DIR "/README.md", output, "max_steps=2", "save_steps=2",
                "eval_strategy=no", "model.hidden_size=32", "model.intermediate_size=64",
                "model.num_hidden_layers=2", "report_to=none");
    expect_exit(&p, 0);
    process_release(&p);
    RUN_LORA(&p, "train", "lora_r=4");
    expect_stderr(&p, "12 examples of");
    process_release(&p);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static void the_adapter_answers(void **state)
{
    struct process p;
    (void)state;
    RUN_LORA(&p, "chat", "lora_r=4", "-p", "Who are you?", "-t", "0", "-n", "4");
    assert_true(strlen(p.out) > 0);
    process_release(&p);
}

/* Its output_dir stands for the run, wherever it is now. */
static void the_folder_of_a_run_stands_for_its_config(void **state)
{
    struct process by_config, by_folder;
    char moved[SCRATCH_PATH];
    (void)state;
    RUN_LORA(&by_config, "chat", "lora_r=4", "-p", "Who are you?", "-t", "0", "-n", "4");
    assert_int_equal(rename(run, at("moved", moved)), 0);
    PROCESS_RUN(&by_folder, &scratch, "chat", moved, "-p", "Who are you?", "-t", "0", "-n", "4");
    expect_exit(&by_folder, 0);
    expect_stderr(&by_folder, moved);
    assert_string_equal(by_folder.out, by_config.out);
    assert_int_equal(rename(moved, run), 0);
    process_release(&by_config);
    process_release(&by_folder);
}

/* The same file by way of a merged folder. */
static void a_gguf_file_holds_the_merged_model_and_its_tokenizer(void **state)
{
    struct process p;
    struct gguf_read r;
    char one[SCRATCH_PATH], two[SCRATCH_PATH], merged[SCRATCH_PATH], *a, *b;
    size_t n_a, n_b;
    (void)state;
    RUN_LORA(&p, "export", "lora_r=4", "-o", at("chat.gguf", one), "--dtype", "q8_0");
    expect_stderr(&p, "the adapter merged");
    process_release(&p);
    RUN_LORA(&p, "export", "lora_r=4", "-o", at("merged", merged), "--merge");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "export", merged, "-o", at("again/chat.gguf", two), "--dtype",
                "Q8_0");
    expect_exit(&p, 1); /* there is no such folder */
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "export", merged, "-o", at("merged/chat.gguf", two), "--dtype",
                "Q8_0", "--json");
    json_t *said = expect_json(&p);
    assert_string_equal(json_text_at(said, "format"), "gguf");
    assert_string_equal(json_text_at(said, "dtype"), "q8_0");
    json_decref(said);
    process_release(&p);
    expect_ok(file_read(one, &a, &n_a));
    expect_ok(file_read(two, &b, &n_b));
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    mem_free(a);
    mem_free(b);
    gguf_read_open(&r, one);
    assert_string_equal(json_string_value(json_object_get(r.keys, "general.architecture")),
                        "llama");
    assert_int_equal(json_array_size(json_object_get(r.keys, "tokenizer.ggml.tokens")), 320);
    assert_int_equal(gguf_read_find(&r, "blk.1.attn_k.weight")->type, 8);
    gguf_read_close(&r);
}

static void what_a_file_cannot_be_is_said(void **state)
{
    struct process p;
    char path[SCRATCH_PATH];
    (void)state;
    PROCESS_RUN(&p, &scratch, "export", SNUG_SOURCE_DIR "/tests/golden/llama", "-o", at("x", path),
                "--dtype", "q4_0");
    expect_exit(&p, 2);
    expect_stderr(&p, "of GGUF files");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "export", SNUG_SOURCE_DIR "/tests/golden/moe", "-o",
                at("x.gguf", path));
    expect_exit(&p, 2);
    expect_stderr(&p, "no architecture");
    process_release(&p);
    RUN_LORA(&p, "export", "lora_r=4", "-o", at("y", path), "--format", "gguf", "--dtype", "f16");
    process_release(&p);
    assert_true(file_is_regular(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_adapter_answers),
        cmocka_unit_test(the_folder_of_a_run_stands_for_its_config),
        cmocka_unit_test(a_gguf_file_holds_the_merged_model_and_its_tokenizer),
        cmocka_unit_test(what_a_file_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, make_model_and_adapter, drop);
}
