/* golden_training.h: the golden recipe: 20 AdamW steps on the models of tests/golden, on a device.
 * Everything fails the test instead of returning an error. */
#ifndef SNUG_TESTS_GOLDEN_TRAINING_H
#define SNUG_TESTS_GOLDEN_TRAINING_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { N_STEPS = 20 };

struct trained {
    double losses[N_STEPS], norms[N_STEPS];
    int64_t predicted[TIER_COUNT], measured[TIER_COUNT];
};

/* On the golden batch in `n_micro` micro-batches. device: "cpu" or "cuda"; extras: further settings
 * (key=value), or NULL. */
void train_golden(const char *device, const char *name, int n_micro, const char *extra1,
                  const char *extra2, struct trained *out);

/* From now on only the first n steps: under a checker all take minutes. */
void golden_shorten(int n_steps);

/* The losses PyTorch had. */
void golden_losses(const char *name, double *losses);
/* Fails unless every loss of the steps taken is within the tolerance: relative, below one nat
 * absolute. */
void expect_near(const char *name, const double *got, const double *want, double tolerance);
/* The same of the first n steps alone. */
void expect_first_near(const char *name, int n, const double *got, const double *want,
                       double tolerance);
/* How many steps do not depend on how sums are rounded, where goldens say so: those that float32
 * runs of PyTorch take as its float64 run does. */
int golden_steps_alike(const char *name);
/* Losses of a run in bf16. Where there are experts, a rounding sends a token elsewhere sooner or
 * later: the tolerance is wider from where f32 runs go apart too, when their weights are moved by
 * as much as bf16 rounds. */
void expect_bf16_near(const char *name, const double *got, const double *want);

#ifdef __cplusplus
}
#endif
#endif
