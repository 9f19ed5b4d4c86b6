#include "model/layers/loss_kinds.h"

#include <string.h>

/* ---- words for it ---------------------------------------------------------------------------- */

static value_id op2(struct writer *w, enum op_id op, value_id a, value_id b)
{
    return build(w->b, op, IN(a, b), NO_ATTRS);
}

static value_id scaled(struct writer *w, value_id x, double factor)
{
    return build(w->b, OP_scale, IN(x), ATTRS({.name = "factor", .f = factor}));
}

/* x + c. */
static value_id plus(struct writer *w, value_id x, double c)
{
    return op2(w, OP_add, x, writer_number(w, c));
}

static value_id over_sample(struct writer *w, enum op_id op, value_id x)
{
    struct attr_set axes = {.name = "axes"};
    int rank = build_shape(w->b, x)->rank;
    for (int i = 1; i < rank; i++)
        axes.ints[axes.n_ints++] = i;
    return axes.n_ints ? build(w->b, op, IN(x), &axes, 1) : x;
}

static value_id mean(struct writer *w, value_id x)
{
    return over_sample(w, OP_mean, x);
}

static value_id sum(struct writer *w, value_id x)
{
    return over_sample(w, OP_sum, x);
}

/* ---- of numbers ------------------------------------------------------------------------------ */

static value_id mse(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    value_id error = op2(w, OP_sub, x, y);
    (void)t;
    return mean(w, op2(w, OP_mul, error, error));
}

static value_id l1(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    (void)t;
    return mean(w, build(w->b, OP_abs, IN(op2(w, OP_sub, x, y)), NO_ATTRS));
}

static value_id huber(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    return mean(w, build(w->b, OP_huber, IN(op2(w, OP_sub, x, y)),
                         ATTRS({.name = "delta", .f = t->number})));
}

static value_id smooth_l1(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    return scaled(w, huber(w, t, x, y), 1.0 / t->number);
}

/* 1 - x.y / (|x| |y|). */
static value_id cosine(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    value_id squares = op2(w, OP_mul, sum(w, op2(w, OP_mul, x, x)), sum(w, op2(w, OP_mul, y, y)));
    value_id norms = build(w->b, OP_sqrt, IN(plus(w, squares, t->number * t->number)), NO_ATTRS);
    value_id share = op2(w, OP_div, sum(w, op2(w, OP_mul, x, y)), norms);
    return plus(w, scaled(w, share, -1.0), 1.0);
}

/* How far x is above y. */
static value_id hinge(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    (void)t;
    return mean(w, build(w->b, OP_relu, IN(op2(w, OP_sub, x, y)), NO_ATTRS));
}

/* ---- of a batch ------------------------------------------------------------------------------ */

/* How many numbers the samples that count have. */
static value_id count_numbers(struct writer *w, value_id y)
{
    double per_sample = (double)shape_inner(build_shape(w->b, y), 1);
    return scaled(w, build(w->b, OP_sum, IN(w->valid), NO_ATTRS), per_sample);
}

value_id batch_variance(struct writer *w, value_id y)
{
    value_id unit = writer_number(w, 1.0), n = count_numbers(w, y);
    value_id all = build(w->b, OP_sum, IN(op2(w, OP_mul, sum(w, y), w->valid)), NO_ATTRS);
    value_id error = op2(w, OP_sub, y, op2(w, OP_div, all, n));
    value_id squares = op2(w, OP_mul, sum(w, op2(w, OP_mul, error, error)), w->valid);
    value_id freedom = op2(w, OP_maximum, op2(w, OP_sub, n, unit), unit);
    return op2(w, OP_div, build(w->b, OP_sum, IN(squares), NO_ATTRS), freedom);
}

value_id batch_differs(struct writer *w, value_id variance, double least)
{
    return op2(w, OP_minimum, scaled(w, variance, 1.0 / least), writer_number(w, 1.0));
}

/* (1 - var(x) / var(y))^2 for every sample. A batch of one number has no variance to speak of, and
 * beside targets that are all the same any variance of outputs would be infinitely too large: there
 * the term is 0. */
static value_id variance(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    value_id unit = writer_number(w, 1.0), of_targets = batch_variance(w, y);
    value_id differs = batch_differs(w, of_targets, t->number);
    value_id least = plus(w, op2(w, OP_sub, unit, differs), t->number);
    value_id ratio = op2(w, OP_div, batch_variance(w, x), op2(w, OP_add, of_targets, least));
    value_id missing = op2(w, OP_sub, unit, ratio);
    value_id several = op2(w, OP_minimum, op2(w, OP_sub, count_numbers(w, y), unit), unit);
    several = op2(w, OP_mul, several, differs);
    value_id loss = op2(w, OP_mul, op2(w, OP_mul, missing, missing), several);
    return build(w->b, OP_broadcast, IN(loss),
                 ATTRS({.name = "dims", .n_ints = 1, .ints = {w->r->batch}}));
}

/* ---- of probabilities, from logits ----------------------------------------------------------- */

static value_id bce(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    (void)t;
    return mean(w, op2(w, OP_bce_with_logits, x, y));
}

/* The square of how far the probability is from what is true. */
static value_id brier(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    return mse(w, t, build(w->b, OP_sigmoid, IN(x), NO_ATTRS), y);
}

/* 1 - (2 sum(p y) + s) / (sum(p) + sum(y) + s). */
static value_id dice(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    value_id p = build(w->b, OP_sigmoid, IN(x), NO_ATTRS);
    value_id both = plus(w, scaled(w, sum(w, op2(w, OP_mul, p, y)), 2.0), t->number);
    value_id all = plus(w, op2(w, OP_add, sum(w, p), sum(w, y)), t->number);
    return plus(w, scaled(w, op2(w, OP_div, both, all), -1.0), 1.0);
}

/* Lin et al., "Focal Loss for Dense Object Detection", 2017, equation 5: binary cross-entropy times
 * a (1 - p_t)^gamma, where p_t is the probability of what is true; 1 - p_t = p + y - 2 p y. */
static value_id focal(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    value_id p = build(w->b, OP_sigmoid, IN(x), NO_ATTRS);
    value_id wrong = op2(w, OP_sub, op2(w, OP_add, p, y), scaled(w, op2(w, OP_mul, p, y), 2.0));
    value_id loss = op2(w, OP_bce_with_logits, x, y);
    for (int i = 0; i < (int)t->number; i++)
        loss = op2(w, OP_mul, loss, wrong);
    value_id balance = plus(w, scaled(w, y, 2.0 * t->alpha - 1.0), 1.0 - t->alpha);
    return mean(w, op2(w, OP_mul, loss, balance));
}

/* ---- of classes ------------------------------------------------------------------------------ */

static value_id cross_entropy(struct writer *w, const struct loss_term *t, value_id x, value_id y)
{
    return mean(w, build(w->b, OP_softmax_cross_entropy, IN(x, y),
                         ATTRS({.name = "label_smoothing", .f = t->smoothing})));
}

/* ---- the list -------------------------------------------------------------------------------- */

static const struct loss_kind kinds[] = {
    {.name = "mse", .of_samples = mse},
    {.name = "l1", .of_samples = l1},
    {.name = "huber", .number = "delta", .preset = 1.0, .of_samples = huber},
    {.name = "smooth_l1", .number = "beta", .preset = 1.0, .of_samples = smooth_l1},
    {.name = "cosine", .number = "epsilon", .preset = 1e-8, .of_samples = cosine},
    {.name = "variance",
     .number = "epsilon",
     .preset = 1e-8,
     .coupling = "the loss variance compares the variances of all outputs and targets of a batch",
     .of_samples = variance},
    {.name = "hinge", .of_samples = hinge},
    {.name = "bce", .draw = DRAW_BITS, .of_samples = bce},
    {.name = "brier", .draw = DRAW_BITS, .of_samples = brier},
    {.name = "dice", .number = "smooth", .preset = 1.0, .draw = DRAW_BITS, .of_samples = dice},
    {.name = "focal", .number = "gamma", .preset = 2.0, .draw = DRAW_BITS, .of_samples = focal},
    {.name = "cross_entropy", .of_classes = true, .of_samples = cross_entropy},
};

const struct loss_kind *loss_kind_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    }
    return NULL;
}

const char *loss_kind_names(void)
{
    return "mse, l1, huber, smooth_l1, cosine, variance, hinge, bce, brier, dice, focal, "
           "cross_entropy";
}
