/* admit.c: whose key is this?
 *
 * Every top-level key of a file, and every override, is looked up in the schema and kept under its
 * canonical name; known keys that this version does not have are refused here, unknown ones too.
 */
#include <stdio.h>
#include <string.h>

#include "config/config_internal.h"

static enum status unknown_key(struct config *cfg, const char *where, const char *written,
                               const char *name)
{
    const struct config_key *nearest = config_suggest_key(name);
    if (nearest) {
        config_mark_wrong(cfg, nearest); /* what is missing because of that is no second mistake */
        return FAIL(ERR_CONFIG, "%s: %s: unknown key; did you mean %s?", where, written,
                    nearest->name);
    }
    return FAIL(ERR_CONFIG, "%s: %s: unknown key; docs/CONFIG.md lists all of them", where,
                written);
}

/* "false" accepts every way of saying no; "true" every yes; another word itself. A mapping or list
 * is accepted when all its parts are. */
static int is_accepted(const struct config_node *node, const char *accepted)
{
    int value, all = 1;
    for (const struct config_node *c = node->first; c; c = c->next)
        all = all && is_accepted(c, accepted);
    if (node->kind != NODE_SCALAR)
        return all;
    if (config_node_is_null(node) || node->text[0] == '\0' || strcmp(node->text, accepted) == 0)
        return 1;
    if (strcmp(accepted, "false") == 0 && strcmp(node->text, "none") == 0)
        return 1;
    return parse_bool(node->text, &value) && strcmp(accepted, value ? "true" : "false") == 0;
}

static enum status admit_refused(struct config *cfg, const struct config_node *node,
                                 const char *name)
{
    const struct config_refusal *row = config_find_refusal(name);
    if (!row)
        return unknown_key(cfg, node->where, config_node_name(node), name);
    if (!row->accepted) {
        if (!is_accepted(node, "false")) /* one that asks for nothing is not worth a line */
            config_remark(cfg, "%s: ignored: %s (%s)", node->where, config_node_name(node),
                          row->hint);
        return OK;
    }
    if (is_accepted(node, row->accepted))
        return OK;
    return FAIL(ERR_UNSUPPORTED, "%s: %s: not available in this version (%s)", node->where,
                config_node_name(node), row->hint);
}

/* datasets: x.txt, datasets: {path: x.txt} and datasets: [x.txt] all become a list of mappings, so
 * that datasets.0.type=text finds its place. */
static enum status widen_datasets(struct pool *pool, struct config_node **node)
{
    if (config_node_is_null(*node))
        return OK;
    if ((*node)->kind != NODE_LIST) {
        struct config_node *list;
        TRY(config_node_new(pool, NODE_LIST, (*node)->where, &list));
        list->written = (*node)->written;
        config_node_append(list, *node);
        *node = list;
    }
    for (struct config_node *item = (*node)->first; item; item = item->next) {
        if (item->kind != NODE_SCALAR || config_node_is_null(item))
            continue;
        struct config_node *path;
        TRY(config_node_new(pool, NODE_SCALAR, item->where, &path));
        path->key = "path";
        path->text = item->text;
        item->kind = NODE_MAP;
        config_node_append(item, path);
    }
    return OK;
}

/* Puts the node into root under the row's name. An override takes the place of what was there. */
static enum status keep(struct config *cfg, const struct config_key *key, struct config_node *node,
                        int is_override)
{
    struct config_node *root = cfg->source->root;
    struct config_node *first = config_node_member(root, key->name);
    if (first && !is_override) {
        if (first->kind == NODE_SCALAR && node->kind == NODE_SCALAR &&
            strcmp(first->text, node->text) == 0)
            return OK; /* said twice, not two things */
        if (strcmp(config_node_name(first), config_node_name(node)) == 0)
            return FAIL(ERR_CONFIG, "%s: %s: given twice, first at %s", node->where,
                        config_node_name(node), first->where);
        return FAIL(ERR_CONFIG, "%s: %s: the same setting as %s at %s; keep one of them",
                    node->where, config_node_name(node), config_node_name(first), first->where);
    }
    if (first)
        config_node_remove(root, first);
    if (key->type == TYPE_DATASETS)
        TRY(widen_datasets(&cfg->source->pool, &node));
    node->key = key->name;
    config_node_append(root, node);
    return OK;
}

/* model.n_layer=2: sets a place inside a mapping or a list. */
static enum status override_below(struct config *cfg, const char *name, struct config_node *value)
{
    char head[CONFIG_MAX_KEY];
    size_t n = strcspn(name, ".");
    struct pool *pool = &cfg->source->pool;
    if (n >= sizeof(head))
        return unknown_key(cfg, value->where, name, name);
    memcpy(head, name, n);
    head[n] = '\0';
    config_normalise(head);
    const struct config_key *key = config_find_key(head);
    if (!key)
        return admit_refused(cfg, value, head);
    if (key->type != TYPE_MODEL && key->type != TYPE_NUMBERS && key->type != TYPE_DATASETS)
        return FAIL(ERR_CONFIG, "%s: %s: %s takes one value and has no parts", value->where, name,
                    key->name);
    struct config_node *node = config_node_member(cfg->source->root, key->name);
    if (!node) {
        TRY(config_node_new(pool, NODE_SCALAR, value->where, &node));
        node->text = "";
        node->plain = 1;
        node->key = key->name;
        config_node_append(cfg->source->root, node);
    }
    if (node->kind == NODE_SCALAR) {
        node->kind = key->type == TYPE_DATASETS ? NODE_LIST : NODE_MAP;
        node->where = value->where;
    }
    TRY(config_node_set_path(pool, node, name + n + 1, value));
    return key->type == TYPE_DATASETS ? widen_datasets(pool, &node) : OK;
}

/* A key of the network that stands at the top. */
static enum status keep_in_model(struct config *cfg, const char *name, struct config_node *node,
                                 int is_override)
{
    char path[3 * CONFIG_MAX_KEY];
    const struct config_node *model = config_node_member(cfg->source->root, "model");
    const struct config_node *first = model ? config_node_member(model, name) : NULL;
    if (first && !is_override)
        return FAIL(ERR_CONFIG, "%s: %s: given twice, first at %s", node->where,
                    config_node_name(node), first->where);
    (void)snprintf(path, sizeof(path), "model.%s", name);
    return override_below(cfg, path, node);
}

static bool is_of_model(const struct config_node *node)
{
    char name[CONFIG_MAX_KEY];
    (void)snprintf(name, sizeof(name), "%s", node->key);
    config_normalise(name);
    const struct config_refusal *row = config_find_key(name) ? NULL : config_find_refusal(name);
    return row && row->of_model;
}

static enum status admit_node(struct config *cfg, struct config_node *node, int is_override);

/* lr_scheduler_kwargs: {min_lr: 1e-5} is the key lr_scheduler_kwargs.min_lr. */
static enum status admit_below(struct config *cfg, struct config_node *map, const char *name,
                               int is_override)
{
    struct config_node *next;
    for (struct config_node *child = map->first; child; child = next) {
        next = child->next;
        child->key = pool_printf(&cfg->source->pool, "%s.%s", name, child->key);
        if (!child->key)
            return pool_status(&cfg->source->pool);
        TRY(config_note(cfg, admit_node(cfg, child, is_override)));
    }
    return OK;
}

/* no_checkpointing: true is gradient_checkpointing: false; a false one says nothing. */
static enum status keep_opposite(struct config *cfg, const struct config_key *key,
                                 struct config_node *node, int is_override)
{
    int value = 0;
    if (node->kind != NODE_SCALAR || !parse_bool(node->text, &value))
        return FAIL(ERR_CONFIG, "%s: %s: expected true or false", node->where,
                    config_node_name(node));
    node->text = "false";
    return value ? keep(cfg, key, node, is_override) : OK;
}

static bool is_pair_of_betas(const char *name)
{
    return strcmp(name, "adam_betas") == 0 || strcmp(name, "betas") == 0 ||
           strcmp(name, "optimizer.params.betas") == 0;
}

/* adam_betas: [0.9, 0.95] is adam_beta1: 0.9 and adam_beta2: 0.95. */
static enum status keep_betas(struct config *cfg, struct config_node *list, int is_override)
{
    static const char *const names[] = {"adam_beta1", "adam_beta2"};
    struct config_node *next, *beta = list->first;
    if (list->kind != NODE_LIST || list->n != ARRAY_LEN(names))
        return FAIL(ERR_CONFIG, "%s: %s: expected the two decays of AdamW's moments, [0.9, 0.999]",
                    list->where, config_node_name(list));
    for (size_t i = 0; i < ARRAY_LEN(names); i++, beta = next) {
        next = beta->next;
        beta->written = list->written;
        TRY(keep(cfg, config_find_key(names[i]), beta, is_override));
    }
    return OK;
}

static enum status keep_optim_args(struct config *cfg, struct config_node *node, int is_override)
{
    struct config_node *settings, *next;
    TRY(config_optim_args(cfg, node, &settings));
    for (struct config_node *x = settings->first; x; x = next) {
        next = x->next;
        TRY(config_note(cfg, keep(cfg, config_find_key(x->key), x, is_override)));
    }
    return OK;
}

/* TRL's loss_type: of a network it says something else. */
static const struct config_key *key_of_preferences(const struct config *cfg, const char *name)
{
    const struct config_node *rl = config_node_member(cfg->source->root, "rl");
    bool prefers = rl && rl->kind == NODE_SCALAR && strcmp(rl->text, "dpo") == 0;
    return prefers && strcmp(name, "loss_type") == 0 ? config_find_key("dpo_loss") : NULL;
}

static enum status admit_node(struct config *cfg, struct config_node *node, int is_override)
{
    char name[2 * CONFIG_MAX_KEY];
    (void)snprintf(name, sizeof(name), "%s", node->key);
    config_normalise(name);
    node->written = node->key;
    if (node->kind == NODE_MAP && config_has_alias_below(name))
        return admit_below(cfg, node, name, is_override);
    if (is_pair_of_betas(name) && !is_accepted(node, "false"))
        return keep_betas(cfg, node, is_override);
    if (strcmp(name, "optim_args") == 0)
        return is_accepted(node, "false") ? OK : keep_optim_args(cfg, node, is_override);
    const struct config_key *key = config_find_key(name);
    if (!key)
        key = key_of_preferences(cfg, name);
    const struct config_refusal *row = key ? NULL : config_find_refusal(name);
    if (row && row->of_model)
        return keep_in_model(cfg, name, node, is_override);
    if (key && config_alias_negates(key, name))
        return keep_opposite(cfg, key, node, is_override);
    return key ? keep(cfg, key, node, is_override) : admit_refused(cfg, node, name);
}

static enum status admit_members(struct config *cfg, struct config_node *top, int is_override)
{
    struct config_node *next;
    for (struct config_node *node = top->first; node; node = next) {
        next = node->next;
        TRY(config_note(cfg, admit_node(cfg, node, is_override)));
    }
    return OK;
}

/* Only the file itself has settings of DeepSpeed in it: they hold no further ones. */
static bool is_deepspeed(const struct config_node *node)
{
    return strcmp(node->key, "deepspeed") == 0 && !is_accepted(node, "false");
}

static enum status admit_deepspeed(struct config *cfg, struct config_node *node, int is_override)
{
    struct config_node *settings;
    TRY(config_deepspeed(cfg, node, &settings));
    return admit_members(cfg, settings, is_override);
}

enum status config_admit(struct config *cfg, struct config_node *top)
{
    struct config_node *next, *deepspeed = NULL, later = {.kind = NODE_MAP};
    if (!top || config_node_is_null(top))
        return OK;
    if (top->kind != NODE_MAP) {
        char found[FOUND_TEXT];
        return FAIL(ERR_CONFIG, "%s: expected lines of `key: value`, found %s", top->where,
                    config_node_found(found, top));
    }
    for (struct config_node *node = top->first; node; node = next) {
        next = node->next;
        if (is_deepspeed(node))
            deepspeed = node; /* after the rest, which says what its "auto" means */
        else if (is_of_model(node) || strcmp(node->key, "optim_args") == 0)
            config_node_append(&later,
                               node); /* after the mapping, or the optimizer, that it is of */
        else
            TRY(config_note(cfg, admit_node(cfg, node, 0)));
    }
    TRY(admit_members(cfg, &later, 0));
    return deepspeed ? config_note(cfg, admit_deepspeed(cfg, deepspeed, 0)) : OK;
}

static enum status parse_value(struct pool *pool, const char *text, struct config_node **out)
{
    static const char where[] = "command line";
    if (*text && strchr("[{\"'", *text)) {
        TRY(config_yaml_parse(pool, text, strlen(text), where, where, out));
        if (*out)
            return OK;
    }
    TRY(config_node_new(pool, NODE_SCALAR, where, out));
    (*out)->plain = 1;
    return config_keep_text(pool, text, &(*out)->text);
}

enum status config_override(struct config *cfg, const char *text)
{
    char name[CONFIG_MAX_KEY * 2], flat[CONFIG_MAX_KEY * 2];
    struct config_node *value;
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return FAIL(ERR_CONFIG, "command line: \"%.60s\": expected key=value, as in max_steps=10",
                    text);
    if (!config_is_utf8(text))
        return FAIL(ERR_CONFIG, "command line: an override that is not UTF-8 text");
    if ((size_t)(equals - text) >= sizeof(name))
        return FAIL(ERR_CONFIG, "command line: a key of %td letters", equals - text);
    (void)snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
    memcpy(flat, name, sizeof(flat));
    config_normalise(flat);
    TRY(parse_value(&cfg->source->pool, equals + 1, &value));
    TRY(config_keep_text(&cfg->source->pool, name, &value->key));
    value->written = value->key;
    if (strchr(name, '.') && !config_find_key(flat) && !config_find_refusal(flat))
        return override_below(cfg, name, value);
    return is_deepspeed(value) ? admit_deepspeed(cfg, value, 1) : admit_node(cfg, value, 1);
}
