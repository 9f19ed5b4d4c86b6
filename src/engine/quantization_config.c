#include "engine/quantization_config.h"

#include <string.h>

static struct quantization asked_for(const struct config *cfg)
{
    bool fp4 = cfg->bnb_4bit_quant_type == CONFIG_QUANT_TYPE_FP4;
    if (cfg->load_in_8bit)
        return (struct quantization){.code = CODE_INT8};
    if (!cfg->load_in_4bit)
        return (struct quantization){0};
    return (struct quantization){.code = fp4 ? CODE_FP4 : CODE_NF4,
                                 .nested = cfg->bnb_4bit_use_double_quant};
}

/* Keys of 4 bits without them would do nothing. A value that is the default asks for nothing:
 * printed configs hold them all. */
static enum status check_keys(const struct config *cfg, struct quantization q)
{
    const struct {
        bool is_changed;
        const char *name;
    } keys[] = {
        {cfg->bnb_4bit_quant_type != CONFIG_QUANT_TYPE_NF4, "bnb_4bit_quant_type"},
        {!cfg->bnb_4bit_use_double_quant, "bnb_4bit_use_double_quant"},
        {cfg->bnb_4bit_compute_dtype != CONFIG_COMPUTE_DTYPE_AUTO, "bnb_4bit_compute_dtype"}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (keys[i].is_changed && q.code != CODE_NF4 && q.code != CODE_FP4)
            return FAIL(ERR_CONFIG, "%s: %s is of weights in 4 bits: write load_in_4bit: true too",
                        config_where(cfg, keys[i].name), keys[i].name);
    }
    return OK;
}

static enum status fail_stored(const struct config *cfg, const char *key, struct quantization q)
{
    return FAIL(ERR_CONFIG,
                "%s: %s: the model's weights are stored in %s%s, and stay so; leave it out",
                config_where(cfg, key), key, block_code_name(q.code),
                q.nested ? " with double quantisation" : "");
}

static bool skips_head_alone(const struct config *cfg)
{
    const struct config_list *skipped = &cfg->llm_int8_skip_modules;
    return skipped->n == 1 && strcmp(skipped->items[0], "lm_head") == 0;
}

/* What the config says of weights that are stored as codes already. */
static enum status check_stored(const struct config *cfg, struct quantization q)
{
    bool is_8bit = q.code == CODE_INT8;
    if (cfg->load_in_8bit && !is_8bit)
        return fail_stored(cfg, "load_in_8bit", q);
    if (cfg->load_in_4bit && is_8bit)
        return fail_stored(cfg, cfg->adapter == CONFIG_ADAPTER_QLORA ? "adapter" : "load_in_4bit",
                           q);
    if (cfg->bnb_4bit_quant_type == CONFIG_QUANT_TYPE_FP4 && q.code == CODE_NF4)
        return fail_stored(cfg, "bnb_4bit_quant_type", q);
    if (!cfg->bnb_4bit_use_double_quant && q.nested)
        return fail_stored(cfg, "bnb_4bit_use_double_quant", q);
    if (!skips_head_alone(cfg))
        return fail_stored(cfg, "llm_int8_skip_modules", q);
    return check_keys(cfg, q);
}

static enum status copy_skipped(struct model *model, const struct config *cfg)
{
    const struct config_list *from = &cfg->llm_int8_skip_modules;
    const char **items;
    TRY(pool_try(&model->pool, &items, (from->n + 1) * sizeof(*items)));
    for (size_t i = 0; i < from->n; i++)
        items[i] = pool_strdup(&model->pool, from->items[i]);
    model->unquantized = (struct name_list){items, from->n};
    return pool_status(&model->pool);
}

/* BitNet trains the weights themselves, rounded wherever they are read. */
static enum status check_ternary(const struct config *cfg)
{
    const char *key = cfg->adapter != CONFIG_ADAPTER_NONE || cfg->adapter_name_or_path ? "adapter"
                      : cfg->load_in_4bit ? "load_in_4bit"
                                          : "load_in_8bit";
    if (cfg->adapter == CONFIG_ADAPTER_NONE && !cfg->adapter_name_or_path && !cfg->load_in_4bit &&
        !cfg->load_in_8bit)
        return OK;
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s: quantization: bitnet trains the weights themselves, in full; leave it out",
                config_where(cfg, key), key);
}

enum status quantization_from_config(struct model *model, const struct config *cfg)
{
    if (model->ternary)
        return check_ternary(cfg);
    if (model->stored_quantized)
        return check_stored(cfg, model->quantization);
    struct quantization q = asked_for(cfg);
    TRY(check_keys(cfg, q));
    if (q.code == CODE_NONE && !skips_head_alone(cfg))
        return FAIL(ERR_CONFIG,
                    "%s: llm_int8_skip_modules is of quantised weights: write load_in_4bit: true "
                    "or load_in_8bit: true too",
                    config_where(cfg, "llm_int8_skip_modules"));
    if (q.code != CODE_NONE && model->samples.n_fields > 0)
        return FAIL(ERR_UNSUPPORTED, "%s: networks of layers are not quantised",
                    config_where(cfg, cfg->load_in_8bit ? "load_in_8bit" : "load_in_4bit"));
    model->quantization = q;
    return copy_skipped(model, cfg);
}
