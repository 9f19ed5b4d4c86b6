/* resolve.c: what follows from what was set, and what contradicts itself.
 *
 * Fields the user set are never changed; unset ones are filled in and marked derived, so that a
 * printed config loads back to the same one.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "config/config_internal.h"

static int is_set(const struct config *cfg, const void *field)
{
    return config_state_of(cfg, field) == STATE_SET;
}

static void derive_int(struct config *cfg, int64_t *field, int64_t value)
{
    if (is_set(cfg, field))
        return;
    *field = value;
    config_mark_derived(cfg, field);
}

static void derive_number(struct config *cfg, double *field, double value)
{
    if (is_set(cfg, field))
        return;
    *field = value;
    config_mark_derived(cfg, field);
}

static void derive_text(struct config *cfg, const char **field, const char *value)
{
    if (is_set(cfg, field))
        return;
    *field = value;
    config_mark_derived(cfg, field);
}

static const char *ranks_word(int64_t n)
{
    return n == 1 ? "rank" : "ranks";
}

/* One of the two factors is given: the other is the rest of the total. */
static enum status divide_batch(struct config *cfg, const int64_t *given, const char *given_name,
                                int64_t *wanted, int64_t highest)
{
    int64_t total = cfg->train_batch_size, step = *given * cfg->n_ranks;
    if (total % step == 0 && total / step <= highest) {
        derive_int(cfg, wanted, total / step);
        return OK;
    }
    int64_t below = total - total % step;
    return FAIL(ERR_CONFIG,
                "train_batch_size %lld (%s) is not a multiple of %s %lld (%s) x %lld %s = %lld; "
                "write %lld, or leave one of them out",
                (long long)total, config_where(cfg, "train_batch_size"), given_name,
                (long long)*given, config_where(cfg, given_name), (long long)cfg->n_ranks,
                ranks_word(cfg->n_ranks), (long long)step, (long long)(below ? below : step));
}

/* The micro-batch is left to the planner, unless the accumulation says what it is. */
static enum status resolve_open_batch(struct config *cfg)
{
    int64_t step = cfg->gradient_accumulation_steps * cfg->n_ranks;
    if (!is_set(cfg, &cfg->train_batch_size))
        return FAIL(ERR_CONFIG,
                    "%s: per_device_train_batch_size: auto chooses how a step is cut into "
                    "micro-batches: write train_batch_size, the sequences of a step, too",
                    config_where(cfg, "per_device_train_batch_size"));
    if (cfg->train_batch_size %
        (is_set(cfg, &cfg->gradient_accumulation_steps) ? step : cfg->n_ranks))
        return divide_batch(cfg, &cfg->gradient_accumulation_steps, "gradient_accumulation_steps",
                            &cfg->per_device_train_batch_size, 1 << 20);
    if (!is_set(cfg, &cfg->gradient_accumulation_steps))
        return OK;
    cfg->per_device_train_batch_size = cfg->train_batch_size / step;
    config_remark(cfg,
                  "%s: per_device_train_batch_size: auto has nothing to choose: with "
                  "gradient_accumulation_steps %lld (%s) it is %lld; "
                  "gradient_accumulation_steps=auto leaves the choice",
                  config_where(cfg, "per_device_train_batch_size"),
                  (long long)cfg->gradient_accumulation_steps,
                  config_where(cfg, "gradient_accumulation_steps"),
                  (long long)cfg->per_device_train_batch_size);
    return OK;
}

/* With one micro-batch a step it is the micro-batch and the batch. */
static enum status take_batch_size(struct config *cfg)
{
    int64_t n = cfg->batch_size;
    int64_t *micro = &cfg->per_device_train_batch_size, *total = &cfg->train_batch_size;
    if (!is_set(cfg, &cfg->batch_size))
        return OK;
    if (cfg->gradient_accumulation_steps != 1)
        return FAIL(
            ERR_CONFIG,
            "%s: batch_size with gradient_accumulation_steps %lld (%s): some tools mean the "
            "micro-batch and some the whole batch: write per_device_train_batch_size or "
            "train_batch_size",
            config_where(cfg, "batch_size"), (long long)cfg->gradient_accumulation_steps,
            config_where(cfg, "gradient_accumulation_steps"));
    if ((is_set(cfg, micro) && *micro != n) || (is_set(cfg, total) && *total != n * cfg->n_ranks))
        return FAIL(ERR_CONFIG,
                    "%s: batch_size %lld beside per_device_train_batch_size or train_batch_size of "
                    "another size: keep one of them",
                    config_where(cfg, "batch_size"), (long long)n);
    derive_int(cfg, micro, n);
    return OK;
}

static enum status resolve_batch(struct config *cfg)
{
    int64_t *micro = &cfg->per_device_train_batch_size, *total = &cfg->train_batch_size;
    int64_t *accumulation = &cfg->gradient_accumulation_steps;
    const char *const micro_name = "per_device_train_batch_size";
    const char *const accumulation_name = "gradient_accumulation_steps";
    if (*accumulation == CONFIG_AUTO) { /* as if it were left out */
        *accumulation = 1;
        config_mark_derived(cfg, accumulation);
    }
    TRY(take_batch_size(cfg));
    if (*micro == CONFIG_AUTO)
        return resolve_open_batch(cfg);
    if (is_set(cfg, total)) {
        if (is_set(cfg, micro) && !is_set(cfg, accumulation))
            return divide_batch(cfg, micro, micro_name, accumulation, 1 << 20);
        if (!is_set(cfg, micro)) /* accumulation is given, or 1 by default */
            return divide_batch(cfg, accumulation, accumulation_name, micro, 1 << 20);
    }
    int64_t product = *micro * *accumulation * cfg->n_ranks; /* the ranges keep it below 2^60 */
    derive_int(cfg, total, product);
    if (*total == product)
        return OK;
    return FAIL(ERR_CONFIG,
                "train_batch_size %lld (%s) is not %s %lld (%s) x %s %lld (%s) x %lld %s = %lld; "
                "change one of them or leave one out",
                (long long)*total, config_where(cfg, "train_batch_size"), micro_name,
                (long long)*micro, config_where(cfg, micro_name), accumulation_name,
                (long long)*accumulation, config_where(cfg, accumulation_name),
                (long long)cfg->n_ranks, ranks_word(cfg->n_ranks), (long long)product);
}

/* A group of more micro-batches than a step has would be a smaller one, and nobody would know. */
static enum status check_group(struct config *cfg)
{
    int64_t n_micro = cfg->gradient_accumulation_steps;
    if (cfg->per_device_train_batch_size == CONFIG_AUTO || cfg->micro_batch_group == CONFIG_AUTO ||
        cfg->micro_batch_group <= n_micro)
        return OK;
    return FAIL(ERR_CONFIG,
                "%s: micro_batch_group %lld, but a step has %lld micro-batch%s "
                "(gradient_accumulation_steps): write no more than that, or auto",
                config_where(cfg, "micro_batch_group"), (long long)cfg->micro_batch_group,
                (long long)n_micro, n_micro == 1 ? "" : "es");
}

/* Counts of tokens, bytes and operations are products with this one: it leaves them room in 64
 * bits. */
static enum status check_step(struct config *cfg)
{
    const int64_t most = INT64_C(1) << 40;
    if (cfg->train_batch_size <= most / cfg->max_seq_length)
        return OK;
    return FAIL(
        ERR_CONFIG,
        "%s: a step of train_batch_size %lld x max_seq_length %lld (%s) tokens: %lld are the "
        "most",
        config_where(cfg, "train_batch_size"), (long long)cfg->train_batch_size,
        (long long)cfg->max_seq_length, config_where(cfg, "max_seq_length"), (long long)most);
}

static enum status resolve_model(struct config *cfg)
{
    if (!cfg->model && !cfg->model_name_or_path)
        return FAIL(ERR_CONFIG, "no model: write model_name_or_path: FOLDER, or model: with the "
                                "keys of a config.json");
    int reads_text = 1;
    if (!cfg->model_name_or_path)
        TRY(config_check_model(cfg, &reads_text));
    if (reads_text)
        derive_text(cfg, &cfg->tokenizer,
                    cfg->model_name_or_path ? cfg->model_name_or_path : "bytes");
    return OK;
}

/* Data that is made up as it is needed: epochs mean nothing. */
static int is_endless(const struct config_datasets *d)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct config_dataset *one = &d->items[i];
        if (one->n_tokens == 0 &&
            (one->type == CONFIG_DATASET_SYNTHETIC || one->type == CONFIG_DATASET_RANDOM))
            return 1;
    }
    return 0;
}

static enum status resolve_data(struct config *cfg)
{
    derive_int(cfg, &cfg->data_seed, cfg->seed);
    if (cfg->synthetic)
        cfg->datasets.n = 0;
    if (cfg->datasets.n == 0) {
        if (!cfg->synthetic)
            config_remark(cfg, "no datasets are given: the data are synthetic");
        TRY(pool_try(&cfg->source->pool, &cfg->datasets.items, sizeof(*cfg->datasets.items)));
        cfg->datasets.items[0] = (struct config_dataset){
            .type = CONFIG_DATASET_SYNTHETIC, .text_field = "text", .where = "default"};
        cfg->datasets.n = 1;
        config_mark_derived(cfg, &cfg->datasets);
    }
    if (cfg->val_set_size > 1 && floor(cfg->val_set_size) != cfg->val_set_size)
        return FAIL(ERR_CONFIG,
                    "%s: val_set_size %.15g: below 1 it is a fraction, otherwise a whole number of "
                    "sequences",
                    config_where(cfg, "val_set_size"), cfg->val_set_size);
    if (cfg->val_set_size > 0 && cfg->eval_datasets.n)
        return FAIL(ERR_CONFIG,
                    "val_set_size (%s) and eval_datasets (%s) are both given: evaluate on one",
                    config_where(cfg, "val_set_size"), config_where(cfg, "eval_datasets"));
    return OK;
}

/* Packed rows are full. */
static enum status resolve_grouping(struct config *cfg)
{
    if (!cfg->group_by_length || cfg->packing != CONFIG_TRISTATE_TRUE)
        return OK;
    return FAIL(ERR_CONFIG,
                "group_by_length (%s) and packing (%s): packed rows have one length; keep one of "
                "the two",
                config_where(cfg, "group_by_length"), config_where(cfg, "packing"));
}

static enum status resolve_length(struct config *cfg)
{
    if (cfg->max_steps == 0)
        return FAIL(ERR_CONFIG,
                    "%s: max_steps 0 trains nothing; write -1 to let num_train_epochs decide",
                    config_where(cfg, "max_steps"));
    if (cfg->max_steps > 0 && is_set(cfg, &cfg->num_train_epochs) && is_set(cfg, &cfg->max_steps))
        config_remark(cfg, "max_steps %lld (%s) overrides num_train_epochs (%s)",
                      (long long)cfg->max_steps, config_where(cfg, "max_steps"),
                      config_where(cfg, "num_train_epochs"));
    if (cfg->max_steps < 0 && is_endless(&cfg->datasets)) {
        if (is_set(cfg, &cfg->max_steps))
            return FAIL(ERR_CONFIG, "%s: synthetic data has no end and so no epochs: set max_steps",
                        config_where(cfg, "max_steps"));
        derive_int(cfg, &cfg->max_steps, 100);
        config_remark(cfg, "synthetic data has no end: max_steps is 100");
    }
    return OK;
}

/* A key of one rule beside another asks for what nothing would do; a value that is the default asks
 * for nothing: printed configs hold them all. */
static enum status resolve_rule_keys(struct config *cfg)
{
    int adafactor = cfg->optim == CONFIG_OPTIM_ADAFACTOR, muon = config_optim_is_muon(cfg);
    const struct {
        int is_idle;
        const char *name;
    } keys[] = {
        {!adafactor && cfg->adafactor_scale_parameter, "adafactor_scale_parameter"},
        {!adafactor && cfg->adafactor_relative_step, "adafactor_relative_step"},
        {!adafactor && cfg->adafactor_clip_threshold != 1.0, "adafactor_clip_threshold"},
        {!adafactor && cfg->adafactor_decay_rate != -0.8, "adafactor_decay_rate"},
        {!muon && cfg->muon_momentum != 0.95, "muon_momentum"},
        {!muon && !cfg->muon_nesterov, "muon_nesterov"},
        {!muon && cfg->muon_ns_steps != 5, "muon_ns_steps"},
        {!muon && cfg->muon_adjust_lr != CONFIG_ADJUST_LR_MATCH_RMS_ADAMW, "muon_adjust_lr"},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (keys[i].is_idle)
            return FAIL(ERR_CONFIG, "%s: %s belongs to optim: %s; here it is %s",
                        config_where(cfg, keys[i].name), keys[i].name,
                        keys[i].name[0] == 'm' ? "muon" : "adafactor",
                        config_choice_name("optim", (int)cfg->optim));
    }
    return OK;
}

static enum status resolve_optimizer(struct config *cfg)
{
    TRY(resolve_rule_keys(cfg));
    if (config_optim_is_lion(cfg)) /* its moment is a direction, and a thousand steps are too old */
        derive_number(cfg, &cfg->adam_beta2, 0.99);
    if (cfg->ema_decay > 0 && cfg->fp16)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: ema_decay goes with f32 and bf16 weights; with fp16 (%s) leave it out",
                    config_where(cfg, "ema_decay"), config_where(cfg, "fp16"));
    if (cfg->lookahead_steps > 0 && cfg->master_dtype == CONFIG_MASTER_24BIT)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: lookahead_steps does not go with master_dtype: 24bit (%s); write f32 or "
                    "bf16",
                    config_where(cfg, "lookahead_steps"), config_where(cfg, "master_dtype"));
    if (cfg->lookahead_steps == 0 && cfg->lookahead_alpha != 0.5)
        return FAIL(ERR_CONFIG, "%s: lookahead_alpha needs lookahead_steps above 0",
                    config_where(cfg, "lookahead_alpha"));
    if (cfg->momentum > 0 && cfg->optim != CONFIG_OPTIM_SGD)
        return FAIL(ERR_CONFIG,
                    "%s: momentum belongs to optim sgd; for adamw and lion set adam_beta1",
                    config_where(cfg, "momentum"));
    if (cfg->nesterov && !(cfg->momentum > 0))
        return FAIL(ERR_CONFIG, "%s: nesterov needs optim: sgd and momentum above 0",
                    config_where(cfg, "nesterov"));
    if (cfg->adafactor_warmup_init && !cfg->adafactor_relative_step)
        return FAIL(ERR_CONFIG,
                    "%s: adafactor_warmup_init needs adafactor_relative_step: true, as it does in "
                    "transformers; for a warm-up of learning_rate set warmup_steps",
                    config_where(cfg, "adafactor_warmup_init"));
    if ((cfg->optim == CONFIG_OPTIM_ADAFACTOR || config_optim_is_muon(cfg)) &&
        cfg->optim_state_dtype != CONFIG_F32)
        return FAIL(ERR_CONFIG, "%s: optim: %s has no states in bf16; leave optim_state_dtype out",
                    config_where(cfg, "optim_state_dtype"),
                    config_choice_name("optim", (int)cfg->optim));
    if (config_optim_is_8bit(cfg) && cfg->optim_state_dtype != CONFIG_F32)
        return FAIL(
            ERR_CONFIG,
            "%s: optim: %s keeps its moments in 8-bit codes; leave optim_state_dtype out, or "
            "write optim: %s",
            config_where(cfg, "optim_state_dtype"), config_choice_name("optim", (int)cfg->optim),
            config_optim_is_lion(cfg) ? "lion" : "adamw");
    if (config_optim_is_paged(cfg) && cfg->offload_optimizer == CONFIG_OFFLOAD_FALSE)
        return FAIL(
            ERR_CONFIG,
            "%s: optim: %s may keep its moments in host memory, and offload_optimizer: false keeps "
            "them on the device; leave one of the two out",
            config_where(cfg, "offload_optimizer"), config_choice_name("optim", (int)cfg->optim));
    return OK;
}

/* What goes to disk goes into a folder that somebody has named. */
static enum status resolve_disk(struct config *cfg)
{
    const struct {
        const char *key;
        int asks;
    } keys[] = {
        {"offload_optimizer", cfg->offload_optimizer == CONFIG_OFFLOAD_DISK},
        {"offload_param", cfg->offload_param == CONFIG_OFFLOAD_DISK},
        {"activation_offloading", cfg->activation_offloading == CONFIG_OFFLOAD_DISK},
        {"disk_memory", cfg->disk_memory != CONFIG_AUTO && cfg->disk_memory != CONFIG_UNSET},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys) && !cfg->offload_folder; i++) {
        if (keys[i].asks)
            return FAIL(ERR_CONFIG,
                        "%s: %s asks for disk, and no folder is named for it: set offload_folder "
                        "(nvme_path)",
                        config_where(cfg, keys[i].key), keys[i].key);
    }
    return OK;
}

/* Keys that say how the loss is scaled: only half precision scales it. A value that is the default
 * asks for nothing: printed configs hold them all. */
static enum status resolve_loss_scale(struct config *cfg)
{
    const struct {
        int is_changed;
        const char *name;
    } keys[] = {{cfg->loss_scale > 0, "loss_scale"},
                {cfg->initial_scale_power != 16, "initial_scale_power"},
                {cfg->loss_scale_window != 2000, "loss_scale_window"},
                {cfg->loss_scale_hysteresis != 1, "loss_scale_hysteresis"},
                {cfg->min_loss_scale > 1 || cfg->min_loss_scale < 1, "min_loss_scale"}};
    int possible = cfg->fp16 || cfg->bf16 == CONFIG_TRISTATE_AUTO;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (keys[i].is_changed && !possible)
            return FAIL(ERR_CONFIG, "%s: %s belongs to fp16: true; without it no loss is scaled",
                        config_where(cfg, keys[i].name), keys[i].name);
        if (i > 0 && keys[i].is_changed && cfg->loss_scale > 0)
            return FAIL(ERR_CONFIG,
                        "%s: %s belongs to a dynamic loss scale; loss_scale %g (%s) "
                        "fixes it",
                        config_where(cfg, keys[i].name), keys[i].name, cfg->loss_scale,
                        config_where(cfg, "loss_scale"));
    }
    return OK;
}

static enum status resolve_precision(struct config *cfg)
{
    if (cfg->bf16 == CONFIG_TRISTATE_TRUE && cfg->fp16)
        return FAIL(ERR_CONFIG, "bf16 (%s) and fp16 (%s) are both true: keep one",
                    config_where(cfg, "bf16"), config_where(cfg, "fp16"));
    if (cfg->fp16) /* it says what `bf16: auto` leaves open */
        cfg->bf16 = CONFIG_TRISTATE_FALSE;
    if (cfg->master_dtype != CONFIG_MASTER_F32 && cfg->bf16 != CONFIG_TRISTATE_TRUE)
        return FAIL(ERR_CONFIG,
                    "%s: master_dtype: %s is about bf16 weights, which are updated in place: set "
                    "bf16: true, or master_dtype: f32",
                    config_where(cfg, "master_dtype"),
                    config_choice_name("master", (int)cfg->master_dtype));
    if (cfg->master_dtype == CONFIG_MASTER_24BIT &&
        (cfg->optim == CONFIG_OPTIM_SGD || cfg->optim == CONFIG_OPTIM_ADAFACTOR))
        return FAIL(ERR_UNSUPPORTED,
                    "%s: master_dtype: 24bit goes with adamw, lion and muon; with optim: %s write "
                    "f32 or bf16",
                    config_where(cfg, "master_dtype"),
                    config_choice_name("optim", (int)cfg->optim));
    if (cfg->gradient_dtype == CONFIG_BF16 && cfg->fp16)
        return FAIL(ERR_CONFIG,
                    "%s: gradient_dtype: bf16 goes with bf16: true; with fp16 (%s) gradients are "
                    "f32",
                    config_where(cfg, "gradient_dtype"), config_where(cfg, "fp16"));
    return OK;
}

/* Evaluations run with the weights as they are. */
static enum status resolve_full_eval(struct config *cfg)
{
    if (cfg->bf16_full_eval && cfg->bf16 != CONFIG_TRISTATE_TRUE)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: bf16_full_eval: evaluations compute as training does; set bf16: true, or "
                    "leave it out",
                    config_where(cfg, "bf16_full_eval"));
    if (cfg->fp16_full_eval && !cfg->fp16)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: fp16_full_eval: evaluations compute as training does; set fp16: true, or "
                    "leave it out",
                    config_where(cfg, "fp16_full_eval"));
    return OK;
}

static enum status resolve_device(struct config *cfg)
{
    if (!cfg->use_cpu || cfg->device == CONFIG_DEVICE_CPU)
        return OK;
    if (is_set(cfg, &cfg->device) && cfg->device == CONFIG_DEVICE_CUDA)
        return FAIL(ERR_CONFIG, "use_cpu (%s) and device: cuda (%s): keep one",
                    config_where(cfg, "use_cpu"), config_where(cfg, "device"));
    cfg->device = CONFIG_DEVICE_CPU;
    config_mark_derived(cfg, &cfg->device);
    return OK;
}

static enum status resolve_logging(struct config *cfg)
{
    derive_text(cfg, &cfg->run_name, cfg->output_dir);
    if (!is_set(cfg, &cfg->logging_dir)) {
        const char *folder = pool_printf(&cfg->source->pool, "%s/runs", cfg->output_dir);
        if (!folder)
            return pool_status(&cfg->source->pool);
        derive_text(cfg, &cfg->logging_dir, folder);
    }
    if (config_reports_to(cfg, CONFIG_REPORT_NONE) && cfg->report_to.n > 1)
        return FAIL(ERR_CONFIG, "%s: report_to: none stands alone", config_where(cfg, "report_to"));
    return OK;
}

/* Keys of an adapter do nothing without one. */
static enum status resolve_adapter(struct config *cfg)
{
    const void *const fields[] = {
        &cfg->lora_r,        &cfg->lora_alpha,         &cfg->lora_dropout,
        &cfg->use_rslora,    &cfg->use_dora,           &cfg->lora_target_modules,
        &cfg->lora_bias,     &cfg->rank_pattern,       &cfg->lora_modules_to_save,
        &cfg->alpha_pattern, &cfg->lora_target_linear,
    };
    if (cfg->adapter != CONFIG_ADAPTER_NONE || cfg->adapter_name_or_path)
        return OK;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const char *name = config_name_of(cfg, fields[i]);
        if (config_is_set(cfg, name))
            return FAIL(ERR_CONFIG,
                        "%s: %s is of an adapter, and there is none: write adapter: lora too",
                        config_where(cfg, name), name);
        config_mark_idle(cfg, fields[i]);
    }
    return OK;
}

static enum status resolve_evaluation(struct config *cfg)
{
    derive_int(cfg, &cfg->eval_steps, cfg->save_steps);
    derive_int(cfg, &cfg->per_device_eval_batch_size, cfg->per_device_train_batch_size);
    if (cfg->per_device_eval_batch_size == CONFIG_AUTO)
        cfg->per_device_eval_batch_size = cfg->per_device_train_batch_size;
    int wants = cfg->eval_strategy != CONFIG_INTERVAL_NO || cfg->eval_on_start;
    if (wants && cfg->eval_datasets.n == 0 && !(cfg->val_set_size > 0))
        return FAIL(ERR_CONFIG,
                    "%s: evaluation is asked for and there is nothing to evaluate on: set "
                    "val_set_size or eval_datasets",
                    config_where(cfg, cfg->eval_on_start ? "eval_on_start" : "eval_strategy"));
    return OK;
}

static enum status resolve_samples(struct config *cfg)
{
    const void *fields[] = {&cfg->sample_steps, &cfg->sample_max_new_tokens,
                            &cfg->sample_temperature};
    if (cfg->sample_prompts.n > 0) {
        if (cfg->eval_strategy == CONFIG_INTERVAL_NO)
            derive_int(cfg, &cfg->sample_steps, cfg->save_steps);
        return OK;
    }
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const char *name = config_name_of(cfg, fields[i]);
        if (config_is_set(cfg, name))
            return FAIL(ERR_CONFIG,
                        "%s: %s is of samples, and there is nothing to go on from: set "
                        "sample_prompts",
                        config_where(cfg, name), name);
        config_mark_idle(cfg, fields[i]);
    }
    return OK;
}

/* What goes by evaluations needs some. */
static enum status resolve_best(struct config *cfg)
{
    const char *wants = cfg->load_best_model_at_end        ? "load_best_model_at_end"
                        : cfg->early_stopping_patience > 0 ? "early_stopping_patience"
                                                           : NULL;
    if (wants && cfg->eval_strategy == CONFIG_INTERVAL_NO)
        return FAIL(ERR_CONFIG, "%s: %s goes by evaluations: set eval_strategy: steps or epoch",
                    config_where(cfg, wants), wants);
    if (cfg->load_best_model_at_end && cfg->save_strategy == CONFIG_INTERVAL_NO)
        return FAIL(ERR_CONFIG,
                    "%s: load_best_model_at_end takes the weights from a checkpoint: leave "
                    "save_strategy: no (%s) out",
                    config_where(cfg, "load_best_model_at_end"),
                    config_where(cfg, "save_strategy"));
    return OK;
}

/* What there is to settle, with the keys each step looks at. */
static const struct {
    enum status (*resolve)(struct config *cfg);
    const char *keys;
} steps[] = {
    {resolve_model, "model model_name_or_path"},
    {resolve_data, "datasets eval_datasets val_set_size"},
    {resolve_batch, "batch_size per_device_train_batch_size gradient_accumulation_steps "
                    "train_batch_size"},
    {check_step, "per_device_train_batch_size gradient_accumulation_steps train_batch_size "
                 "max_seq_length"},
    {check_group, "micro_batch_group gradient_accumulation_steps"},
    {resolve_grouping, "group_by_length packing"},
    {resolve_length, "max_steps num_train_epochs datasets"},
    {config_resolve_warmup, "warmup_steps warmup_ratio lr_scheduler_type"},
    {config_resolve_min_lr, "min_lr cosine_min_lr_ratio lr_scheduler_type learning_rate"},
    {config_resolve_schedule, "lr_scheduler_type lr_num_cycles lr_end lr_decay_steps learning_rate "
                              "eval_strategy"},
    {resolve_optimizer,
     "optim momentum nesterov optim_state_dtype adafactor_scale_parameter adafactor_relative_step "
     "adafactor_warmup_init adafactor_clip_threshold adafactor_decay_rate muon_momentum "
     "muon_nesterov muon_ns_steps muon_adjust_lr ema_decay lookahead_steps lookahead_alpha"},
    {config_resolve_quantization, "adapter load_in_4bit load_in_8bit quantization_bit"},
    {config_resolve_preferences,
     "rl dpo_beta dpo_loss label_smoothing_factor packing datasets z_loss "
     "train_on_inputs"},
    {config_resolve_phases,
     "predictive_phases phase_warmup_steps full_steps max_predict_steps correct_steps "
     "snapshot_count snapshot_steps probe_batches jump_z jump_shrinkage jump_momentum "
     "divergence_sigma optim predicted_gradients"},
    {config_resolve_prediction,
     "predicted_gradients true_micro_batches exact_blocks control_steps control_threshold "
     "per_device_train_batch_size gradient_accumulation_steps fp16 group_by_length dynamic_batch "
     "micro_batch_group rl"},
    {config_resolve_compute_dtype, "bnb_4bit_compute_dtype bf16 fp16"},
    {resolve_precision, "bf16 fp16 master_dtype gradient_dtype optim"},
    {resolve_loss_scale, "bf16 fp16 loss_scale initial_scale_power loss_scale_window "
                         "loss_scale_hysteresis min_loss_scale"},
    {resolve_disk,
     "offload_folder disk_memory activation_offloading offload_optimizer offload_param"},
    {config_resolve_adapting,
     "elastic elastic_profile elastic_cooldown elastic_budgets compile dynamic_batch "
     "dynamic_batch_min dynamic_batch_max dynamic_batch_target dynamic_batch_grow "
     "dynamic_batch_shrink dynamic_batch_every dynamic_batch_warmup dynamic_batch_smooth "
     "group_by_length"},
    {resolve_full_eval, "bf16 fp16 bf16_full_eval fp16_full_eval"},
    {resolve_adapter, "adapter lora_r lora_alpha lora_dropout lora_target_modules"},
    {resolve_device, "use_cpu device"},
    {resolve_logging, "output_dir logging_dir report_to"},
    {resolve_samples, "sample_prompts sample_steps"},
    {resolve_evaluation, "eval_strategy eval_on_start eval_datasets val_set_size"},
    {resolve_best, "eval_strategy save_strategy load_best_model_at_end early_stopping_patience"},
};

static int has_wrong_key(const struct config *cfg, const char *keys)
{
    char name[CONFIG_MAX_KEY];
    while (config_next_alias(&keys, name, sizeof(name))) {
        const struct config_key *key = config_find_key(name);
        BUG_ON(!key);
        if (cfg->source->state[key - config_keys] == STATE_WRONG)
            return 1;
    }
    return 0;
}

enum status config_resolve_all(struct config *cfg, int64_t n_ranks)
{
    BUG_ON(n_ranks < 1 || n_ranks > 1 << 20);
    cfg->n_ranks = n_ranks;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        if (!has_wrong_key(cfg, steps[i].keys))
            TRY(config_note(cfg, steps[i].resolve(cfg)));
    }
    return OK;
}

enum status config_check_numerics(struct config *cfg)
{
    TRY(resolve_optimizer(cfg));
    TRY(resolve_precision(cfg));
    TRY(resolve_loss_scale(cfg));
    return resolve_full_eval(cfg);
}

static enum status show_remarks(struct config *cfg)
{
    struct str *remarks = &cfg->source->remarks;
    int muted =
        cfg->log_level == CONFIG_LOG_LEVEL_WARNING || cfg->log_level == CONFIG_LOG_LEVEL_ERROR;
    TRY(str_status(remarks));
    if (muted)
        str_clear(remarks);
    for (const char *line = str_text(remarks); *line;) {
        size_t n = strcspn(line, "\n");
        log_info("%.*s", (int)n, line);
        line += n + 1;
    }
    str_clear(remarks);
    return OK;
}

enum status config_resolve(struct config *cfg, int64_t n_ranks)
{
    TRY(config_resolve_all(cfg, n_ranks));
    TRY(problems_status(&cfg->source->problems));
    return show_remarks(cfg);
}
