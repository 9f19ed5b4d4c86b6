/* dropout_training.h: runs from a Hugging Face folder whose config drops. Everything fails the test
 * instead of returning an error. */
#ifndef SNUG_TESTS_DROPOUT_TRAINING_H
#define SNUG_TESTS_DROPOUT_TRAINING_H

#include "support/scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DROPOUT_STEPS = 12 };

/* A folder of tests/golden, and the keys of its config that hold a share to drop. */
struct dropout_model {
    const char *golden;
    const char *keys[4];
};

extern const struct dropout_model dropout_gpt2, dropout_llama;

/* Writes s/model: the golden folder with every key at `share`. */
void dropout_write_folder(const struct scratch *s, const struct dropout_model *m, double share);
/* Trains s/model up to step `last`, going on from what the last run in s saved. device: "cpu" or
 * "cuda"; extra: a further setting. */
void dropout_train_to(const struct scratch *s, const char *device, int last, const char *extra,
                      double *losses);
/* All steps in a folder of its own. */
void dropout_train(const struct dropout_model *m, double share, const char *device,
                   const char *extra, double losses[DROPOUT_STEPS]);

#ifdef __cplusplus
}
#endif
#endif
