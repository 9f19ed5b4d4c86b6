/* phases.c: what goes with predictive phases, and what does not. */
#include "config/config_internal.h"

/* They do nothing where there are no phases. */
static enum status refuse_idle(struct config *cfg)
{
    const void *const fields[] = {
        &cfg->phase_warmup_steps, &cfg->full_steps,       &cfg->max_predict_steps,
        &cfg->correct_steps,      &cfg->snapshot_count,   &cfg->snapshot_steps,
        &cfg->probe_batches,      &cfg->jump_z,           &cfg->jump_shrinkage,
        &cfg->jump_momentum,      &cfg->divergence_sigma,
    };
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const char *name = config_name_of(cfg, fields[i]);
        if (fields[i] == &cfg->probe_batches && cfg->predicted_gradients != CONFIG_PREDICTION_NONE)
            continue; /* they are measured on the same batches */
        if (config_is_set(cfg, name))
            return FAIL(ERR_CONFIG,
                        "%s: %s is of predictive phases: write predictive_phases: linear, "
                        "least_squares or dmd too",
                        config_where(cfg, name), name);
        config_mark_idle(cfg, fields[i]);
    }
    return OK;
}

/* Snapshots of one jump are of one block of Full: nothing jumped in between. */
static enum status check_snapshots(const struct config *cfg)
{
    int64_t span = (cfg->snapshot_count - 1) * cfg->snapshot_steps;
    if (span >= cfg->full_steps)
        return FAIL(ERR_CONFIG,
                    "%s: full_steps is %lld, and %lld snapshots every %lld steps need more than "
                    "%lld: raise it, or lower snapshot_count or snapshot_steps",
                    config_where(cfg, "full_steps"), (long long)cfg->full_steps,
                    (long long)cfg->snapshot_count, (long long)cfg->snapshot_steps,
                    (long long)span);
    if (cfg->predictive_phases != CONFIG_PHASES_LINEAR && cfg->snapshot_count < 3)
        return FAIL(ERR_CONFIG, "%s: snapshot_count: %s goes by 3 snapshots at least",
                    config_where(cfg, "snapshot_count"),
                    config_choice_name("phases", (int)cfg->predictive_phases));
    return OK;
}

enum status config_resolve_phases(struct config *cfg)
{
    if (cfg->predictive_phases == CONFIG_PHASES_NONE)
        return refuse_idle(cfg);
    TRY(check_snapshots(cfg));
    if (cfg->predictive_phases != CONFIG_PHASES_LEAST_SQUARES) {
        if (config_is_set(cfg, "jump_shrinkage"))
            return FAIL(ERR_CONFIG,
                        "%s: jump_shrinkage belongs to predictive_phases: least_squares",
                        config_where(cfg, "jump_shrinkage"));
        config_mark_idle(cfg, &cfg->jump_shrinkage);
    }
    int has_moments = cfg->optim == CONFIG_OPTIM_ADAMW || cfg->optim == CONFIG_OPTIM_PAGED_ADAMW ||
                      cfg->optim == CONFIG_OPTIM_LION || cfg->optim == CONFIG_OPTIM_PAGED_LION;
    if (cfg->jump_momentum == CONFIG_JUMP_MOMENTUM_ZERO && !has_moments)
        return FAIL(ERR_CONFIG,
                    "%s: jump_momentum: zero is for the moments of optim: adamw and lion; here it "
                    "is %s",
                    config_where(cfg, "jump_momentum"),
                    config_choice_name("optim", (int)cfg->optim));
    return OK;
}
