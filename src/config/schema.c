/* schema.c: the rows of config.def and refused.def as tables, and looking them up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"

const struct config_key config_keys[] = {
#define GROUP(title) {title, TYPE_GROUP, 0, CONFIG_RESUME_LOCAL, "", "", "", ""},
#define KEY(name, type, preset, rule, resume, aliases, meaning)                                 \
    {#name,   TYPE_##type, offsetof(struct config, name), CONFIG_RESUME_##resume, preset, rule, \
     aliases, meaning},
#define CHOICE(name, set, preset, resume, aliases, meaning)                                     \
    {#name,   TYPE_CHOICE, offsetof(struct config, name), CONFIG_RESUME_##resume, preset, #set, \
     aliases, meaning},
#include "config/config.def"
#undef GROUP
#undef KEY
#undef CHOICE
};
const size_t n_config_keys = ARRAY_LEN(config_keys);

const struct config_refusal config_refusals[] = {
#define REFUSED(name, accepted, hint) {#name, accepted, hint, false},
#define IGNORED(name, why)            {#name, NULL, why, false},
#define OF_MODEL(name)                {#name, NULL, "a key of the network", true},
#include "config/refused.def"
#undef REFUSED
#undef IGNORED
#undef OF_MODEL
};
const size_t n_config_refusals = ARRAY_LEN(config_refusals);

void config_normalise(char *name)
{
    for (; *name; name++) {
        if (*name == '-')
            *name = '_';
    }
}

int config_next_alias(const char **list, char *word, size_t size)
{
    const char *at = *list + strspn(*list, " !");
    size_t n = strcspn(at, " ");
    *list = at + n;
    if (n == 0)
        return 0;
    BUG_ON(n + 1 > size);
    memcpy(word, at, n);
    word[n] = '\0';
    return 1;
}

static int has_alias(const struct config_key *key, const char *name)
{
    char word[CONFIG_MAX_KEY];
    for (const char *list = key->aliases; config_next_alias(&list, word, sizeof(word));) {
        if (strcmp(word, name) == 0)
            return 1;
    }
    return 0;
}

bool config_alias_negates(const struct config_key *key, const char *name)
{
    const char *at = strstr(key->aliases, name);
    return strcmp(key->name, name) != 0 && at && at > key->aliases && at[-1] == '!';
}

const struct config_key *config_find_key(const char *name)
{
    for (size_t i = 0; i < n_config_keys; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->type != TYPE_GROUP && (strcmp(key->name, name) == 0 || has_alias(key, name)))
            return key;
    }
    return NULL;
}

enum config_name_kind config_name_kind(const char *given)
{
    char name[CONFIG_MAX_KEY];
    if (strlen(given) >= sizeof(name))
        return CONFIG_NAME_NONE;
    (void)snprintf(name, sizeof(name), "%s", given);
    config_normalise(name);
    const struct config_key *key = config_find_key(name);
    if (!key)
        return config_find_refusal(name) ? CONFIG_NAME_MAYBE : CONFIG_NAME_NONE;
    if (key->type == TYPE_BOOL || key->type == TYPE_TRISTATE)
        return CONFIG_NAME_SWITCH;
    return key->type == TYPE_BLOCKS ? CONFIG_NAME_MAYBE : CONFIG_NAME_VALUE;
}

int config_key_info(size_t i, struct config_key_info *out)
{
    for (size_t row = 0; row < n_config_keys; row++) {
        const struct config_key *key = &config_keys[row];
        if (key->type == TYPE_GROUP || i-- > 0)
            continue;
        *out = (struct config_key_info){key->name, key->preset, key->meaning};
        return 1;
    }
    return 0;
}

void config_key_words(struct str *out, const char *name)
{
    const struct config_key *key = config_find_key(name);
    if (key->type == TYPE_CHOICE || key->type == TYPE_LIST)
        config_list_choices(out, key->rule);
    else if (key->type == TYPE_BOOL)
        str_add(out, "true, false");
    else if (key->type == TYPE_TRISTATE || key->type == TYPE_BLOCKS)
        str_add(out, "true, false, auto");
    else if (key->type == TYPE_RESUME)
        str_add(out, "last, auto");
    else if (key->type == TYPE_BYTES || key->type == TYPE_AUTO_INT)
        str_add(out, "auto");
}

int config_has_alias_below(const char *name)
{
    char word[CONFIG_MAX_KEY];
    size_t n = strlen(name);
    for (size_t i = 0; i < n_config_keys; i++) {
        for (const char *list = config_keys[i].aliases;
             config_next_alias(&list, word, sizeof(word));) {
            if (strncmp(word, name, n) == 0 && word[n] == '.')
                return 1;
        }
    }
    for (size_t i = 0; i < n_config_refusals; i++) {
        if (strncmp(config_refusals[i].name, name, n) == 0 && config_refusals[i].name[n] == '.')
            return 1;
    }
    return 0;
}

const struct config_refusal *config_find_refusal(const char *name)
{
    for (size_t i = 0; i < n_config_refusals; i++) {
        const char *row = config_refusals[i].name;
        size_t n = strlen(row);
        if (row[n - 1] == '*' ? strncmp(row, name, n - 1) == 0 : strcmp(row, name) == 0)
            return &config_refusals[i];
    }
    return NULL;
}

/* Canonical names first, so that of two equally near words the canonical one is suggested; an
 * alias is answered by its canonical name, which is what the documentation speaks of. */
const struct config_key *config_suggest_key(const char *name)
{
    enum { MAX_WORDS = 512, MAX_ALIAS = 64 };
    const char *words[MAX_WORDS];
    char aliases[MAX_WORDS][MAX_ALIAS];
    size_t n = 0;
    for (size_t i = 0; i < n_config_keys; i++) {
        if (config_keys[i].type != TYPE_GROUP)
            words[n++] = config_keys[i].name;
    }
    size_t n_names = n;
    for (size_t i = 0; i < n_config_keys; i++) {
        const char *list = config_keys[i].aliases;
        while (n < MAX_WORDS && config_next_alias(&list, aliases[n], MAX_ALIAS)) {
            words[n] = aliases[n];
            n++;
        }
    }
    BUG_ON(n_names > MAX_WORDS || n == MAX_WORDS);
    const char *nearest = suggest(name, words, n);
    return nearest ? config_find_key(nearest) : NULL;
}

/* "[0,1)": brackets as in mathematics, inf for no limit. */
int config_parse_rule(const char *rule, struct config_interval_rule *out)
{
    size_t n = strlen(rule);
    char *end;
    if (n < 5 || !strchr("[(", rule[0]) || !strchr("])", rule[n - 1]))
        return 0;
    out->open_low = rule[0] == '(';
    out->open_high = rule[n - 1] == ')';
    out->low = strtod(rule + 1, &end);
    if (*end != ',')
        return 0;
    out->high = strtod(end + 1, &end);
    return end == rule + n - 1;
}

int config_in_rule(const struct config_interval_rule *r, double x)
{
    return (r->open_low ? x > r->low : x >= r->low) && (r->open_high ? x < r->high : x <= r->high);
}

const char *config_rule_words(char *out, size_t size, const struct config_interval_rule *r)
{
    const char *low = r->open_low ? "above" : "at least";
    const char *high = r->open_high ? "below" : "at most";
    if (isinf(r->high))
        (void)snprintf(out, size, "%s %.15g", low, r->low);
    else
        (void)snprintf(out, size, "%s %.15g and %s %.15g", low, r->low, high, r->high);
    return out;
}
