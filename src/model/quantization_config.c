#include "model/quantization_config.h"

#include <string.h>

static const char *text_of(const json_t *config, const char *key, const char *preset)
{
    const json_t *x = json_object_get(config, key);
    return json_is_string(x) ? json_string_value(x) : preset;
}

static bool is_true(const json_t *config, const char *key)
{
    return json_is_true(json_object_get(config, key));
}

static enum status read_4bit(struct model *m, const json_t *config)
{
    const char *type = text_of(config, "bnb_4bit_quant_type", "fp4");
    const char *storage = text_of(config, "bnb_4bit_quant_storage", "uint8");
    if (strcmp(type, "nf4") != 0 && strcmp(type, "fp4") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "key 'quantization_config': bnb_4bit_quant_type '%s' is neither nf4 nor fp4",
                    type);
    if (strcmp(storage, "uint8") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "key 'quantization_config': codes stored as %s cannot be loaded, only as uint8",
                    storage);
    m->quantization.code = strcmp(type, "nf4") == 0 ? CODE_NF4 : CODE_FP4;
    m->quantization.nested = is_true(config, "bnb_4bit_use_double_quant");
    return OK;
}

/* Without names transformers leaves out the head. */
static enum status read_skipped(struct model *m, const json_t *names)
{
    static const char *const head[] = {"lm_head"};
    const char **items;
    if (!json_is_array(names)) {
        m->unquantized = (struct name_list){head, ARRAY_LEN(head)};
        return OK;
    }
    size_t n = json_array_size(names), i;
    json_t *name;
    TRY(pool_try(&m->pool, &items, (n + 1) * sizeof(*items)));
    json_array_foreach(names, i, name)
    {
        items[i] = pool_strdup(&m->pool, json_is_string(name) ? json_string_value(name) : "");
    }
    m->unquantized = (struct name_list){items, n};
    return pool_status(&m->pool);
}

/* Weights of BitNet are stored as what is trained ("online"), or packed for inference. */
static enum status read_ternary(struct model *m, const json_t *config)
{
    const char *mode = text_of(config, "quantization_mode", "offline");
    if (strcmp(mode, "online") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "key 'quantization_config': ternary weights that are packed for inference "
                    "cannot be loaded; take the folder of the weights that were trained "
                    "(quantization_mode online, such as ..-bf16)");
    if (is_true(config, "use_rms_norm"))
        return FAIL(ERR_UNSUPPORTED,
                    "key 'quantization_config': use_rms_norm: norms inside of linear layers cannot "
                    "be had, only those of model_type bitnet");
    m->ternary = true;
    return OK;
}

json_t *model_ternary_config(void)
{
    return json_pack("{s:s, s:s, s:s}", "quant_method", "bitnet", "linear_class", "autobitlinear",
                     "quantization_mode", "online");
}

/* What a Llama takes for granted, and a BitNet otherwise. */
static int set_presets(json_t *config)
{
    int bad = 0;
    if (!json_object_get(config, "rms_norm_eps"))
        bad |= json_object_set_new(config, "rms_norm_eps", json_real(1e-6));
    if (!json_object_get(config, "rope_theta") && !json_object_get(config, "rope_parameters"))
        bad |= json_object_set_new(config, "rope_theta", json_real(10000));
    if (!json_object_get(config, "hidden_act"))
        bad |= json_object_set_new(config, "hidden_act", json_string("silu"));
    return bad;
}

enum status model_config_make_ternary(json_t *config)
{
    const char *type = text_of(config, "model_type", "");
    if (strcmp(type, "llama") != 0 && strcmp(type, "bitnet") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "bitnet is for models of model_type llama (or bitnet), not '%s'", type);
    int bad = strcmp(type, "llama") == 0 ? set_presets(config) : 0;
    bad |= json_object_set_new(config, "model_type", json_string("bitnet"));
    bad |= json_object_set_new(config, "quantization_config", model_ternary_config());
    (void)json_object_del(config, "architectures");
    (void)json_object_del(config, "mlp_bias");
    return bad ? FAIL(ERR_MEMORY, "out of memory for a config") : OK;
}

enum status model_parse_quantization(struct model *m, const json_t *config)
{
    if (!config || json_is_null(config))
        return OK;
    const char *method = text_of(config, "quant_method", "bitsandbytes");
    if (strcmp(method, "bitnet") == 0)
        return read_ternary(m, config);
    if (strcmp(method, "bitsandbytes") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "key 'quantization_config': weights quantised by %s cannot be loaded; take the "
                    "unquantised model (load_in_4bit quantises it), or one by bitsandbytes",
                    method);
    if (is_true(config, "load_in_4bit") || is_true(config, "_load_in_4bit"))
        TRY(read_4bit(m, config));
    else if (is_true(config, "load_in_8bit") || is_true(config, "_load_in_8bit"))
        m->quantization.code = CODE_INT8;
    m->stored_quantized = m->quantization.code != CODE_NONE;
    return read_skipped(m, json_object_get(config, "llm_int8_skip_modules"));
}
