#include "train/rate.h"

#include <math.h>

static const enum schedule_kind kinds[] = {
    [CONFIG_SCHEDULE_LINEAR] = SCHEDULE_LINEAR,
    [CONFIG_SCHEDULE_COSINE] = SCHEDULE_COSINE,
    [CONFIG_SCHEDULE_CONSTANT] = SCHEDULE_CONSTANT,
    [CONFIG_SCHEDULE_CONSTANT_WITH_WARMUP] = SCHEDULE_CONSTANT,
    [CONFIG_SCHEDULE_COSINE_WITH_MIN_LR] = SCHEDULE_COSINE,
    [CONFIG_SCHEDULE_COSINE_WITH_RESTARTS] = SCHEDULE_RESTARTS,
    [CONFIG_SCHEDULE_POLYNOMIAL] = SCHEDULE_POLYNOMIAL,
    [CONFIG_SCHEDULE_INVERSE_SQRT] = SCHEDULE_INVERSE_SQRT,
    [CONFIG_SCHEDULE_WARMUP_STABLE_DECAY] = SCHEDULE_STABLE,
    [CONFIG_SCHEDULE_REDUCE_ON_PLATEAU] = SCHEDULE_CONSTANT,
};

static enum schedule_curve curve_of(enum config_curve c)
{
    return c == CONFIG_CURVE_LINEAR   ? CURVE_LINEAR
           : c == CONFIG_CURVE_COSINE ? CURVE_COSINE
                                      : CURVE_ONE_MINUS_SQRT;
}

static double floor_of(const struct config *cfg)
{
    if (cfg->lr_scheduler_type == CONFIG_SCHEDULE_POLYNOMIAL)
        return cfg->lr_end;
    return isnan(cfg->min_lr) ? 0.0 : cfg->min_lr;
}

struct schedule rate_schedule(const struct config *cfg, int64_t n_steps)
{
    bool plain = cfg->lr_scheduler_type == CONFIG_SCHEDULE_CONSTANT || rate_has_plateau(cfg);
    return (struct schedule){
        .kind = kinds[cfg->lr_scheduler_type],
        .peak = cfg->learning_rate,
        .floor = floor_of(cfg),
        .n_warmup = plain ? 0 : config_warmup_steps(cfg, n_steps),
        .n_steps = n_steps,
        .cycles = cfg->lr_num_cycles,
        .power = cfg->lr_power,
        .timescale = cfg->lr_timescale == CONFIG_UNSET ? 0 : cfg->lr_timescale,
        .n_stable = cfg->lr_stable_steps == CONFIG_UNSET ? -1 : cfg->lr_stable_steps,
        .n_decay = cfg->lr_decay_steps == CONFIG_UNSET ? 0 : cfg->lr_decay_steps,
        .up = curve_of(cfg->lr_warmup_type),
        .down = curve_of(cfg->lr_decay_type),
    };
}

bool rate_has_plateau(const struct config *cfg)
{
    return cfg->lr_scheduler_type == CONFIG_SCHEDULE_REDUCE_ON_PLATEAU;
}

struct plateau rate_plateau(const struct config *cfg, bool greater_is_better)
{
    return (struct plateau){
        .factor = cfg->lr_plateau_factor,
        .threshold = cfg->lr_plateau_threshold,
        .floor = isnan(cfg->min_lr) ? 0.0 : cfg->min_lr,
        .patience = cfg->lr_plateau_patience,
        .cooldown = cfg->lr_plateau_cooldown,
        .greater_is_better = greater_is_better,
    };
}
