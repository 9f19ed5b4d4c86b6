#include "engine/adapter_config.h"

#include <math.h>
#include <string.h>

#include "engine/quantization_config.h"
#include "io/hf_dir.h"
#include "io/peft.h"

/* ---- names ----------------------------------------------------------------------------------- */

static enum status copy_names(struct pool *pool, const struct config_list *from,
                              struct name_list *to)
{
    const char **items;
    TRY(pool_try(pool, &items, (from->n + 1) * sizeof(*items)));
    for (size_t i = 0; i < from->n; i++)
        items[i] = pool_strdup(pool, from->items[i]);
    *to = (struct name_list){items, from->n};
    return pool_status(pool);
}

static enum status copy_numbers(struct pool *pool, const struct config_numbers *from,
                                const struct adapter_pattern **to, size_t *n)
{
    struct adapter_pattern *items;
    TRY(pool_try(pool, &items, (from->n + 1) * sizeof(*items)));
    for (size_t i = 0; i < from->n; i++)
        items[i] = (struct adapter_pattern){pool_strdup(pool, from->names[i]), from->values[i]};
    *to = items;
    *n = from->n;
    return pool_status(pool);
}

/* ---- adapters -------------------------------------------------------------------------------- */

static bool means_all(const char *name)
{
    return strcmp(name, "all-linear") == 0 || strcmp(name, "all_linear") == 0 ||
           strcmp(name, "all") == 0;
}

static enum status take_targets(struct adapter *a, struct pool *pool, const struct config *cfg)
{
    const struct config_list *names = &cfg->lora_target_modules;
    a->all_linear = cfg->lora_target_linear;
    for (size_t i = 0; i < names->n; i++) {
        a->all_linear |= means_all(names->items[i]);
        if (strpbrk(names->items[i], "*?()|[]\\^$"))
            return FAIL(ERR_UNSUPPORTED,
                        "%s: lora_target_modules: '%s' is a pattern; write the names of modules, "
                        "or all-linear",
                        config_where(cfg, "lora_target_modules"), names->items[i]);
    }
    return a->all_linear ? OK : copy_names(pool, names, &a->targets);
}

static enum status adapter_from_keys(struct adapter *a, struct pool *pool, const struct config *cfg)
{
    *a = (struct adapter){.rank = cfg->lora_r,
                          .alpha = cfg->lora_alpha,
                          .rank_stabilised = cfg->use_rslora,
                          .dropout = cfg->lora_dropout,
                          .magnitude = cfg->use_dora,
                          .bias = (enum adapter_bias)cfg->lora_bias};
    for (size_t i = 0; i < cfg->rank_pattern.n; i++) {
        if (floor(cfg->rank_pattern.values[i]) != cfg->rank_pattern.values[i])
            return FAIL(ERR_CONFIG, "%s: rank_pattern: the rank of %s must be a whole number",
                        config_where(cfg, "rank_pattern"), cfg->rank_pattern.names[i]);
    }
    TRY(take_targets(a, pool, cfg));
    TRY(copy_names(pool, &cfg->lora_modules_to_save, &a->saved));
    TRY(copy_numbers(pool, &cfg->rank_pattern, &a->ranks, &a->n_ranks));
    return copy_numbers(pool, &cfg->alpha_pattern, &a->alphas, &a->n_alphas);
}

/* The folder says what the adapter is: keys that say it too could only contradict. */
static enum status refuse_keys(const struct config *cfg)
{
    static const char *const keys[] = {
        "lora_r",       "lora_alpha",   "lora_target_modules",  "lora_target_linear",
        "use_rslora",   "use_dora",     "lora_modules_to_save", "lora_bias",
        "rank_pattern", "alpha_pattern"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (config_is_set(cfg, keys[i]))
            return FAIL(ERR_CONFIG,
                        "%s: %s: the adapter in adapter_name_or_path has its own; leave it out",
                        config_where(cfg, keys[i]), keys[i]);
    }
    return OK;
}

static enum status adapter_from_folder(struct adapter *a, struct pool *pool,
                                       const struct config *cfg, const char *folder)
{
    TRY(peft_read_config(a, pool, folder));
    TRY(refuse_keys(cfg));
    if (config_is_set(cfg, "lora_dropout"))
        a->dropout = cfg->lora_dropout;
    return OK;
}

static enum status check_adapter(const struct adapter *a, const struct model *model,
                                 const struct config *cfg)
{
    if (model->samples.n_fields > 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: adapter: networks of layers have none; freeze names what is not trained",
                    config_where(cfg, "adapter"));
    if (cfg->freeze.n + cfg->unfreeze.n > 0)
        return FAIL(ERR_CONFIG,
                    "%s: an adapter leaves the whole model as it is; modules that are to be "
                    "trained beside it go under lora_modules_to_save",
                    config_where(cfg, cfg->freeze.n ? "freeze" : "unfreeze"));
    if (a->magnitude && a->dropout > 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: use_dora with lora_dropout is not in this version; set lora_dropout: 0",
                    config_where(cfg, "lora_dropout"));
    return OK;
}

static enum status rates_from_config(struct model *model, const struct config *cfg)
{
    struct learning_rates *r = &model->rates;
    r->layer_decay = cfg->layerwise_lr_decay < 1.0 ? cfg->layerwise_lr_decay : 0.0;
    r->has_embedding = !isnan(cfg->embedding_lr);
    if (r->has_embedding && !(cfg->learning_rate > 0))
        return FAIL(ERR_CONFIG, "%s: embedding_lr is beside a learning_rate above 0",
                    config_where(cfg, "embedding_lr"));
    r->embedding = r->has_embedding ? cfg->embedding_lr / cfg->learning_rate : 1.0;
    return copy_numbers(&model->pool, &cfg->lr_multipliers, &r->patterns, &r->n_patterns);
}

enum status adapter_from_config(struct model *model, const struct config *cfg,
                                const char *hub_folder, char **folder)
{
    struct adapter *a;
    *folder = NULL;
    TRY(quantization_from_config(model, cfg));
    TRY(copy_names(&model->pool, &cfg->freeze, &model->freezing.frozen));
    TRY(copy_names(&model->pool, &cfg->unfreeze, &model->freezing.trained));
    TRY(rates_from_config(model, cfg));
    if (cfg->adapter == CONFIG_ADAPTER_NONE && !cfg->adapter_name_or_path)
        return OK;
    TRY(pool_try(&model->pool, &a, sizeof(*a)));
    if (cfg->adapter_name_or_path) {
        TRY(hf_dir_resolve(folder, cfg->adapter_name_or_path, hub_folder));
        TRY(adapter_from_folder(a, &model->pool, cfg, *folder));
    } else {
        TRY(adapter_from_keys(a, &model->pool, cfg));
    }
    TRY(check_adapter(a, model, cfg));
    model->adapter = a;
    return OK;
}

enum status weight_folders(struct weight_folders *out, const struct model *model, const char *asked,
                           const char *model_folder, const char *adapter_folder)
{
    *out = (struct weight_folders){.model = asked, .adapter = adapter_folder};
    if (!asked || !peft_is_folder(asked))
        return OK;
    *out = (struct weight_folders){.model = model_folder, .adapter = asked};
    if (model->adapter)
        return OK;
    return FAIL(ERR_CONFIG,
                "%s holds an adapter, and the config has none: name it with adapter_name_or_path",
                asked);
}
