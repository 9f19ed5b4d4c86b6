/* Files of settings as other tools write them: what is harmless is let in, what is not has a line
 * each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "config/config.h"
#include "support/scratch.h"

static enum status resolve(const char *text, struct config **cfg)
{
    enum status status = config_load_text(cfg, text, strlen(text), "demo.yaml", NULL, 0);
    if (status == OK)
        status = config_resolve(*cfg, 1);
    return status;
}

static struct config *accepts(const char *text)
{
    struct config *cfg;
    if (resolve(text, &cfg) != OK)
        fail_msg("%s", status_message());
    return cfg;
}

static void refuses(const char *text, const char *message)
{
    struct config *cfg;
    assert_int_equal(status_exit_code(resolve(text, &cfg)), 2);
    config_free(cfg);
    expect_message(message);
}

/* TrainingArguments.to_dict() with every default. */
static const char training_arguments[] =
    "output_dir: out\n"
    "do_train: false\ndo_eval: false\ndo_predict: false\neval_strategy: 'no'\n"
    "prediction_loss_only: false\nper_device_train_batch_size: 8\nper_device_eval_batch_size: 8\n"
    "per_gpu_train_batch_size: null\nper_gpu_eval_batch_size: null\n"
    "gradient_accumulation_steps: 1\neval_accumulation_steps: null\neval_delay: 0\n"
    "torch_empty_cache_steps: null\nlearning_rate: 5.0e-05\nweight_decay: 0.0\nadam_beta1: 0.9\n"
    "adam_beta2: 0.999\nadam_epsilon: 1.0e-08\nmax_grad_norm: 1.0\nnum_train_epochs: 3.0\n"
    "max_steps: -1\nlr_scheduler_type: linear\nlr_scheduler_kwargs: {}\nwarmup_ratio: 0.0\n"
    "warmup_steps: 0\nlog_level: passive\nlog_level_replica: warning\nlog_on_each_node: true\n"
    "logging_dir: out/runs/May01\nlogging_strategy: steps\nlogging_first_step: false\n"
    "logging_steps: 500\nlogging_nan_inf_filter: true\nsave_strategy: steps\nsave_steps: 500\n"
    "save_total_limit: null\nsave_safetensors: true\nsave_on_each_node: false\n"
    "save_only_model: false\nrestore_callback_states_from_checkpoint: false\nno_cuda: false\n"
    "use_mps_device: false\nseed: 42\ndata_seed: null\njit_mode_eval: false\nbf16: false\n"
    "fp16: false\nfp16_opt_level: O1\nhalf_precision_backend: auto\nbf16_full_eval: false\n"
    "fp16_full_eval: false\ntf32: null\nlocal_rank: 0\nddp_backend: null\ntpu_num_cores: null\n"
    "tpu_metrics_debug: false\ndebug: []\neval_steps: null\ndataloader_num_workers: 0\n"
    "dataloader_prefetch_factor: null\npast_index: -1\nrun_name: null\ndisable_tqdm: false\n"
    "remove_unused_columns: true\nlabel_names: null\nload_best_model_at_end: false\n"
    "metric_for_best_model: null\ngreater_is_better: null\nignore_data_skip: false\nfsdp: []\n"
    "fsdp_config: {min_num_params: 0, xla: false, xla_fsdp_v2: false, xla_fsdp_grad_ckpt: false}\n"
    "accelerator_config: {split_batches: false, dispatch_batches: null, even_batches: true,\n"
    "  use_seedable_sampler: true, non_blocking: false, gradient_accumulation_kwargs: null}\n"
    "parallelism_config: null\ndeepspeed: null\nlabel_smoothing_factor: 0.0\n"
    "optim: adamw_torch_fused\noptim_args: null\nadafactor: false\ngroup_by_length: false\n"
    "length_column_name: length\nreport_to: []\nproject: huggingface\ntrackio_space_id: trackio\n"
    "ddp_find_unused_parameters: null\nddp_bucket_cap_mb: null\nddp_broadcast_buffers: null\n"
    "dataloader_pin_memory: true\ndataloader_persistent_workers: false\n"
    "skip_memory_metrics: true\nuse_legacy_prediction_loop: false\npush_to_hub: false\n"
    "resume_from_checkpoint: null\nhub_model_id: null\nhub_strategy: every_save\n"
    "hub_token: <HUB_TOKEN>\nhub_private_repo: null\nhub_always_push: false\nhub_revision: null\n"
    "gradient_checkpointing: false\ngradient_checkpointing_kwargs: null\n"
    "include_inputs_for_metrics: false\ninclude_for_metrics: []\neval_do_concat_batches: true\n"
    "fp16_backend: auto\npush_to_hub_model_id: null\npush_to_hub_organization: null\n"
    "push_to_hub_token: <PUSH_TO_HUB_TOKEN>\nmp_parameters: ''\nauto_find_batch_size: false\n"
    "full_determinism: false\ntorchdynamo: null\nray_scope: last\nddp_timeout: 1800\n"
    "torch_compile: false\ntorch_compile_backend: null\ntorch_compile_mode: null\n"
    "include_tokens_per_second: false\ninclude_num_input_tokens_seen: false\n"
    "neftune_noise_alpha: null\noptim_target_modules: null\nbatch_eval_metrics: false\n"
    "eval_on_start: false\nuse_liger_kernel: false\nliger_kernel_config: null\n"
    "eval_use_gather_object: false\naverage_tokens_across_devices: true\nuse_cpu: false\n";

static void a_dump_of_training_arguments_is_a_config(void **state)
{
    (void)state;
    char text[sizeof(training_arguments) + 64];
    (void)snprintf(text, sizeof(text), "model: {model_type: gpt2}\ndatasets: x.txt\n%s",
                   training_arguments);
    struct config *cfg = accepts(text);
    assert_int_equal(cfg->logging_steps, 500);
    assert_int_equal(cfg->logging_first_step, 0);
    assert_int_equal(cfg->device, CONFIG_DEVICE_AUTO);
    config_free(cfg);
}

#define MODEL "model: {model_type: gpt2}\n"

static void a_pair_of_betas_is_both_of_them(void **state)
{
    (void)state;
    static const char *const texts[] = {
        MODEL "adam_betas: [0.8, 0.95]\n",
        MODEL "deepspeed: {optimizer: {type: AdamW, params: {betas: [0.8, 0.95]}}}\n"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct config *cfg = accepts(texts[i]);
        assert_true(cfg->adam_beta1 == 0.8 && cfg->adam_beta2 == 0.95);
        config_free(cfg);
    }
    refuses(MODEL "adam_betas: [0.8]\n", "adam_betas: expected the two decays");
    refuses(MODEL "adam_betas: [0.8, 1.0]\n", "adam_betas: \"1.0\" is out of range");
    refuses(MODEL "adam_betas: [0.8, 0.9]\nadam_beta1: 0.7\n", "the same setting as adam_betas");
}

/* Under the names of the optimizer that is taken, wherever in the file it is named. */
static void arguments_of_the_optimizer_are_its_settings(void **state)
{
    (void)state;
    struct config *cfg = accepts(MODEL "optim_args: 'beta2 = 0.95,eps=1e-6'\noptim: adamw_torch\n");
    assert_true(cfg->adam_beta1 == 0.9 && cfg->adam_beta2 == 0.95 && cfg->adam_epsilon == 1e-6);
    config_free(cfg);
    cfg = accepts(MODEL "optim_args: {momentum: 0.8, nesterov: false}\noptim: muon\n");
    assert_true(cfg->muon_momentum == 0.8 && !cfg->muon_nesterov && cfg->momentum == 0);
    config_free(cfg);
    cfg = accepts(MODEL "optim: sgd\noptim_args: momentum=0.8\n");
    assert_true(cfg->momentum == 0.8);
    config_free(cfg);
    refuses(MODEL "optim: lion_8bit\noptim_args: eps=1\n",
            "optim: lion_8bit has no setting \"eps\"; there are beta1, beta2, weight_decay");
    refuses(MODEL "optim_args: 0.9\n", "optim_args: \"0.9\": expected settings as in");
    refuses(MODEL "optim_args: beta1=2\n", "optim_args.beta1: \"2\" is out of range");
    refuses(MODEL "optim_args: beta1=0.8\nadam_beta1: 0.7\n", "the same setting as adam_beta1");
}

/* What a file leaves open, the command line may say. */
static void half_precision_goes_before_a_precision_that_is_left_open(void **state)
{
    (void)state;
    struct config *cfg = accepts(MODEL "bf16: auto\nfp16: true\n");
    assert_int_equal(cfg->bf16, CONFIG_TRISTATE_FALSE);
    config_free(cfg);
    refuses(MODEL "bf16: true\nfp16: true\n", "are both true: keep one");
}

static void harmless_keys_act_as_they_say(void **state)
{
    (void)state;
    struct config *cfg = accepts(MODEL "use_cpu: true\nlog_level: error\nbf16: true\n"
                                       "bf16_full_eval: true\nuse_liger_kernel: true\n"
                                       "prediction_loss_only: true\nsave_safetensors: true\n");
    assert_int_equal(cfg->device, CONFIG_DEVICE_CPU);
    assert_int_equal(cfg->log_level, CONFIG_LOG_LEVEL_ERROR);
    config_free(cfg);
    refuses(MODEL "use_cpu: true\ndevice: cuda\n", "use_cpu (demo.yaml:2) and device: cuda");
    refuses(MODEL "bf16_full_eval: true\n", "demo.yaml:2: bf16_full_eval: evaluations compute");
    refuses(MODEL "fp16_full_eval: true\n", "demo.yaml:2: fp16_full_eval: evaluations compute");
    refuses(MODEL "save_safetensors: false\n", "always saved as safetensors");
    refuses(MODEL "log_level: loud\n", "expected one of passive, debug, info, warning, error");
    refuses(MODEL "logging_strategy: best\n", "nearest is steps");
    refuses(MODEL "fsdp_config: {fsdp_offload_params: true}\n", "fsdp_config: not available");
    refuses(MODEL "special_tokens: {bos_token: x}\n", "special_tokens.bos_token: not available");
}

/* As in Axolotl's examples for full fine-tuning, with their dataset as a file. */
static void an_axolotl_file_is_refused_for_what_changes_the_result_alone(void **state)
{
    (void)state;
    static const char text[] = "base_model: NousResearch/Meta-Llama-3.1-8B\n"
                               "model_type: LlamaForCausalLM\n"
                               "tokenizer_type: AutoTokenizer\n"
                               "load_in_8bit: false\n"
                               "load_in_4bit: false\n"
                               "strict: false\n"
                               "datasets:\n"
                               "  - path: data/alpaca.jsonl\n"
                               "    ds_type: json\n"
                               "    type: alpaca\n"
                               "dataset_prepared_path: last_run_prepared\n"
                               "val_set_size: 0.05\n"
                               "output_dir: ./outputs/out\n"
                               "sequence_len: 8192\n"
                               "sample_packing: true\n"
                               "pad_to_sequence_len: true\n"
                               "wandb_project:\n"
                               "wandb_entity:\n"
                               "wandb_watch:\n"
                               "wandb_name:\n"
                               "wandb_log_model:\n"
                               "gradient_accumulation_steps: 8\n"
                               "micro_batch_size: 1\n"
                               "num_epochs: 1\n"
                               "optimizer: paged_adamw_8bit\n"
                               "lr_scheduler: cosine\n"
                               "learning_rate: 2e-5\n"
                               "train_on_inputs: false\n"
                               "group_by_length: false\n"
                               "bf16: auto\n"
                               "fp16:\n"
                               "tf32: false\n"
                               "gradient_checkpointing: true\n"
                               "gradient_checkpointing_kwargs:\n"
                               "  use_reentrant: false\n"
                               "early_stopping_patience:\n"
                               "resume_from_checkpoint:\n"
                               "logging_steps: 1\n"
                               "xformers_attention:\n"
                               "flash_attention: true\n"
                               "warmup_steps: 100\n"
                               "evals_per_epoch: 2\n"
                               "eval_table_size:\n"
                               "saves_per_epoch: 1\n"
                               "debug:\n"
                               "deepspeed:\n"
                               "weight_decay: 0.0\n"
                               "fsdp:\n"
                               "fsdp_config:\n"
                               "special_tokens:\n"
                               "  pad_token: <|end_of_text|>\n";
    refuses(text, "demo.yaml:42: evals_per_epoch: not available");
    expect_message("demo.yaml:44: saves_per_epoch: not available");
    int n = 1;
    for (const char *c = status_message(); *c; c++)
        n += *c == '\n';
    if (n != 2)
        fail_msg("%d errors: %s", n, status_message());
}

static void a_llama_factory_file_is_a_config(void **state)
{
    (void)state;
    static const char text[] = "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\n"
                               "trust_remote_code: true\n"
                               "stage: pt\n"
                               "do_train: true\n"
                               "finetuning_type: full\n"
                               "dataset: c4_demo.jsonl\n"
                               "cutoff_len: 2048\n"
                               "max_samples: 1000\n"
                               "overwrite_cache: true\n"
                               "preprocessing_num_workers: 16\n"
                               "dataloader_num_workers: 4\n"
                               "output_dir: saves/llama3-8b/full/pretrain\n"
                               "logging_steps: 10\n"
                               "save_steps: 500\n"
                               "plot_loss: true\n"
                               "save_only_model: false\n"
                               "report_to: none\n"
                               "per_device_train_batch_size: 1\n"
                               "gradient_accumulation_steps: 2\n"
                               "learning_rate: 1.0e-5\n"
                               "num_train_epochs: 3.0\n"
                               "lr_scheduler_type: cosine\n"
                               "warmup_ratio: 0.1\n"
                               "bf16: true\n"
                               "ddp_timeout: 180000000\n"
                               "resume_from_checkpoint: null\n"
                               "enable_liger_kernel: true\n"
                               "val_size: 0.1\n"
                               "per_device_eval_batch_size: 1\n"
                               "eval_strategy: steps\n"
                               "eval_steps: 500\n";
    struct config *cfg = accepts(text);
    assert_int_equal(cfg->max_samples, 1000);
    config_free(cfg);
}

/* ---- DeepSpeed ---------------------------------------------------------------------------------
 */

/* As transformers' documentation has it for ZeRO-3 with offloading. */
static const char deepspeed[] =
    "{\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0, \"loss_scale_window\": 1000,\n"
    "  \"initial_scale_power\": 16, \"hysteresis\": 2, \"min_loss_scale\": 1},\n"
    " \"bf16\": {\"enabled\": true},\n"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 2e-4, \"betas\": \"auto\",\n"
    "  \"eps\": \"auto\", \"weight_decay\": 0.01}},\n"
    " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": \"auto\",\n"
    "  \"warmup_max_lr\": \"auto\", \"warmup_num_steps\": 100, \"total_num_steps\": \"auto\"}},\n"
    " \"zero_optimization\": {\"stage\": 3,\n"
    "  \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true},\n"
    "  \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": true}, \"overlap_comm\": true,\n"
    "  \"contiguous_gradients\": true, \"sub_group_size\": 1e9, \"reduce_bucket_size\": \"auto\",\n"
    "  \"stage3_prefetch_bucket_size\": \"auto\", \"stage3_max_live_parameters\": 1e9,\n"
    "  \"stage3_gather_16bit_weights_on_model_save\": true},\n"
    " \"gradient_accumulation_steps\": 4, \"gradient_clipping\": \"auto\",\n"
    " \"steps_per_print\": 2000, \"train_batch_size\": \"auto\",\n"
    " \"train_micro_batch_size_per_gpu\": \"auto\", \"wall_clock_breakdown\": false}\n";

static void expect_deepspeed(const struct config *cfg)
{
    assert_int_equal(cfg->offload_optimizer, CONFIG_OFFLOAD_TRUE);
    assert_int_equal(cfg->offload_param, CONFIG_OFFLOAD_TRUE);
    assert_int_equal(cfg->bf16, CONFIG_TRISTATE_TRUE);
    assert_int_equal(cfg->fp16, 0);
    assert_int_equal(cfg->gradient_accumulation_steps, 4);
    assert_int_equal(cfg->per_device_train_batch_size, 2);
    assert_int_equal(cfg->lr_scheduler_type, CONFIG_SCHEDULE_LINEAR);
    assert_true(cfg->warmup_steps == 100 && cfg->learning_rate == 2e-4);
    assert_true(cfg->weight_decay == 0.01 && cfg->max_grad_norm == 0.5);
}

static void a_file_of_deepspeed_settings_is_taken(void **state)
{
    (void)state;
    struct scratch s;
    char path[SCRATCH_PATH], text[SCRATCH_PATH + 512];
    scratch_init(&s);
    scratch_write_text(&s, "ds.json", deepspeed);
    (void)snprintf(text, sizeof(text),
                   MODEL "per_device_train_batch_size: 2\nmax_grad_norm: 0.5\ndeepspeed: %s\n",
                   scratch_path(&s, "ds.json", path));
    struct config *cfg = accepts(text);
    expect_deepspeed(cfg);
    config_free(cfg);
    (void)snprintf(text, sizeof(text), MODEL "deepspeed: %s.not\n", path);
    refuses(text, "no such file; give its path from here");
    scratch_write_text(&s, "ds.json", "{\"deepspeed\": \"ds.json\"}");
    (void)snprintf(text, sizeof(text), MODEL "deepspeed: %s\n", path);
    refuses(text, "its settings hold no further ones");
    scratch_release(&s);
}

static void deepspeed_settings_are_taken_as_a_mapping(void **state)
{
    (void)state;
    char text[4096];
    (void)snprintf(text, sizeof(text),
                   MODEL "per_device_train_batch_size: 2\nmax_grad_norm: 0.5\ndeepspeed: %s",
                   deepspeed);
    struct config *cfg = accepts(text);
    expect_deepspeed(cfg);
    config_free(cfg);
}

static void zero_optimization_acts_where_it_offloads(void **state)
{
    (void)state;
    struct config *cfg = accepts(MODEL "zero_optimization:\n"
                                       "  stage: 2\n"
                                       "  offload_optimizer: {device: cpu, pin_memory: true}\n"
                                       "  allgather_bucket_size: 2e8\n"
                                       "  reduce_scatter: true\n");
    assert_int_equal(cfg->offload_optimizer, CONFIG_OFFLOAD_TRUE);
    assert_int_equal(cfg->offload_param, CONFIG_OFFLOAD_AUTO);
    config_free(cfg);
    refuses(MODEL "zero_optimization: {stage: 3, offload_param: {device: nvme}}\n",
            "offload_param asks for disk, and no folder is named for it");
    expect_message("set offload_folder (nvme_path)");
    cfg =
        accepts(MODEL "zero_optimization: {stage: 3, offload_param: {device: nvme, nvme_path: /a}, "
                      "offload_optimizer: {device: nvme, nvme_path: /a}}\n");
    assert_int_equal(cfg->offload_optimizer, CONFIG_OFFLOAD_DISK);
    assert_string_equal(cfg->offload_folder, "/a");
    config_free(cfg);
    refuses(MODEL "zero_optimization: {stage: 2, cpu_offload: true}\n",
            "write offload_optimizer: {device: cpu}");
    refuses(MODEL "zero_optimization: {stage: 2, offload_optimiser: {device: cpu}}\n",
            "zero_optimization.offload_optimiser: unknown key");
    refuses(MODEL "offload_param: false\nzero_optimization: {offload_param: {device: cpu}}\n",
            "the same setting as offload_param");
    refuses(MODEL "deepspeed: {optimizer: {type: AdamW, params: {betas: 0.9}}}\n",
            "expected the two decays of AdamW's moments");
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_deepspeed_settings_is_taken),
        cmocka_unit_test(deepspeed_settings_are_taken_as_a_mapping),
        cmocka_unit_test(zero_optimization_acts_where_it_offloads),
        cmocka_unit_test(a_dump_of_training_arguments_is_a_config),
        cmocka_unit_test(harmless_keys_act_as_they_say),
        cmocka_unit_test(a_pair_of_betas_is_both_of_them),
        cmocka_unit_test(arguments_of_the_optimizer_are_its_settings),
        cmocka_unit_test(half_precision_goes_before_a_precision_that_is_left_open),
        cmocka_unit_test(an_axolotl_file_is_refused_for_what_changes_the_result_alone),
        cmocka_unit_test(a_llama_factory_file_is_a_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
