/* attention_blocks.h: block-sparse attention of language models: tokens come in blocks, and a query
 * sees its own block up to itself and some whole blocks before it.
 *
 *     attention_local_blocks: 4     the query's own block, and three before it; 0: all tokens
 *     attention_block_size: 64
 */
#ifndef SNUG_MODEL_ATTENTION_BLOCKS_H
#define SNUG_MODEL_ATTENTION_BLOCKS_H

#include "model/config_keys.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* window: what the config says of a sliding window, 0 for none; there is one or the other. */
void attention_blocks_parse(struct model *m, struct keys *k, int64_t window);

#ifdef __cplusplus
}
#endif
#endif
