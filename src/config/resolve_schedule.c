/* resolve_schedule.c: what the keys of the learning rate's schedule come to. */
#include <math.h>

#include "config/config_internal.h"

enum {
    WAVES = 1u << CONFIG_SCHEDULE_COSINE | 1u << CONFIG_SCHEDULE_COSINE_WITH_MIN_LR,
    RESTARTS = 1u << CONFIG_SCHEDULE_COSINE_WITH_RESTARTS,
    POLYNOMIAL = 1u << CONFIG_SCHEDULE_POLYNOMIAL,
    INVERSE = 1u << CONFIG_SCHEDULE_INVERSE_SQRT,
    WSD = 1u << CONFIG_SCHEDULE_WARMUP_STABLE_DECAY,
    PLATEAU = 1u << CONFIG_SCHEDULE_REDUCE_ON_PLATEAU,
};

static int is_set(const struct config *cfg, const void *field)
{
    return config_state_of(cfg, field) == STATE_SET;
}

static void derive_double(struct config *cfg, double *field, double value)
{
    if (is_set(cfg, field))
        return;
    *field = value;
    config_mark_derived(cfg, field);
}

/* Is the schedule one of a set? */
static int is_schedule(const struct config *cfg, unsigned set)
{
    return set >> cfg->lr_scheduler_type & 1u;
}

enum status config_resolve_warmup(struct config *cfg)
{
    if (cfg->warmup_steps > 0 && cfg->warmup_ratio > 0)
        return FAIL(ERR_CONFIG, "warmup_steps %.15g (%s) and warmup_ratio %.15g (%s): keep one",
                    cfg->warmup_steps, config_where(cfg, "warmup_steps"), cfg->warmup_ratio,
                    config_where(cfg, "warmup_ratio"));
    if (cfg->warmup_steps > 1 && floor(cfg->warmup_steps) != cfg->warmup_steps)
        return FAIL(ERR_CONFIG,
                    "%s: warmup_steps %.15g: below 1 it is a fraction of all steps, otherwise a "
                    "whole number",
                    config_where(cfg, "warmup_steps"), cfg->warmup_steps);
    int has_none = is_schedule(cfg, 1u << CONFIG_SCHEDULE_CONSTANT | PLATEAU);
    if (has_none && (cfg->warmup_steps > 0 || cfg->warmup_ratio > 0))
        return FAIL(ERR_CONFIG, "%s: lr_scheduler_type %s has no warm-up; write %s",
                    config_where(cfg, cfg->warmup_steps > 0 ? "warmup_steps" : "warmup_ratio"),
                    config_choice_name("schedule", (int)cfg->lr_scheduler_type),
                    is_schedule(cfg, PLATEAU) ? "constant_with_warmup or linear"
                                              : "constant_with_warmup");
    return OK;
}

enum status config_resolve_min_lr(struct config *cfg)
{
    const char *schedule = config_choice_name("schedule", (int)cfg->lr_scheduler_type);
    int has_floor = is_schedule(cfg, WAVES | WSD | PLATEAU);
    int has_min = is_set(cfg, &cfg->min_lr), has_ratio = is_set(cfg, &cfg->cosine_min_lr_ratio);
    if (has_min && has_ratio)
        return FAIL(ERR_CONFIG, "min_lr (%s) and cosine_min_lr_ratio (%s) are both given: keep one",
                    config_where(cfg, "min_lr"), config_where(cfg, "cosine_min_lr_ratio"));
    if ((has_min || has_ratio) && !has_floor)
        return FAIL(ERR_CONFIG,
                    "%s: %s belongs to cosine, warmup_stable_decay and reduce_lr_on_plateau; "
                    "lr_scheduler_type is %s (%s)",
                    config_where(cfg, has_min ? "min_lr" : "cosine_min_lr_ratio"),
                    has_min ? "min_lr" : "cosine_min_lr_ratio", schedule,
                    config_where(cfg, "lr_scheduler_type"));
    if (cfg->lr_scheduler_type == CONFIG_SCHEDULE_COSINE_WITH_MIN_LR && !has_min && !has_ratio)
        return FAIL(ERR_CONFIG, "%s: cosine_with_min_lr needs min_lr or cosine_min_lr_ratio",
                    config_where(cfg, "lr_scheduler_type"));
    derive_double(cfg, &cfg->min_lr, has_ratio ? cfg->cosine_min_lr_ratio * cfg->learning_rate : 0);
    if (cfg->min_lr > cfg->learning_rate)
        return FAIL(ERR_CONFIG, "min_lr %.15g (%s) is above learning_rate %.15g (%s)", cfg->min_lr,
                    config_where(cfg, "min_lr"), cfg->learning_rate,
                    config_where(cfg, "learning_rate"));
    derive_double(cfg, &cfg->cosine_min_lr_ratio,
                  cfg->learning_rate > 0 ? cfg->min_lr / cfg->learning_rate : 0);
    return OK;
}

/* Keys of single schedules: with another they would do nothing, and are neither shown nor written
 * down. */
static enum status check_owned(struct config *cfg)
{
    const struct {
        const void *field;
        const char *owner;
        unsigned set;
    } owned[] = {
        {&cfg->lr_num_cycles, "the cosine schedules and warmup_stable_decay",
         WAVES | RESTARTS | WSD},
        {&cfg->lr_end, "polynomial", POLYNOMIAL},
        {&cfg->lr_power, "polynomial", POLYNOMIAL},
        {&cfg->lr_timescale, "inverse_sqrt", INVERSE},
        {&cfg->lr_decay_steps, "warmup_stable_decay", WSD},
        {&cfg->lr_stable_steps, "warmup_stable_decay", WSD},
        {&cfg->lr_warmup_type, "warmup_stable_decay", WSD},
        {&cfg->lr_decay_type, "warmup_stable_decay", WSD},
        {&cfg->lr_plateau_factor, "reduce_lr_on_plateau", PLATEAU},
        {&cfg->lr_plateau_patience, "reduce_lr_on_plateau", PLATEAU},
        {&cfg->lr_plateau_threshold, "reduce_lr_on_plateau", PLATEAU},
        {&cfg->lr_plateau_cooldown, "reduce_lr_on_plateau", PLATEAU},
    };
    for (size_t i = 0; i < ARRAY_LEN(owned); i++) {
        const char *name = config_name_of(cfg, owned[i].field);
        if (is_schedule(cfg, owned[i].set))
            continue;
        if (is_set(cfg, owned[i].field))
            return FAIL(ERR_CONFIG, "%s: %s belongs to %s; lr_scheduler_type is %s",
                        config_where(cfg, name), name, owned[i].owner,
                        config_choice_name("schedule", (int)cfg->lr_scheduler_type));
        config_mark_idle(cfg, owned[i].field);
    }
    return OK;
}

enum status config_resolve_schedule(struct config *cfg)
{
    TRY(check_owned(cfg));
    if (is_schedule(cfg, WAVES | RESTARTS | WSD))
        derive_double(cfg, &cfg->lr_num_cycles, is_schedule(cfg, RESTARTS) ? 1 : 0.5);
    if (is_schedule(cfg, POLYNOMIAL) && cfg->lr_end >= cfg->learning_rate)
        return FAIL(ERR_CONFIG, "%s: lr_end %.15g must be below learning_rate %.15g (%s)",
                    config_where(cfg, "lr_end"), cfg->lr_end, cfg->learning_rate,
                    config_where(cfg, "learning_rate"));
    if (is_schedule(cfg, WSD) && !config_is_set(cfg, "lr_decay_steps"))
        return FAIL(ERR_CONFIG, "%s: warmup_stable_decay needs lr_decay_steps (num_decay_steps)",
                    config_where(cfg, "lr_scheduler_type"));
    if (is_schedule(cfg, PLATEAU) && cfg->eval_strategy == CONFIG_INTERVAL_NO)
        return FAIL(ERR_CONFIG, "%s: reduce_lr_on_plateau goes by evaluations: set eval_strategy",
                    config_where(cfg, "lr_scheduler_type"));
    return OK;
}
