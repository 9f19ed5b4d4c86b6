/* examples.h: examples as rows: each by itself, cut or filled up to the length of a row, or,
 * packed, several to a row, as many as fit (packs.h), each with positions of its own.
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
    int packed;      /* batches have positions: windows_describe() */
    int pairs;       /* samples are two examples each, in the order of a source */
    uint64_t seed;
};

struct examples;

/* Adds the items of pairs: "tokens" and "targets", i32 [n_rows, 2, seq_len], "reference",
 * f32 [n_rows, 2], and "is_pair", f32 [n_rows]: 0 for rows that do not count. */
enum { ITEM_REFERENCE = 2, ITEM_IS_PAIR };
void examples_describe_pairs(struct batch *b, int64_t n_rows, int64_t seq_len);

/* ERR_DATA when nothing is left. The sources must outlive it. Batches are as windows_describe() of
 * windows.h says. */
enum status examples_open(struct examples **out, const struct examples_options *o) MUST_CHECK;
void examples_free(struct examples *x);

struct dataset examples_dataset(struct examples *x);

/* Of pairs: two numbers for each sample, all 0 at first, which its "reference" is. */
float *examples_reference(struct examples *x, int64_t *n);

/* Of packed ones: how many there are, in how many rows, and their tokens. */
struct packing_counts {
    int64_t n_examples, n_rows, n_tokens;
};
struct packing_counts examples_packing(const struct examples *x);

#ifdef __cplusplus
}
#endif
#endif
