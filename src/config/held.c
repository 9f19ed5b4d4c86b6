/* held.c: what a config holds on the device although a plan could do without it there. */
#include "config/config_internal.h"

static void add_key(const char *key, struct str *out)
{
    str_addf(out, "%s%s=auto", out->n ? " " : "", key);
}

static void add_word(const char *key, enum config_offload word, struct str *out)
{
    if (word == CONFIG_OFFLOAD_FALSE)
        add_key(key, out);
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
    if (holds_blocks(&cfg->gradient_checkpointing))
        add_key("gradient_checkpointing", out);
    add_word("activation_offloading", cfg->activation_offloading, out);
    add_word("offload_optimizer", cfg->offload_optimizer, out);
    add_word("offload_param", cfg->offload_param, out);
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
