/* optimizer.h: the last stage of a training graph: sums over micro-steps, norm, clipping, updates.
 *
 * Updates are ordinary ops on ordinary values; this stage only writes the graph.
 */
#ifndef SNUG_OPTIM_OPTIMIZER_H
#define SNUG_OPTIM_OPTIMIZER_H

#include "autodiff/autodiff.h"
#include "graph/builder.h"
#include "model/model.h"
#include "precision/precision.h"

#ifdef __cplusplus
extern "C" {
#endif

enum optimizer_kind {
    OPTIMIZER_ADAMW,
    OPTIMIZER_SGD,
    OPTIMIZER_LION,
    OPTIMIZER_ADAFACTOR,
    OPTIMIZER_MUON, /* of the matrices between embedding and head; AdamW of the others */
};

/* As transformers' Adafactor has them. */
struct adafactor_options {
    double decay_rate, clip_threshold;
    bool scale_parameter, relative_step, warmup_init;
};

/* As torch.optim.Muon has them; see muon.c. */
struct muon_options {
    double momentum;
    bool nesterov, match_rms_adamw;
    int64_t n_steps; /* of the iteration */
};

/* Dynamic loss scaling, as PyTorch's GradScaler and DeepSpeed do it; see ops/loss_scale_update.c.
 */
struct loss_scaling {
    double initial; /* 0: the loss is not scaled */
    double growth, backoff, minimum;
    int64_t window;     /* good steps before the scale grows */
    int64_t hysteresis; /* overflows before it shrinks */
};

struct optimizer_options {
    enum optimizer_kind kind;
    double beta1, beta2, epsilon; /* adamw, lion (which has no epsilon) */
    double momentum;              /* sgd; 0: plain */
    bool nesterov;
    struct adafactor_options adafactor;
    struct muon_options muon;
    double ema_decay; /* of averages of the weights; 0: none are kept */
    struct {
        int64_t period; /* steps; 0: there are no slow weights */
        double rate;
    } lookahead;
    double weight_decay;
    double max_grad_norm; /* 0: no clipping */
    int64_t n_micro;      /* micro-steps per update */
    double nominal_count; /* tokens the loss seed divides by: those of a whole step */
    struct precision precision;
    int64_t seed; /* of stochastic rounding into bf16; 0: to nearest */
    struct loss_scaling scaling;
};

/* A parameter with its gradient, as the optimizer sees it. */
struct optimizer_param {
    const char *name;
    value_id value, grad; /* grad VALUE_NONE: the loss does not depend on it; left alone */
    bool decay;
    bool frozen;                   /* not trained: no gradient, no state, no master */
    bool hidden;                   /* the weight of a linear layer between embedding and head */
    const struct hf_piece *pieces; /* tensors that it is made of, by their rows; NULL: itself */
    int n_pieces;
    int64_t n_experts;  /* that its first axis counts, with as many of the pieces each; 0: none */
    bool channels_last; /* a convolution's weight, which files have as [out, channels, taps..] */
    double lr_factor;   /* of the learning rate; 0 means 1 */
    bool predicted;     /* part of its gradient is there before a step: optimizer_predict */
};

/* Numbers that the host reads after a step, each added up over its micro-steps. */
struct optimizer_sums {
    const struct graph_output *items;
    int n_items;
    int count; /* the one that gradients are divided by: what counts in the losses */
};

/* Before the backward pass is built: adds the scaler's states to g and gives the value the backward
 * pass is to start from, the seed times the loss scale. Without scaling that is the seed itself. */
enum status optimizer_scale_seed(struct graph *g, const struct loss_scaling *s, value_id seed,
                                 value_id *scaled) MUST_CHECK;

/* The backward pass: gradients of the parameters that are trained, into params[i].grad; nothing
 * that leads to frozen ones alone is built. */
enum status optimizer_gradients(struct graph *g, const struct autodiff_root *roots, size_t n_roots,
                                struct optimizer_param *params, size_t n_params) MUST_CHECK;

/* Gradients that are predicted: in the first n_blocks blocks only what comes along the residual
 * (autodiff_shortened). grad VALUE_NONE: nothing is predicted for it. */
enum status optimizer_predictions(struct graph *g, const struct autodiff_root *roots,
                                  size_t n_roots, struct optimizer_param *params, size_t n_params,
                                  int n_blocks) MUST_CHECK;

/* Where predicted gradients are added up before a step takes them: states "predicted.<param>" in
 * the dtype of gradients, zero between steps. */
#define PREDICTED_NAME "predicted"

/* Instead of optimizer_apply: the gradients are added to these states, the sums are outputs. */
enum status optimizer_predict(struct graph *g, struct optimizer_param *params, size_t n_params,
                              const struct optimizer_sums *sums) MUST_CHECK;

/* Instead of optimizer_apply: what gradients g, summed over micro-steps, have to do with the
 * predicted ones h, which are cleared. Outputs f32[1]: the squares of g, those of h, and twice the
 * product of both. */
#define MEASURED_SQUARES   "gradient_squares"
#define MEASURED_PREDICTED "predicted_squares"
#define MEASURED_PRODUCT   "twice_product"
enum status optimizer_measure(struct graph *g, struct optimizer_param *params,
                              size_t n_params) MUST_CHECK;

/* Adds to g:  inputs  "lr" f32[1], "step" i32[1] (not with loss scaling: applied steps count)
 *             outputs the sums by their names, "grad_norm" f32[1]
 *             states  "m.<param>", "v.<param>", "momentum.<param>" as the rule has them,
 *                     averages "ema.<param>", slow weights "slow.<param>", masters
 * "master.<param>", each in the tensors its format consists of (graph/format.h) with loss scaling
 * also output  "loss_scale" f32[1], of the next step states  "scaler.scale" f32[1],
 * "scaler.good_steps", "scaler.applied_steps" and "scaler.tolerated" i32[1] A norm that is not
 * finite leaves every parameter and state but the scaler's as it was. Then runs the passes that
 * belong to it: sums fused into gradient ops, dead code removed. */
enum status optimizer_apply(struct graph *g, const struct optimizer_options *o,
                            struct optimizer_param *params, size_t n_params,
                            const struct optimizer_sums *sums) MUST_CHECK;

/* ---- learning-rate schedules ----------------------------------------------------------------- */

enum schedule_kind {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_RESTARTS,     /* of a cosine */
    SCHEDULE_POLYNOMIAL,   /* from peak to floor */
    SCHEDULE_INVERSE_SQRT, /* of the steps */
    SCHEDULE_STABLE,       /* between warm-up and fall */
};

enum schedule_curve { CURVE_LINEAR, CURVE_COSINE, CURVE_ONE_MINUS_SQRT };

struct schedule {
    enum schedule_kind kind;
    double peak, floor; /* learning rates */
    int64_t n_warmup, n_steps;
    double cycles;                /* waves of COSINE and STABLE, falls of RESTARTS */
    double power;                 /* POLYNOMIAL */
    int64_t timescale;            /* INVERSE_SQRT; 0: the warm-up's steps, or 10000 */
    int64_t n_stable, n_decay;    /* STABLE; n_stable -1: what the others leave */
    enum schedule_curve up, down; /* STABLE */
};

/* The learning rate of step i (0-based), as Hugging Face's schedulers give it. */
double schedule_at(const struct schedule *s, int64_t i_step);

/* Instead of a schedule: the rate falls when evaluations stop improving, as PyTorch's
 * ReduceLROnPlateau lets it, relative threshold. */
struct plateau {
    double factor, threshold, floor;
    int64_t patience, cooldown;
    bool greater_is_better;
};
struct plateau_state {
    double lr, best; /* best NAN: there was no evaluation yet */
    int64_t n_bad, n_cooling;
};
void plateau_step(const struct plateau *p, struct plateau_state *s, double metric);

#ifdef __cplusplus
}
#endif
#endif
