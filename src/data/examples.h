/* examples.h: examples as rows: each by itself, cut or filled up to the length of a row.
 *
 * Several sources are seen as one, each as often as its weight says: in an epoch, 2 is twice and
 * 0.5 a half of it. Which examples are held out for evaluation, and which half is seen, is drawn by
 * the seed; what is held out of a source is never trained on.
 */
#ifndef SNUG_DATA_EXAMPLES_H
#define SNUG_DATA_EXAMPLES_H

#include "data/dataset.h"
#include "data/source.h"

#ifdef __cplusplus
extern "C" {
#endif

struct example_set {
    const struct source *source;
    double weight;
};

struct examples_options {
    const struct example_set *sets;
    size_t n_sets;
    int64_t seq_len;
    int32_t padding; /* what rows are filled up with */
    double held_out; /* below 1: a part of the examples; from 1 on: their number */
    int wants_held;  /* those, each once; else the others */
    uint64_t seed;
};

struct examples;

/* ERR_DATA when nothing is left. The sources must outlive it. Batches are as windows_describe() of
 * windows.h says. */
enum status examples_open(struct examples **out, const struct examples_options *o) MUST_CHECK;
void examples_free(struct examples *x);

struct dataset examples_dataset(struct examples *x);

#ifdef __cplusplus
}
#endif
#endif
