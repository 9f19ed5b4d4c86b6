/* quantization.c: what the keys of quantised weights come to. */
#include "config/config_internal.h"

/* The several ways to ask for the same become load_in_4bit or load_in_8bit. */
enum status config_resolve_quantization(struct config *cfg)
{
    bool qlora = cfg->adapter == CONFIG_ADAPTER_QLORA,
         given = cfg->quantization_bit != CONFIG_UNSET;
    if (given && cfg->quantization_bit != 4 && cfg->quantization_bit != 8)
        return FAIL(ERR_UNSUPPORTED, "%s: quantization_bit: weights are kept in 4 or 8 bits",
                    config_where(cfg, "quantization_bit"));
    bool four = cfg->load_in_4bit || qlora || (given && cfg->quantization_bit == 4);
    bool eight = cfg->load_in_8bit || (given && cfg->quantization_bit == 8);
    if (four && eight)
        return FAIL(ERR_CONFIG,
                    "%s: weights are kept in 4 bits (load_in_4bit, adapter: qlora) or in 8 "
                    "(load_in_8bit with adapter: lora), not in both",
                    config_where(cfg, cfg->load_in_8bit ? "load_in_8bit" : "quantization_bit"));
    if (four && !cfg->load_in_4bit) {
        cfg->load_in_4bit = 1;
        config_mark_derived(cfg, &cfg->load_in_4bit);
    }
    if (eight && !cfg->load_in_8bit) {
        cfg->load_in_8bit = 1;
        config_mark_derived(cfg, &cfg->load_in_8bit);
    }
    return OK;
}

static enum status fail_dtype(const struct config *cfg, const char *other)
{
    return FAIL(ERR_CONFIG,
                "%s: bnb_4bit_compute_dtype: what is computed in is one for the whole model, and "
                "%s (%s) says another; leave out one of them",
                config_where(cfg, "bnb_4bit_compute_dtype"), other, config_where(cfg, other));
}

enum status config_resolve_compute_dtype(struct config *cfg)
{
    enum config_compute_dtype asked = cfg->bnb_4bit_compute_dtype;
    bool bf16 = asked == CONFIG_COMPUTE_DTYPE_BF16, f16 = asked == CONFIG_COMPUTE_DTYPE_F16;
    bool says_bf16 = config_is_set(cfg, "bf16"), says_f16 = config_is_set(cfg, "fp16");
    if (asked == CONFIG_COMPUTE_DTYPE_AUTO)
        return OK;
    if (says_bf16 && (cfg->bf16 == CONFIG_TRISTATE_TRUE) != bf16 &&
        cfg->bf16 != CONFIG_TRISTATE_AUTO)
        return fail_dtype(cfg, "bf16");
    if (says_f16 && cfg->fp16 != f16)
        return fail_dtype(cfg, "fp16");
    cfg->bf16 = bf16 ? CONFIG_TRISTATE_TRUE : CONFIG_TRISTATE_FALSE;
    cfg->fp16 = f16;
    config_mark_derived(cfg, &cfg->bf16);
    config_mark_derived(cfg, &cfg->fp16);
    return OK;
}
