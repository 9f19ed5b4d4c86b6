/* The program on a GPU, as a user runs it: what follows training reads weights that lie in memory
 * the host cannot address. Skipped without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/file.h"
#include "support/gpu.h"
#include "support/process.h"

static struct scratch scratch;
static char config[SCRATCH_PATH];

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml",
                      "datasets:\n  - type: synthetic\n    n_tokens: 9000\n"
                      "val_set_size: 0.1\neval_max_batches: 2\nsave_steps: 3\nreport_to: none\n"
                      "device: cuda\n",
                      config);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

/* The object that the command prints; it must succeed. */
static json_t *run(const char *const *args)
{
    struct process p;
    struct process_options o = {.variable = "XDG_CACHE_HOME",
                                .setting =
                                    gpu_cache_folder() ? gpu_cache_folder() : scratch.folder};
    process_run(&p, &scratch, &o, args);
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    process_release(&p);
    return j;
}

#define RUN(...) run((const char *const[]){__VA_ARGS__, "--json", "-q", NULL})

static void train(const char *precision, const char *steps, const char *resume)
{
    json_t *j = resume ? RUN("train", config, precision, steps, resume)
                       : RUN("train", config, precision, steps);
    assert_int_equal(json_array_size(json_object_get(j, "losses")), 3);
    json_decref(j);
}

static void expect_commands_work(const char *precision)
{
    char out[SCRATCH_PATH], weights[SCRATCH_PATH], text[SCRATCH_PATH], tokens[SCRATCH_PATH];
    train(precision, "max_steps=3", NULL);
    train(precision, "max_steps=6", "--resume");
    json_t *own = RUN("eval", config, precision, "--checkpoint", "last");
    json_t *j = RUN("generate", config, precision, "-p", "once", "-n", "8", "-t", "0");
    assert_int_equal(json_array_size(json_object_get(j, "tokens")), 8);
    json_decref(j);

    scratch_path(&scratch, "model", out);
    /* In f32 nothing is rounded: beside bf16 weights those of norms are f32. */
    json_decref(RUN("export", config, precision, "--dtype", "f32", "-o", out));
    assert_true(file_exists(scratch_path(&scratch, "model/model.safetensors", weights)));
    json_t *exported = RUN("eval", config, precision, "--checkpoint", out);
    assert_true(json_number_at(own, "eval_loss") == json_number_at(exported, "eval_loss"));
    json_decref(own);
    json_decref(exported);

    scratch_write_text(&scratch, "a.txt", "some text");
    scratch_path(&scratch, "a.txt", text);
    scratch_path(&scratch, "a.bin", tokens);
    json_decref(RUN("tokenize", config, text, "-o", tokens));
}

static void every_command_works_with_f32_weights(void **state)
{
    (void)state;
    expect_commands_work("bf16=false");
}

static void every_command_works_with_bf16_weights_and_masters(void **state)
{
    (void)state;
    expect_commands_work("bf16=true");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_command_works_with_f32_weights, make_scratch,
                                        drop_scratch),
        cmocka_unit_test_setup_teardown(every_command_works_with_bf16_weights_and_masters,
                                        make_scratch, drop_scratch),
    };
    struct device d;
    if (!gpu_open(&d))
        return 77;
    device_close(&d);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
