/* deepspeed.c: the config of DeepSpeed, as a mapping or as a file of its own.
 *
 *     deepspeed: ds_config.json
 *     deepspeed: {bf16: {enabled: auto}, zero_optimization: {offload_optimizer: {device: cpu}}}
 *
 * Its keys are keys of ours or aliases of them, and are taken as if they stood in the config
 * itself. "auto" in it means what the config says, or nothing.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "config/config_internal.h"

static enum status read_file(struct config *cfg, const struct config_node *node,
                             struct config_node **top)
{
    struct pool *pool = &cfg->source->pool;
    char *text = NULL;
    size_t n_bytes = 0;
    if (!file_exists(node->text) || file_is_folder(node->text))
        return FAIL(ERR_CONFIG,
                    "%s: deepspeed: %s: no such file; give its path from here, or "
                    "write its settings as keys of this file",
                    node->where, node->text);
    TRY(file_read_stream(node->text, CONFIG_MAX_BYTES, &text, &n_bytes));
    enum status status = config_yaml_parse(pool, text, n_bytes, node->text, NULL, top);
    mem_free(text);
    TRY(status);
    if (*top && (*top)->kind == NODE_MAP)
        return OK;
    return FAIL(ERR_CONFIG, "%s: expected the settings of DeepSpeed, {\"key\": value, ...}",
                node->text);
}

/* Takes out "auto", and mappings that have nothing else in them. */
static void drop_auto(struct config_node *map)
{
    struct config_node *next;
    for (struct config_node *child = map->first; child; child = next) {
        next = child->next;
        bool was_full = child->kind == NODE_MAP && child->first;
        if (child->kind == NODE_MAP)
            drop_auto(child);
        bool is_auto = child->kind == NODE_SCALAR && strcmp(child->text, "auto") == 0;
        if (is_auto || (was_full && !child->first))
            config_node_remove(map, child);
    }
}

/* What a block says beside `enabled` counts where that is true, or auto and the config says so. */
static void drop_disabled(const struct config *cfg, struct config_node *top, const char *name)
{
    struct config_node *next, *block = config_node_member(top, name);
    const struct config_node *enabled = block ? config_node_member(block, "enabled") : NULL;
    const struct config_node *ours = config_node_member(cfg->source->root, name);
    int is_on = 0;
    if (!enabled || enabled->kind != NODE_SCALAR)
        return;
    if (strcmp(enabled->text, "auto") == 0)
        enabled = ours;
    if (enabled && enabled->kind == NODE_SCALAR && parse_bool(enabled->text, &is_on) && is_on)
        return;
    for (struct config_node *child = block->first; child; child = next) {
        next = child->next;
        if (strcmp(child->key, "enabled") != 0)
            config_node_remove(block, child);
    }
}

enum status config_deepspeed(struct config *cfg, struct config_node *node, struct config_node **top)
{
    *top = node;
    if (node->kind == NODE_SCALAR)
        TRY(read_file(cfg, node, top));
    drop_disabled(cfg, *top, "fp16");
    drop_disabled(cfg, *top, "bf16");
    drop_auto(*top);
    return OK;
}
