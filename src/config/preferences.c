/* preferences.c: what goes with training on preferences, and what does not. */
#include "config/config_internal.h"

/* They do nothing where there are no preferences. */
static enum status refuse_idle(struct config *cfg)
{
    const void *const fields[] = {&cfg->dpo_beta, &cfg->dpo_loss};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const char *name = config_name_of(cfg, fields[i]);
        if (config_is_set(cfg, name))
            return FAIL(ERR_CONFIG, "%s: %s is of preferences: write rl: dpo too",
                        config_where(cfg, name), name);
        config_mark_idle(cfg, fields[i]);
    }
    return OK;
}

static enum status refuse(const struct config *cfg, const char *key, const char *why)
{
    return FAIL(ERR_CONFIG, "%s: %s: with rl: dpo %s", config_where(cfg, key), key, why);
}

static int is_made_up(enum config_dataset_type type)
{
    return type == CONFIG_DATASET_SYNTHETIC || type == CONFIG_DATASET_RANDOM;
}

static enum status check_datasets(const struct config *cfg, const struct config_datasets *d,
                                  const char *key)
{
    for (size_t i = 0; i < d->n; i++) {
        enum config_dataset_type type = d->items[i].type;
        if (is_made_up(type))
            return refuse(cfg, key, "there have to be records with a prompt, chosen and rejected");
        if (type != CONFIG_DATASET_AUTO && type != CONFIG_DATASET_JSONL &&
            type != CONFIG_DATASET_CSV && type != CONFIG_DATASET_CHAT)
            return FAIL(
                ERR_CONFIG,
                "%s: with rl: dpo records have prompt, chosen and rejected: leave out type: "
                "%s",
                d->items[i].where, config_choice_name("dataset_type", (int)type));
    }
    return OK;
}

enum status config_resolve_preferences(struct config *cfg)
{
    if (cfg->rl == CONFIG_RL_NONE)
        return refuse_idle(cfg);
    if (cfg->label_smoothing_factor >= 0.5)
        return refuse(cfg, "label_smoothing_factor", "it is below 0.5");
    if (cfg->z_loss > 0)
        return refuse(cfg, "z_loss", "the loss is that of pairs: leave it out");
    if (cfg->packing == CONFIG_TRISTATE_TRUE)
        return refuse(cfg, "packing", "answers have rows of their own: leave it out");
    if (cfg->train_on_inputs)
        return refuse(cfg, "train_on_inputs", "answers are compared and prompts are not");
    TRY(check_datasets(cfg, &cfg->datasets, "datasets"));
    return check_datasets(cfg, &cfg->eval_datasets, "eval_datasets");
}
