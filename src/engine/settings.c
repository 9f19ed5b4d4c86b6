#include "engine/settings.h"

#include <math.h>

/* ---- numerics -------------------------------------------------------------------------------- */

static struct loss_scaling scaling_from(const struct config *cfg, const struct precision *p)
{
    bool fixed = cfg->loss_scale > 0;
    if (!p->loss_scaling)
        return (struct loss_scaling){0};
    return (struct loss_scaling){
        .initial = fixed ? cfg->loss_scale : ldexp(1.0, (int)cfg->initial_scale_power),
        .growth = fixed ? 1.0 : 2.0,
        .backoff = fixed ? 1.0 : 0.5,
        .minimum = fixed ? cfg->loss_scale : cfg->min_loss_scale,
        .window = cfg->loss_scale_window,
        .hysteresis = cfg->loss_scale_hysteresis,
    };
}

static enum optimizer_kind kind_from(const struct config *cfg)
{
    if (cfg->optim == CONFIG_OPTIM_SGD)
        return OPTIMIZER_SGD;
    if (cfg->optim == CONFIG_OPTIM_ADAFACTOR)
        return OPTIMIZER_ADAFACTOR;
    return config_optim_is_muon(cfg)   ? OPTIMIZER_MUON
           : config_optim_is_lion(cfg) ? OPTIMIZER_LION
                                       : OPTIMIZER_ADAMW;
}

static struct optimizer_options optimizer_from(const struct config *cfg, const struct precision *p)
{
    return (struct optimizer_options){
        .kind = kind_from(cfg),
        .beta1 = cfg->adam_beta1,
        .beta2 = cfg->adam_beta2,
        .epsilon = cfg->adam_epsilon,
        .momentum = cfg->momentum,
        .nesterov = cfg->nesterov,
        .adafactor = {.decay_rate = cfg->adafactor_decay_rate,
                      .clip_threshold = cfg->adafactor_clip_threshold,
                      .scale_parameter = cfg->adafactor_scale_parameter,
                      .relative_step = cfg->adafactor_relative_step,
                      .warmup_init = cfg->adafactor_warmup_init},
        .muon = {.momentum = cfg->muon_momentum,
                 .nesterov = cfg->muon_nesterov,
                 .match_rms_adamw = cfg->muon_adjust_lr == CONFIG_ADJUST_LR_MATCH_RMS_ADAMW,
                 .n_steps = cfg->muon_ns_steps},
        .ema_decay = cfg->ema_decay,
        .lookahead = {cfg->lookahead_steps, cfg->lookahead_alpha},
        .weight_decay = cfg->weight_decay,
        .max_grad_norm = cfg->max_grad_norm,
        .seed = precision_needs_chance(p) ? cfg->seed % INT32_MAX + 1 : 0,
        .scaling = scaling_from(cfg, p),
    };
}

static enum status numerics_from(struct numerics *n, const struct config *cfg,
                                 const struct device *d)
{
    TRY(precision_from_config(cfg, d, &n->precision));
    n->optimizer = optimizer_from(cfg, &n->precision);
    n->loss_chunks = cfg->lmhead_chunks == CONFIG_AUTO ? 0 : cfg->lmhead_chunks;
    n->label_smoothing = cfg->label_smoothing_factor;
    n->embedding_noise = cfg->neftune_noise_alpha;
    n->z_loss = cfg->z_loss;
    n->prediction.on = cfg->predicted_gradients != CONFIG_PREDICTION_NONE;
    n->prediction.n_exact = cfg->exact_blocks;
    n->unfused = cfg->compile == CONFIG_COMPILE_NONE;
    n->deterministic = cfg->deterministic ? config_where(cfg, "deterministic") : NULL;
    return OK;
}

/* ---- decisions and limits -------------------------------------------------------------------- */

static int64_t limit_from(int64_t n_bytes)
{
    return n_bytes == CONFIG_AUTO || n_bytes == CONFIG_UNSET ? LIMIT_OPEN : n_bytes;
}

bool budget_is_beyond(const struct config *cfg, const struct device *d)
{
    return d->is_absent && cfg->device_memory > d->env.gpu->memory_bytes;
}

static void settle(struct settings *s, enum extent e, enum config_offload word)
{
    s->bounds.fixed[e] = word != CONFIG_OFFLOAD_AUTO;
    bool leaves = word == CONFIG_OFFLOAD_TRUE || word == CONFIG_OFFLOAD_DISK;
    s->decisions.n[e] = leaves ? EXTENT_WHOLE : 0;
    s->decisions.disk[e] = word == CONFIG_OFFLOAD_DISK ? EXTENT_WHOLE : 0;
}

static void settle_extents(struct settings *s, const struct config *cfg)
{
    s->bounds.fixed[EXTENT_RECOMPUTED] = !cfg->gradient_checkpointing.is_open;
    settle(s, EXTENT_MOVED, cfg->activation_offloading);
    settle(s, EXTENT_STATES, cfg->offload_optimizer);
    settle(s, EXTENT_WEIGHTS, cfg->offload_param);
    s->bounds.rank = (int)cfg->plan_rank;
    /* Micro-batches of which some have true gradients and the others none go one at a time. */
    bool alone = cfg->predicted_gradients != CONFIG_PREDICTION_NONE;
    s->bounds.fixed_group = alone || cfg->micro_batch_group != CONFIG_AUTO;
    s->decisions.group = s->bounds.fixed_group && !alone ? (int)cfg->micro_batch_group : 1;
    s->bounds.fixed[EXTENT_GRADIENTS] = cfg->offload_optimizer == CONFIG_OFFLOAD_FALSE;
}

enum status settings_from_config(struct settings *s, const struct config *cfg,
                                 const struct device *d)
{
    *s = (struct settings){
        .decisions = {.recompute = cfg->gradient_checkpointing,
                      .recompute_cheap = true,
                      .slice_bytes = SLICE_BYTES},
        .limits = {.n_bytes = {[TIER_DEVICE] = limit_from(cfg->device_memory),
                               [TIER_HOST] = limit_from(cfg->host_memory),
                               [TIER_DISK] = limit_from(cfg->disk_memory)}},
        .seed = (uint64_t)cfg->seed,
    };
    if (budget_is_beyond(cfg, d))
        s->limits.n_bytes[TIER_DEVICE] = LIMIT_OPEN;
    settle_extents(s, cfg);
    return numerics_from(&s->numerics, cfg, d);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static enum status check_blocks(const struct config *cfg, int64_t n_blocks)
{
    const struct block_set *blocks = &cfg->gradient_checkpointing;
    if (block_set_end(blocks) <= n_blocks)
        return OK;
    return FAIL(ERR_CONFIG,
                "%s: gradient_checkpointing: '%s' is not true, false, auto, parts of blocks "
                "(attention, mlp, norm) or a list of blocks between 0 and %lld such as 0-3,7",
                config_where(cfg, "gradient_checkpointing"), blocks->text, (long long)n_blocks - 1);
}

enum status request_from_config(struct stage_request *r, enum stage_purpose purpose,
                                const struct config *cfg, const struct task *task)
{
    bool train = purpose == STAGE_TRAIN;
    bool evaluates = purpose == STAGE_EVAL;
    *r = (struct stage_request){
        .purpose = purpose,
        .batch = evaluates ? cfg->per_device_eval_batch_size : cfg->per_device_train_batch_size,
        .seq_len = cfg->max_seq_length,
        .n_micro = train                      ? cfg->gradient_accumulation_steps
                   : purpose == STAGE_MEASURE ? 2
                                              : 1,
    };
    TRY(task->def->check(task, cfg));
    return train ? check_blocks(cfg, task->def->n_blocks(task)) : OK;
}

int64_t request_units(const struct stage_request *r, const struct task *task)
{
    return r->batch * r->n_micro * task->def->units(task, r->seq_len);
}
