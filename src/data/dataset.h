/* dataset.h: samples that can be read one by one, in any order: what a loader makes batches of.
 *
 * A kind of data is a file that fills in a struct dataset: windows.h cuts a stream of tokens into
 * sequences, examples.h gives each example a row. The loader knows nothing of what is in a sample.
 */
#ifndef SNUG_DATA_DATASET_H
#define SNUG_DATA_DATASET_H

#include <stdbool.h>

#include "data/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dataset {
    void *user;
    int64_t n_samples;
    /* How errors speak of them: "20 sequences of 1024 tokens". The size is kept in checkpoints:
     * samples of another size are other data. */
    const char *noun; /* "sequences" */
    int64_t size;
    const char *size_noun; /* "tokens" */
    const char *advice;    /* what makes more samples of the same data; NULL: nothing */
    bool is_split;         /* without what is held out for evaluation, or nothing but that */

    /* Writes sample i into row `row` of every item and adds its labels that count to n_valid. Runs
     * in the loader's thread, one call at a time; allocates nothing. */
    enum status (*read)(void *user, int64_t i, struct batch *b, int64_t row);
    /* Of size_noun in sample i, from 1 to `size`. NULL: all are of one size. */
    enum status (*length)(void *user, int64_t i, int64_t *n);
    /* Writes a row that does not count. */
    void (*blank)(void *user, struct batch *b, int64_t row);
};

#ifdef __cplusplus
}
#endif
#endif
