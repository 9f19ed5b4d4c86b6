#include "model/attention_blocks.h"

#include "ops/layer_support.h"

void attention_blocks_parse(struct model *m, struct keys *k, int64_t window)
{
    struct language_facts *l = &m->language;
    l->local_blocks = keys_int(k, "attention_local_blocks", 0, 0, INT32_MAX);
    l->block_size = keys_int(k, "attention_block_size", 64, 1, ATTENTION_MOST_BLOCK);
    if (keys_good(k) && l->local_blocks == 0 && keys_has(k, "attention_block_size"))
        KEYS_FAIL(k, "attention_block_size", ERR_CONFIG,
                  "key 'attention_block_size' without attention_local_blocks, which says how many "
                  "blocks a query sees");
    if (keys_good(k) && l->local_blocks > 0 && window > 0)
        KEYS_FAIL(k, "attention_local_blocks", ERR_CONFIG,
                  "key 'attention_local_blocks' beside a sliding_window of %lld tokens: keep one "
                  "(sliding_window: null)",
                  (long long)window);
}
