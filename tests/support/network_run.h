/* network_run.h: networks of a config trained on the CPU, with their losses and what they end with.
 */
#ifndef SNUG_TESTS_NETWORK_RUN_H
#define SNUG_TESTS_NETWORK_RUN_H

#include "support/scratch.h"
#include "train/session.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NETWORK_PATH = 2 * SCRATCH_PATH + 64 };

struct network_run {
    struct scratch scratch;
    struct config *config;
    struct session session;
    double losses[64];
    int n;
    char checkpoint[NETWORK_PATH]; /* the last one */
};

/* Settings, NULL-terminated, on top of a config (NULL: none) of plain SGD in f32 with everything
 * saved in the end. The scratch folder is there. */
enum status network_load(struct network_run *x, const char *text,
                         const char *const *settings) MUST_CHECK;
/* Loads and trains; the arenas are what was planned. */
void network_train(struct network_run *x, const char *text, const char *const *settings);
void network_finish(struct network_run *x);

/* Weights and running statistics at the end of two runs have the same bits. */
void network_expect_same(const struct network_run *a, const struct network_run *b);

#ifdef __cplusplus
}
#endif
#endif
