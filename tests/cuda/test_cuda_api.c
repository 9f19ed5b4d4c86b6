/* What follows training, through the public API, with weights that a GPU has trained: they lie in
 * memory that the host cannot address, and are handed out all the same. The CPU, given the same
 * checkpoint, says what is due. Skipped without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "support/gpu.h"
#include "support/trial.h"

enum { N_NEW = 12 };

static void expect_public_ok(enum snug_status status)
{
    if (status != SNUG_OK)
        fail_msg("%s: %s", snug_status_name(status), snug_error_message());
}

static struct snug_settings settings(void)
{
    return (struct snug_settings){.cache_folder = gpu_cache_folder(), .num_threads = 1};
}

/* The checkpoint of a run of three steps on the GPU; its path into out. */
static void train_on_gpu(const char *const *precision, char out[2 * SCRATCH_PATH])
{
    struct trial t;
    const char *keys[8] = {"device=cuda", "save_strategy=steps", trial_text()};
    size_t n = 3;
    for (size_t i = 0; precision[i]; i++)
        keys[n++] = precision[i];
    trial_train(&t, keys);
    assert_memory_not_equal(t.device, "cpu", 3);
    (void)snprintf(out, 2 * SCRATCH_PATH, "%s/checkpoint-3", t.folder);
    assert_int_equal(snug_checkpoint_verify(out), SNUG_OK);
}

static double evaluate(const char *device, const char *precision, const char *checkpoint)
{
    struct snug_settings s = settings();
    struct snug_run *run;
    struct snug_evaluation e;
    struct snug_config *config =
        trial_config(OVERRIDES(device, precision, trial_text(), "val_set_size=6"));
    expect_public_ok(snug_run_open(&run, config, &s, SNUG_EVALUATE));
    expect_public_ok(snug_run_evaluate(run, checkpoint, &e));
    assert_int_equal(e.n_tokens, 6 * TRIAL_LENGTH);
    snug_run_close(run);
    snug_config_free(config);
    return e.loss;
}

static void generate(const char *device, const char *precision, const char *checkpoint,
                     int32_t tokens[N_NEW])
{
    struct snug_settings s = settings();
    struct snug_generator *g;
    struct snug_generation made;
    struct snug_generate_request request = {
        .prompt = "abcabc", .max_new_tokens = N_NEW, .top_p = 1};
    struct snug_config *config = trial_config(OVERRIDES(device, precision));
    expect_public_ok(snug_generator_open(&g, config, &s, checkpoint, &request));
    expect_public_ok(snug_generate(g, NULL, NULL, NULL, &made));
    assert_int_equal(made.n_new_tokens, N_NEW);
    assert_int_equal(made.arena_bytes, made.arena_predicted);
    memcpy(tokens, made.tokens, N_NEW * sizeof(*tokens));
    snug_generator_close(g);
    snug_config_free(config);
}

/* The exported weights, byte for byte; the caller frees them. */
static char *export(const char *device, const char *precision, const char *checkpoint,
                    size_t *n_bytes)
{
    struct snug_settings s = settings();
    struct snug_exported done;
    char folder[SCRATCH_PATH], path[2 * SCRATCH_PATH], *bytes;
    struct snug_export_options o = {.checkpoint = checkpoint,
                                    .out_dir = scratch_path(trials_scratch(), "exported", folder),
                                    .dtype = "f32",
                                    .force = true};
    struct snug_config *config = trial_config(OVERRIDES(device, precision));
    expect_public_ok(snug_export(config, &s, &o, &done));
    snug_free(done.weights);
    snug_config_free(config);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(file_read(path, &bytes, n_bytes), OK);
    return bytes;
}

static void expect_same_export(const char *precision, const char *checkpoint)
{
    size_t n_gpu, n_cpu;
    char *gpu = export("device=cuda", precision, checkpoint, &n_gpu);
    char *cpu = export("device=cpu", precision, checkpoint, &n_cpu);
    assert_int_equal(n_gpu, n_cpu);
    assert_memory_equal(gpu, cpu, n_cpu);
    mem_free(gpu);
    mem_free(cpu);
}

static void f32_weights_are_evaluated_generated_from_and_exported_as_on_the_cpu(void **state)
{
    (void)state;
    char checkpoint[2 * SCRATCH_PATH];
    int32_t gpu[N_NEW], cpu[N_NEW];
    train_on_gpu(OVERRIDES("bf16=false"), checkpoint);
    expect_within(evaluate("device=cuda", "bf16=false", checkpoint),
                  evaluate("device=cpu", "bf16=false", checkpoint), 1e-5);
    generate("device=cuda", "bf16=false", checkpoint, gpu);
    generate("device=cpu", "bf16=false", checkpoint, cpu);
    assert_memory_equal(gpu, cpu, sizeof(cpu));
    expect_same_export("bf16=false", checkpoint);
}

/* In bf16 two likely tokens may change places: generation is the same on the same device. */
static void expect_bf16(const char *masters)
{
    char checkpoint[2 * SCRATCH_PATH];
    int32_t first[N_NEW], again[N_NEW];
    train_on_gpu(OVERRIDES("bf16=true", masters), checkpoint);
    expect_within(evaluate("device=cuda", "bf16=true", checkpoint),
                  evaluate("device=cpu", "bf16=true", checkpoint), 5e-3);
    generate("device=cuda", "bf16=true", checkpoint, first);
    generate("device=cuda", "bf16=true", checkpoint, again);
    assert_memory_equal(first, again, sizeof(again));
    expect_same_export("bf16=true", checkpoint);
}

static void bf16_weights_beside_masters_are_those_of_the_checkpoint(void **state)
{
    (void)state;
    expect_bf16("master_dtype=f32");
}

static void bf16_weights_without_masters_are_those_of_the_checkpoint(void **state)
{
    (void)state;
    expect_bf16("master_dtype=bf16");
}

/* Evaluating while training leaves the GPU's weights and data as they were. */
static void evaluations_between_steps_change_none_of_them(void **state)
{
    (void)state;
    struct trial with, without;
    TRAIN(&without, "device=cuda", trial_text(), "val_set_size=6", "max_steps=6");
    TRAIN(&with, "device=cuda", trial_text(), "val_set_size=6", "max_steps=6",
          "eval_strategy=steps", "eval_steps=1");
    assert_int_equal(with.n_evals, 6);
    assert_true(trial_same_losses(&with, &without));
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
        cmocka_unit_test(f32_weights_are_evaluated_generated_from_and_exported_as_on_the_cpu),
        cmocka_unit_test(bf16_weights_beside_masters_are_those_of_the_checkpoint),
        cmocka_unit_test(bf16_weights_without_masters_are_those_of_the_checkpoint),
        cmocka_unit_test(evaluations_between_steps_change_none_of_them),
    };
    struct device d;
    if (!gpu_open(&d))
        return GPU_SKIPPED;
    device_close(&d);
    return cmocka_run_group_tests(tests, begin, end);
}
