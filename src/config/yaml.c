/* yaml.c: YAML text to a tree, through libyaml's events.
 *
 * Only what a config needs is let in: one document of mappings, lists and scalars. Anchors, aliases
 * and tags are refused by name, and depth and size are bounded, so that no file can make us work
 * or recurse much.
 */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "config/config_internal.h"

struct reader {
    yaml_parser_t parser;
    struct pool *pool;
    const char *name;
    const char *base_where;
    const char *text;
    size_t n_bytes;
    size_t n_nodes;
};

static size_t line_of_offset(const struct reader *r, size_t offset)
{
    size_t line = 1;
    for (size_t i = 0; i < offset && i < r->n_bytes; i++)
        line += r->text[i] == '\n';
    return line;
}

/* Whether a tab stands at a mark; libyaml counts its index in characters, so that line and column
 * are walked. */
static int is_tab_at(const struct reader *r, const yaml_mark_t *mark)
{
    size_t i = 0;
    for (size_t line = 0; line < mark->line && i < r->n_bytes; i++)
        line += r->text[i] == '\n';
    for (size_t column = 0; column < mark->column && i < r->n_bytes; column++) {
        i++;
        while (i < r->n_bytes && ((unsigned char)r->text[i] & 0xC0) == 0x80)
            i++;
    }
    return i < r->n_bytes && r->text[i] == '\t';
}

/* What libyaml found wrong, in one sentence that begins with file:line:column. */
static enum status syntax_error(const struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem ? p->problem : "cannot be read";
    if (p->error == YAML_MEMORY_ERROR)
        return FAIL(ERR_MEMORY, "%s: out of memory while reading YAML", r->name);
    if (p->error == YAML_READER_ERROR) {
        size_t line = line_of_offset(r, p->problem_offset);
        if (strstr(problem, "control characters"))
            return FAIL(ERR_CONFIG, "%s:%zu: a character (0x%02X) that text files do not hold",
                        r->name, line, (unsigned)p->problem_value);
        return FAIL(ERR_CONFIG, "%s:%zu: not UTF-8 text (%s); save the file as UTF-8", r->name,
                    line, problem);
    }
    if (r->base_where) /* a line of its own making means nothing to the user */
        return FAIL(ERR_CONFIG, "%s: bad YAML: %s %s", r->base_where, problem,
                    p->context ? p->context : "");
    size_t line = p->problem_mark.line + 1, column = p->problem_mark.column + 1;
    if (is_tab_at(r, &p->problem_mark))
        return FAIL(ERR_CONFIG,
                    "%s:%zu:%zu: bad YAML: a tab where spaces are due; indent with spaces", r->name,
                    line, column);
    if (p->context)
        return FAIL(ERR_CONFIG, "%s:%zu:%zu: bad YAML: %s %s that began on line %zu", r->name, line,
                    column, problem, p->context, p->context_mark.line + 1);
    return FAIL(ERR_CONFIG, "%s:%zu:%zu: bad YAML: %s", r->name, line, column, problem);
}

static enum status next_event(struct reader *r, yaml_event_t *event)
{
    if (!yaml_parser_parse(&r->parser, event)) {
        memset(event, 0, sizeof(*event));
        return syntax_error(r);
    }
    return OK;
}

static enum status where_of(struct reader *r, const yaml_event_t *event, const char **out)
{
    *out = r->base_where ? r->base_where
                         : pool_printf(r->pool, "%s:%zu", r->name, event->start_mark.line + 1);
    return *out ? OK : pool_status(r->pool);
}

/* Refuses what this reader does not speak. */
static enum status check_event(const struct reader *r, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    size_t line = event->start_mark.line + 1;
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        anchor = event->data.alias.anchor;
        break;
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
            return FAIL(ERR_CONFIG, "%s:%zu: a value with a NUL character in it", r->name, line);
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor)
        return FAIL(
            ERR_CONFIG,
            "%s:%zu: anchors and aliases (&%.40s, *%.40s) are not read; write the value out",
            r->name, line, (const char *)anchor, (const char *)anchor);
    if (tag)
        return FAIL(ERR_CONFIG, "%s:%zu: tags (%.40s) are not read; values are typed by their key",
                    r->name, line, (const char *)tag);
    return OK;
}

static enum status parse_node(struct reader *r, const yaml_event_t *event, int depth,
                              struct config_node **out);

static enum status check_key(const struct reader *r, const struct config_node *map,
                             const yaml_event_t *event)
{
    size_t line = event->start_mark.line + 1;
    if (event->type != YAML_SCALAR_EVENT)
        return FAIL(ERR_CONFIG, "%s:%zu: a key must be a plain name", r->name, line);
    const char *key = (const char *)event->data.scalar.value;
    if (*key == '\0')
        return FAIL(ERR_CONFIG, "%s:%zu: an empty key", r->name, line);
    if (strlen(key) >= CONFIG_MAX_KEY)
        return FAIL(ERR_CONFIG, "%s:%zu: a key of %zu letters; at most %d are read", r->name, line,
                    strlen(key), CONFIG_MAX_KEY - 1);
    const struct config_node *first = config_node_member(map, key);
    if (first)
        return FAIL(ERR_CONFIG, "%s:%zu: %s: given twice, first at %s", r->name, line, key,
                    first->where);
    return OK;
}

static enum status parse_member(struct reader *r, struct config_node *map,
                                const yaml_event_t *key_event, int depth)
{
    enum status status;
    struct config_node *child = NULL;
    yaml_event_t event = {0};
    const char *key, *where;
    TRY(check_event(r, key_event));
    TRY(check_key(r, map, key_event));
    TRY(config_keep_text(r->pool, (const char *)key_event->data.scalar.value, &key));
    TRY(where_of(r, key_event, &where));
    TRY_GOTO(next_event(r, &event), out);
    TRY_GOTO(parse_node(r, &event, depth, &child), out);
    child->key = key;
    child->where = where; /* the key's line, also when the value begins on the next one */
    config_node_append(map, child);
out:
    yaml_event_delete(&event);
    return status;
}

/* The children of a mapping or list up to its end event. */
static enum status parse_children(struct reader *r, struct config_node *parent, int depth)
{
    enum status status;
    yaml_event_t event = {0};
    for (;;) {
        TRY_GOTO(next_event(r, &event), out);
        if (event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT)
            break;
        if (parent->n >= CONFIG_MAX_MEMBERS) {
            status =
                FAIL(ERR_CONFIG, "%s: more than %d entries", parent->where, CONFIG_MAX_MEMBERS);
            goto out;
        }
        if (parent->kind == NODE_MAP) {
            TRY_GOTO(parse_member(r, parent, &event, depth), out);
        } else {
            struct config_node *child = NULL;
            TRY_GOTO(parse_node(r, &event, depth, &child), out);
            config_node_append(parent, child);
        }
        yaml_event_delete(&event);
    }
out:
    yaml_event_delete(&event);
    return status;
}

static enum status parse_node(struct reader *r, const yaml_event_t *event, int depth,
                              struct config_node **out)
{
    const char *where;
    TRY(check_event(r, event));
    TRY(where_of(r, event, &where));
    if (depth > CONFIG_MAX_DEPTH || ++r->n_nodes > CONFIG_MAX_NODES)
        return FAIL(ERR_CONFIG, "%s: nested deeper than %d levels or more than %d values", where,
                    CONFIG_MAX_DEPTH, CONFIG_MAX_NODES);
    if (event->type == YAML_SCALAR_EVENT) {
        TRY(config_node_new(r->pool, NODE_SCALAR, where, out));
        (*out)->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        return config_keep_text(r->pool, (const char *)event->data.scalar.value, &(*out)->text);
    }
    TRY(config_node_new(r->pool, event->type == YAML_MAPPING_START_EVENT ? NODE_MAP : NODE_LIST,
                        where, out));
    return parse_children(r, *out, depth + 1);
}

static enum status parse_document(struct reader *r, struct config_node **out)
{
    enum status status;
    yaml_event_t event = {0};
    for (;;) {
        TRY_GOTO(next_event(r, &event), out);
        if (event.type == YAML_STREAM_END_EVENT)
            break;
        if (event.type == YAML_DOCUMENT_START_EVENT && *out) {
            status = FAIL(ERR_CONFIG, "%s:%zu: a second document (`---`); a config is one document",
                          r->name, event.start_mark.line + 1);
            goto out;
        }
        if (event.type != YAML_STREAM_START_EVENT && event.type != YAML_DOCUMENT_START_EVENT &&
            event.type != YAML_DOCUMENT_END_EVENT)
            TRY_GOTO(parse_node(r, &event, 1, out), out);
        yaml_event_delete(&event);
    }
out:
    yaml_event_delete(&event);
    return status;
}

/* The mark that some editors put before UTF-8 text; libyaml takes it for text. */
static size_t mark_bytes(const char *text, size_t n_bytes)
{
    static const char mark[] = "\xEF\xBB\xBF";
    return n_bytes >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
}

enum status config_yaml_parse(struct pool *pool, const char *text, size_t n_bytes, const char *name,
                              const char *base_where, struct config_node **out)
{
    size_t n_mark = mark_bytes(text, n_bytes);
    text += n_mark;
    n_bytes -= n_mark;
    struct reader r = {
        .pool = pool, .name = name, .base_where = base_where, .text = text, .n_bytes = n_bytes};
    *out = NULL;
    if (n_bytes > CONFIG_MAX_BYTES)
        return FAIL(ERR_CONFIG, "%s: %zu bytes; a config holds at most %d", name, n_bytes,
                    CONFIG_MAX_BYTES);
    if (!yaml_parser_initialize(&r.parser))
        return FAIL(ERR_MEMORY, "%s: out of memory while reading YAML", name);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n_bytes);
    enum status status = parse_document(&r, out);
    yaml_parser_delete(&r.parser);
    if (status != OK)
        *out = NULL;
    return status;
}
