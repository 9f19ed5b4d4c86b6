/* windows.h: a stream of tokens as samples for language modelling.
 *
 * The stream of a source is cut into windows of seq_len + 1 tokens that do not overlap; a window
 * gives seq_len tokens and the seq_len labels that follow them.
 */
#ifndef SNUG_DATA_WINDOWS_H
#define SNUG_DATA_WINDOWS_H

#include "data/dataset.h"
#include "data/source.h"

#ifdef __cplusplus
extern "C" {
#endif

struct windows;

/* The items of a batch, in their order. */
enum { ITEM_TOKENS, ITEM_TARGETS, ITEM_POSITIONS };

/* Adds the items "tokens" and "targets", i32 [n_rows, seq_len]; targets are LABEL_IGNORED where
 * they do not count. Packed: and "positions", of each token in its own sample. */
void windows_describe(struct batch *b, int64_t n_rows, int64_t seq_len, bool packed);

/* ERR_DATA when the source has not one window. It must outlive the windows. */
enum status windows_open(struct windows **out, const struct source *source,
                         int64_t seq_len) MUST_CHECK;
void windows_free(struct windows *w);

/* Its batches are as windows_describe says. */
struct dataset windows_dataset(struct windows *w);

#ifdef __cplusplus
}
#endif
#endif
