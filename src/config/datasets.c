/* datasets.c: the entries of `datasets:` and `eval_datasets:`. */
#include <string.h>

#include "config/config_internal.h"

/* Members of records that a dataset may name. */
static const struct {
    const char *key;
    size_t offset;
} fields[] = {
    {"field_messages", offsetof(struct config_fields, messages)},
    {"message_field_role", offsetof(struct config_fields, role)},
    {"message_field_content", offsetof(struct config_fields, content)},
    {"field_instruction", offsetof(struct config_fields, instruction)},
    {"field_input", offsetof(struct config_fields, input)},
    {"field_output", offsetof(struct config_fields, output)},
    {"field_system", offsetof(struct config_fields, system)},
    {"field_prompt", offsetof(struct config_fields, prompt)},
    {"field_completion", offsetof(struct config_fields, completion)},
};

static const char *const keys[] = {"path",
                                   "type",
                                   "text_field",
                                   "token_dtype",
                                   "n_tokens",
                                   "split",
                                   "ds_type",
                                   "weight",
                                   "max_samples",
                                   "message_property_mappings",
                                   "field_messages",
                                   "message_field_role",
                                   "message_field_content",
                                   "field_instruction",
                                   "field_input",
                                   "field_output",
                                   "field_system",
                                   "field_prompt",
                                   "field_completion"};

static const char *canonical(const char *name)
{
    static const char *const aliases[][2] = {
        {"formatting", "type"},
        {"field", "text_field"},
        {"text_column", "text_field"},
        {"file", "path"},
        {"dataset_text_field", "text_field"},
        {"dtype", "token_dtype"},
        {"n_samples", "n_tokens"},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strcmp(keys[i], name) == 0)
            return keys[i];
    }
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++) {
        if (strcmp(aliases[i][0], name) == 0)
            return aliases[i][1];
    }
    return NULL;
}

/* Gives a member its canonical name. */
static enum status admit_member(struct pool *pool, struct config_node *item, struct config_node *c)
{
    char *name = pool_strdup(pool, c->key);
    if (!name)
        return pool_status(pool);
    config_normalise(name);
    const char *key = canonical(name);
    if (!key) {
        const char *nearest = suggest(name, keys, ARRAY_LEN(keys));
        return FAIL(ERR_CONFIG, "%s: %s: unknown key of a dataset; %s%s", c->where, c->key,
                    nearest ? "did you mean "
                            : "known: path, type, text_field, token_dtype, n_tokens, weight, "
                              "max_samples, field_messages, ...",
                    nearest ? nearest : "");
    }
    const struct config_node *first = config_node_member(item, key);
    if (first && first != c)
        return FAIL(ERR_CONFIG, "%s: %s: the same setting as %s at %s; keep one of them", c->where,
                    c->key, config_node_name(first), first->where);
    c->written = c->key;
    c->key = key;
    return OK;
}

/* Notes what is wrong with the members' names. */
static enum status admit(struct config *cfg, struct config_node *item)
{
    for (struct config_node *c = item->first; c; c = c->next)
        TRY(config_note(cfg, admit_member(&cfg->source->pool, item, c)));
    return OK;
}

/* The text of a member, or the fallback where it is absent or empty. */
static enum status take_text(const struct config_node *item, const char *key, const char *fallback,
                             const char **out)
{
    const struct config_node *node = config_node_member(item, key);
    char found[FOUND_TEXT];
    *out = fallback;
    if (!node || config_node_is_null(node))
        return OK;
    if (node->kind != NODE_SCALAR)
        return FAIL(ERR_CONFIG, "%s: %s: expected text, found %s", node->where,
                    config_node_name(node), config_node_found(found, node));
    if (node->text[0])
        *out = node->text; /* lives in the config's pool */
    return OK;
}

static enum status take_choice(const struct config_node *item, const char *key, const char *set,
                               int fallback, int *out)
{
    const struct config_node *node = config_node_member(item, key);
    *out = fallback;
    return node && !config_node_is_null(node)
               ? config_bind_choice(node, config_node_name(node), set, out)
               : OK;
}

static enum status take_count(const struct config_node *item, const char *key, int64_t *out)
{
    const struct config_node *node = config_node_member(item, key);
    char found[FOUND_TEXT];
    *out = 0;
    if (!node || config_node_is_null(node))
        return OK;
    if (node->kind != NODE_SCALAR || !parse_int(node->text, out) || *out < 0)
        return FAIL(ERR_CONFIG, "%s: %s: expected a whole number such as 1e6, found %s",
                    node->where, config_node_name(node), config_node_found(found, node));
    return OK;
}

/* A share of 1, or a positive number. */
static enum status take_weight(const struct config_node *item, double *out)
{
    const struct config_node *node = config_node_member(item, "weight");
    char found[FOUND_TEXT];
    *out = 1;
    if (!node || config_node_is_null(node))
        return OK;
    if (node->kind != NODE_SCALAR || !parse_double(node->text, out) || !(*out > 0) || *out > 1e6)
        return FAIL(ERR_CONFIG, "%s: %s: expected a number above 0, at most 1e6, found %s",
                    node->where, config_node_name(node), config_node_found(found, node));
    return OK;
}

/* {role: from, content: value} */
static enum status take_mappings(const struct config_node *item, struct config_fields *out)
{
    const struct config_node *node = config_node_member(item, "message_property_mappings");
    char found[FOUND_TEXT];
    if (!node || config_node_is_null(node))
        return OK;
    if (node->kind != NODE_MAP)
        return FAIL(ERR_CONFIG, "%s: %s: expected {role: ..., content: ...}, found %s", node->where,
                    config_node_name(node), config_node_found(found, node));
    for (const struct config_node *c = node->first; c; c = c->next) {
        const char **to = strcmp(c->key, "role") == 0      ? &out->role
                          : strcmp(c->key, "content") == 0 ? &out->content
                                                           : NULL;
        if (!to)
            return FAIL(ERR_CONFIG, "%s: %s: known are role and content", c->where, c->key);
        TRY(take_text(node, c->key, *to, to));
    }
    return OK;
}

static enum status take_fields(const struct config_node *item, struct config_fields *out)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const char **to = (const char **)((char *)out + fields[i].offset);
        TRY(take_text(item, fields[i].key, NULL, to));
    }
    return take_mappings(item, out);
}

/* What does not go together in one entry. */
static enum status check_one(const struct config_node *item, const struct config_dataset *d)
{
    int is_made_up = d->type == CONFIG_DATASET_SYNTHETIC || d->type == CONFIG_DATASET_RANDOM;
    const char *type = config_choice_name("dataset_type", (int)d->type), *split;
    if (!d->path && !is_made_up)
        return FAIL(ERR_CONFIG,
                    "%s: a dataset without a path; write path: FILE, or type: synthetic", d->where);
    if (d->path && is_made_up)
        return FAIL(ERR_CONFIG, "%s: type: %s reads no file: leave path out", d->where, type);
    if (d->n_tokens && !is_made_up)
        return FAIL(ERR_CONFIG, "%s: n_tokens belongs to type: synthetic and random, not to %s",
                    d->where, type);
    if (config_node_member(item, "token_dtype") && d->type != CONFIG_DATASET_NANOGPT &&
        d->type != CONFIG_DATASET_AUTO)
        return FAIL(ERR_CONFIG, "%s: token_dtype belongs to type: nanogpt, not to %s", d->where,
                    type);
    TRY(take_text(item, "split", "train", &split)); /* files from elsewhere often say so */
    if (strcmp(split, "train") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: split: not available in this version; give the file itself as path",
                    d->where);
    return OK;
}

static enum status bind_one(struct config *cfg, struct config_node *item, struct config_dataset *d)
{
    char found[FOUND_TEXT];
    int type, token_dtype;
    if (item->kind != NODE_MAP)
        return FAIL(ERR_CONFIG,
                    "%s: expected a dataset such as {path: data.txt, type: text}, found %s",
                    item->where, config_node_found(found, item));
    size_t n_before = cfg->source->problems.n;
    TRY(admit(cfg, item));
    if (cfg->source->problems.n > n_before)
        return OK; /* what is missing now may be there under a wrong name */
    TRY(take_text(item, "path", NULL, &d->path));
    TRY(take_text(item, "text_field", "text", &d->text_field));
    TRY(take_count(item, "n_tokens", &d->n_tokens));
    /* `datasets=synthetic` is how one would say it on a command line */
    int named = d->path && strcmp(d->path, "synthetic") == 0 && !config_node_member(item, "type");
    /* Axolotl's ds_type is that of the file */
    TRY(take_choice(item, "ds_type", "dataset_type",
                    named ? CONFIG_DATASET_SYNTHETIC : CONFIG_DATASET_AUTO, &type));
    TRY(take_choice(item, "type", "dataset_type", type, &type));
    TRY(take_count(item, "max_samples", &d->max_samples));
    TRY(take_weight(item, &d->weight));
    TRY(take_fields(item, &d->fields));
    TRY(take_choice(item, "token_dtype", "token_dtype", CONFIG_TOKEN_U16, &token_dtype));
    if (named)
        d->path = NULL;
    d->type = (enum config_dataset_type)type;
    d->token_dtype = (enum config_token_dtype)token_dtype;
    d->where = item->where;
    return check_one(item, d);
}

enum status config_bind_datasets(struct config *cfg, const struct config_key *key,
                                 const struct config_node *node, struct config_datasets *out)
{
    size_t n_before = cfg->source->problems.n;
    if (node->n == 0)
        return OK;
    TRY(pool_try(&cfg->source->pool, &out->items, node->n * sizeof(*out->items)));
    for (struct config_node *item = node->first; item; item = item->next)
        TRY(config_note(cfg, bind_one(cfg, item, &out->items[out->n++])));
    if (cfg->source->problems.n > n_before)
        config_mark_wrong(cfg, key);
    return OK;
}

void config_add_fields(const struct config_dataset *d, json_t *out)
{
    if (d->weight != 1 && d->weight > 0)
        (void)json_object_set_new(out, "weight", json_real(d->weight));
    if (d->max_samples)
        (void)json_object_set_new(out, "max_samples", json_integer(d->max_samples));
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const char *text = *(const char *const *)((const char *)&d->fields + fields[i].offset);
        if (text)
            (void)json_object_set_new(out, fields[i].key, json_string(text));
    }
}
