/* Configs that snug init writes plan and train as they are: flags, presets, answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/str.h"
#include "support/process.h"

static struct scratch scratch;
static char path[SCRATCH_PATH], folder[SCRATCH_PATH];

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    scratch_path(&scratch, "new.yaml", path);
    scratch_path(&scratch, "out", folder);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static char *text_of(const char *file)
{
    char *text;
    size_t n;
    assert_int_equal(file_read(file, &text, &n), OK);
    return text;
}

static void a_config_for_the_processor_is_written_planned_and_trained(void **state)
{
    (void)state;
    struct process p;
    char data[SCRATCH_PATH];
    struct str text = {0};
    for (int i = 0; i < 400; i++)
        str_addf(&text, "line %d of a text to learn from\n", i);
    scratch_write_text(&scratch, "data.txt", str_text(&text));
    str_release(&text);
    scratch_path(&scratch, "data.txt", data);
    PROCESS_RUN(&p, &scratch, "init", path, "--card", "cpu", "--data", data, "--output-dir", folder,
                "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    assert_string_equal(json_text_at(j, "config"), path);
    json_decref(j);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "plan", path, "--json");
    expect_exit(&p, 0);
    j = expect_json(&p);
    assert_true(json_bool_at(j, "fits"));
    json_decref(j);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", path, "max_steps=2", "eval_strategy=no",
                "model.num_hidden_layers=1", "model.hidden_size=32", "model.intermediate_size=64",
                "max_seq_length=32", "--json");
    expect_exit(&p, 0);
    j = expect_json(&p);
    assert_int_equal(json_int_at(j, "last_step"), 2);
    json_decref(j);
    process_release(&p);
}

/* Each for its card, without having it. */
static void presets_of_cards_and_documents_fit(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *gpu, *has;
    } cases[] = {
        {"t4", "t4", "fp16: true"},
        {"colab", "t4", "host_memory: 10GiB"},
        {"a100-40", "a100-40", "bf16: true"},
        {"rtx4090", "rtx4090", "device_memory: 22.9GiB"},
        {"qlora", "rtx4090", "adapter: qlora"},
        {"per-frame", "t4", "device_memory: 14.1GiB"},
        {"deepspeed", "a100-40", "offload_optimizer: true"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct process p;
        PROCESS_RUN(&p, &scratch, "init", path, "--preset", cases[i].preset, "--force");
        expect_exit(&p, 0);
        expect_stderr(&p, cases[i].gpu);
        process_release(&p);
        char *text = text_of(path);
        if (!strstr(text, cases[i].has))
            fail_msg("%s: no '%s' in:\n%s", cases[i].preset, cases[i].has, text);
        mem_free(text);
        PROCESS_RUN(&p, &scratch, "plan", path, "--gpu", cases[i].gpu, "--json");
        expect_exit(&p, 0);
        process_release(&p);
    }
}

static void without_flags_it_asks(void **state)
{
    (void)state;
    struct process p;
    char answers[SCRATCH_PATH];
    scratch_write_text(&scratch, "answers", "rtx3060\nlora\ngpt2-124m\n\n");
    scratch_path(&scratch, "answers", answers);
    const struct process_options o = {.input = answers};
    const char *const args[] = {"init", path, NULL};
    process_run(&p, &scratch, &o, args);
    expect_exit(&p, 0);
    expect_stderr(&p, "Which card?");
    process_release(&p);
    char *text = text_of(path);
    assert_non_null(strstr(text, "adapter: lora"));
    assert_non_null(strstr(text, "n_embd: 768"));
    assert_non_null(strstr(text, "device_memory: 11.2GiB"));
    assert_non_null(strstr(text, "bf16: true"));
    mem_free(text);
    PROCESS_RUN(&p, &scratch, "plan", path, "--gpu", "rtx3060", "--json");
    expect_exit(&p, 0);
    process_release(&p);
}

static void names_that_yaml_reads_otherwise_are_quoted(void **state)
{
    (void)state;
    static const char *const names[] = {"a: b.txt", "#1.txt", "it's \"new\".txt", "[x].txt", "no"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct process p;
        char data[SCRATCH_PATH];
        scratch_write_text(&scratch, names[i], "a text that is longer than one sequence is\n");
        PROCESS_RUN(&p, &scratch, "init", path, "--model", "tiny", "--force", "--data",
                    scratch_path(&scratch, names[i], data), "--output-dir", names[i]);
        expect_exit(&p, 0);
        process_release(&p);
        PROCESS_RUN(&p, &scratch, "data", path, "max_seq_length=8", "eval_strategy=no", "--json");
        json_t *j = expect_json(&p);
        assert_true(json_int_at(j, "n_samples") > 0);
        json_decref(j);
        process_release(&p);
    }
    struct process p;
    PROCESS_RUN(&p, &scratch, "init", path, "--force", "--model", "tiny", "--data", "a\nb");
    expect_exit(&p, 2);
    expect_stderr(&p, "line breaks");
    process_release(&p);
}

static void mistakes_are_told_with_what_there_is(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "init", path, "--preset", "t5");
    expect_exit(&p, 2);
    expect_stderr(&p, "there are cpu, colab, three-branch");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "init", path, "--card", "t5");
    expect_exit(&p, 2);
    expect_stderr(&p, "rtx4090");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "init", path, "--goal", "glory");
    expect_exit(&p, 2);
    expect_stderr(&p, "pretrain, finetune, lora and qlora");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "init", path, "--model", "gpt3");
    expect_exit(&p, 2);
    expect_stderr(&p, "gpt2-124m");
    process_release(&p);
    assert_false(file_exists(path));
    scratch_write_text(&scratch, "new.yaml", "mine\n");
    PROCESS_RUN(&p, &scratch, "init", path, "--card", "cpu");
    expect_exit(&p, 2);
    expect_stderr(&p, "is there already");
    process_release(&p);
    char *text = text_of(path);
    assert_string_equal(text, "mine\n");
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_config_for_the_processor_is_written_planned_and_trained,
                                        make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(presets_of_cards_and_documents_fit, make_scratch,
                                        drop_scratch),
        cmocka_unit_test_setup_teardown(without_flags_it_asks, make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(names_that_yaml_reads_otherwise_are_quoted, make_scratch,
                                        drop_scratch),
        cmocka_unit_test_setup_teardown(mistakes_are_told_with_what_there_is, make_scratch,
                                        drop_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
