/* samples.h: samples that are tensors: the fields of a model, one item of a batch each, and
 * `valid`: 1 for the samples that count.
 *
 * Where the numbers come from is a struct sample_source: made up, or read out of files.
 */
#ifndef SNUG_DATA_SAMPLES_H
#define SNUG_DATA_SAMPLES_H

#include "data/dataset.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The items of a batch; float inputs have the dtype of weights. */
void samples_describe(struct batch *b, const struct sample_facts *facts, int64_t rows,
                      enum dtype weights);

/* Numbers of sample i. Called by one thread at a time; allocates nothing. */
struct sample_source {
    void *user;
    int64_t n_samples;
    /* Elements of field f into out, as f32, or as i32 where it is labels; *counts = false: the
     * sample is to be left out of the losses. */
    enum status (*read)(void *user, int f, int64_t i, void *out, bool *counts);
};

struct samples;

/* The source and the facts outlive them. */
enum status samples_open(struct samples **out, const struct sample_facts *facts,
                         const struct sample_source *source) MUST_CHECK;
void samples_free(struct samples *s);
struct dataset samples_dataset(struct samples *s);

/* Samples without an end that are a function of (seed, number), with something to learn in them:
 * every target is a fixed mixture of a few elements of the inputs. The source lives as long as the
 * one it is made in. */
enum { SYNTHETIC_NOISE = 1 << 13 };
struct synthetic_samples {
    const struct sample_facts *facts;
    uint64_t seed;
    bool is_noise; /* targets are drawn too: nothing is to be learnt */
    float normal[2 * SYNTHETIC_NOISE], uniform[2 * SYNTHETIC_NOISE]; /* the same noise twice */
};
struct sample_source synthetic_samples(struct synthetic_samples *s, int64_t n_samples);

#ifdef __cplusplus
}
#endif
#endif
