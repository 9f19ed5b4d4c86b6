/* A checkpoint's folder by itself: it knows its tokenizer and the data of its run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/file.h"
#include "support/process.h"

static char config[SCRATCH_PATH];
static struct scratch scratch;

static const char *in_scratch(const char *name)
{
    static char paths[8][SCRATCH_PATH];
    static int next;
    return scratch_path(&scratch, name, paths[next++ % 8]);
}

/* A run over a text, with the tokenizer that an inline model gets when none is named. */
static int make_run(void **state)
{
    struct process p;
    char text[4000], more[2 * SCRATCH_PATH];
    (void)state;
    scratch_init(&scratch);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i * i % 23);
    scratch_write(&scratch, "text.txt", text, sizeof(text));
    (void)snprintf(more, sizeof(more), "datasets: %s\nval_set_size: 10\nreport_to: none\n",
                   in_scratch("text.txt"));
    write_tiny_config(&scratch, "tiny.yaml", more, config);
    PROCESS_RUN(&p, &scratch, "train", config, "max_steps=10", "tokenizer=", "-q");
    expect_exit(&p, 0);
    process_release(&p);
    return 0;
}

static int drop_run(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static json_t *run_json(const char *const *args)
{
    struct process p;
    process_run(&p, &scratch, NULL, args);
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    process_release(&p);
    return j;
}

#define RUN_JSON(...) run_json((const char *const[]){__VA_ARGS__, "--json", NULL})

static void it_is_evaluated_on_the_data_of_its_run(void **state)
{
    (void)state;
    const char *folder = in_scratch("out/checkpoint-10");
    json_t *bare = RUN_JSON("eval", folder);
    json_t *full = RUN_JSON("eval", config, "--checkpoint", folder);
    assert_true(json_number_at(bare, "eval_loss") == json_number_at(full, "eval_loss"));
    assert_int_equal(json_int_at(bare, "tokens"), json_int_at(full, "tokens"));
    assert_string_equal(json_text_at(bare, "data"), "val_set_size");
    json_decref(bare);
    json_decref(full);
    /* Data that is named takes the place of the run's. */
    char data[SCRATCH_PATH + 16];
    (void)snprintf(data, sizeof(data), "datasets=%s", in_scratch("text.txt"));
    json_t *given = RUN_JSON("eval", folder, data);
    assert_string_equal(json_text_at(given, "data"), "datasets");
    json_decref(given);
}

static void it_generates_with_its_own_tokenizer_and_so_does_its_export(void **state)
{
    (void)state;
    const char *folder = in_scratch("out/checkpoint-10"), *model = in_scratch("model");
    json_t *full = RUN_JSON("generate", config, "-p", "abc", "-n", "12", "-t", "0");
    json_t *bare = RUN_JSON("generate", folder, "-p", "abc", "-n", "12", "-t", "0");
    assert_string_equal(json_text_at(bare, "text"), json_text_at(full, "text"));
    json_decref(RUN_JSON("export", folder, "-o", model));
    assert_true(file_exists(in_scratch("model/tokenizer.json")));
    json_t *exported = RUN_JSON("generate", model, "-p", "abc", "-n", "12", "-t", "0");
    assert_string_equal(json_text_at(exported, "text"), json_text_at(full, "text"));
    json_decref(full);
    json_decref(bare);
    json_decref(exported);
}

static void without_data_there_is_no_evaluation(void **state)
{
    (void)state;
    struct process p;
    json_decref(RUN_JSON("export", in_scratch("out/checkpoint-10"), "-o", in_scratch("model")));
    PROCESS_RUN(&p, &scratch, "eval", in_scratch("model"), "max_seq_length=32", "--json");
    expect_exit(&p, 2);
    expect_stderr(&p, "no evaluation data: set eval_datasets or datasets");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "eval", config, "datasets=", "val_set_size=0", "--json");
    expect_exit(&p, 2);
    expect_stderr(&p, "no evaluation data");
    process_release(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_run, drop_run)

/* The folder of a network knows its samples, and that it has no text. */
static void a_network_is_evaluated_and_writes_nothing(void **state)
{
    static const char net[] = "model: {input: [6], layers: [{linear: 3}], loss: cross_entropy}\n"
                              "datasets: [{type: synthetic, n_samples: 64}]\n"
                              "val_set_size: 16\nmax_steps: 3\nreport_to: none\n";
    struct process p;
    char out[SCRATCH_PATH + 16];
    (void)state;
    scratch_write(&scratch, "net.yaml", net, strlen(net));
    (void)snprintf(out, sizeof(out), "output_dir=%s", in_scratch("net"));
    PROCESS_RUN(&p, &scratch, "train", in_scratch("net.yaml"), out, "-q");
    expect_exit(&p, 0);
    process_release(&p);
    json_t *j = RUN_JSON("eval", in_scratch("net/checkpoint-3"));
    assert_true(json_number_at(j, "eval_loss") > 0);
    json_decref(j);
    PROCESS_RUN(&p, &scratch, "generate", in_scratch("net/checkpoint-3"), "-p", "once");
    expect_exit(&p, 2);
    expect_stderr(&p, "this network reads no text");
    process_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_is_evaluated_on_the_data_of_its_run),
        TEST(it_generates_with_its_own_tokenizer_and_so_does_its_export),
        TEST(without_data_there_is_no_evaluation),
        TEST(a_network_is_evaluated_and_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
