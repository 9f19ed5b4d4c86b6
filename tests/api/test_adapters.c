/* Runs with adapters, and what they leave behind, through the public API. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "support/trial.h"

#define LORA  "adapter=lora", "lora_alpha=32", "learning_rate=0.02"
#define SAVES "save_strategy=steps", "save_steps=2"
#define TEXT  trial_text(), "tokenizer=bytes"

static const char *checkpoint_of(const struct trial *t, int step)
{
    static char path[SCRATCH_PATH + 64];
    (void)snprintf(path, sizeof(path), "%s/checkpoint-%d", t->folder, step);
    return path;
}

static const char *setting(const char *key, const char *value)
{
    static char texts[64][SCRATCH_PATH + 128];
    static int next;
    char *out = texts[next++ % 64];
    (void)snprintf(out, sizeof(texts[0]), "%s=%s", key, value);
    return out;
}

static struct st_reader *open_tensors(const char *folder, const char *file)
{
    char path[SCRATCH_PATH + 128];
    struct st_reader *r;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, file);
    assert_int_equal(st_reader_open_file(&r, path), OK);
    return r;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static void a_checkpoint_holds_what_is_trained_and_no_more(void **state)
{
    struct trial t;
    (void)state;
    TRAIN(&t, LORA, SAVES);
    assert_true(trial_has_file(&t, "checkpoint-2/adapter_config.json"));
    assert_false(trial_has_file(&t, "checkpoint-2/model.safetensors"));
    struct st_reader *r = open_tensors(checkpoint_of(&t, 2), "adapter_model.safetensors");
    assert_int_equal(st_reader_bytes(r), t.plan.n_trainable * (int64_t)sizeof(float));
    for (size_t i = 0; i < st_reader_count(r); i++)
        assert_non_null(strstr(st_reader_at(r, i)->name, ".lora_"));
    st_reader_close(r);
    r = open_tensors(checkpoint_of(&t, 2), "optimizer.safetensors");
    assert_int_equal(st_reader_bytes(r), 2 * t.plan.n_trainable * (int64_t)sizeof(float));
    st_reader_close(r);
}

static void a_resumed_run_gives_the_losses_of_the_whole(void **state)
{
    static const char *const kinds[] = {"seed=7", "bf16=true", "use_dora=true", "lora_dropout=0.3",
                                        "load_in_4bit=true"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i += SNUG_ASAN ? 2 : 1) {
        struct trial whole, part, rest;
        TRAIN(&whole, LORA, kinds[i], "max_steps=4");
        TRAIN(&part, LORA, kinds[i], "max_steps=2", SAVES);
        TRAIN(&rest, LORA, kinds[i], "max_steps=4", setting("output_dir", part.folder),
              "resume_from_checkpoint=last");
        assert_int_equal(rest.n_steps, 2);
        for (int k = 0; k < 2; k++)
            assert_true(rest.steps[k].loss == whole.steps[2 + k].loss);
    }
}

/* Two folders with models of one config and other weights. */
static void make_bases(struct trial *a, struct trial *b)
{
    TRAIN(a, "max_steps=1", "seed=1", "save_strategy=steps", "save_steps=1");
    TRAIN(b, "max_steps=1", "seed=2", "save_strategy=steps", "save_steps=1");
}

static void resuming_beside_other_weights_is_refused(void **state)
{
    struct trial a, b, run;
    (void)state;
    make_bases(&a, &b);
    const char *first = setting("model_name_or_path", checkpoint_of(&a, 1));
    const char *second = setting("model_name_or_path", checkpoint_of(&b, 1));
    TRAIN(&run, "model=", first, LORA, SAVES);
    REFUSED("base is ", "model=", second, LORA, setting("output_dir", run.folder),
            "resume_from_checkpoint=last");
    TRAIN(&run, "model=", first, LORA, setting("output_dir", run.folder), "max_steps=5",
          "resume_from_checkpoint=last");
    assert_int_equal(run.n_steps, 2);
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* Blocks large enough to be worth a copy. */
#define LARGE                                                                             \
    "model.hidden_size=512", "model.intermediate_size=1024", "model.num_hidden_layers=2", \
        "max_seq_length=32", "per_device_train_batch_size=2", "max_steps=2"

static void frozen_weights_on_the_host_change_no_bit(void **state)
{
    static const char *const kinds[] = {"lora_r=8", "use_dora=true"};
    (void)state;
    for (size_t i = SNUG_ASAN ? 1 : 0; i < ARRAY_LEN(kinds); i++) {
        struct trial here, away, squeezed;
        char budget[64];
        TRAIN(&here, LARGE, LORA, kinds[i]);
        TRAIN(&away, LARGE, LORA, kinds[i], "offload_param=true");
        assert_int_equal(here.plan.host_breakdown[SNUG_MEMORY_FROZEN], 0);
        assert_true(away.plan.host_breakdown[SNUG_MEMORY_FROZEN] > 0);
        assert_true(away.plan.arena_bytes < here.plan.arena_bytes);
        assert_true(trial_same_losses(&here, &away));
        (void)snprintf(budget, sizeof(budget), "device_memory=%lld",
                       (long long)here.plan.device_needs / 2);
        TRAIN(&squeezed, LARGE, LORA, kinds[i], budget);
        assert_true(squeezed.plan.device_needs <= here.plan.device_needs / 2);
        assert_true(trial_same_losses(&here, &squeezed));
    }
}

/* Codes of matrices that are large enough for their codes to be worth a copy. */
static void quantised_weights_on_the_host_change_no_bit(void **state)
{
    const char *wide = "model.intermediate_size=8192";
    struct trial whole, here, away;
    (void)state;
    PLAN(&whole, LARGE, LORA, wide);
    TRAIN(&here, LARGE, LORA, wide, "load_in_4bit=true");
    TRAIN(&away, LARGE, LORA, wide, "load_in_4bit=true", "offload_param=true");
    assert_true(here.plan.breakdown[SNUG_MEMORY_FROZEN] <
                whole.plan.breakdown[SNUG_MEMORY_FROZEN] / 5);
    assert_true(away.plan.host_breakdown[SNUG_MEMORY_FROZEN] > 0);
    assert_true(away.plan.arena_bytes < here.plan.arena_bytes);
    assert_true(trial_same_losses(&here, &away));
}

/* ---- exports --------------------------------------------------------------------------------- */

static const char *export_to(const char *name, bool merge, const char *const *overrides)
{
    static char folder[2][SCRATCH_PATH];
    struct snug_exported made;
    struct snug_config *config = trial_config(overrides);
    scratch_path(trials_scratch(), name, folder[merge]);
    struct snug_export_options o = {
        .out_dir = folder[merge], .merge = merge, .force = true, .checkpoint = "last"};
    if (snug_export(config, NULL, &o, &made) != SNUG_OK)
        fail_msg("%s", snug_error_message());
    snug_free(made.weights);
    snug_config_free(config);
    return folder[merge];
}

static double loss_of(const char *const *overrides)
{
    struct snug_evaluation e;
    trial_evaluate(&e, overrides);
    return e.loss;
}

/* A model's folder, one with the adapter merged, and the adapter beside the first. */
static void a_merged_model_computes_what_the_adapter_does(void **state)
{
    static const char *const kinds[] = {"lora_target=all", "use_dora=true",
                                        "rank_pattern={v_proj: 3}", "load_in_4bit=true"};
    struct trial a, b, run;
    (void)state;
    make_bases(&a, &b);
    const char *base = setting("model_name_or_path", checkpoint_of(&a, 1));
    for (size_t i = SNUG_ASAN ? 1 : 0; i < ARRAY_LEN(kinds); i += SNUG_ASAN ? 2 : 1) {
        TRAIN(&run, "model=", base, LORA, SAVES, kinds[i], TEXT);
        const char *out = setting("output_dir", run.folder);
        const char *const trained[] = {"model=", base, LORA, kinds[i], out, NULL};
        const char *adapter = setting("adapter_name_or_path", export_to("adapter", false, trained));
        const char *merged = setting("model_name_or_path", export_to("merged", true, trained));
        const char *coding = i == 3 ? kinds[i] : "seed=1";
        double beside = loss_of(OVERRIDES("model=", base, adapter, TEXT, "val_set_size=4", coding));
        double inside = loss_of(OVERRIDES("model=", merged, TEXT, "val_set_size=4"));
        double before = loss_of(OVERRIDES("model=", base, TEXT, "val_set_size=4"));
        expect_within(inside, beside, 2e-6);
        assert_true(fabs(before - beside) > 1e-3);
    }
}

static void expect_transposed(const char *folder)
{
    char path[SCRATCH_PATH + 128], *text;
    size_t n;
    (void)snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    assert_int_equal(file_read(path, &text, &n), OK);
    assert_non_null(strstr(text, "\"fan_in_fan_out\": true"));
    assert_non_null(strstr(text, "\"c_attn\""));
    mem_free(text);
}

/* PEFT has to be told that the layers of GPT-2 store their weights the other way. */
static void an_adapter_of_gpt2_says_how_weights_lie(void **state)
{
    const char *gpt2 = "model={model_type: gpt2, vocab_size: 257, n_embd: 16, n_layer: 1, "
                       "n_head: 2, n_positions: 32}";
    struct trial t;
    (void)state;
    TRAIN(&t, gpt2, LORA, SAVES);
    expect_transposed(checkpoint_of(&t, 2));
    const char *const trained[] = {gpt2, LORA, setting("output_dir", t.folder), NULL};
    expect_transposed(export_to("gpt2", false, trained));
}

static void without_an_adapter_there_is_nothing_to_merge(void **state)
{
    struct snug_exported made;
    struct snug_config *config = trial_config(OVERRIDES("seed=1"));
    struct snug_export_options o = {.out_dir = "no", .merge = true, .checkpoint = "none"};
    (void)state;
    assert_int_equal(snug_export(config, NULL, &o, &made), SNUG_ERR_USAGE);
    assert_non_null(strstr(snug_error_message(), "no adapter to merge"));
    snug_config_free(config);
}

/* The loss of a folder's model, or of an adapter's with the model that it names. */
static double loss_of_folder(const char *folder)
{
    const char *data[] = {"datasets=[{type: synthetic, n_tokens: 400}]", "tokenizer=bytes",
                          "max_seq_length=16", "device=cpu"};
    struct snug_config *config;
    struct snug_run *run;
    struct snug_evaluation e;
    assert_int_equal(snug_config_load(&config, folder, data, ARRAY_LEN(data)), SNUG_OK);
    assert_int_equal(snug_run_open(&run, config, NULL, SNUG_EVALUATE), SNUG_OK);
    if (snug_run_evaluate(run, NULL, &e) != SNUG_OK)
        fail_msg("%s", snug_error_message());
    snug_run_close(run);
    snug_config_free(config);
    return e.loss;
}

static void a_bare_adapter_is_evaluated_beside_its_model(void **state)
{
    (void)state;
    assert_true(loss_of_folder("tests/golden/adapters/llama_lora") > 0);
}

/* ---- experts --------------------------------------------------------------------------------- */

/* All parts of experts have adapters, and some. */
static void merged_experts_compute_what_their_adapters_do(void **state)
{
    static const struct {
        const char *base, *adapter;
    } cases[] = {{"tests/golden/qwen3_moe", "tests/golden/adapters/qwen3_moe_lora"},
                 {"tests/golden/qwen2_moe", "tests/golden/adapters/qwen2_moe_lora"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char merged[SCRATCH_PATH];
        struct snug_config *config;
        struct snug_exported made;
        scratch_path(trials_scratch(), "merged-experts", merged);
        const struct snug_export_options o = {
            .out_dir = merged, .merge = true, .force = true, .checkpoint = "none"};
        assert_int_equal(snug_config_load(&config, cases[i].adapter, NULL, 0), SNUG_OK);
        if (snug_export(config, NULL, &o, &made) != SNUG_OK)
            fail_msg("%s", snug_error_message());
        snug_free(made.weights);
        snug_config_free(config);
        double beside = loss_of_folder(cases[i].adapter);
        expect_within(loss_of_folder(merged), beside, 2e-6);
        assert_true(fabs(loss_of_folder(cases[i].base) - beside) > 1e-3);
    }
}

#define MIXTURE                                                                               \
    "model={model_type: qwen3_moe, vocab_size: 257, hidden_size: 16, num_hidden_layers: 1, "  \
    "max_position_embeddings: 64, intermediate_size: 16, "                                    \
    "num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, moe_intermediate_size: 8, " \
    "num_experts: 4, num_experts_per_tok: 2}"

static void only_experts_that_are_named_have_adapters(void **state)
{
    struct trial all, named;
    (void)state;
    TRAIN(&all, MIXTURE, LORA, "lora_r=2", "lora_target=all");
    TRAIN(&named, MIXTURE, LORA, "lora_r=2", "lora_target=q_proj,k_proj,v_proj,o_proj,down_proj",
          "lora_dropout=0.5");
    assert_int_equal(named.plan.n_trainable - all.plan.n_trainable, 4 * (2 * 8 + 16 * 2));
}

/* The expert that every token goes to is a linear layer, whose name others end in as well. */
static void what_all_linear_wrote_is_read_as_it_was(void **state)
{
    const char *shared = "model={model_type: qwen2_moe, vocab_size: 257, hidden_size: 16, "
                         "num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, "
                         "max_position_embeddings: 64, intermediate_size: 16, "
                         "moe_intermediate_size: 8, shared_expert_intermediate_size: 8, "
                         "num_experts: 4, num_experts_per_tok: 2}";
    struct trial before, after;
    (void)state;
    TRAIN(&before, shared, LORA, SAVES, "lora_target=all");
    const char *made = setting("adapter_name_or_path", checkpoint_of(&before, 2));
    PLAN(&after, shared, made);
    assert_int_equal(after.plan.n_trainable, before.plan.n_trainable);
}

static void adapters_that_experts_cannot_have_are_refused(void **state)
{
    static const struct {
        const char *setting, *also, *message;
    } cases[] = {
        {"lora_target=experts.0.up_proj", "seed=1", "name all of them"},
        {"lora_target=experts.3.up_proj", "seed=1", "no linear layer"},
        {"lora_target=up_proj", "rank_pattern={experts.2.up_proj: 3}", "the same"},
        {"lora_target=up_proj", "use_dora=true", "use_dora"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        REFUSED(cases[i].message, MIXTURE, LORA, cases[i].setting, cases[i].also);
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
        cmocka_unit_test(a_checkpoint_holds_what_is_trained_and_no_more),
        cmocka_unit_test(a_resumed_run_gives_the_losses_of_the_whole),
        cmocka_unit_test(resuming_beside_other_weights_is_refused),
        cmocka_unit_test(frozen_weights_on_the_host_change_no_bit),
        cmocka_unit_test(quantised_weights_on_the_host_change_no_bit),
        cmocka_unit_test(a_merged_model_computes_what_the_adapter_does),
        cmocka_unit_test(an_adapter_of_gpt2_says_how_weights_lie),
        cmocka_unit_test(without_an_adapter_there_is_nothing_to_merge),
        cmocka_unit_test(merged_experts_compute_what_their_adapters_do),
        cmocka_unit_test(only_experts_that_are_named_have_adapters),
        cmocka_unit_test(what_all_linear_wrote_is_read_as_it_was),
        cmocka_unit_test(adapters_that_experts_cannot_have_are_refused),
        cmocka_unit_test(a_bare_adapter_is_evaluated_beside_its_model),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
