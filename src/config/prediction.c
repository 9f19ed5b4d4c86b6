/* prediction.c: what goes with predicted gradients, and what does not. */
#include "config/config_internal.h"

/* They do nothing where every gradient is made. */
static enum status refuse_idle(struct config *cfg)
{
    const void *const fields[] = {&cfg->true_micro_batches, &cfg->exact_blocks, &cfg->control_steps,
                                  &cfg->control_threshold};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const char *name = config_name_of(cfg, fields[i]);
        if (config_is_set(cfg, name))
            return FAIL(ERR_CONFIG,
                        "%s: %s is of predicted gradients: write predicted_gradients: residual too",
                        config_where(cfg, name), name);
        config_mark_idle(cfg, fields[i]);
    }
    return OK;
}

static enum status check_batches(const struct config *cfg)
{
    const char *where = config_where(cfg, "predicted_gradients");
    if (cfg->per_device_train_batch_size == CONFIG_AUTO)
        return FAIL(ERR_CONFIG,
                    "%s: predicted_gradients needs to know the micro-batches of a step: give "
                    "per_device_train_batch_size (%s) a number",
                    where, config_where(cfg, "per_device_train_batch_size"));
    if (cfg->true_micro_batches >= cfg->gradient_accumulation_steps)
        return FAIL(ERR_CONFIG,
                    "%s: predicted_gradients leaves %lld of the %lld micro-batches of a step with "
                    "true gradients, which is all of them: raise gradient_accumulation_steps (with "
                    "smaller micro-batches), or lower true_micro_batches",
                    where, (long long)cfg->true_micro_batches,
                    (long long)cfg->gradient_accumulation_steps);
    return OK;
}

static enum status check_others(const struct config *cfg)
{
    const struct {
        int is_set;
        const char *name, *why;
    } others[] = {
        {cfg->fp16, "fp16", "there is no loss scaling for predictions: write bf16: true"},
        {cfg->group_by_length, "group_by_length",
         "all micro-batches of a step go through one program: leave one of them out"},
        {cfg->dynamic_batch, "dynamic_batch",
         "it would change the micro-batches that are drawn from: leave one of them out"},
        {cfg->micro_batch_group != CONFIG_AUTO && cfg->micro_batch_group > 1, "micro_batch_group",
         "micro-batches go one at a time: leave one of them out"},
        {cfg->rl != CONFIG_RL_NONE, "rl", "it is for training on text and samples"},
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (others[i].is_set)
            return FAIL(ERR_CONFIG, "%s: predicted_gradients with %s (%s): %s",
                        config_where(cfg, "predicted_gradients"), others[i].name,
                        config_where(cfg, others[i].name), others[i].why);
    }
    return OK;
}

enum status config_resolve_prediction(struct config *cfg)
{
    if (cfg->predicted_gradients == CONFIG_PREDICTION_NONE)
        return refuse_idle(cfg);
    TRY(check_batches(cfg));
    return check_others(cfg);
}
