/* tree.c: the parsed file as a tree of mappings, lists and scalars. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "config/config_internal.h"

enum status config_keep_text(struct pool *pool, const char *text, const char **out)
{
    *out = pool_strdup(pool, text);
    return *out ? OK : pool_status(pool);
}

enum status config_node_new(struct pool *pool, enum node_kind kind, const char *where,
                            struct config_node **out)
{
    TRY(pool_try(pool, out, sizeof(**out)));
    (*out)->kind = kind;
    (*out)->where = where;
    return OK;
}

void config_node_append(struct config_node *parent, struct config_node *child)
{
    child->next = NULL;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->n++;
}

void config_node_remove(struct config_node *parent, struct config_node *child)
{
    struct config_node *before = NULL;
    for (struct config_node *c = parent->first; c; before = c, c = c->next) {
        if (c != child)
            continue;
        if (before)
            before->next = c->next;
        else
            parent->first = c->next;
        if (parent->last == c)
            parent->last = before;
        parent->n--;
        return;
    }
}

struct config_node *config_node_member(const struct config_node *map, const char *key)
{
    for (struct config_node *c = map->first; c; c = c->next) {
        if (c->key && strcmp(c->key, key) == 0)
            return c;
    }
    return NULL;
}

struct config_node *config_node_at(const struct config_node *list, size_t i)
{
    struct config_node *c = list->first;
    while (c && i--)
        c = c->next;
    return c;
}

static int is_one_of(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0)
            return 1;
    }
    return 0;
}

int config_node_is_null(const struct config_node *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    return node->kind == NODE_SCALAR && node->plain &&
           is_one_of(node->text, words, ARRAY_LEN(words));
}

const char *config_node_name(const struct config_node *node)
{
    return node->written ? node->written : node->key ? node->key : "value";
}

const char *config_node_found(char out[FOUND_TEXT], const struct config_node *node)
{
    if (node->kind != NODE_SCALAR) {
        (void)snprintf(out, FOUND_TEXT, "%s", node->kind == NODE_MAP ? "a mapping" : "a list");
    } else {
        int is_long = strlen(node->text) > 40, n = is_long ? 37 : 40;
        while (is_long && n > 0 && ((unsigned char)node->text[n] & 0xC0) == 0x80)
            n--; /* not in the middle of a UTF-8 sequence */
        (void)snprintf(out, FOUND_TEXT, "\"%.*s%s\"", n, node->text, is_long ? "..." : "");
    }
    return out;
}

/* The child of `node` that the path's next segment names, made if it can be; NULL in *out when the
 * segment cannot be followed. */
static enum status step_into(struct pool *pool, struct config_node *node, const char *segment,
                             const char *where, struct config_node **out)
{
    int64_t i = 0;
    int is_index = isdigit((unsigned char)segment[0]) && parse_int(segment, &i);
    if (node->kind == NODE_SCALAR) { /* what was there is replaced */
        node->kind = is_index ? NODE_LIST : NODE_MAP;
        node->where = where;
    }
    if (node->kind == NODE_LIST) {
        if (!is_index || (uint64_t)i > node->n)
            return FAIL(ERR_CONFIG, "%s: \"%s\" is not a place in a list of %zu; the next is %zu",
                        where, segment, node->n, node->n);
        *out = config_node_at(node, (size_t)i);
    } else {
        *out = config_node_member(node, segment);
    }
    if (*out)
        return OK;
    if (node->n >= CONFIG_MAX_MEMBERS)
        return FAIL(ERR_CONFIG, "%s: too many entries", where);
    TRY(config_node_new(pool, NODE_SCALAR, where, out));
    TRY(config_keep_text(pool, segment, &(*out)->key));
    (*out)->text = "";
    (*out)->plain = 1;
    config_node_append(node, *out);
    return OK;
}

enum status config_node_set_path(struct pool *pool, struct config_node *node, const char *path,
                                 struct config_node *value)
{
    for (int depth = 1; path; depth++) {
        char segment[CONFIG_MAX_KEY];
        size_t n = strcspn(path, ".");
        if (n == 0 || n >= sizeof(segment) || depth > CONFIG_MAX_DEPTH)
            return FAIL(ERR_CONFIG, "%s: \"%s\": a path is names and list places joined by dots",
                        value->where, path);
        memcpy(segment, path, n);
        segment[n] = '\0';
        path = path[n] == '.' ? path + n + 1 : NULL;
        TRY(step_into(pool, node, segment, value->where, &node));
    }
    value->key = node->key;
    value->next = node->next;
    *node = *value;
    return OK;
}

int config_is_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        int n_more = *s < 0x80                  ? 0
                     : *s >= 0xC2 && *s <= 0xDF ? 1
                     : (*s & 0xF0) == 0xE0      ? 2
                     : *s >= 0xF0 && *s <= 0xF4 ? 3
                                                : -1;
        uint32_t point = n_more <= 0 ? *s : (uint32_t)(*s & (0x3F >> n_more));
        if (n_more < 0)
            return 0;
        s++;
        for (int i = 0; i < n_more; i++, s++) {
            if ((*s & 0xC0) != 0x80)
                return 0;
            point = point << 6 | (*s & 0x3Fu);
        }
        if ((n_more == 2 && (point < 0x800 || (point >= 0xD800 && point <= 0xDFFF))) ||
            (n_more == 3 && (point < 0x10000 || point > 0x10FFFF)))
            return 0;
    }
    return 1;
}

/* 1: digits only; 2: a decimal point or an exponent; 0: not a number. */
static int number_form(const char *s)
{
    s += *s == '+' || *s == '-';
    size_t whole = strspn(s, "0123456789");
    s += whole;
    if (*s == '\0')
        return whole > 0;
    size_t fraction = 0;
    if (*s == '.') {
        fraction = strspn(++s, "0123456789");
        s += fraction;
    }
    if (whole + fraction == 0)
        return 0;
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '+' || *s == '-';
        size_t exponent = strspn(s, "0123456789");
        if (exponent == 0)
            return 0;
        s += exponent;
    }
    return *s == '\0' ? 2 : 0;
}

static json_t *scalar_to_json(const struct config_node *node)
{
    static const char *const yes[] = {"true", "True", "TRUE"};
    static const char *const no[] = {"false", "False", "FALSE"};
    const char *text = node->text;
    double real;
    if (!node->plain)
        return json_string(text);
    if (config_node_is_null(node))
        return json_null();
    if (is_one_of(text, yes, ARRAY_LEN(yes)))
        return json_true();
    if (is_one_of(text, no, ARRAY_LEN(no)))
        return json_false();
    int form = number_form(text);
    if (form == 1) {
        errno = 0;
        long long whole = strtoll(text, NULL, 10);
        if (errno == 0)
            return json_integer(whole);
    }
    if (form && parse_double(text, &real))
        return json_real(real);
    return json_string(text);
}

enum status config_node_to_json(const struct config_node *node, json_t **out)
{
    enum status status = OK;
    json_t *made = node->kind == NODE_SCALAR ? scalar_to_json(node)
                   : node->kind == NODE_MAP  ? json_object()
                                             : json_array();
    *out = NULL;
    for (struct config_node *c = node->first; made && c; c = c->next) {
        json_t *value;
        TRY_GOTO(config_node_to_json(c, &value), out);
        int failed = node->kind == NODE_MAP ? json_object_set_new(made, c->key, value)
                                            : json_array_append_new(made, value);
        if (failed) {
            json_decref(made);
            made = NULL;
        }
    }
    if (!made)
        return FAIL(ERR_MEMORY, "%s: out of memory", node->where);
    *out = made;
    return OK;
out:
    json_decref(made);
    return status;
}
