#include "model/blocks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/str.h"

/* One item of the list at *at, and past the comma (and a space) behind it. False: it is none. */
static bool parse_range(const char **at, struct block_range *out)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    out->first = out->last = strtol(*at, &end, 10);
    if (*end == '-') {
        if (!isdigit((unsigned char)end[1]))
            return false;
        out->last = strtol(end + 1, &end, 10);
    }
    *at = end;
    if (*end == ',') {
        *at = end + 1 + (end[1] == ' ');
        return out->last >= out->first && **at != '\0';
    }
    return out->last >= out->first && *end == '\0';
}

static enum status parse_list(struct block_set *out, const char *text, struct pool *pool,
                              bool *valid)
{
    struct block_range *ranges;
    size_t n_most = 1;
    for (const char *c = text; *c; c++)
        n_most += *c == ',';
    TRY(pool_try(pool, &ranges, n_most * sizeof(*ranges)));
    *valid = true;
    do {
        *valid = parse_range(&text, &ranges[out->n_ranges++]);
    } while (*valid && *text);
    out->ranges = ranges;
    return OK;
}

const char *module_name(enum module_kind m)
{
    static const char *const names[MODULE_COUNT] = {"none", "attention", "mlp", "norm"};
    return names[m];
}

/* The word at *at, and past the comma (and spaces) behind it. False: it is no part of a block. */
static bool parse_module(const char **at, unsigned *modules)
{
    size_t n = strcspn(*at, ",");
    for (int m = MODULE_NONE + 1; m < MODULE_COUNT; m++) {
        const char *name = module_name((enum module_kind)m);
        if (strlen(name) != n || strncmp(*at, name, n) != 0)
            continue;
        *modules |= 1u << m;
        *at += n;
        if (**at == '\0')
            return true;
        *at += 1 + strspn(*at + 1, " ");
        return **at != '\0';
    }
    return false;
}

static bool parse_modules(const char *text, unsigned *modules)
{
    bool valid = true;
    *modules = 0;
    do {
        valid = parse_module(&text, modules);
    } while (valid && *text);
    return valid;
}

enum status block_set_parse(struct block_set *out, const char *text, struct pool *pool, bool *valid)
{
    int all;
    *valid = true;
    *out = (struct block_set){0};
    if (parse_bool(text, &all)) {
        *out = (struct block_set){.text = all ? "true" : "false", .all = all};
        return OK;
    }
    if (strcmp(text, "auto") == 0) {
        *out = (struct block_set){.text = "auto", .is_open = true};
        return OK;
    }
    out->text = pool_strdup(pool, text);
    TRY(pool_status(pool));
    if (isalpha((unsigned char)*text)) {
        *valid = parse_modules(text, &out->modules);
        return OK;
    }
    return parse_list(out, text, pool, valid);
}

bool block_set_has(const struct block_set *s, int64_t block)
{
    for (size_t i = 0; i < s->n_ranges; i++) {
        if (block >= s->ranges[i].first && block <= s->ranges[i].last)
            return true;
    }
    return s->all;
}

int64_t block_set_end(const struct block_set *s)
{
    int64_t last = -1;
    for (size_t i = 0; i < s->n_ranges; i++)
        last = MAX(last, s->ranges[i].last);
    return last + 1;
}
