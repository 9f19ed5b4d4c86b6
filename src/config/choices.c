/* choices.c: the words that enumerated keys accept, with other tools' spellings of the same
 * thing and the known words this version refuses. */
#include <string.h>

#include "config/config_internal.h"

#define REFUSE(name, nearest) \
    {                         \
        name, 0, nearest      \
    }

static const struct config_choice optim[] = {
    {"adamw", CONFIG_OPTIM_ADAMW, NULL},
    {"adamw_8bit", CONFIG_OPTIM_ADAMW_8BIT, NULL},
    {"paged_adamw", CONFIG_OPTIM_PAGED_ADAMW, NULL},
    {"paged_adamw_8bit", CONFIG_OPTIM_PAGED_ADAMW_8BIT, NULL},
    {"lion", CONFIG_OPTIM_LION, NULL},
    {"lion_8bit", CONFIG_OPTIM_LION_8BIT, NULL},
    {"paged_lion", CONFIG_OPTIM_PAGED_LION, NULL},
    {"paged_lion_8bit", CONFIG_OPTIM_PAGED_LION_8BIT, NULL},
    {"adafactor", CONFIG_OPTIM_ADAFACTOR, NULL},
    {"muon", CONFIG_OPTIM_MUON, NULL},
    {"muon_8bit", CONFIG_OPTIM_MUON_8BIT, NULL},
    {"sgd", CONFIG_OPTIM_SGD, NULL},
    {"adamw_torch", CONFIG_OPTIM_ADAMW, NULL},
    {"adamw_torch_fused", CONFIG_OPTIM_ADAMW, NULL},
    {"adamw_torch_xla", CONFIG_OPTIM_ADAMW, NULL},
    {"adamw_torch_npu_fused", CONFIG_OPTIM_ADAMW, NULL},
    {"adamw_apex_fused", CONFIG_OPTIM_ADAMW, NULL},
    {"adamw_hf", CONFIG_OPTIM_ADAMW, NULL},
    {"adam", CONFIG_OPTIM_ADAMW, NULL}, /* DeepSpeed: adam_w_mode is its default */
    {"adamw_bnb_8bit", CONFIG_OPTIM_ADAMW_8BIT, NULL},
    {"adamw_torch_8bit", CONFIG_OPTIM_ADAMW_8BIT, NULL},
    {"ao_adamw_8bit", CONFIG_OPTIM_ADAMW_8BIT, NULL},
    {"adamw8bit", CONFIG_OPTIM_ADAMW_8BIT, NULL},
    {"paged_adamw8bit", CONFIG_OPTIM_PAGED_ADAMW_8BIT, NULL},
    {"paged_adamw_32bit", CONFIG_OPTIM_PAGED_ADAMW, NULL},
    {"lion_32bit", CONFIG_OPTIM_LION, NULL},
    {"paged_lion_32bit", CONFIG_OPTIM_PAGED_LION, NULL},
    REFUSE("ao_adamw_fp8", "adamw_8bit"),
    REFUSE("adamw_torch_4bit", "adamw_8bit"),
    REFUSE("ao_adamw_4bit", "adamw_8bit"),
    REFUSE("adamw_anyprecision", "adamw with optim_state_dtype: bf16"),
    REFUSE("adagrad", "adamw"),
    REFUSE("rmsprop", "adamw"),
    REFUSE("rmsprop_32bit", "adamw"),
    REFUSE("rmsprop_bnb", "adamw"),
    REFUSE("rmsprop_bnb_8bit", "adamw"),
    REFUSE("rmsprop_bnb_32bit", "adamw"),
    REFUSE("galore_adamw", "adamw"),
    REFUSE("galore_adamw_8bit", "adamw"),
    REFUSE("galore_adafactor", "adafactor"),
    REFUSE("galore_adamw_layerwise", "adamw"),
    REFUSE("galore_adamw_8bit_layerwise", "adamw"),
    REFUSE("galore_adafactor_layerwise", "adafactor"),
    REFUSE("q_galore_adamw8bit", "adamw"),
    REFUSE("apollo_adamw", "adamw"),
    REFUSE("apollo_adamw_layerwise", "adamw"),
    REFUSE("lomo", "sgd"),
    REFUSE("adalomo", "adamw"),
    REFUSE("dion", "muon"),
    REFUSE("ademamix", "adamw"),
    REFUSE("ademamix_8bit", "adamw"),
    REFUSE("paged_ademamix_32bit", "adamw"),
    REFUSE("paged_ademamix_8bit", "adamw"),
    REFUSE("schedule_free_radam", "adamw"),
    REFUSE("schedule_free_adamw", "adamw"),
    REFUSE("schedule_free_sgd", "sgd"),
    REFUSE("stable_adamw", "adamw"),
    REFUSE("grokadamw", "adamw"),
    REFUSE("came_pytorch", "adafactor"),
    REFUSE("optimi_adamw", "adamw"),
    REFUSE("onebitadam", "adamw"),
    REFUSE("zerooneadam", "adamw"),
    REFUSE("onebitlamb", "adamw"),
    REFUSE("lamb", "adamw"),
    {NULL, 0, NULL},
};

static const struct config_choice schedule[] = {
    {"linear", CONFIG_SCHEDULE_LINEAR, NULL},
    {"cosine", CONFIG_SCHEDULE_COSINE, NULL},
    {"constant", CONFIG_SCHEDULE_CONSTANT, NULL},
    {"constant_with_warmup", CONFIG_SCHEDULE_CONSTANT_WITH_WARMUP, NULL},
    {"cosine_with_min_lr", CONFIG_SCHEDULE_COSINE_WITH_MIN_LR, NULL},
    {"cosine_with_restarts", CONFIG_SCHEDULE_COSINE_WITH_RESTARTS, NULL},
    {"polynomial", CONFIG_SCHEDULE_POLYNOMIAL, NULL},
    {"inverse_sqrt", CONFIG_SCHEDULE_INVERSE_SQRT, NULL},
    {"warmup_stable_decay", CONFIG_SCHEDULE_WARMUP_STABLE_DECAY, NULL},
    {"reduce_lr_on_plateau", CONFIG_SCHEDULE_REDUCE_ON_PLATEAU, NULL},
    {"wsd", CONFIG_SCHEDULE_WARMUP_STABLE_DECAY, NULL},
    {"reducelronplateau", CONFIG_SCHEDULE_REDUCE_ON_PLATEAU, NULL},
    {"warmupdecaylr", CONFIG_SCHEDULE_LINEAR, NULL}, /* DeepSpeed's */
    {"warmuplr", CONFIG_SCHEDULE_CONSTANT_WITH_WARMUP, NULL},
    REFUSE("warmupcosinelr", "cosine with warmup_steps"),
    REFUSE("onecycle", "cosine with warmup_steps"),
    REFUSE("lrrangetest", "linear"),
    REFUSE("cosine_warmup_with_min_lr", "cosine_with_min_lr with warmup_steps"),
    REFUSE("greedy", "linear"),
    REFUSE("rex", "linear"),
    REFUSE("one_cycle", "cosine"),
    REFUSE("onecycle", "cosine"),
    REFUSE("warmuplr", "constant_with_warmup"),
    REFUSE("warmupdecaylr", "linear with warmup_steps"),
    REFUSE("warmupcosinelr", "cosine with warmup_steps"),
    REFUSE("lrrangetest", "linear"),
    {NULL, 0, NULL},
};

static const struct config_choice master[] = {
    {"f32", CONFIG_MASTER_F32, NULL},
    {"bf16", CONFIG_MASTER_BF16, NULL},
    {"24bit", CONFIG_MASTER_24BIT, NULL},
    {"fp32", CONFIG_MASTER_F32, NULL},
    {"float32", CONFIG_MASTER_F32, NULL},
    {"bfloat16", CONFIG_MASTER_BF16, NULL},
    REFUSE("fp16", "bf16"),
    REFUSE("f16", "bf16"),
    REFUSE("float16", "bf16"),
    {NULL, 0, NULL},
};

static const struct config_choice phases[] = {
    {"none", CONFIG_PHASES_NONE, NULL},
    {"linear", CONFIG_PHASES_LINEAR, NULL},
    {"least_squares", CONFIG_PHASES_LEAST_SQUARES, NULL},
    {"dmd", CONFIG_PHASES_DMD, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice prediction[] = {
    {"none", CONFIG_PREDICTION_NONE, NULL},
    {"residual", CONFIG_PREDICTION_RESIDUAL, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice jump_momentum[] = {
    {"keep", CONFIG_JUMP_MOMENTUM_KEEP, NULL},
    {"zero", CONFIG_JUMP_MOMENTUM_ZERO, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice adjust_lr[] = {
    {"match_rms_adamw", CONFIG_ADJUST_LR_MATCH_RMS_ADAMW, NULL},
    {"original", CONFIG_ADJUST_LR_ORIGINAL, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice curve[] = {
    {"linear", CONFIG_CURVE_LINEAR, NULL},
    {"cosine", CONFIG_CURVE_COSINE, NULL},
    {"1-sqrt", CONFIG_CURVE_ONE_MINUS_SQRT, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice dtype[] = {
    {"f32", CONFIG_F32, NULL},
    {"bf16", CONFIG_BF16, NULL},
    {"float32", CONFIG_F32, NULL},
    {"fp32", CONFIG_F32, NULL},
    {"bfloat16", CONFIG_BF16, NULL},
    REFUSE("fp16", "bf16"),
    REFUSE("f16", "bf16"),
    REFUSE("float16", "bf16"),
    REFUSE("fp8", "bf16"),
    REFUSE("int8", "bf16"),
    {NULL, 0, NULL},
};

static const struct config_choice adapter[] = {
    {"none", CONFIG_ADAPTER_NONE, NULL},
    {"lora", CONFIG_ADAPTER_LORA, NULL},
    {"full", CONFIG_ADAPTER_NONE, NULL}, /* LLaMA-Factory */
    {"false", CONFIG_ADAPTER_NONE, NULL},
    {"qlora", CONFIG_ADAPTER_QLORA, NULL},
    REFUSE("freeze", "none with freeze and unfreeze"),
    REFUSE("oft", "lora"),
    REFUSE("llama_adapter", "lora"),
    {NULL, 0, NULL},
};

static const struct config_choice rl[] = {
    {"none", CONFIG_RL_NONE, NULL},
    {"dpo", CONFIG_RL_DPO, NULL},
    {"false", CONFIG_RL_NONE, NULL},
    {"sft", CONFIG_RL_NONE, NULL}, /* stages of LLaMA-Factory */
    {"pt", CONFIG_RL_NONE, NULL},
    REFUSE("ipo", "dpo"),
    REFUSE("kto", "dpo"),
    REFUSE("orpo", "dpo"),
    REFUSE("simpo", "dpo"),
    REFUSE("grpo", "dpo"),
    REFUSE("gdpo", "dpo"),
    REFUSE("ppo", "dpo"),
    REFUSE("rm", "dpo"),
    {NULL, 0, NULL},
};

static const struct config_choice dpo_loss[] = {
    {"sigmoid", CONFIG_DPO_LOSS_SIGMOID, NULL},
    REFUSE("hinge", "sigmoid"),
    REFUSE("ipo", "sigmoid"),
    REFUSE("exo_pair", "sigmoid"),
    REFUSE("nca_pair", "sigmoid"),
    REFUSE("robust", "sigmoid with label_smoothing"),
    REFUSE("bco_pair", "sigmoid"),
    REFUSE("sppo_hard", "sigmoid"),
    REFUSE("aot", "sigmoid"),
    REFUSE("aot_pair", "sigmoid"),
    REFUSE("aot_unpaired", "sigmoid"),
    REFUSE("discopop", "sigmoid"),
    REFUSE("apo_zero", "sigmoid"),
    REFUSE("apo_down", "sigmoid"),
    REFUSE("sft", "sigmoid"),
    REFUSE("orpo", "sigmoid"),
    REFUSE("simpo", "sigmoid"),
    REFUSE("kto_pair", "sigmoid"),
    {NULL, 0, NULL},
};

static const struct config_choice quantization[] = {
    {"none", CONFIG_QUANTIZATION_NONE, NULL},
    {"bitnet", CONFIG_QUANTIZATION_BITNET, NULL},
    {"bitnet_b1.58", CONFIG_QUANTIZATION_BITNET, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice quant_type[] = {
    {"nf4", CONFIG_QUANT_TYPE_NF4, NULL},
    {"fp4", CONFIG_QUANT_TYPE_FP4, NULL},
    REFUSE("int4", "nf4"),
    {NULL, 0, NULL},
};

static const struct config_choice compute_dtype[] = {
    {"auto", CONFIG_COMPUTE_DTYPE_AUTO, NULL},
    {"bf16", CONFIG_COMPUTE_DTYPE_BF16, NULL},
    {"fp16", CONFIG_COMPUTE_DTYPE_F16, NULL},
    {"f32", CONFIG_COMPUTE_DTYPE_F32, NULL},
    {"bfloat16", CONFIG_COMPUTE_DTYPE_BF16, NULL},
    {"float16", CONFIG_COMPUTE_DTYPE_F16, NULL},
    {"float32", CONFIG_COMPUTE_DTYPE_F32, NULL},
    {"fp32", CONFIG_COMPUTE_DTYPE_F32, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice adapter_bias[] = {
    {"none", CONFIG_ADAPTER_BIAS_NONE, NULL},
    {"all", CONFIG_ADAPTER_BIAS_ALL, NULL},
    {"lora_only", CONFIG_ADAPTER_BIAS_LORA_ONLY, NULL},
    {"false", CONFIG_ADAPTER_BIAS_NONE, NULL},
    REFUSE("true", "all"),
    {NULL, 0, NULL},
};

static const struct config_choice device[] = {
    {"auto", CONFIG_DEVICE_AUTO, NULL},
    {"cpu", CONFIG_DEVICE_CPU, NULL},
    {"cuda", CONFIG_DEVICE_CUDA, NULL},
    {"gpu", CONFIG_DEVICE_CUDA, NULL},
    REFUSE("mps", "cpu"),
    REFUSE("xpu", "cpu"),
    REFUSE("rocm", "cpu"),
    {NULL, 0, NULL},
};

static const struct config_choice compile[] = {
    {"auto", CONFIG_COMPILE_AUTO, NULL},
    {"none", CONFIG_COMPILE_NONE, NULL},
    {"default", CONFIG_COMPILE_DEFAULT, NULL},
    {"reduce-overhead", CONFIG_COMPILE_REDUCE_OVERHEAD, NULL},
    {"max-autotune", CONFIG_COMPILE_MAX_AUTOTUNE, NULL},
    {"true", CONFIG_COMPILE_AUTO, NULL},
    {"false", CONFIG_COMPILE_NONE, NULL},
    REFUSE("max-autotune-no-cudagraphs", "max-autotune"),
    {NULL, 0, NULL},
};

static const struct config_choice offload[] = {
    {"auto", CONFIG_OFFLOAD_AUTO, NULL},   {"true", CONFIG_OFFLOAD_TRUE, NULL},
    {"false", CONFIG_OFFLOAD_FALSE, NULL}, {"disk", CONFIG_OFFLOAD_DISK, NULL},
    {"nvme", CONFIG_OFFLOAD_DISK, NULL},   {"cpu", CONFIG_OFFLOAD_TRUE, NULL},
    {"yes", CONFIG_OFFLOAD_TRUE, NULL},    {"on", CONFIG_OFFLOAD_TRUE, NULL},
    {"none", CONFIG_OFFLOAD_FALSE, NULL},  {"no", CONFIG_OFFLOAD_FALSE, NULL},
    {"off", CONFIG_OFFLOAD_FALSE, NULL},   {NULL, 0, NULL},
};

static const struct config_choice elastic_profile[] = {
    {"balanced", CONFIG_ELASTIC_PROFILE_BALANCED, NULL},
    {"aggressive", CONFIG_ELASTIC_PROFILE_AGGRESSIVE, NULL},
    {"conservative", CONFIG_ELASTIC_PROFILE_CONSERVATIVE, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice interval[] = {
    {"no", CONFIG_INTERVAL_NO, NULL},
    {"steps", CONFIG_INTERVAL_STEPS, NULL},
    {"epoch", CONFIG_INTERVAL_EPOCH, NULL},
    {"none", CONFIG_INTERVAL_NO, NULL},
    {"false", CONFIG_INTERVAL_NO, NULL},
    {"off", CONFIG_INTERVAL_NO, NULL},
    REFUSE("best", "steps"),
    {NULL, 0, NULL},
};

static const struct config_choice log_format[] = {
    {"text", CONFIG_LOG_TEXT, NULL},
    {"json", CONFIG_LOG_JSON, NULL},
    {"quiet", CONFIG_LOG_QUIET, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice log_level[] = {
    {"passive", CONFIG_LOG_LEVEL_PASSIVE, NULL},
    {"debug", CONFIG_LOG_LEVEL_DEBUG, NULL},
    {"info", CONFIG_LOG_LEVEL_INFO, NULL},
    {"warning", CONFIG_LOG_LEVEL_WARNING, NULL},
    {"error", CONFIG_LOG_LEVEL_ERROR, NULL},
    {"detail", CONFIG_LOG_LEVEL_DEBUG, NULL},
    {"warn", CONFIG_LOG_LEVEL_WARNING, NULL},
    {"critical", CONFIG_LOG_LEVEL_ERROR, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice report[] = {
    {"none", CONFIG_REPORT_NONE, NULL},
    {"tensorboard", CONFIG_REPORT_TENSORBOARD, NULL},
    REFUSE("all", "tensorboard"),
    REFUSE("wandb", "tensorboard"),
    REFUSE("mlflow", "tensorboard"),
    REFUSE("swanlab", "tensorboard"),
    REFUSE("comet_ml", "tensorboard"),
    REFUSE("clearml", "tensorboard"),
    REFUSE("neptune", "tensorboard"),
    REFUSE("dvclive", "tensorboard"),
    REFUSE("codecarbon", "tensorboard"),
    REFUSE("trackio", "tensorboard"),
    {NULL, 0, NULL},
};

static const struct config_choice dataset_type[] = {
    {"auto", CONFIG_DATASET_AUTO, NULL},
    {"text", CONFIG_DATASET_TEXT, NULL},
    {"jsonl", CONFIG_DATASET_JSONL, NULL},
    {"tokens", CONFIG_DATASET_TOKENS, NULL},
    {"nanogpt", CONFIG_DATASET_NANOGPT, NULL},
    {"synthetic", CONFIG_DATASET_SYNTHETIC, NULL},
    {"random", CONFIG_DATASET_RANDOM, NULL},
    {"txt", CONFIG_DATASET_TEXT, NULL},
    {"json", CONFIG_DATASET_JSONL, NULL},
    {"completion", CONFIG_DATASET_JSONL, NULL},
    {"llm.c", CONFIG_DATASET_TOKENS, NULL},
    {"llmc", CONFIG_DATASET_TOKENS, NULL},
    {"chat_template", CONFIG_DATASET_CHAT, NULL},
    {"alpaca", CONFIG_DATASET_ALPACA, NULL},
    {"alpaca_chat", CONFIG_DATASET_ALPACA_CHAT, NULL},
    {"prompt_completion", CONFIG_DATASET_PROMPT_COMPLETION, NULL},
    {"input_output", CONFIG_DATASET_INPUT_OUTPUT, NULL},
    {"csv", CONFIG_DATASET_CSV, NULL},
    {"chat", CONFIG_DATASET_CHAT, NULL},
    {"messages", CONFIG_DATASET_CHAT, NULL},
    {"sharegpt", CONFIG_DATASET_CHAT, NULL},
    {"alpaca_chat.load_qa", CONFIG_DATASET_ALPACA_CHAT, NULL},
    REFUSE("parquet", "jsonl, which pandas makes of it"),
    REFUSE("arrow", "jsonl, which pandas makes of it"),
    {NULL, 0, NULL},
};

static const struct config_choice chat_template[] = {
    {"tokenizer_default", CONFIG_CHAT_TOKENIZER_DEFAULT, NULL},
    {"chatml", CONFIG_CHAT_CHATML, NULL},
    {"qwen3", CONFIG_CHAT_QWEN3, NULL},
    {"llama2", CONFIG_CHAT_LLAMA2, NULL},
    {"llama3", CONFIG_CHAT_LLAMA3, NULL},
    {"llama3.1", CONFIG_CHAT_LLAMA3_1, NULL},
    {"mistral", CONFIG_CHAT_MISTRAL, NULL},
    {"mistral_v1", CONFIG_CHAT_MISTRAL_V1, NULL},
    {"mistral_v2", CONFIG_CHAT_MISTRAL_V2, NULL},
    {"gemma", CONFIG_CHAT_GEMMA, NULL},
    {"gemma3", CONFIG_CHAT_GEMMA3, NULL},
    {"zephyr", CONFIG_CHAT_ZEPHYR, NULL},
    {"phi3", CONFIG_CHAT_PHI3, NULL},
    {"tinyllama", CONFIG_CHAT_ZEPHYR, NULL},
    {"gemma2", CONFIG_CHAT_GEMMA, NULL},
    {"phi", CONFIG_CHAT_PHI3, NULL},
    {"phi_3", CONFIG_CHAT_PHI3, NULL},
    {"mistral_v2v3", CONFIG_CHAT_MISTRAL, NULL},
    REFUSE("qwen", "tokenizer_default, or chatml without its system message"),
    REFUSE("qwen_25", "tokenizer_default, or chatml without its system message"),
    REFUSE("tokenizer_default_fallback_chatml", "tokenizer_default or chatml"),
    REFUSE("jinja", "tokenizer_default"),
    REFUSE("default", "tokenizer_default"),
    REFUSE("alpaca", "tokenizer_default, and datasets with type: alpaca"),
    {NULL, 0, NULL},
};

static const struct config_choice overflow[] = {
    {"truncate", CONFIG_OVERFLOW_TRUNCATE, NULL},
    {"drop", CONFIG_OVERFLOW_DROP, NULL},
    {NULL, 0, NULL},
};

static const struct config_choice token_dtype[] = {
    {"u16", CONFIG_TOKEN_U16, NULL},
    {"u32", CONFIG_TOKEN_U32, NULL},
    {"uint16", CONFIG_TOKEN_U16, NULL},
    {"uint32", CONFIG_TOKEN_U32, NULL},
    {NULL, 0, NULL},
};

const struct config_choice *config_choices(const char *set)
{
    static const struct {
        const char *name;
        const struct config_choice *rows;
    } sets[] = {
#define SET(name) {#name, name}
        SET(optim),
        SET(schedule),
        SET(dtype),
        SET(device),
        SET(interval),
        SET(log_format),
        SET(report),
        SET(dataset_type),
        SET(token_dtype),
        SET(compile),
        SET(log_level),
        SET(offload),
        SET(adapter),
        SET(adapter_bias),
        SET(chat_template),
        SET(overflow),
        SET(curve),
        SET(quantization),
        SET(quant_type),
        SET(compute_dtype),
        SET(adjust_lr),
        SET(master),
        SET(rl),
        SET(dpo_loss),
        SET(phases),
        SET(jump_momentum),
        SET(prediction),
        SET(elastic_profile),
#undef SET
    };
    const struct config_choice *rows = NULL;
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        if (strcmp(sets[i].name, set) == 0)
            rows = sets[i].rows;
    }
    BUG_ON(!rows); /* a row of config.def names a set that is not here */
    return rows;
}

const char *config_choice_name(const char *set, int value)
{
    for (const struct config_choice *c = config_choices(set); c->name; c++) {
        if (c->value == value && !c->nearest)
            return c->name;
    }
    return "?";
}

void config_list_choices(struct str *out, const char *set)
{
    const struct config_choice *rows = config_choices(set);
    int n = 0;
    for (const struct config_choice *c = rows; c->name; c++) {
        if (!c->nearest && strcmp(config_choice_name(set, c->value), c->name) == 0)
            str_addf(out, "%s%s", n++ ? ", " : "", c->name);
    }
}
