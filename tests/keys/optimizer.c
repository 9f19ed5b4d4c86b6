/* Keys of the update rules: what becomes of the weights, element by element.
 *
 * Plain SGD shows the gradients: at rate 1, without clipping, a step takes the gradient off the
 * weights. A warm-up of one step has rate 0 in the first step, so that the second one still has the
 * initial weights, while moments are already those of two steps.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "keys/keys.h"
#include "support/trial.h"

static const char matrix[] = "model.layers.0.self_attn.o_proj.weight", norm[] = "model.norm.weight";

/* A parameter after the last of the steps of a run with these keys. */
struct weights {
    struct trial trial;
    float *x;
    int64_t n;
};

static void get(struct weights *w, const char *name, const char *steps, const char *const *keys)
{
    const char *all[16] = {"save_strategy=steps", "max_grad_norm=0", steps};
    size_t n = 3;
    for (size_t i = 0; keys[i]; i++)
        all[n++] = keys[i];
    assert_in_range(n, 0, 15);
    trial_train(&w->trial, all);
    w->x = trial_tensor(&w->trial, w->trial.n_steps, name, &w->n);
}

#define GET(w, name, steps, ...) get(w, name, steps, OVERRIDES(__VA_ARGS__))

static void release(struct weights *w, int n)
{
    for (int i = 0; i < n; i++)
        mem_free(w[i].x);
}

/* w[i] - v[i] = share * (b[i] - a[i]) for every element, and something was there to see. */
static void expect_share(const struct weights *w, const struct weights *v, double share,
                         const struct weights *b, const struct weights *a)
{
    double sum = 0, wrong = 0;
    for (int64_t i = 0; i < w->n; i++) {
        double is = (double)w->x[i] - (double)v->x[i];
        double due = share * ((double)b->x[i] - (double)a->x[i]);
        sum += fabs(due);
        wrong += fabs(is - due);
    }
    assert_true(sum > 0);
    if (wrong > 1e-3 * sum)
        fail_msg("updates are off by %g of %g", wrong, sum);
}

static const char sgd[] = "optim=sgd", still[] = "learning_rate=0", rate[] = "learning_rate=1";

/* optim_args is those of its settings that it names. */
static void expect_args(const struct trial *plain)
{
    struct trial a, b;
    TRAIN(&a, "optim_args=beta1=0.5, eps=1e-3");
    TRAIN(&b, "adam_beta1=0.5", "adam_epsilon=1e-3");
    assert_true(trial_same_losses(&a, &b));
    assert_false(trial_same_losses(&a, plain));
    REFUSED("has no setting \"momentum\"; there are beta1, beta2, eps, weight_decay", "optim=adamw",
            "optim_args=momentum=0.9");
}

void key_optim(void)
{
    struct trial a, b;
    PLAN(&a, "optim=adamw");
    PLAN(&b, "optim=sgd");
    assert_true(a.plan.breakdown[SNUG_MEMORY_OPTIMIZER] >=
                2 * (int64_t)sizeof(float) * a.plan.n_params);
    assert_int_equal(b.plan.breakdown[SNUG_MEMORY_OPTIMIZER], 0);
    PLAN(&b, "optim=adamw_8bit"); /* the embedding, which is large enough for codes */
    int64_t coded = TRIAL_VOCAB * 16 * (2 * (int64_t)sizeof(float) - 3);
    assert_true(b.plan.breakdown[SNUG_MEMORY_OPTIMIZER] <
                a.plan.breakdown[SNUG_MEMORY_OPTIMIZER] - coded);
    PLAN(&b, "optim=adafactor"); /* next to nothing */
    assert_true(4 * b.plan.breakdown[SNUG_MEMORY_OPTIMIZER] <
                a.plan.breakdown[SNUG_MEMORY_OPTIMIZER]);
    PLAN(&b, "optim=muon"); /* one moment of matrices */
    assert_true(b.plan.breakdown[SNUG_MEMORY_OPTIMIZER] < a.plan.breakdown[SNUG_MEMORY_OPTIMIZER]);
    PLAN(&b, "optim=lion"); /* one moment */
    assert_int_equal(2 * b.plan.breakdown[SNUG_MEMORY_OPTIMIZER],
                     a.plan.breakdown[SNUG_MEMORY_OPTIMIZER]);
    PLAN(&b, "optim=lion_8bit");
    assert_true(2 * b.plan.breakdown[SNUG_MEMORY_OPTIMIZER] <
                a.plan.breakdown[SNUG_MEMORY_OPTIMIZER] - coded);
    TRAIN(&a, "optim=adamw");
    TRAIN(&b, "optim=sgd");
    assert_true(a.steps[0].loss == b.steps[0].loss && a.steps[1].loss != b.steps[1].loss);
    TRAIN(&b, "optim=lion");
    assert_true(a.steps[0].loss == b.steps[0].loss && a.steps[1].loss != b.steps[1].loss);
    expect_args(&a);
}

/* g1 and g2: gradients of the first two batches at the initial weights w0. */
static void get_gradients(struct weights *w0, struct weights *w1, struct weights *w2)
{
    GET(w0, matrix, "max_steps=1", sgd, still);
    GET(w1, matrix, "max_steps=1", sgd, rate);
    GET(w2, matrix, "max_steps=2", sgd, rate, "lr_scheduler_type=constant_with_warmup",
        "warmup_steps=1");
}

/* The second AdamW step from the initial weights, by the paper. */
static void expect_adamw(double beta1, double beta2, double epsilon, const char *const *keys)
{
    struct weights w[4];
    get_gradients(&w[0], &w[1], &w[2]);
    get(&w[3], matrix, "max_steps=2", keys);
    double sum = 0, wrong = 0;
    for (int64_t i = 0; i < w[0].n; i++) {
        double g1 = (double)w[0].x[i] - (double)w[1].x[i];
        double g2 = (double)w[0].x[i] - (double)w[2].x[i];
        double m = (beta1 * g1 + g2) * (1 - beta1) / (1 - beta1 * beta1);
        double v = (beta2 * g1 * g1 + g2 * g2) * (1 - beta2) / (1 - beta2 * beta2);
        double due = m / (sqrt(v) + epsilon);
        sum += fabs(due);
        wrong += fabs((double)w[0].x[i] - (double)w[3].x[i] - due);
    }
    if (!(wrong < 1e-2 * sum))
        fail_msg("AdamW's step is off by %g of %g", wrong, sum);
    release(w, 4);
}

#define ADAMW \
    "optim=adamw", "learning_rate=1", "lr_scheduler_type=constant_with_warmup", "warmup_steps=1"

void key_adam_beta1(void)
{
    expect_adamw(0.5, 0.999, 1e-8, OVERRIDES(ADAMW, "adam_beta1=0.5"));
    expect_adamw(0.0, 0.999, 1e-8, OVERRIDES(ADAMW, "adam_beta1=0"));
}

void key_adam_beta2(void)
{
    expect_adamw(0.9, 0.25, 1e-8, OVERRIDES(ADAMW, "adam_beta2=0.25"));
}

void key_adam_epsilon(void)
{
    expect_adamw(0.9, 0.999, 0.5, OVERRIDES(ADAMW, "adam_epsilon=0.5"));
}

/* w2 with momentum is w2 without, and half of the first step once more. */
void key_momentum(void)
{
    struct weights w[4];
    GET(&w[0], matrix, "max_steps=1", sgd, still);
    GET(&w[1], matrix, "max_steps=1", sgd, "momentum=0.5");
    GET(&w[2], matrix, "max_steps=2", sgd, "momentum=0.5");
    GET(&w[3], matrix, "max_steps=2", sgd);
    expect_share(&w[2], &w[3], 0.5, &w[1], &w[0]);
    release(w, 4);
    REFUSED("momentum belongs to optim sgd", "momentum=0.5");
}

/* Nesterov's first step is the gradient and the momentum of it. */
void key_nesterov(void)
{
    struct weights w[3];
    GET(&w[0], matrix, "max_steps=1", sgd, still);
    GET(&w[1], matrix, "max_steps=1", sgd, "momentum=0.5");
    GET(&w[2], matrix, "max_steps=1", sgd, "momentum=0.5", "nesterov=true");
    expect_share(&w[2], &w[0], 1.5, &w[1], &w[0]);
    release(w, 3);
    REFUSED("nesterov needs", "nesterov=true");
}

/* Steps of Adafactor: the first one of a matrix, by transformers' formula. w[0], w[1]: weights
 * before and after a step of plain SGD at rate 1, which shows the gradient. */
static void adafactor_step(const struct weights *w, double step, double clip, double *due)
{
    enum { SIDE = 16 };
    double row[SIDE] = {0}, column[SIDE] = {0}, mean = 0, length = 0;
    assert_int_equal(w[0].n, SIDE * SIDE);
    for (int i = 0; i < SIDE * SIDE; i++) {
        double g = (double)w[0].x[i] - (double)w[1].x[i];
        row[i / SIDE] += g * g / SIDE;
        column[i % SIDE] += g * g / SIDE;
        mean += g * g / (SIDE * SIDE);
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        double g = (double)w[0].x[i] - (double)w[1].x[i];
        due[i] = g / sqrt(row[i / SIDE] / mean * column[i % SIDE]);
        length += due[i] * due[i] / (SIDE * SIDE);
    }
    for (int i = 0; i < SIDE * SIDE; i++)
        due[i] *= step / fmax(1.0, sqrt(length) / clip);
}

static void expect_adafactor(double step, double clip, const char *const *keys)
{
    struct weights w[3];
    double due[256], sum = 0, wrong = 0;
    GET(&w[0], matrix, "max_steps=1", sgd, still);
    GET(&w[1], matrix, "max_steps=1", sgd, rate);
    get(&w[2], matrix, "max_steps=1", keys);
    adafactor_step(w, step, clip, due);
    for (int i = 0; i < 256; i++) {
        sum += fabs(due[i]);
        wrong += fabs((double)w[0].x[i] - (double)w[2].x[i] - due[i]);
    }
    if (!(wrong < 1e-2 * sum))
        fail_msg("Adafactor's step is off by %g of %g", wrong, sum);
    release(w, 3);
}

#define ADAFACTOR "optim=adafactor", "learning_rate=0.01"

void key_adafactor_clip_threshold(void)
{
    expect_adafactor(0.01, 1.0, OVERRIDES(ADAFACTOR));
    expect_adafactor(0.01, 0.25, OVERRIDES(ADAFACTOR, "adafactor_clip_threshold=0.25"));
    REFUSED("adafactor_clip_threshold belongs to optim: adafactor", "adafactor_clip_threshold=2");
}

void key_adafactor_relative_step(void)
{
    expect_adafactor(0.01, 1.0,
                     OVERRIDES("optim=adafactor", still, "adafactor_relative_step=true"));
    REFUSED("belongs to optim: adafactor", "adafactor_relative_step=true");
}

void key_adafactor_warmup_init(void)
{
    struct weights w[3];
    GET(&w[0], matrix, "max_steps=1", sgd, still);
    GET(&w[1], matrix, "max_steps=1", ADAFACTOR);
    GET(&w[2], matrix, "max_steps=1", "optim=adafactor", "adafactor_relative_step=true",
        "adafactor_warmup_init=true");
    double moved[2] = {0, 0};
    for (int64_t i = 0; i < w[0].n; i++) {
        moved[0] += fabs((double)w[1].x[i] - (double)w[0].x[i]);
        moved[1] += fabs((double)w[2].x[i] - (double)w[0].x[i]);
    }
    expect_within(moved[1], 1e-4 * moved[0], 0.05); /* 1e-6 beside 1e-2 */
    release(w, 3);
    REFUSED("adafactor_warmup_init needs adafactor_relative_step", "optim=adafactor",
            "adafactor_warmup_init=true");
}

/* The rate is that of the matrix's own size. */
void key_adafactor_scale_parameter(void)
{
    struct weights w;
    double squares = 0;
    GET(&w, matrix, "max_steps=1", sgd, still);
    for (int64_t i = 0; i < w.n; i++)
        squares += (double)w.x[i] * (double)w.x[i];
    double size = sqrt(squares / (double)w.n);
    release(&w, 1);
    expect_adafactor(0.01 * size, 1.0, OVERRIDES(ADAFACTOR, "adafactor_scale_parameter=true"));
}

/* With power 0 the moment keeps nothing: the second step is the first one of its gradient. */
void key_adafactor_decay_rate(void)
{
    struct weights w[3];
    const char *late = "lr_scheduler_type=constant_with_warmup", *first = "warmup_steps=1";
    double due[256], sum = 0, wrong = 0;
    GET(&w[0], matrix, "max_steps=1", sgd, still);
    GET(&w[1], matrix, "max_steps=2", sgd, rate, late, first);
    GET(&w[2], matrix, "max_steps=2", ADAFACTOR, late, first, "adafactor_decay_rate=0");
    adafactor_step(w, 0.01, 1.0, due);
    for (int i = 0; i < 256; i++) {
        sum += fabs(due[i]);
        wrong += fabs((double)w[0].x[i] - (double)w[2].x[i] - due[i]);
    }
    assert_true(wrong < 1e-2 * sum);
    release(w, 3);
    GET(&w[1], matrix, "max_steps=2", ADAFACTOR, late, first);
    GET(&w[2], matrix, "max_steps=2", ADAFACTOR, late, first, "adafactor_decay_rate=0");
    assert_memory_not_equal(w[1].x, w[2].x, (size_t)w[1].n * sizeof(float));
    release(&w[1], 2);
}

/* ---- Muon ------------------------------------------------------------------------------------ */

#define MUON "optim=muon", "learning_rate=0.01", "max_steps=1"

/* How long the first step is: singular values are near 1, and there are 16 of them. */
static double muon_length(const char *const *keys)
{
    struct weights w[2];
    double squares = 0;
    GET(&w[0], matrix, "max_steps=1", sgd, still);
    get(&w[1], matrix, "max_steps=1", keys);
    for (int64_t i = 0; i < w[0].n; i++) {
        double step = (double)w[1].x[i] - (double)w[0].x[i];
        squares += step * step;
    }
    release(w, 2);
    return sqrt(squares);
}

void key_muon_adjust_lr(void)
{
    double original = muon_length(OVERRIDES(MUON, "muon_adjust_lr=original"));
    expect_within(original, 0.01 * sqrt(16), 0.3);
    expect_within(muon_length(OVERRIDES(MUON)), original * 0.2 * sqrt(16), 1e-3);
    REFUSED("muon_adjust_lr belongs to optim: muon", "muon_adjust_lr=original");
}

/* Without iterations a step has length 1 altogether; each brings it nearer to that of 16. */
void key_muon_ns_steps(void)
{
    double one = muon_length(OVERRIDES(MUON, "muon_adjust_lr=original", "muon_ns_steps=1"));
    double five = muon_length(OVERRIDES(MUON, "muon_adjust_lr=original"));
    assert_true(one < 0.9 * five);
}

/* Other directions from the second step on; the first gradient decides the first one alone. */
static void expect_other_second_step(const char *key)
{
    struct weights w[2];
    for (int n = 1; n <= 2; n++) {
        const char *steps = n == 1 ? "max_steps=1" : "max_steps=2";
        GET(&w[0], matrix, steps, "optim=muon", "learning_rate=0.01");
        GET(&w[1], matrix, steps, "optim=muon", "learning_rate=0.01", key);
        double sum = 0;
        for (int64_t i = 0; i < w[0].n; i++)
            sum += fabs((double)w[0].x[i] - (double)w[1].x[i]);
        assert_true(n == 1 ? sum < 1e-4 : sum > 1e-3);
        release(w, 2);
    }
}

void key_muon_momentum(void)
{
    expect_other_second_step("muon_momentum=0.5");
}

void key_muon_nesterov(void)
{
    expect_other_second_step("muon_nesterov=false");
}

/* ---- some learn faster, and averages --------------------------------------------------------- */

/* A step of plain SGD of a parameter is `share` of what it is without the keys. */
static void expect_rate(const char *name, double share, const char *const *keys)
{
    struct weights w[3];
    GET(&w[0], name, "max_steps=1", sgd, still);
    GET(&w[1], name, "max_steps=1", sgd, "learning_rate=0.5");
    get(&w[2], name, "max_steps=1", keys);
    expect_share(&w[2], &w[0], share, &w[1], &w[0]);
    release(w, 3);
}

static const char embedding[] = "model.embed_tokens.weight", half[] = "learning_rate=0.5";

void key_lr_multipliers(void)
{
    const char *const keys[] = {sgd, half, "lr_multipliers={\"*.o_proj.*\": 0.5, 0: 3}", NULL};
    expect_rate(matrix, 1.5, keys);
    expect_rate(norm, 1.0, keys);
    REFUSED("'*.nothing' means no parameter", "lr_multipliers={\"*.nothing\": 2}");
    REFUSED("which learn as one", "lr_multipliers={\"*.q_proj.*\": 2}");
}

void key_embedding_lr(void)
{
    const char *const keys[] = {sgd, half, "embedding_lr=0.125", NULL};
    expect_rate(embedding, 0.25, keys);
    expect_rate(matrix, 1.0, keys);
}

/* The matrix is in the first of the blocks. */
void key_layerwise_lr_decay(void)
{
    const char *const keys[] = {sgd, half, "layerwise_lr_decay=0.5", NULL};
    expect_rate(norm, 1.0, keys);
    expect_rate(matrix, pow(0.5, 2), keys);
    expect_rate(embedding, pow(0.5, 3), keys);
}

/* What is saved is a quarter of the way from the weights at first to those after the step, and
 * training goes on with the weights themselves. */
void key_ema_decay(void)
{
    struct trial a, b;
    expect_rate(matrix, 0.25, OVERRIDES(sgd, half, "ema_decay=0.75"));
    TRAIN(&a, trial_text(), "val_set_size=4", "eval_strategy=steps", "eval_steps=1", "max_steps=4");
    TRAIN(&b, trial_text(), "val_set_size=4", "eval_strategy=steps", "eval_steps=1", "max_steps=4",
          "ema_decay=0.9");
    assert_true(trial_same_losses(&a, &b));
    assert_true(a.evals[2].loss != b.evals[2].loss);
    assert_true(b.plan.breakdown[SNUG_MEMORY_OPTIMIZER] >=
                a.plan.breakdown[SNUG_MEMORY_OPTIMIZER] + (int64_t)sizeof(float) * a.plan.n_params);
    REFUSED("ema_decay goes with f32 and bf16", "ema_decay=0.9", "fp16=true");
}

void key_lookahead_steps(void)
{
    expect_rate(matrix, 0.5, OVERRIDES(sgd, half, "lookahead_steps=1"));
    expect_rate(matrix, 1.0, OVERRIDES(sgd, half, "lookahead_steps=2"));
}

void key_lookahead_alpha(void)
{
    expect_rate(matrix, 0.25, OVERRIDES(sgd, half, "lookahead_steps=1", "lookahead_alpha=0.25"));
    REFUSED("lookahead_alpha needs lookahead_steps", "lookahead_alpha=0.25");
}

/* Both rules take lr x decay of a matrix off it, and nothing off a norm's weight. */
static void expect_decay(const char *optim)
{
    struct weights w[3], zero;
    GET(&w[0], matrix, "max_steps=1", optim, still);
    GET(&w[1], matrix, "max_steps=1", optim, "learning_rate=0.1");
    GET(&w[2], matrix, "max_steps=1", optim, "learning_rate=0.1", "weight_decay=0.5");
    zero = w[0];
    assert_int_equal(mem_try_array(&zero.x, (size_t)zero.n, sizeof(*zero.x)), 0);
    expect_share(&w[1], &w[2], 0.1 * 0.5, &w[0], &zero);
    mem_free(zero.x);
    release(w, 3);
    GET(&w[0], norm, "max_steps=1", optim, "learning_rate=0.1");
    GET(&w[1], norm, "max_steps=1", optim, "learning_rate=0.1", "weight_decay=0.5");
    assert_memory_equal(w[0].x, w[1].x, (size_t)w[0].n * sizeof(float));
    release(w, 2);
}

void key_weight_decay(void)
{
    expect_decay("optim=adamw");
    expect_decay("optim=sgd");
    expect_decay("optim=lion");
    expect_decay("optim=adafactor");
    expect_decay("optim=muon");
}

/* The norm is that of all gradients: at rate 1 SGD moves the weights by so much. One above the
 * limit is scaled down to it, one below stays. */
void key_max_grad_norm(void)
{
    struct weights w[4];
    GET(&w[0], matrix, "max_steps=1", sgd, still);
    GET(&w[1], matrix, "max_steps=1", sgd, rate);
    expect_within(w[1].trial.steps[0].grad_norm, trial_distance(&w[0].trial, &w[1].trial, 1), 1e-3);
    GET(&w[2], matrix, "max_steps=1", sgd, rate, "max_grad_norm=0.125");
    expect_within(trial_distance(&w[0].trial, &w[2].trial, 1), 0.125, 1e-3);
    release(w, 3);
    GET(&w[0], matrix, "max_steps=1", sgd, still);
    GET(&w[1], matrix, "max_steps=1", sgd);
    GET(&w[2], matrix, "max_steps=1", sgd, "max_grad_norm=0.125");
    GET(&w[3], matrix, "max_steps=1", sgd, "max_grad_norm=1e9");
    double length = w[1].trial.steps[0].grad_norm;
    assert_true(length > 0.25 && w[2].trial.steps[0].grad_norm == length);
    expect_share(&w[2], &w[0], 0.125 / length, &w[1], &w[0]);
    assert_memory_equal(w[1].x, w[3].x, (size_t)w[1].n * sizeof(float));
    release(w, 4);
}

/* Fresh models are near uniform; there the gradient of a target that is spread by half is half of
 * it. Evaluations are not smoothed. */
void key_label_smoothing_factor(void)
{
    struct trial a, b;
    TRAIN(&a, trial_text(), "val_set_size=4", "eval_on_start=true");
    TRAIN(&b, trial_text(), "val_set_size=4", "eval_on_start=true", "label_smoothing_factor=0.5");
    assert_true(a.evals[0].loss == b.evals[0].loss);
    assert_true(a.steps[0].loss != b.steps[0].loss);
    expect_within(b.steps[0].grad_norm, 0.5 * a.steps[0].grad_norm, 0.05);
}

/* Fresh models have logits near 0: the softmax sum is that of the vocabulary. */
void key_z_loss(void)
{
    struct trial a, b;
    TRAIN(&a, trial_text(), "val_set_size=4", "eval_on_start=true");
    TRAIN(&b, trial_text(), "val_set_size=4", "eval_on_start=true", "z_loss=0.5");
    double log_sum = log(TRIAL_VOCAB);
    assert_true(a.evals[0].loss == b.evals[0].loss);
    expect_within(b.steps[0].loss - a.steps[0].loss, 0.5 * log_sum * log_sum, 0.02);
}

/* Other losses, the same ones again, also where the embeddings are made a second time; evaluations
 * take no noise. */
void key_neftune_noise_alpha(void)
{
    struct trial plain, noisy, again;
    struct snug_evaluation a, b;
    TRAIN(&plain, "learning_rate=0");
    TRAIN(&noisy, "learning_rate=0", "neftune_noise_alpha=5");
    TRAIN(&again, "learning_rate=0", "neftune_noise_alpha=5", "gradient_checkpointing=true");
    assert_true(noisy.steps[0].loss != plain.steps[0].loss);
    expect_within(noisy.steps[0].loss, plain.steps[0].loss, 0.2);
    assert_true(trial_same_losses(&noisy, &again));
    EVALUATE(&a, trial_text());
    EVALUATE(&b, trial_text(), "neftune_noise_alpha=5");
    assert_true(a.loss == b.loss);
}
