/* Reading configs: keys, types, places and every way a file can be wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "config/config.h"

static struct config *load(const char *text)
{
    struct config *cfg;
    enum status status = config_load_text(&cfg, text, strlen(text), "demo.yaml", NULL, 0);
    if (status != OK)
        fail_msg("%s", status_message());
    return cfg;
}

static struct config *load_with(const char *text, const char *const *overrides, size_t n)
{
    struct config *cfg;
    enum status status = config_load_text(&cfg, text, strlen(text), "demo.yaml", overrides, n);
    if (status != OK)
        fail_msg("%s", status_message());
    return cfg;
}

/* The text is refused with this status, and the message holds every one of the `|`-separated parts.
 */
static void refuses_with(const char *text, const char *override, enum status code,
                         const char *parts)
{
    struct config *cfg;
    char part[128];
    enum status status =
        config_load_text(&cfg, text, strlen(text), "demo.yaml", &override, override ? 1 : 0);
    if (status == OK)
        fail_msg("accepted: %s", text);
    if (status != code)
        fail_msg("%s instead of %s: %s", status_name(status), status_name(code), status_message());
    assert_null(cfg);
    while (*parts) {
        size_t n = strcspn(parts, "|");
        assert_true(n < sizeof(part));
        memcpy(part, parts, n);
        part[n] = '\0';
        if (!strstr(status_message(), part))
            fail_msg("no \"%s\" in: %s", part, status_message());
        parts += n + (parts[n] == '|');
    }
}

static void refuses(const char *text, enum status code, const char *parts)
{
    refuses_with(text, NULL, code, parts);
}

static void defaults_are_those_of_the_schema(void **state)
{
    (void)state;
    struct config *cfg = load("");
    assert_int_equal(cfg->seed, 42);
    assert_int_equal(cfg->max_seq_length, 1024);
    assert_int_equal(cfg->per_device_train_batch_size, 8);
    assert_true(cfg->learning_rate == 5e-5);
    assert_true(cfg->num_train_epochs == 3.0);
    assert_int_equal(cfg->max_steps, -1);
    assert_int_equal(cfg->optim, CONFIG_OPTIM_ADAMW);
    assert_int_equal(cfg->bf16, CONFIG_TRISTATE_FALSE);
    assert_int_equal(cfg->lmhead_chunks, CONFIG_AUTO);
    assert_int_equal(cfg->device_memory, CONFIG_AUTO);
    assert_int_equal(cfg->data_seed, CONFIG_UNSET);
    assert_true(isnan(cfg->min_lr));
    assert_null(cfg->model);
    assert_null(cfg->resume_from_checkpoint);
    assert_string_equal(cfg->gradient_checkpointing.text, "auto");
    assert_int_equal(cfg->report_to.n, 1);
    assert_string_equal(config_where(cfg, "seed"), "default");
    config_free(cfg);
}

static void values_are_typed_by_the_schema(void **state)
{
    (void)state;
    struct config *cfg = load("learning_rate: 2e-4\n"
                              "save_steps: 5e8\n"
                              "save_strategy: no\n"
                              "eval_strategy: off\n"
                              "shuffle: off\n"
                              "bf16: auto\n"
                              "output_dir: 123\n"
                              "run_name: 'no'\n"
                              "device_memory: 1.5 GiB\n"
                              "host_memory: 2GB\n"
                              "lmhead_chunks: 16\n"
                              "max_time: 1h30m\n"
                              "report_to: ' none '\n"
                              "gradient_checkpointing: 0-3,7\n"
                              "resume_from_checkpoint: true\n"
                              "lr_scheduler: Cosine-With-Min-LR\n");
    assert_true(cfg->learning_rate == 2e-4);
    assert_int_equal(cfg->save_steps, 500000000);
    assert_int_equal(cfg->save_strategy, CONFIG_INTERVAL_NO);
    assert_int_equal(cfg->eval_strategy, CONFIG_INTERVAL_NO);
    assert_int_equal(cfg->shuffle, 0);
    assert_int_equal(cfg->bf16, CONFIG_TRISTATE_AUTO);
    assert_string_equal(cfg->output_dir, "123");
    assert_string_equal(cfg->run_name, "no");
    assert_int_equal(cfg->device_memory, 3LL << 29);
    assert_int_equal(cfg->host_memory, 2000000000);
    assert_int_equal(cfg->lmhead_chunks, 16);
    assert_true(cfg->max_time == 5400);
    assert_string_equal(cfg->report_to.items[0], "none");
    assert_true(config_reports_to(cfg, CONFIG_REPORT_NONE));
    assert_false(config_reports_to(cfg, CONFIG_REPORT_TENSORBOARD));
    assert_string_equal(cfg->resume_from_checkpoint, "last");
    assert_int_equal(cfg->lr_scheduler_type, CONFIG_SCHEDULE_COSINE_WITH_MIN_LR);
    config_free(cfg);

    cfg = load("max_time: 01:30:05\nreport_to: [tensorboard]\nresume: false\ndisk_memory: auto\n");
    assert_true(cfg->max_time == 5405);
    assert_true(config_reports_to(cfg, CONFIG_REPORT_TENSORBOARD));
    assert_null(cfg->resume_from_checkpoint);
    config_free(cfg);
}

static void blocks_to_recompute_are_listed(void **state)
{
    (void)state;
    struct config *cfg = load("gradient_checkpointing: \"0-3, 7\"\n");
    for (int i = 0; i < 10; i++)
        assert_int_equal(block_set_has(&cfg->gradient_checkpointing, i), i <= 3 || i == 7);
    config_free(cfg);
    cfg = load("gradient_checkpointing: yes\n");
    assert_true(block_set_has(&cfg->gradient_checkpointing, 99));
    config_free(cfg);
    cfg = load("");
    assert_false(block_set_has(&cfg->gradient_checkpointing, 0));
    assert_true(cfg->gradient_checkpointing.is_open);
    config_free(cfg);
    cfg = load("gradient_checkpointing: no\n");
    assert_false(cfg->gradient_checkpointing.is_open);
    config_free(cfg);
}

static void offloading_is_spelled_as_other_tools_do(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum config_offload optimizer, param, activations;
    } rows[] = {
        {"", CONFIG_OFFLOAD_AUTO, CONFIG_OFFLOAD_AUTO, CONFIG_OFFLOAD_AUTO},
        {"offload_optimizer: true\n", CONFIG_OFFLOAD_TRUE, CONFIG_OFFLOAD_AUTO,
         CONFIG_OFFLOAD_AUTO},
        {"offload_optimizer: {device: cpu, pin_memory: true, buffer_count: 4}\n"
         "offload_param: {device: none}\n",
         CONFIG_OFFLOAD_TRUE, CONFIG_OFFLOAD_FALSE, CONFIG_OFFLOAD_AUTO},
        {"offload_optimizer: {device: nvme, nvme_path: /tmp/a}\noffload_param: disk\n",
         CONFIG_OFFLOAD_DISK, CONFIG_OFFLOAD_DISK, CONFIG_OFFLOAD_AUTO},
        {"offload_optimizer: none\nlayer_offloading: true\nenable_activation_offloading: True\n",
         CONFIG_OFFLOAD_FALSE, CONFIG_OFFLOAD_TRUE, CONFIG_OFFLOAD_TRUE},
        {"activation_offloading: no\noffload_param: cpu\noffload_optimizer: auto\n",
         CONFIG_OFFLOAD_AUTO, CONFIG_OFFLOAD_TRUE, CONFIG_OFFLOAD_FALSE},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct config *cfg = load(rows[i].text);
        assert_int_equal(cfg->offload_optimizer, rows[i].optimizer);
        assert_int_equal(cfg->offload_param, rows[i].param);
        assert_int_equal(cfg->activation_offloading, rows[i].activations);
        config_free(cfg);
    }
}

static void what_is_held_is_named_and_let_go(void **state)
{
    (void)state;
    struct config *cfg = load("gradient_checkpointing: 0-1\noffload_param: true\n"
                              "offload_optimizer: {device: none}\n");
    struct str text = {0};
    assert_true(config_holds(cfg));
    config_add_held(cfg, &text);
    assert_string_equal(str_text(&text), "gradient_checkpointing=auto offload_optimizer=auto");
    str_release(&text);
    config_release(cfg);
    assert_false(config_holds(cfg));
    assert_int_equal(cfg->offload_param, CONFIG_OFFLOAD_TRUE);
    config_free(cfg);
}

static void a_spelling_may_say_the_opposite_of_its_key(void **state)
{
    (void)state;
    struct config *cfg = load("no-checkpointing: true\n");
    assert_string_equal(cfg->gradient_checkpointing.text, "false");
    config_free(cfg);
    cfg = load("no_checkpointing: false\n");
    assert_string_equal(cfg->gradient_checkpointing.text, "auto");
    config_free(cfg);
    refuses("no_checkpointing: 0-3\n", ERR_CONFIG, "no_checkpointing: expected true or false");
}

static int64_t frames_of(const struct config *cfg)
{
    return (int64_t)json_integer_value(json_object_get(cfg->model, "temporal_frames"));
}

static void keys_of_a_network_may_stand_at_the_top(void **state)
{
    const char *const override = "temporal-frames=7";
    (void)state;
    struct config *cfg = load("temporal_frames: 3\nmodel: {image_width: 64}\n");
    assert_int_equal(frames_of(cfg), 3);
    assert_int_equal(json_object_size(cfg->model), 2);
    config_free(cfg);
    cfg = load_with("model: {temporal_frames: 3}\n", &override, 1);
    assert_int_equal(frames_of(cfg), 7);
    config_free(cfg);
    refuses("temporal_frames: 3\nmodel: {temporal_frames: 4}\n", ERR_CONFIG,
            "demo.yaml:1: temporal_frames: given twice, first at demo.yaml:2");
}

static void aliases_and_dashes_reach_the_canonical_key(void **state)
{
    (void)state;
    struct config *cfg = load("base_model: models/x\n"
                              "micro-batch-size: 3\n"
                              "sequence_len: 256\n"
                              "max_gpu_mem: 4G\n"
                              "cpu_mem: 1M\n"
                              "optimizer: adamw_torch_fused\n"
                              "lr-scheduler: cosine\n"
                              "lr_scheduler_kwargs: {min_lr: 1e-6}\n"
                              "grad_clip: 0.5\n");
    assert_string_equal(cfg->model_name_or_path, "models/x");
    assert_int_equal(cfg->per_device_train_batch_size, 3);
    assert_int_equal(cfg->max_seq_length, 256);
    assert_int_equal(cfg->device_memory, 4LL << 30);
    assert_int_equal(cfg->host_memory, 1 << 20);
    assert_int_equal(cfg->optim, CONFIG_OPTIM_ADAMW);
    assert_true(cfg->min_lr == 1e-6);
    assert_true(cfg->max_grad_norm == 0.5);
    assert_string_equal(config_where(cfg, "per_device_train_batch_size"), "demo.yaml:2");
    assert_string_equal(config_where(cfg, "micro_batch_size"), "demo.yaml:2");
    assert_string_equal(config_where(cfg, "min_lr"), "demo.yaml:8");
    assert_true(config_is_set(cfg, "max_grad_norm"));
    assert_false(config_is_set(cfg, "seed"));
    config_free(cfg);
}

static void empty_values_leave_a_key_unset(void **state)
{
    (void)state;
    struct config *cfg =
        load("seed:\nlearning_rate: ~\nrun_name: \"\"\nwandb_project:\nadapter: null\n"
             "datasets:\n");
    assert_int_equal(cfg->seed, 42);
    assert_true(cfg->learning_rate == 5e-5);
    assert_null(cfg->run_name);
    assert_string_equal(config_where(cfg, "seed"), "default");
    config_free(cfg);
}

static void the_inline_model_is_typed_by_yaml(void **state)
{
    (void)state;
    struct config *cfg = load("model:\n"
                              "  model_type: llama\n"
                              "  n_layer: 12\n"
                              "  eps: 1e-5\n"
                              "  theta: 10000.\n"
                              "  big: 99999999999999999999\n"
                              "  tie: true\n"
                              "  bias: False\n"
                              "  head_dim: null\n"
                              "  quoted: \"12\"\n"
                              "  word: no\n"
                              "  eos_token_id: [1, 2]\n"
                              "  rope_scaling: {rope_type: llama3, factor: 8.0}\n");
    json_t *expected =
        json_pack("{s:s, s:i, s:f, s:f, s:f, s:b, s:b, s:n, s:s, s:s, s:[ii], s:{s:s, s:f}}",
                  "model_type", "llama", "n_layer", 12, "eps", 1e-5, "theta", 10000.0, "big", 1e20,
                  "tie", 1, "bias", 0, "head_dim", "quoted", "12", "word", "no", "eos_token_id", 1,
                  2, "rope_scaling", "rope_type", "llama3", "factor", 8.0);
    assert_non_null(expected);
    assert_true(json_equal(cfg->model, expected));
    assert_string_equal(config_where(cfg, "model.n_layer"), "demo.yaml:3");
    assert_string_equal(config_where(cfg, "model.rope_scaling.factor"), "demo.yaml:13");
    assert_string_equal(config_where(cfg, "model.nothing"), "demo.yaml:1");
    json_decref(expected);
    config_free(cfg);
}

static void datasets_take_short_and_long_forms(void **state)
{
    (void)state;
    struct config *cfg = load("datasets:\n"
                              "  - a.txt\n"
                              "  - path: b.jsonl\n"
                              "    ds_type: json\n"
                              "    field: body\n"
                              "  - {path: c.bin, type: nanogpt, token_dtype: u32}\n"
                              "  - {type: synthetic, n_tokens: 1e6}\n"
                              "eval_datasets: d.txt\n");
    const struct config_dataset *d = cfg->datasets.items;
    assert_int_equal(cfg->datasets.n, 4);
    assert_string_equal(d[0].path, "a.txt");
    assert_int_equal(d[0].type, CONFIG_DATASET_AUTO);
    assert_string_equal(d[0].text_field, "text");
    assert_int_equal(d[1].type, CONFIG_DATASET_JSONL);
    assert_string_equal(d[1].text_field, "body");
    assert_string_equal(d[1].where, "demo.yaml:3");
    assert_int_equal(d[2].type, CONFIG_DATASET_NANOGPT);
    assert_int_equal(d[2].token_dtype, CONFIG_TOKEN_U32);
    assert_int_equal(d[3].type, CONFIG_DATASET_SYNTHETIC);
    assert_null(d[3].path);
    assert_int_equal(d[3].n_tokens, 1000000);
    assert_int_equal(cfg->eval_datasets.n, 1);
    assert_string_equal(cfg->eval_datasets.items[0].path, "d.txt");
    assert_string_equal(config_where(cfg, "datasets.1.field"), "demo.yaml:3");
    assert_string_equal(config_where(cfg, "datasets.2.type"), "demo.yaml:6");
    config_free(cfg);
}

static void overrides_win_and_reach_into_mappings_and_lists(void **state)
{
    (void)state;
    const char *overrides[] = {
        "micro-batch-size=2",
        "max_steps=5",
        "max_steps=7",
        "model.n_layer=3",
        "datasets.0.path=z",
        "datasets.1.path=new.txt",
        "datasets.1.type=text",
        "learning_rate=",
        "run_name=a: b # c",
        "report_to=[tensorboard]",
        "eval_datasets={path: e.txt}",
        "model.rope_scaling.factor=8.0",
        "output_dir='x y'",
    };
    struct config *cfg = load_with("per_device_train_batch_size: 9\n"
                                   "learning_rate: 1\n"
                                   "model: {n_layer: 12, n_head: 4}\n"
                                   "datasets: a.txt\n",
                                   overrides, ARRAY_LEN(overrides));
    assert_int_equal(cfg->per_device_train_batch_size, 2);
    assert_int_equal(cfg->max_steps, 7);
    assert_true(cfg->learning_rate == 5e-5);
    assert_int_equal(json_integer_value(json_object_get(cfg->model, "n_layer")), 3);
    assert_int_equal(json_integer_value(json_object_get(cfg->model, "n_head")), 4);
    assert_int_equal(cfg->datasets.n, 2);
    assert_string_equal(cfg->datasets.items[0].path, "z");
    assert_string_equal(cfg->datasets.items[1].path, "new.txt");
    assert_int_equal(cfg->datasets.items[1].type, CONFIG_DATASET_TEXT);
    assert_string_equal(cfg->eval_datasets.items[0].path, "e.txt");
    assert_string_equal(cfg->run_name, "a: b # c");
    assert_string_equal(cfg->output_dir, "x y");
    assert_string_equal(config_where(cfg, "max_steps"), "command line");
    assert_string_equal(config_where(cfg, "model.n_layer"), "command line");
    assert_string_equal(config_where(cfg, "model.n_head"), "demo.yaml:3");
    assert_string_equal(config_where(cfg, "learning_rate"), "default");
    config_free(cfg);

    const char *alone[] = {"model.model_type=gpt2", "datasets=synthetic"};
    assert_int_equal(config_load(&cfg, NULL, alone, ARRAY_LEN(alone)), OK);
    assert_string_equal(json_string_value(json_object_get(cfg->model, "model_type")), "gpt2");
    assert_int_equal(cfg->datasets.items[0].type, CONFIG_DATASET_SYNTHETIC);
    config_free(cfg);
}

static void bad_overrides_are_refused(void **state)
{
    (void)state;
    refuses_with("", "max_steps", ERR_CONFIG, "command line|key=value");
    refuses_with("", "=3", ERR_CONFIG, "command line|key=value");
    refuses_with("", "max_stpes=3", ERR_CONFIG, "command line: max_stpes|did you mean max_steps?");
    refuses_with("", "max_steps=x", ERR_CONFIG, "command line: max_steps: expected a whole number");
    refuses_with("", "max_steps.x=3", ERR_CONFIG, "max_steps takes one value");
    refuses_with("", "datasets.3.path=x", ERR_CONFIG, "not a place in a list of 0");
    refuses_with("", "datasets.x=x", ERR_CONFIG, "\"x\" is not a place");
    refuses_with("", "model..x=1", ERR_CONFIG, "joined by dots");
    refuses_with("", "datasets=[", ERR_CONFIG, "command line: bad YAML");
    refuses_with("", "run_name=\xff", ERR_CONFIG, "not UTF-8");
    refuses_with("", "special_tokens.bos_token=x", ERR_UNSUPPORTED,
                 "special_tokens.bos_token: not available in this version");
}

static void unknown_keys_name_the_line_and_the_nearest(void **state)
{
    (void)state;
    refuses("seed: 1\n\nlearning_rte: 1\n", ERR_CONFIG,
            "demo.yaml:3: learning_rte: unknown key; did you mean learning_rate?");
    refuses("micro_batch_sise: 1\n", ERR_CONFIG, "did you mean per_device_train_batch_size?");
    refuses("qqqqqqqqqqqqqqqq: 1\n", ERR_CONFIG,
            "demo.yaml:1: qqqqqqqqqqqqqqqq: unknown key|CONFIG.md");
    refuses("lr_scheduler_kwargs: {warmup_lr_rate: 2}\n", ERR_CONFIG,
            "demo.yaml:1: lr_scheduler_kwargs.warmup_lr_rate: unknown key");
    refuses("datasets: [{path: x, tipe: text}]\n", ERR_CONFIG,
            "demo.yaml:1: tipe: unknown key of a dataset; did you mean type");
}

static void wrong_types_say_what_was_expected(void **state)
{
    (void)state;
    refuses("learning_rate: fast\n", ERR_CONFIG,
            "demo.yaml:1: learning_rate: expected a number such as 5e-5, found \"fast\"");
    refuses("save_steps: 1.5\n", ERR_CONFIG, "save_steps: expected a whole number such as 500");
    refuses("micro_batch_size: [1]\n", ERR_CONFIG,
            "micro_batch_size: expected a whole number|a list");
    refuses("seed: {a: 1}\n", ERR_CONFIG, "found a mapping");
    refuses("shuffle: maybe\n", ERR_CONFIG, "expected true or false, found \"maybe\"");
    refuses("bf16: 2\n", ERR_CONFIG, "expected true, false or auto");
    refuses("device_memory: 16\n", ERR_CONFIG, "16 means 16 bytes; did you mean 16GiB?");
    refuses("host_memory: 1.5\n", ERR_CONFIG, "did you mean 1.5GiB?");
    refuses("device_memory: lots\n", ERR_CONFIG, "expected a size such as 16GiB");
    refuses("max_time: 5 parsecs\n", ERR_CONFIG, "expected a time such as 90s");
    refuses("gradient_checkpointing: 3-1\n", ERR_CONFIG, "parts such as \"0-3,7\"");
    refuses("gradient_checkpointing: 1\n", ERR_CONFIG, "could mean true or block 1");
    refuses("model: gpt2\n", ERR_CONFIG, "expected a mapping|model_name_or_path");
    refuses("model: [1]\n", ERR_CONFIG, "expected a mapping|found a list");
    refuses("gradient_checkpointing: [mlp, foo]\n", ERR_CONFIG, "parts such as|found \"mlp, foo\"");
    refuses("datasets: [[1]]\n", ERR_CONFIG, "expected a dataset such as|found a list");
    refuses("datasets: [{type: text}]\n", ERR_CONFIG, "demo.yaml:1: a dataset without a path");
    refuses("datasets: [{path: [x]}]\n", ERR_CONFIG, "path: expected text, found a list");
    refuses("datasets: [{path: x, type: text, token_dtype: u16}]\n", ERR_CONFIG,
            "token_dtype belongs to type: nanogpt");
    refuses("datasets: [{path: x, n_tokens: 5}]\n", ERR_CONFIG, "n_tokens belongs to");
    refuses("datasets: [{type: random, n_tokens: few}]\n", ERR_CONFIG, "expected a whole number");
    refuses("datasets: [{type: random, path: x}]\n", ERR_CONFIG, "type: random reads no file");
    refuses("optim: adamv\n", ERR_CONFIG,
            "expected one of adamw, adamw_8bit, |sgd, found \"adamv\"|did you mean");
    refuses("save_strategy: sometimes\n", ERR_CONFIG, "expected one of no, steps, epoch");
    refuses("report_to: tensorboard board\n", ERR_CONFIG, "found \"tensorboard board\"");
    refuses("report_to: {a: tensorboard}\n", ERR_CONFIG, "found a mapping");
    refuses("seed: 123456789012345678901234567890123456\xf0\x9f\x98\x80 and more\n", ERR_CONFIG,
            "found \"123456789012345678901234567890123456...\"");
    refuses("report_to: [tensorbord]\n", ERR_CONFIG, "did you mean tensorboard?");
    refuses("- a\n- b\n", ERR_CONFIG, "demo.yaml:1: expected lines of `key: value`, found a list");
    refuses("hello\n", ERR_CONFIG, "expected lines of `key: value`");
}

static void ranges_are_checked(void **state)
{
    (void)state;
    refuses("adam_beta1: 1\n", ERR_CONFIG,
            "demo.yaml:1: adam_beta1: \"1\" is out of range: it must be at least 0 and below 1");
    refuses("learning_rate: -1e-5\n", ERR_CONFIG, "at least 0");
    refuses("per_device_train_batch_size: 0\n", ERR_CONFIG, "at least 1 and at most 1048576");
    refuses("num_train_epochs: 0\n", ERR_CONFIG, "above 0");
    refuses("device_memory: 0\n", ERR_CONFIG, "at least 1");
    refuses("max_steps: -2\n", ERR_CONFIG, "at least -1");
    refuses("lmhead_chunks: 0\n", ERR_CONFIG, "lmhead_chunks");
    refuses("seed: 99999999999999999999\n", ERR_CONFIG, "seed");
    refuses("learning_rate: nan\n", ERR_CONFIG, "expected a number");
    refuses("learning_rate: 1e999\n", ERR_CONFIG, "expected a number");
}

static void duplicates_name_both_places(void **state)
{
    (void)state;
    refuses("seed: 1\nseed: 2\n", ERR_CONFIG,
            "demo.yaml:2: seed: given twice, first at demo.yaml:1");
    refuses("data_seed: 1\ndata-seed: 2\n", ERR_CONFIG, "demo.yaml:2: data-seed|demo.yaml:1");
    refuses("micro_batch_size: 1\nper_device_train_batch_size: 2\n", ERR_CONFIG,
            "demo.yaml:2: per_device_train_batch_size: the same setting as micro_batch_size at "
            "demo.yaml:1");
    refuses("model: {a: 1, a: 2}\n", ERR_CONFIG, "a: given twice");
    refuses("datasets: [{path: a, file: b}]\n", ERR_CONFIG, "the same setting as path");
}

static void compile_has_a_word_for_each_stage(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum config_compile compile;
    } words[] = {
        {"", CONFIG_COMPILE_AUTO},
        {"compile: true\n", CONFIG_COMPILE_AUTO},
        {"compile: false\n", CONFIG_COMPILE_NONE},
        {"compile: default\n", CONFIG_COMPILE_DEFAULT},
        {"compile: reduce_overhead\n", CONFIG_COMPILE_REDUCE_OVERHEAD},
        {"compile: max-autotune\n", CONFIG_COMPILE_MAX_AUTOTUNE},
        {"torch_compile_mode: max-autotune\n", CONFIG_COMPILE_MAX_AUTOTUNE},
        {"torch_compile: true\n", CONFIG_COMPILE_AUTO},
    };
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        struct config *cfg = load(words[i].text);
        assert_int_equal(cfg->compile, words[i].compile);
        assert_int_equal(cfg->tf32, CONFIG_TRISTATE_FALSE);
        config_free(cfg);
    }
    refuses("compile: fast\n", ERR_CONFIG, "auto, none, default, reduce-overhead, max-autotune");
}

static void checkpointing_has_the_words_of_other_tools(void **state)
{
    (void)state;
    struct config *cfg = load("recompute_granularity: full\n");
    assert_true(cfg->gradient_checkpointing.all);
    config_free(cfg);
    cfg = load("gradient_checkpointing: [attention, mlp]\n");
    assert_int_equal(cfg->gradient_checkpointing.modules,
                     1u << MODULE_ATTENTION | 1u << MODULE_MLP);
    config_free(cfg);
    cfg = load("gradient_checkpointing: [1]\n"); /* and the text of it can be read back */
    assert_string_equal(cfg->gradient_checkpointing.text, "1-1");
    config_free(cfg);
    cfg = load("gradient_checkpointing: [0-2, 5]\n");
    assert_true(block_set_has(&cfg->gradient_checkpointing, 5));
    config_free(cfg);
    refuses("gradient_checkpointing: []\n", ERR_CONFIG, "[attention, mlp]");
    refuses("gradient_checkpointing: [attention, 3]\n", ERR_CONFIG, "a list of blocks or of their");
    refuses("gradient_checkpointing: [{a: b}]\n", ERR_CONFIG, "a list of blocks or of their");
    cfg = load("activation_checkpoint: {mode: none}\n");
    assert_false(cfg->gradient_checkpointing.all || cfg->gradient_checkpointing.is_open);
    config_free(cfg);
}

static void settings_of_other_versions_are_refused_by_name(void **state)
{
    (void)state;
    refuses("recompute_granularity: selective\n", ERR_UNSUPPORTED, "chooses value by value");
    refuses("recompute_modules: [core_attn]\n", ERR_UNSUPPORTED,
            "recompute_modules: not available");
    refuses("fsdp: full_shard\n", ERR_UNSUPPORTED,
            "demo.yaml:1: fsdp: not available in this version");
    refuses("offload_optimizer: {device: cpu, ratio: 0.5}\n", ERR_UNSUPPORTED,
            "offload_optimizer.ratio: not available");
    refuses("quantization-method: awq\n", ERR_UNSUPPORTED, "quantization-method: not available");
    refuses("bnb_4bit_quant_storage: bfloat16\n", ERR_UNSUPPORTED, "codes are bytes");
    refuses("loraplus_lr_ratio: 8\n", ERR_UNSUPPORTED, "loraplus_lr_ratio: not available");
    refuses("adapter: oft\n", ERR_UNSUPPORTED, "nearest is lora");
    refuses("torch_compile_backend: inductor\n", ERR_UNSUPPORTED, "torch_compile_backend");
    refuses("compile: max-autotune-no-cudagraphs\n", ERR_UNSUPPORTED, "nearest is max-autotune");
    refuses("qlora: true\n", ERR_UNSUPPORTED, "adapter: qlora");
    refuses("wandb_project: mine\n", ERR_UNSUPPORTED, "wandb_project");
    refuses("optim: lomo\n", ERR_UNSUPPORTED,
            "demo.yaml:1: optim: lomo is not in this version; nearest is sgd");
    refuses("lr_scheduler_type: rex\n", ERR_UNSUPPORTED, "nearest is linear");
    refuses("gradient_checkpointing: offload\n", ERR_UNSUPPORTED, "activation_offloading: true");
    refuses("datasets: [{path: x, split: test}]\n", ERR_UNSUPPORTED, "split: not available");
    refuses("report_to: wandb\n", ERR_UNSUPPORTED, "nearest is tensorboard");
    refuses("datasets: [{path: x, type: parquet}]\n", ERR_UNSUPPORTED, "nearest is jsonl");

    struct config *cfg = load("zero_stage: 0\nload_in_4bit: false\npacking: false\n"
                              "disable_tqdm: true\ntf32: no\nlora_r:\nfinetuning_type: full\n");
    config_free(cfg);
}

static void a_byte_order_mark_is_no_text(void **state)
{
    (void)state;
    struct config *cfg = load("\xEF\xBB\xBFseed: 7\nmax_steps: 3\n");
    assert_int_equal(cfg->seed, 7);
    assert_string_equal(config_where(cfg, "max_steps"), "demo.yaml:2");
    config_free(cfg);
}

static void absurd_numbers_are_refused_naming_the_range(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "val_set_size: 1e13\n",
        "seed: 1e30\n",
        "seed: 1e19\n",
        "data_seed: -1\n",
        "train_batch_size: 1e15\n",
        "max_steps: 1e10\n",
        "max_steps: 99999999999999999999\n",
        "max_time: 1e12\n",
        "learning_rate: 1e4\n",
        "min_lr: 1e4\n",
        "warmup_steps: 1e12\n",
        "adam_epsilon: 2\n",
        "adam_epsilon: 0\n",
        "weight_decay: 1e4\n",
        "max_grad_norm: 1e31\n",
        "z_loss: 1e5\n",
        "loss_scale: 1e31\n",
        "min_loss_scale: 0\n",
        "device_memory: 1025TiB\n",
        "device_memory: 0\n",
        "host_memory: 2e15\n",
        "logging_steps: 0\n",
        "logging_steps: 1e13\n",
        "save_steps: 1e15\n",
        "eval_steps: 0\n",
        "eval_max_batches: -1\n",
        "num_threads: 5000\n",
        "max_seq_length: 1e9\n",
        "per_device_train_batch_size: 1e7\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        refuses(texts[i], ERR_CONFIG, "is out of range: it must be ");
    refuses("max_steps: 1e10\n", ERR_CONFIG, "at least -1 and at most 1000000000");
    static const char *const no_numbers[] = {"learning_rate: nan\n",  "learning_rate: inf\n",
                                             "learning_rate: .inf\n", "max_steps: 1.5\n",
                                             "max_steps: 0x10\n",     "max_time: 0x10\n",
                                             "max_time: inf\n",       "weight_decay: 1e999\n"};
    for (size_t i = 0; i < ARRAY_LEN(no_numbers); i++)
        refuses(no_numbers[i], ERR_CONFIG, "expected a ");
    struct config *cfg = load("max_steps: 1e9\nseed: 1e18\n");
    assert_int_equal(cfg->max_steps, 1000000000);
    assert_true(cfg->seed == INT64_C(1000000000000000000));
    config_free(cfg);
}

static void bad_yaml_names_line_and_column(void **state)
{
    (void)state;
    refuses("seed: 1\n  bad: [1, 2\n", ERR_CONFIG, "demo.yaml:2:6: bad YAML");
    refuses("a: 'open\n", ERR_CONFIG, "bad YAML|that began on line 1");
    refuses("model:\n\tn_layer: 2\n", ERR_CONFIG, "demo.yaml:2:1: bad YAML: a tab");
    refuses("run_name: \xc3\x28\n", ERR_CONFIG, "demo.yaml:1: not UTF-8");
    refuses("seed: 1\nrun_name: \xff\xfe\n", ERR_CONFIG, "demo.yaml:2: not UTF-8");
    refuses("seed: 1\n---\nseed: 2\n", ERR_CONFIG, "demo.yaml:2: a second document");
    refuses("seed: &x 1\n", ERR_CONFIG, "demo.yaml:1: anchors");
    refuses("seed: *x\n", ERR_CONFIG, "anchors");
    refuses("seed: !!int 1\n", ERR_CONFIG, "demo.yaml:1: tags");
    refuses("run_name: \"a\\0b\"\n", ERR_CONFIG, "NUL");
    refuses("run_name: \x01\n", ERR_CONFIG, "demo.yaml:1: a character (0x01)");
    refuses("? [a]\n: 1\n", ERR_CONFIG, "a key must be a plain name");
    refuses("'': 1\n", ERR_CONFIG, "an empty key");
}

static void sizes_and_depths_are_bounded(void **state)
{
    (void)state;
    static char deep[4096];
    size_t n = (size_t)snprintf(deep, sizeof(deep), "model: ");
    for (int i = 0; i < 300; i++)
        n += (size_t)snprintf(deep + n, sizeof(deep) - n, "{a: ");
    refuses(deep, ERR_CONFIG, "demo.yaml:1: nested deeper than");
    memset(deep, 'k', 600);
    memcpy(deep + 600, ": 1\n", 5);
    refuses(deep, ERR_CONFIG, "a key of 600 letters");
    refuses_with("", "model.a.b.c.d.e.f.g.h={a: {a: {a: {a: {a: {a: {a: {a: 1}}}}}}}}", ERR_CONFIG,
                 "command line: model: nested deeper than 15 levels");
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    struct config *cfg;
    assert_int_equal(config_load(&cfg, "/nonexistent/run.yaml", NULL, 0), ERR_CONFIG);
    assert_non_null(strstr(status_message(), "/nonexistent/run.yaml: no such config file"));
    assert_int_equal(config_load(&cfg, "/tmp", NULL, 0), ERR_CONFIG);
    assert_non_null(strstr(status_message(), "/tmp: a folder"));
    assert_null(cfg);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_schema),
        cmocka_unit_test(a_spelling_may_say_the_opposite_of_its_key),
        cmocka_unit_test(keys_of_a_network_may_stand_at_the_top),
        cmocka_unit_test(compile_has_a_word_for_each_stage),
        cmocka_unit_test(values_are_typed_by_the_schema),
        cmocka_unit_test(blocks_to_recompute_are_listed),
        cmocka_unit_test(offloading_is_spelled_as_other_tools_do),
        cmocka_unit_test(what_is_held_is_named_and_let_go),
        cmocka_unit_test(aliases_and_dashes_reach_the_canonical_key),
        cmocka_unit_test(empty_values_leave_a_key_unset),
        cmocka_unit_test(the_inline_model_is_typed_by_yaml),
        cmocka_unit_test(datasets_take_short_and_long_forms),
        cmocka_unit_test(overrides_win_and_reach_into_mappings_and_lists),
        cmocka_unit_test(bad_overrides_are_refused),
        cmocka_unit_test(unknown_keys_name_the_line_and_the_nearest),
        cmocka_unit_test(wrong_types_say_what_was_expected),
        cmocka_unit_test(ranges_are_checked),
        cmocka_unit_test(duplicates_name_both_places),
        cmocka_unit_test(checkpointing_has_the_words_of_other_tools),
        cmocka_unit_test(settings_of_other_versions_are_refused_by_name),
        cmocka_unit_test(a_byte_order_mark_is_no_text),
        cmocka_unit_test(absurd_numbers_are_refused_naming_the_range),
        cmocka_unit_test(bad_yaml_names_line_and_column),
        cmocka_unit_test(sizes_and_depths_are_bounded),
        cmocka_unit_test(a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
