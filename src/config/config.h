/* config.h: what a run is told, from a YAML file and key=value overrides.
 *
 *     struct config *cfg;
 *     TRY(config_load(&cfg, "demo.yaml", overrides, n_overrides));
 *     TRY_GOTO(config_resolve(cfg, n_ranks), out);
 *     ... cfg->learning_rate, cfg->datasets.items[0].path, cfg->model ...
 *     out: config_free(cfg);
 *
 * The fields are the rows of config.def under their canonical names; docs/CONFIG.md is printed from
 * the same rows. Values are typed by the schema and never by YAML's guesses: `2e-4` is a number
 * where a number is due, `no` is a word where words are due. An unknown key, a wrong type, a value
 * out of range or a setting this version does not have is an error that names file and line.
 *
 * A struct config owns everything its fields point to until config_free(). It may be read by many
 * threads once resolved.
 */
#ifndef SNUG_CONFIG_CONFIG_H
#define SNUG_CONFIG_CONFIG_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "model/blocks.h"
#include "model/key_origin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In INT, AUTO_INT and BYTES fields. */
#define CONFIG_AUTO  ((int64_t)-1)
#define CONFIG_UNSET INT64_MIN

enum config_tristate { CONFIG_TRISTATE_FALSE, CONFIG_TRISTATE_TRUE, CONFIG_TRISTATE_AUTO };
enum config_optim {
    CONFIG_OPTIM_ADAMW,
    CONFIG_OPTIM_SGD,
    CONFIG_OPTIM_ADAMW_8BIT,
    CONFIG_OPTIM_PAGED_ADAMW, /* states may leave the device */
    CONFIG_OPTIM_PAGED_ADAMW_8BIT,
    CONFIG_OPTIM_LION,
    CONFIG_OPTIM_LION_8BIT,
    CONFIG_OPTIM_PAGED_LION,
    CONFIG_OPTIM_PAGED_LION_8BIT,
    CONFIG_OPTIM_ADAFACTOR,
    CONFIG_OPTIM_MUON,
    CONFIG_OPTIM_MUON_8BIT
};
enum config_phases {
    CONFIG_PHASES_NONE,
    CONFIG_PHASES_LINEAR,
    CONFIG_PHASES_LEAST_SQUARES,
    CONFIG_PHASES_DMD
};
enum config_prediction { CONFIG_PREDICTION_NONE, CONFIG_PREDICTION_RESIDUAL };
enum config_jump_momentum { CONFIG_JUMP_MOMENTUM_KEEP, CONFIG_JUMP_MOMENTUM_ZERO };
enum config_adjust_lr { CONFIG_ADJUST_LR_MATCH_RMS_ADAMW, CONFIG_ADJUST_LR_ORIGINAL };
enum config_schedule {
    CONFIG_SCHEDULE_LINEAR,
    CONFIG_SCHEDULE_COSINE,
    CONFIG_SCHEDULE_CONSTANT,
    CONFIG_SCHEDULE_CONSTANT_WITH_WARMUP,
    CONFIG_SCHEDULE_COSINE_WITH_MIN_LR,
    CONFIG_SCHEDULE_COSINE_WITH_RESTARTS,
    CONFIG_SCHEDULE_POLYNOMIAL,
    CONFIG_SCHEDULE_INVERSE_SQRT,
    CONFIG_SCHEDULE_WARMUP_STABLE_DECAY,
    CONFIG_SCHEDULE_REDUCE_ON_PLATEAU
};
enum config_curve { CONFIG_CURVE_LINEAR, CONFIG_CURVE_COSINE, CONFIG_CURVE_ONE_MINUS_SQRT };
enum config_adapter { CONFIG_ADAPTER_NONE, CONFIG_ADAPTER_LORA, CONFIG_ADAPTER_QLORA };
enum config_rl { CONFIG_RL_NONE, CONFIG_RL_DPO };
enum config_dpo_loss { CONFIG_DPO_LOSS_SIGMOID };
enum config_quantization { CONFIG_QUANTIZATION_NONE, CONFIG_QUANTIZATION_BITNET };
enum config_quant_type { CONFIG_QUANT_TYPE_NF4, CONFIG_QUANT_TYPE_FP4 };
enum config_compute_dtype {
    CONFIG_COMPUTE_DTYPE_AUTO,
    CONFIG_COMPUTE_DTYPE_BF16,
    CONFIG_COMPUTE_DTYPE_F16,
    CONFIG_COMPUTE_DTYPE_F32
};
enum config_adapter_bias {
    CONFIG_ADAPTER_BIAS_NONE,
    CONFIG_ADAPTER_BIAS_ALL,
    CONFIG_ADAPTER_BIAS_LORA_ONLY
};
enum config_dtype { CONFIG_F32, CONFIG_BF16 };
enum config_master { CONFIG_MASTER_F32, CONFIG_MASTER_BF16, CONFIG_MASTER_24BIT };
enum config_compile {
    CONFIG_COMPILE_AUTO,
    CONFIG_COMPILE_NONE,
    CONFIG_COMPILE_DEFAULT,
    CONFIG_COMPILE_REDUCE_OVERHEAD,
    CONFIG_COMPILE_MAX_AUTOTUNE
};
enum config_device { CONFIG_DEVICE_AUTO, CONFIG_DEVICE_CPU, CONFIG_DEVICE_CUDA };
enum config_offload {
    CONFIG_OFFLOAD_AUTO,
    CONFIG_OFFLOAD_TRUE,
    CONFIG_OFFLOAD_FALSE,
    CONFIG_OFFLOAD_DISK
};
enum config_elastic_profile {
    CONFIG_ELASTIC_PROFILE_BALANCED,
    CONFIG_ELASTIC_PROFILE_AGGRESSIVE,
    CONFIG_ELASTIC_PROFILE_CONSERVATIVE
};
enum config_interval { CONFIG_INTERVAL_NO, CONFIG_INTERVAL_STEPS, CONFIG_INTERVAL_EPOCH };
enum config_log_format { CONFIG_LOG_TEXT, CONFIG_LOG_JSON, CONFIG_LOG_QUIET };
enum config_log_level {
    CONFIG_LOG_LEVEL_PASSIVE,
    CONFIG_LOG_LEVEL_DEBUG,
    CONFIG_LOG_LEVEL_INFO,
    CONFIG_LOG_LEVEL_WARNING,
    CONFIG_LOG_LEVEL_ERROR
};
enum config_report { CONFIG_REPORT_NONE, CONFIG_REPORT_TENSORBOARD };
enum config_dataset_type {
    CONFIG_DATASET_AUTO, /* by extension and first bytes */
    CONFIG_DATASET_TEXT,
    CONFIG_DATASET_JSONL,
    CONFIG_DATASET_TOKENS,    /* llm.c .bin, with its header */
    CONFIG_DATASET_NANOGPT,   /* .bin without a header, token_dtype says how wide */
    CONFIG_DATASET_SYNTHETIC, /* made up, with something to learn in it */
    CONFIG_DATASET_RANDOM,    /* every token equally likely */
    CONFIG_DATASET_CHAT,      /* from here on: records to fine-tune on */
    CONFIG_DATASET_ALPACA,
    CONFIG_DATASET_ALPACA_CHAT,
    CONFIG_DATASET_PROMPT_COMPLETION,
    CONFIG_DATASET_INPUT_OUTPUT,
    CONFIG_DATASET_CSV
};
enum config_chat_template {
    CONFIG_CHAT_TOKENIZER_DEFAULT, /* the one in its files */
    CONFIG_CHAT_CHATML,
    CONFIG_CHAT_QWEN3,
    CONFIG_CHAT_LLAMA2,
    CONFIG_CHAT_LLAMA3,
    CONFIG_CHAT_LLAMA3_1,
    CONFIG_CHAT_MISTRAL,
    CONFIG_CHAT_MISTRAL_V1,
    CONFIG_CHAT_MISTRAL_V2,
    CONFIG_CHAT_GEMMA,
    CONFIG_CHAT_GEMMA3,
    CONFIG_CHAT_ZEPHYR,
    CONFIG_CHAT_PHI3
};
enum config_overflow { CONFIG_OVERFLOW_TRUNCATE, CONFIG_OVERFLOW_DROP };
enum config_token_dtype { CONFIG_TOKEN_U16, CONFIG_TOKEN_U32 };

/* Members of records, where they are not the usual ones; NULL: they are. */
struct config_fields {
    const char *messages, *role, *content;
    const char *instruction, *input, *output, *system, *prompt, *completion;
};

struct config_dataset {
    const char *path; /* NULL for synthetic and random data only */
    enum config_dataset_type type;
    const char *text_field; /* of a JSONL line; default "text" */
    enum config_token_dtype token_dtype;
    int64_t n_tokens; /* of synthetic and random data; 0: no end */
    struct config_fields fields;
    double weight; /* of examples: how often each is seen in an epoch */
    int64_t
        max_samples;   /* records that are read; 0: all, or as many as the key of that name says */
    const char *where; /* "demo.yaml:12", for messages */
};

struct config_datasets {
    struct config_dataset *items;
    size_t n;
};

struct config_list {
    const char **items;
    size_t n;
};

/* Numbers by name. */
struct config_numbers {
    const char **names;
    double *values;
    size_t n;
};

struct config_source; /* where every value came from */

/* What a row's TYPE is in C. BOOL is 0 or 1; DURATION is seconds; BYTES may be CONFIG_AUTO;
 * BLOCKS is a set of a model's blocks; RESUME is a path, "last", "auto" or NULL; LIST has
 * words of a set, NAMES any, TEXTS what they like; MODEL is a JSON object or NULL. */
#define CONFIG_FIELD_BOOL     int
#define CONFIG_FIELD_TRISTATE enum config_tristate
#define CONFIG_FIELD_INT      int64_t
#define CONFIG_FIELD_AUTO_INT int64_t
#define CONFIG_FIELD_FLOAT    double
#define CONFIG_FIELD_DURATION double
#define CONFIG_FIELD_BYTES    int64_t
#define CONFIG_FIELD_STRING   const char *
#define CONFIG_FIELD_BLOCKS   struct block_set
#define CONFIG_FIELD_RESUME   const char *
#define CONFIG_FIELD_LIST     struct config_list
#define CONFIG_FIELD_NAMES    struct config_list
#define CONFIG_FIELD_TEXTS    struct config_list
#define CONFIG_FIELD_NUMBERS  struct config_numbers
#define CONFIG_FIELD_MODEL    json_t *
#define CONFIG_FIELD_DATASETS struct config_datasets

struct config {
#define GROUP(title)
#define KEY(name, type, preset, rule, resume, aliases, meaning) CONFIG_FIELD_##type name;
#define CHOICE(name, set, preset, resume, aliases, meaning)     enum config_##set name;
#include "config/config.def"
#undef GROUP
#undef KEY
#undef CHOICE
    int64_t n_ranks; /* as given to config_resolve */
    struct config_source *source;
};

/* Reads `path` and applies overrides in order: "key=value", or "a.b=value" into a mapping or list
 * ("model.n_layer=2", "datasets.0.path=x.txt"). A value that begins with `[`, `{` or a quote is
 * YAML; any other is taken as it stands. An empty value takes the key back to its default.
 * `path` may be NULL: overrides only. On failure *out is NULL. */
enum status config_load(struct config **out, const char *path, const char *const *overrides,
                        size_t n_overrides) MUST_CHECK;

/* The same from memory; `name` stands for the file in messages. */
enum status config_load_text(struct config **out, const char *text, size_t n_bytes,
                             const char *name, const char *const *overrides,
                             size_t n_overrides) MUST_CHECK;
void config_free(struct config *cfg);

/* Fills what was left unset (batch arithmetic over n_ranks ranks, seeds, folders, synthetic data)
 * and refuses contradictions, all of them in one error. What the user set is never changed. */
enum status config_resolve(struct config *cfg, int64_t n_ranks) MUST_CHECK;

/* Whether optimizer and formats of a resolved config still go together after some were changed. */
enum status config_check_numerics(struct config *cfg) MUST_CHECK;

/* Where a value came from: "demo.yaml:12", "command line", "derived" or "default". Nested places
 * are asked as in overrides ("model.n_layer"); one that is not there answers for its parent. */
const char *config_where(const struct config *cfg, const char *key);

/* True when the user gave the key (not by default, not derived). */
int config_is_set(const struct config *cfg, const char *key);

/* For model_new: the keys under `model:` are the user's and have lines. `folder` holds the config
 * they are merged into; NULL: they are the whole config. Valid as long as both. */
struct key_origin config_model_origin(const struct config *cfg, const char *folder);

/* Warm-up steps of a run of n_steps, from warmup_steps or warmup_ratio. */
int64_t config_warmup_steps(const struct config *cfg, int64_t n_steps);

/* True when report_to names the target. */
int config_reports_to(const struct config *cfg, enum config_report target);

/* The config as YAML that loads back to the same config; derived values stand in comments. */
enum status config_print_yaml(const struct config *cfg, struct str *out) MUST_CHECK;

/* A value that reads back as this text (valid UTF-8): in quotes, where others would see more in
 * it. */
void config_add_text(struct str *out, const char *text);

/* Every key with its value (unset: null). The caller owns the object. */
enum status config_json(const struct config *cfg, json_t **out) MUST_CHECK;

/* Adds as YAML how the data of a config that config_json described was cut and, with `with_data`,
 * which it was: what evaluation on the same data needs. */
void config_add_data(struct str *out, const json_t *config, int with_data);

/* What a change of a key does to a run that is resumed: a column of config.def. */
enum config_resume { CONFIG_RESUME_EXACT, CONFIG_RESUME_FREE, CONFIG_RESUME_LOCAL };

/* Adds "key is 2 (demo.yaml:7), was 1" to out for each key of that kind whose value is not the one
 * in `before`, an object that config_json made, with "; " between them; a key that is not in there
 * was unset. Returns how many there are. */
size_t config_changes(const struct config *cfg, const json_t *before, enum config_resume kind,
                      struct str *out);

/* What `optim` says beside the rule: states in 8-bit codes; states that may live on the host. */
int config_optim_is_8bit(const struct config *cfg);
int config_optim_is_paged(const struct config *cfg);
int config_optim_is_lion(const struct config *cfg);
int config_optim_is_muon(const struct config *cfg);
/* States of each matrix that have a number, or a code, for every element of it. */
int config_optim_moments(const struct config *cfg);

/* What the config holds on the device although a plan could do without it there: blocks that
 * gradient_checkpointing does not name, and what an offloading key says `false` to. Whether there
 * is such a key; the settings that let go of it ("offload_param=auto ...") added to out; all of
 * them set to auto. */
int config_holds(const struct config *cfg);
void config_add_held(const struct config *cfg, struct str *out);
void config_release(struct config *cfg);

/* Canonical word of a choice, as in "cosine" for CONFIG_SCHEDULE_COSINE; set is the name in
 * config.def. */
const char *config_choice_name(const char *set, int value);

/* A row of config.def, for help and completion. */
/* What a name on a command line is. VALUE: a key that needs a value; SWITCH: one that is true or
 * false; MAYBE: one that may be, or a name that is known and not a key. Other spellings count. */
enum config_name_kind {
    CONFIG_NAME_NONE,
    CONFIG_NAME_VALUE,
    CONFIG_NAME_SWITCH,
    CONFIG_NAME_MAYBE
};
enum config_name_kind config_name_kind(const char *name);

struct config_key_info {
    const char *name, *preset, *meaning; /* preset "": unset */
};
/* Row i of the keys alone; 0 past the last one. */
int config_key_info(size_t i, struct config_key_info *out);
/* Adds the words that key takes ("true, false, auto"); nothing where it is no choice of words. */
void config_key_words(struct str *out, const char *name);

/* The text of docs/CONFIG.md. */
void config_docs_markdown(struct str *out);

#ifdef __cplusplus
}
#endif
#endif
