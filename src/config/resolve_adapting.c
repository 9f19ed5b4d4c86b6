/* resolve_adapting.c: keys of a run that adapts to the memory there is: what they do not go with,
 * and that none of them stands alone. */
#include <math.h>
#include <string.h>

#include "config/config_internal.h"

/* Planned for while kernels run, which others time. */
static enum status check_budgets(const struct config *cfg)
{
    const struct config_list *budgets = &cfg->elastic_budgets;
    for (size_t i = 0; i < budgets->n; i++) {
        int64_t n_bytes;
        if (strcmp(budgets->items[i], "auto") == 0)
            continue;
        if (!parse_bytes(budgets->items[i], &n_bytes) || n_bytes < 1)
            return FAIL(ERR_CONFIG, "%s: elastic_budgets: '%s' is not a size such as 8GiB, or auto",
                        config_where(cfg, "elastic_budgets"), budgets->items[i]);
    }
    if ((budgets->n > 0 || cfg->elastic) && cfg->compile == CONFIG_COMPILE_MAX_AUTOTUNE)
        return FAIL(ERR_CONFIG,
                    "%s: other budgets are planned for beside the run, and compile: max-autotune "
                    "times products while it plans: leave one of them out",
                    config_where(cfg, cfg->elastic ? "elastic" : "elastic_budgets"));
    return OK;
}

/* A value that is the default asks for nothing: printed configs hold them all. */
static enum status check_alone(const struct config *cfg)
{
    const struct {
        int is_changed;
        const char *name, *owner;
        int owner_is_set;
    } keys[] = {
        {cfg->elastic_profile != CONFIG_ELASTIC_PROFILE_BALANCED, "elastic_profile", "elastic",
         cfg->elastic},
        {cfg->elastic_cooldown != 25, "elastic_cooldown", "elastic", cfg->elastic},
        {cfg->dynamic_batch_min != 1, "dynamic_batch_min", "dynamic_batch", cfg->dynamic_batch},
        {cfg->dynamic_batch_max != 64, "dynamic_batch_max", "dynamic_batch", cfg->dynamic_batch},
        {cfg->dynamic_batch_target != 0.85, "dynamic_batch_target", "dynamic_batch",
         cfg->dynamic_batch},
        {cfg->dynamic_batch_grow != 0.1, "dynamic_batch_grow", "dynamic_batch", cfg->dynamic_batch},
        {cfg->dynamic_batch_shrink != 0.05, "dynamic_batch_shrink", "dynamic_batch",
         cfg->dynamic_batch},
        {cfg->dynamic_batch_every != 100, "dynamic_batch_every", "dynamic_batch",
         cfg->dynamic_batch},
        {cfg->dynamic_batch_warmup != 500, "dynamic_batch_warmup", "dynamic_batch",
         cfg->dynamic_batch},
        {cfg->dynamic_batch_smooth != 5, "dynamic_batch_smooth", "dynamic_batch",
         cfg->dynamic_batch},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (keys[i].is_changed && !keys[i].owner_is_set)
            return FAIL(ERR_CONFIG, "%s: %s says nothing without %s: true",
                        config_where(cfg, keys[i].name), keys[i].name, keys[i].owner);
    }
    return OK;
}

static enum status check_batch(const struct config *cfg)
{
    if (!cfg->dynamic_batch)
        return OK;
    if (cfg->group_by_length)
        return FAIL(ERR_CONFIG,
                    "%s: dynamic_batch changes how a step is cut into micro-batches, and with "
                    "group_by_length (%s) steps are cut by length: leave one of them out",
                    config_where(cfg, "dynamic_batch"), config_where(cfg, "group_by_length"));
    if (cfg->micro_batch_group != CONFIG_AUTO && cfg->micro_batch_group > 1)
        return FAIL(ERR_CONFIG,
                    "%s: dynamic_batch changes how many micro-batches a step has, and "
                    "micro_batch_group (%s) says how many go together: leave that to the planner",
                    config_where(cfg, "dynamic_batch"), config_where(cfg, "micro_batch_group"));
    if (cfg->predictive_phases != CONFIG_PHASES_NONE)
        return FAIL(ERR_CONFIG,
                    "%s: probe batches of predictive_phases (%s) are micro-batches, which "
                    "dynamic_batch would change: leave one of them out",
                    config_where(cfg, "dynamic_batch"), config_where(cfg, "predictive_phases"));
    if (cfg->dynamic_batch_min > cfg->dynamic_batch_max)
        return FAIL(ERR_CONFIG, "%s: dynamic_batch_min %lld is more than dynamic_batch_max %lld",
                    config_where(cfg, "dynamic_batch_min"), (long long)cfg->dynamic_batch_min,
                    (long long)cfg->dynamic_batch_max);
    return OK;
}

/* Trials compare steps that differ in nothing but their plan. */
static enum status check_trials(const struct config *cfg)
{
    const struct {
        int is_set;
        const char *name, *does;
    } keys[] = {
        {cfg->elastic, "elastic", "changes the budget that the plans are of"},
        {cfg->elastic_budgets.n > 0, "elastic_budgets", "plans for other budgets meanwhile"},
        {cfg->dynamic_batch, "dynamic_batch", "changes the micro-batch that the plans are for"},
        {cfg->plan_rank != 1, "plan_rank", "says which plan is run"},
        {cfg->group_by_length, "group_by_length", "has steps of several lengths"},
        {cfg->predicted_gradients != CONFIG_PREDICTION_NONE, "predicted_gradients",
         "has steps of two kinds"},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys) && cfg->plan_trials > 1; i++) {
        if (keys[i].is_set)
            return FAIL(ERR_CONFIG,
                        "%s: plan_trials finds the fastest of several plans, and %s (%s) %s: "
                        "leave one of them out",
                        config_where(cfg, "plan_trials"), keys[i].name,
                        config_where(cfg, keys[i].name), keys[i].does);
    }
    return OK;
}

enum status config_resolve_adapting(struct config *cfg)
{
    TRY(check_budgets(cfg));
    TRY(check_alone(cfg));
    TRY(check_trials(cfg));
    return check_batch(cfg);
}
