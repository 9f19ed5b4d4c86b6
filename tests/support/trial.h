/* trial.h: short runs of a tiny model through the public API, and what could be seen of them. The
 * same code trains here as behind the command line. Everything fails the test instead of returning
 * an error. */
#ifndef SNUG_TESTS_TRIAL_H
#define SNUG_TESTS_TRIAL_H

#include <snug.h>

#include "support/scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TRIAL_MOST_STEPS = 64, TRIAL_MOST_EVENTS = 32, TRIAL_BATCH = 2, TRIAL_LENGTH = 16 };
enum { TRIAL_WINDOWS = 20, TRIAL_WINDOW = TRIAL_LENGTH + 1 }; /* of the text, and tokens of each */
enum { TRIAL_LAYERS = 2, TRIAL_VOCAB = 257 };

struct trial_sample {
    int64_t step, n_tokens;
    int index;
    char prompt[32], text[256];
};

struct trial {
    struct snug_forecast plan; /* numbers only: the texts that are asked for are below */
    char precision[64], device[256], step_source[64];
    int n_steps, n_evals, n_saves, n_samples;
    struct snug_step steps[TRIAL_MOST_STEPS];
    struct snug_evaluation evals[TRIAL_MOST_EVENTS];
    struct trial_sample samples[TRIAL_MOST_EVENTS];
    int64_t saved[TRIAL_MOST_EVENTS]; /* after which steps */
    char folder[SCRATCH_PATH];        /* where its run wrote, unless output_dir was given */
};

/* Before and after all trials of a program, in a folder of their own. */
void trials_begin(void);
void trials_end(void);
const struct scratch *trials_scratch(void);

/* "key=SCRATCH/name" in memory of the trials': an override that names a file of theirs. */
const char *trial_path(const char *key, const char *name);
/* Training on a text of TRIAL_WINDOWS windows, each of them another. */
const char *trial_text(void);

/* Called after every step of a trial, while it is set. */
extern void (*trial_after_step)(int64_t step);

/* Overrides are a NULL-terminated list; they come after those of the tiny model: f32, the CPU,
 * synthetic tokens, three steps at a constant rate, nothing saved. */
void trial_train(struct trial *t, const char *const *overrides);
/* The same, with the run left open for its result. */
struct snug_run *trial_train_open(struct trial *t, const char *const *overrides);
void trial_close(struct snug_run *run);
void trial_plan(struct trial *t, unsigned purposes, const char *const *overrides);
/* Evaluates the model as it begins. */
void trial_evaluate(struct snug_evaluation *e, const char *const *overrides);
/* The same with the weights that the run in output_dir has left. */
void trial_evaluate_saved(struct snug_evaluation *e, const char *const *overrides);
/* Fails unless planning or training is refused with a message that holds `part`. */
void trial_refused(const char *part, const char *const *overrides);
/* Whether such a run can be planned; what speaks against it is not looked at. */
bool trial_is_planned(const char *const *overrides);
/* The graph of a training step; the caller frees it with snug_free. */
char *trial_graph(const char *const *overrides);
struct snug_config *trial_config(const char *const *overrides);

#define OVERRIDES(...)     ((const char *const[]){__VA_ARGS__, NULL})
#define TRAIN(t, ...)      trial_train(t, OVERRIDES(__VA_ARGS__))
#define PLAN(t, ...)       trial_plan(t, SNUG_TRAIN, OVERRIDES(__VA_ARGS__))
#define REFUSED(part, ...) trial_refused(part, OVERRIDES(__VA_ARGS__))
#define EVALUATE(e, ...)   trial_evaluate(e, OVERRIDES(__VA_ARGS__))
#define GRAPH(...)         trial_graph(OVERRIDES(__VA_ARGS__))

/* A tensor of the checkpoint after `step`, as f32; n_elems of them, freed with mem_free. */
float *trial_tensor(const struct trial *t, int64_t step, const char *name, int64_t *n_elems);
/* How far apart the weights of two runs are after `step`: the norm of all differences. */
double trial_distance(const struct trial *a, const struct trial *b, int64_t step);

/* Whether two runs had the same losses, bit for bit. */
bool trial_same_losses(const struct trial *a, const struct trial *b);
/* Fails unless |a - b| is within `share` of b. */
void expect_within(double a, double b, double share);
bool trial_has_file(const struct trial *t, const char *name);

#ifdef __cplusplus
}
#endif
#endif
