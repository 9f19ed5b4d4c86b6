/* Everything at home on the host: training with evaluations and checkpoints, resuming, evaluating,
 * generating and exporting take what was said before the first step, as the system sees it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/process.h"

static struct scratch scratch;
static char config[SCRATCH_PATH];

/* A tied embedding of 6 MiB, and weights that lie transposed in files: what a second copy of one
 * takes is seen. */
static const char gpt2[] = "model: {model_type: gpt2, vocab_size: 4096, n_embd: 384, n_layer: 3, "
                           "n_head: 4, n_positions: 64}\n";
static const char llama[] =
    "model: {model_type: llama, vocab_size: 4096, hidden_size: 384, intermediate_size: 1024, "
    "num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 4, "
    "max_position_embeddings: 64, tie_word_embeddings: false}\n";

static const char settings[] = "tokenizer: bytes\n"
                               "datasets: [{type: synthetic, n_tokens: 9000}]\n"
                               "val_set_size: 0.1\n"
                               "eval_strategy: steps\n"
                               "eval_steps: 2\n"
                               "eval_max_batches: 2\n"
                               "max_seq_length: 32\n"
                               "per_device_train_batch_size: 2\n"
                               "num_threads: 1\n"
                               "device: cpu\n"
                               "save_steps: 2\n"
                               "max_steps: 4\n"
                               "offload_optimizer: true\n"
                               "offload_param: true\n"
                               "activation_offloading: true\n"
                               "overwrite_output_dir: true\n";

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

/* A sanitizer takes memory of its own, which is in nobody's plan. */
static void skip_under_a_sanitizer(void)
{
    if (SNUG_ASAN)
        skip();
}

static void write_config(const char *model)
{
    char text[2048];
    (void)snprintf(text, sizeof(text), "%s%soutput_dir: %s/out\n", model, settings, scratch.folder);
    scratch_write_text(&scratch, "home.yaml", text);
    scratch_path(&scratch, "home.yaml", config);
}

/* ---- what was said and what was taken ---------------------------------------------------------
 */

/* The system counts pages in batches, and pieces of programs and libraries come in when they first
 * run: more at once of files that were written a moment ago. */
#define SLACK ((int64_t)1 << 20)

static json_t *expect_kept(const struct process *p)
{
    expect_exit(p, 0);
    json_t *j = expect_json(p);
    int64_t predicted = json_int_at(j, "predicted.resident_bytes");
    int64_t measured = json_int_at(j, "measured.resident_bytes");
    if (measured > predicted + SLACK || p->peak_bytes > predicted + SLACK)
        fail_msg("predicted %lld, measured %lld, the system says %lld", (long long)predicted,
                 (long long)measured, (long long)p->peak_bytes);
    return j;
}

static void run_inside(const char *precision, const char *device, const char *host,
                       const char *resume)
{
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, precision, device, host, "--json",
                resume ? "max_steps=6" : "max_steps=4", resume ? "--resume" : "logging_steps=1");
    json_t *j = expect_kept(&p);
    assert_int_equal(json_int_at(j, "steps"), resume ? 2 : 4);
    assert_int_equal(json_int_at(j, "measured.arena_bytes"),
                     json_int_at(j, "predicted.arena_bytes"));
    assert_int_equal(json_int_at(j, "measured.host_bytes"), json_int_at(j, "predicted.host_bytes"));
    assert_true(json_int_at(j, "decisions.weights_on_host") > 0);
    json_decref(j);
    process_release(&p);
}

/* Budgets of no more than the plan takes, and pages that are counted in batches. */
static void make_budgets(const char *precision, char device[64], char host[64])
{
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, precision, "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    (void)snprintf(device, 64, "device_memory=%lld",
                   (long long)json_int_at(j, "budget.device_needs"));
    (void)snprintf(host, 64, "host_memory=%lld",
                   (long long)(json_int_at(j, "budget.host_needs") + SLACK));
    json_decref(j);
    process_release(&p);
}

static void expect_use_inside(const char *precision)
{
    struct process p;
    PROCESS_RUN(&p, &scratch, "eval", config, precision, "--json");
    json_decref(expect_kept(&p));
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "generate", config, precision, "--prompt", "ab", "-n", "3", "--json");
    json_decref(expect_kept(&p));
    process_release(&p);
}

static void train_and_use(const char *model, const char *precision)
{
    char device[64], host[64];
    skip_under_a_sanitizer();
    write_config(model);
    make_budgets(precision, device, host);
    run_inside(precision, device, host, NULL);
    run_inside(precision, device, host, "--resume");
    expect_use_inside(precision);
}

static void gpt2_keeps_to_what_was_said(void **state)
{
    (void)state;
    train_and_use(gpt2, "bf16=false");
}

static void llama_with_masters_keeps_to_what_was_said(void **state)
{
    (void)state;
    train_and_use(llama, "bf16=true");
}

/* ---- weights from files of another format ------------------------------------------------------
 */

static void weights_are_converted_inside_of_it(void **state)
{
    char model[SCRATCH_PATH + 32], folder[SCRATCH_PATH];
    struct process p;
    (void)state;
    skip_under_a_sanitizer();
    write_config(gpt2);
    scratch_path(&scratch, "hf", folder);
    PROCESS_RUN(&p, &scratch, "export", config, "-o", folder, "--checkpoint", "none", "--dtype",
                "bf16");
    expect_exit(&p, 0);
    process_release(&p);
    (void)snprintf(model, sizeof(model), "model_name_or_path: %s\n", folder);
    train_and_use(model, "bf16=false");
}

/* ---- exporting ---------------------------------------------------------------------------------
 */

static void an_export_keeps_to_host_memory_or_is_refused(void **state)
{
    char folder[SCRATCH_PATH];
    struct process p;
    (void)state;
    skip_under_a_sanitizer();
    write_config(gpt2);
    scratch_path(&scratch, "exported", folder);
    PROCESS_RUN(&p, &scratch, "export", config, "-o", folder, "--checkpoint", "none",
                "host_memory=8MiB");
    expect_exit(&p, 3);
    expect_stderr(&p, "writing the model needs");
    expect_stderr(&p, "raise host_memory");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "export", config, "-o", folder, "--checkpoint", "none",
                "host_memory=16MiB");
    expect_exit(&p, 0);
    assert_true(p.peak_bytes < (int64_t)16 << 20); /* of a model of 28 MiB */
    process_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_keeps_to_what_was_said),
        cmocka_unit_test(llama_with_masters_keeps_to_what_was_said),
        cmocka_unit_test(weights_are_converted_inside_of_it),
        cmocka_unit_test(an_export_keeps_to_host_memory_or_is_refused),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
