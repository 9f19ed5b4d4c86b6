/* bind.c: from the tree to the fields of struct config, row by row. */
#include "config/config_internal.h"

struct config_node *config_node_of(const struct config *cfg, const struct config_key *key)
{
    return config_node_member(cfg->source->root, key->name);
}

static void *field_of(struct config *cfg, const struct config_key *key)
{
    return (char *)cfg + key->offset;
}

static int depth_of(const struct config_node *node)
{
    int deepest = 0;
    for (const struct config_node *c = node->first; c; c = c->next)
        deepest = MAX(deepest, depth_of(c));
    return 1 + deepest;
}

static enum status bind_model(struct config *cfg, const struct config_key *key,
                              const struct config_node *node)
{
    char found[FOUND_TEXT];
    if (node->kind == NODE_SCALAR)
        return FAIL(ERR_CONFIG,
                    "%s: model: expected %s, found %s; a folder goes under model_name_or_path",
                    node->where, config_type_word(key->type), config_node_found(found, node));
    if (node->kind != NODE_MAP)
        return config_wrong_type(key, node);
    if (depth_of(node) >= CONFIG_MAX_DEPTH) /* overrides can pile up what a file may not hold */
        return FAIL(ERR_CONFIG, "%s: model: nested deeper than %d levels", node->where,
                    CONFIG_MAX_DEPTH - 1);
    return config_node_to_json(node, &cfg->model);
}

static enum status bind_default(struct config *cfg, const struct config_key *key)
{
    const struct config_node preset = {
        .kind = NODE_SCALAR, .plain = 1, .key = key->name, .text = key->preset, .where = "default"};
    if (key->type == TYPE_MODEL || key->type == TYPE_DATASETS)
        return OK; /* NULL and no entries, as allocated */
    if (key->preset[0] == '\0') {
        config_take_unset(key, field_of(cfg, key));
        return OK;
    }
    return config_take_value(&cfg->source->pool, key, &preset, field_of(cfg, key));
}

static enum status bind_node(struct config *cfg, const struct config_key *key,
                             const struct config_node *node)
{
    if (key->type == TYPE_MODEL)
        return bind_model(cfg, key, node);
    if (key->type == TYPE_DATASETS)
        return config_bind_datasets(cfg, key, node, field_of(cfg, key));
    return config_take_value(&cfg->source->pool, key, node, field_of(cfg, key));
}

static enum status bind_row(struct config *cfg, const struct config_key *key)
{
    const struct config_node *node = config_node_of(cfg, key);
    int is_empty =
        !node || config_node_is_null(node) || (node->kind == NODE_SCALAR && !node->text[0]);
    if (is_empty)
        return bind_default(cfg, key);
    cfg->source->state[key - config_keys] = STATE_SET;
    enum status status = bind_node(cfg, key, node);
    if (status == OK)
        return OK;
    config_mark_wrong(cfg, key);
    TRY(config_note(cfg, status));
    return bind_default(cfg, key);
}

enum status config_bind(struct config *cfg)
{
    for (size_t i = 0; i < n_config_keys; i++) {
        if (config_keys[i].type != TYPE_GROUP)
            TRY(bind_row(cfg, &config_keys[i]));
    }
    return OK;
}
