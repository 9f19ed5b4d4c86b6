/* batch.h: named tensors that go into a program together.
 *
 * The same struct describes a batch (data NULL: what a task asks for, and what memory is planned
 * by) and is one. The first axis of every item counts the samples of the batch.
 */
#ifndef SNUG_DATA_BATCH_H
#define SNUG_DATA_BATCH_H

#include <stddef.h>

#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct batch_item {
    const char *name; /* of the program input it goes to; outlives the batch */
    struct tensor tensor;
};

enum { BATCH_MOST_ITEMS = 16, BATCH_ALIGN = 64 };

struct batch {
    int n_items;
    struct batch_item items[BATCH_MOST_ITEMS];
    int64_t n_valid; /* labels that count in the loss */
    int64_t length;  /* of the longest sample of the step it belongs to; 0: not known */
};

void batch_add(struct batch *b, const char *name, enum dtype dtype, struct shape shape);

int64_t batch_rows(const struct batch *b); /* samples; 0: none is described */

/* Memory of a batch, every item aligned; 0 when a shape makes no sense, or the items disagree about
 * the number of samples. */
size_t batch_bytes(const struct batch *b);

/* Points the items into `memory`, which is aligned to BATCH_ALIGN and has batch_bytes(). */
void batch_place(struct batch *b, void *memory);

/* NULL: it has none of that name. */
const struct batch_item *batch_item(const struct batch *b, const char *name);

/* Where sample `row` of item i begins. */
void *batch_row(const struct batch *b, int i, int64_t row);

#ifdef __cplusplus
}
#endif
#endif
