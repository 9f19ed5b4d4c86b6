/* held.c: what a config holds on the device although a plan could do without it there. */
#include "config/config_internal.h"

/* "key: value (demo.yaml:7)", when that key holds something. */
static void add_key(const struct config *cfg, const char *key, const char *value, struct str *out)
{
    str_addf(out, "%s%s: %s (%s)", out->n ? " and " : "without ", key, value,
             config_where(cfg, key));
}

static void add_word(const struct config *cfg, const char *key, enum config_offload word,
                     struct str *out)
{
    if (word == CONFIG_OFFLOAD_FALSE)
        add_key(cfg, key, "false", out);
}

static int holds_blocks(const struct block_set *recomputed)
{
    return !recomputed->all && !recomputed->is_open;
}

int config_holds(const struct config *cfg)
{
    return holds_blocks(&cfg->gradient_checkpointing) ||
           cfg->activation_offloading == CONFIG_OFFLOAD_FALSE ||
           cfg->offload_optimizer == CONFIG_OFFLOAD_FALSE ||
           cfg->offload_param == CONFIG_OFFLOAD_FALSE;
}

void config_add_held(const struct config *cfg, struct str *out)
{
    const struct block_set *recomputed = &cfg->gradient_checkpointing;
    struct str keys = {0};
    if (holds_blocks(recomputed))
        add_key(cfg, "gradient_checkpointing", recomputed->text, &keys);
    add_word(cfg, "activation_offloading", cfg->activation_offloading, &keys);
    add_word(cfg, "offload_optimizer", cfg->offload_optimizer, &keys);
    add_word(cfg, "offload_param", cfg->offload_param, &keys);
    str_add(out, str_text(&keys));
    str_release(&keys);
}

void config_release(struct config *cfg)
{
    if (holds_blocks(&cfg->gradient_checkpointing))
        cfg->gradient_checkpointing = (struct block_set){.text = "auto", .is_open = true};
    if (cfg->activation_offloading == CONFIG_OFFLOAD_FALSE)
        cfg->activation_offloading = CONFIG_OFFLOAD_AUTO;
    if (cfg->offload_optimizer == CONFIG_OFFLOAD_FALSE)
        cfg->offload_optimizer = CONFIG_OFFLOAD_AUTO;
    if (cfg->offload_param == CONFIG_OFFLOAD_FALSE)
        cfg->offload_param = CONFIG_OFFLOAD_AUTO;
}
