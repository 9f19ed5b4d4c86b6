/* precision_config.c: the dtypes that a config asks for, on a device that may not have them. */
#include "engine/settings.h"

/* Products of 16-bit floats are worth their rounding where they are clearly faster than f32's. */
static bool is_fast_at_half(const struct device *d)
{
    return d->rates.half_matmul_flops > 1.5 * d->rates.matmul_flops;
}

static enum status need_bf16(const struct config *cfg, const struct device *d)
{
    if (!d->lacks_bf16)
        return OK;
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s does not compute in bfloat16; write fp16: true (half precision with loss "
                "scaling), or leave both out for f32",
                config_where(cfg, "bf16"), d->description);
}

/* A plan for a card says what would run there; on a GPU that is here the config is refused, so that
 * nobody trains in other numbers than were asked for. */
bool precision_is_replaced(const struct config *cfg, const struct device *d)
{
    bool asked = cfg->bf16 == CONFIG_TRISTATE_TRUE || cfg->gradient_dtype == CONFIG_BF16;
    return d->is_absent && d->lacks_bf16 && asked;
}

enum status precision_from_config(const struct config *cfg, const struct device *d,
                                  struct precision *out)
{
    bool bf16 = cfg->bf16 == CONFIG_TRISTATE_TRUE, f16 = cfg->fp16;
    bool instead = precision_is_replaced(cfg, d);
    if (cfg->bf16 == CONFIG_TRISTATE_AUTO && is_fast_at_half(d)) {
        bf16 = !d->lacks_bf16;
        f16 = d->lacks_bf16;
    }
    if (instead) {
        bf16 = false;
        f16 = true;
    }
    if (bf16)
        TRY(need_bf16(cfg, d));
    *out = bf16 ? precision_bf16() : f16 ? precision_f16() : precision_f32();
    out->masters = out->masters && (cfg->master_dtype != CONFIG_MASTER_BF16 || instead);
    out->split_masters = bf16 && cfg->master_dtype == CONFIG_MASTER_24BIT;
    if (cfg->gradient_dtype == CONFIG_BF16 && !instead) {
        if (f16)
            return FAIL(ERR_UNSUPPORTED,
                        "%s: gradient_dtype: bf16 does not go with half precision, which bf16: "
                        "auto chose for %s; write gradient_dtype: f32",
                        config_where(cfg, "gradient_dtype"), d->description);
        TRY(need_bf16(cfg, d));
        out->gradients = DTYPE_BF16;
    }
    if (cfg->optim_state_dtype == CONFIG_BF16)
        out->states = FORMAT_BF16; /* storage alone: updates compute in f32 */
    if (config_optim_is_8bit(cfg))
        out->states = FORMAT_BLOCK8;
    if (cfg->optim == CONFIG_OPTIM_ADAFACTOR)
        out->states = FORMAT_FACTORED;
    return OK;
}
