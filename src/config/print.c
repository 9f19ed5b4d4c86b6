/* print.c: a config as YAML that loads back, and as JSON. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"

/* The shortest decimal that reads back as the same double, with a mark that it is one. */
void config_add_double(struct str *out, double x)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    str_add(out, text);
    if (!strpbrk(text, ".eE"))
        str_add(out, ".0");
}

/* True for text that every YAML reader takes as a string without quotes. */
static int is_bare(const char *text)
{
    static const char *const words[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n"};
    if (!isalpha((unsigned char)text[0]))
        return 0;
    for (const char *c = text; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("_./-", *c))
            return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcasecmp(text, words[i]) == 0)
            return 0;
    }
    return 1;
}

/* One code point of valid UTF-8; returns its length. */
static size_t decode(const unsigned char *s, unsigned *point)
{
    size_t n = *s < 0x80 ? 1 : *s < 0xE0 ? 2 : *s < 0xF0 ? 3 : 4;
    *point = n == 1 ? *s : *s & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++)
        *point = *point << 6 | (s[i] & 0x3Fu);
    return n;
}

void config_add_text(struct str *out, const char *text)
{
    if (is_bare(text)) {
        str_add(out, text);
        return;
    }
    str_add(out, "\"");
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        unsigned point;
        s += decode(s, &point);
        if (point == '"' || point == '\\')
            str_addf(out, "\\%c", (char)point);
        else if (point >= 0x20 && point < 0x7F)
            str_addf(out, "%c", (char)point);
        else if (point < 0x10000)
            str_addf(out, "\\u%04X", point);
        else
            str_addf(out, "\\U%08X", point);
    }
    str_add(out, "\"");
}

static void add_json_flow_members(struct str *out, const json_t *value)
{
    const char *key, *comma = "";
    json_t *member;
    json_object_foreach((json_t *)value, key, member)
    {
        str_add(out, comma);
        config_add_text(out, key);
        str_add(out, ": ");
        config_add_json(out, member);
        comma = ", ";
    }
}

void config_add_json(struct str *out, const json_t *value)
{
    size_t i;
    json_t *item;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        str_add(out, "{");
        add_json_flow_members(out, value);
        str_add(out, "}");
        break;
    case JSON_ARRAY:
        str_add(out, "[");
        json_array_foreach(value, i, item)
        {
            str_add(out, i ? ", " : "");
            config_add_json(out, item);
        }
        str_add(out, "]");
        break;
    case JSON_STRING:
        config_add_text(out, json_string_value(value));
        break;
    case JSON_INTEGER:
        str_addf(out, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        config_add_double(out, json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        str_add(out, json_is_true(value) ? "true" : "false");
        break;
    case JSON_NULL:
        str_add(out, "null");
        break;
    }
}

static void add_model(struct str *out, const json_t *model)
{
    const char *key;
    json_t *member;
    if (json_object_size(model) == 0) {
        str_add(out, "model: {}\n");
        return;
    }
    str_add(out, "model:\n");
    json_object_foreach((json_t *)model, key, member)
    {
        str_add(out, "  ");
        config_add_text(out, key);
        str_add(out, ": ");
        config_add_json(out, member);
        str_add(out, "\n");
    }
}

static enum status dataset_json(const struct config_dataset *d, json_t **out)
{
    *out = json_pack("{s:s?, s:s, s:s, s:s, s:I}", "path", d->path, "type",
                     config_choice_name("dataset_type", (int)d->type), "text_field", d->text_field,
                     "token_dtype", config_choice_name("token_dtype", (int)d->token_dtype),
                     "n_tokens", (json_int_t)d->n_tokens);
    if (*out)
        config_add_fields(d, *out);
    return *out ? OK : FAIL(ERR_MEMORY, "out of memory while describing a dataset");
}

static enum status datasets_json(const struct config_datasets *d, json_t **out)
{
    *out = json_array();
    for (size_t i = 0; *out && i < d->n; i++) {
        json_t *item;
        enum status status = dataset_json(&d->items[i], &item);
        if (status != OK || json_array_append_new(*out, item)) {
            json_decref(*out);
            *out = NULL;
        }
    }
    return *out ? OK : FAIL(ERR_MEMORY, "out of memory while describing datasets");
}

static json_t *list_json(const struct config_list *list)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < list->n; i++) {
        if (json_array_append_new(array, json_string(list->items[i]))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* Names may be none at all: unset. */
static json_t *names_json(const struct config_list *list)
{
    return list->n > 0 ? list_json(list) : json_null();
}

static json_t *numbers_json(const struct config_numbers *numbers)
{
    json_t *object = numbers->n > 0 ? json_object() : json_null();
    for (size_t i = 0; object && i < numbers->n; i++) {
        if (json_object_set_new(object, numbers->names[i], json_real(numbers->values[i]))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *int_json(enum config_type type, int64_t x)
{
    if (x == CONFIG_UNSET)
        return json_null();
    if (x == CONFIG_AUTO && type != TYPE_INT)
        return json_string("auto");
    return json_integer(x);
}

/* The value of a row; NULL when memory ran out. */
static json_t *field_json(const struct config *cfg, const struct config_key *key)
{
    const void *field = (const char *)cfg + key->offset;
    const char *text;
    double real;
    int word;
    switch (key->type) {
    case TYPE_BOOL:
    case TYPE_TRISTATE:
    case TYPE_CHOICE:
        memcpy(&word, field, sizeof(word));
        if (key->type == TYPE_CHOICE)
            return json_string(config_choice_name(key->rule, word));
        return word == CONFIG_TRISTATE_AUTO ? json_string("auto") : json_boolean(word);
    case TYPE_INT:
    case TYPE_AUTO_INT:
    case TYPE_BYTES:
        return int_json(key->type, *(const int64_t *)field);
    case TYPE_FLOAT:
    case TYPE_DURATION:
        real = *(const double *)field;
        return isnan(real) ? json_null() : json_real(real);
    case TYPE_LIST:
        return list_json(field);
    case TYPE_NAMES:
    case TYPE_TEXTS:
        return names_json(field);
    case TYPE_NUMBERS:
        return numbers_json(field);
    case TYPE_BLOCKS:
        text = ((const struct block_set *)field)->text;
        return text ? json_string(text) : json_null();
    case TYPE_MODEL:
        return cfg->model ? json_deep_copy(cfg->model) : json_null();
    case TYPE_DATASETS: {
        json_t *array;
        return datasets_json(field, &array) == OK ? array : NULL;
    }
    default:
        text = *(const char *const *)field;
        return text ? json_string(text) : json_null();
    }
}

enum status config_json(const struct config *cfg, json_t **out)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < n_config_keys; i++) {
        if (config_keys[i].type == TYPE_GROUP)
            continue;
        if (json_object_set_new(object, config_keys[i].name, field_json(cfg, &config_keys[i]))) {
            json_decref(object);
            object = NULL;
        }
    }
    *out = object;
    return object ? OK : FAIL(ERR_MEMORY, "out of memory while describing the config");
}

/* The reader refuses keys that mean nothing for a type of dataset. */
static int dataset_key_applies(const char *type, const char *key)
{
    int is_made_up = strcmp(type, "synthetic") == 0 || strcmp(type, "random") == 0;
    if (strcmp(key, "token_dtype") == 0)
        return strcmp(type, "nanogpt") == 0 || strcmp(type, "auto") == 0;
    return strcmp(key, "n_tokens") == 0 ? is_made_up : 1;
}

void config_add_datasets(struct str *out, const char *name, const json_t *array)
{
    size_t i;
    json_t *item, *value;
    const char *key;
    str_addf(out, "%s:\n", name);
    json_array_foreach(array, i, item)
    {
        const char *lead = "  - ";
        const char *type = json_string_value(json_object_get(item, "type"));
        json_object_foreach(item, key, value)
        {
            if (json_is_null(value) || !dataset_key_applies(type, key))
                continue;
            str_addf(out, "%s%s: ", lead, key);
            config_add_json(out, value);
            str_add(out, "\n");
            lead = "    ";
        }
    }
}

static void add_row(struct str *out, const struct config *cfg, const struct config_key *key,
                    const json_t *value)
{
    if (cfg->source->state[key - config_keys] == STATE_IDLE || json_is_null(value) ||
        (key->type == TYPE_DATASETS && json_array_size(value) == 0))
        return;
    if (cfg->source->state[key - config_keys] == STATE_DERIVED) {
        /* a comment: it follows from the rest, and would tie it down if it were read back */
        str_addf(out, "# %s: ", key->name);
        config_add_json(out, value);
        str_add(out, "\n");
    } else if (key->type == TYPE_MODEL) {
        add_model(out, value);
    } else if (key->type == TYPE_DATASETS) {
        config_add_datasets(out, key->name, value);
    } else {
        str_addf(out, "%s: ", key->name);
        config_add_json(out, value);
        str_add(out, "\n");
    }
}

enum status config_print_yaml(const struct config *cfg, struct str *out)
{
    for (size_t i = 0; i < n_config_keys; i++) {
        const struct config_key *key = &config_keys[i];
        if (key->type == TYPE_GROUP) {
            str_addf(out, "%s# %s\n", i ? "\n" : "", key->name);
            continue;
        }
        json_t *value = field_json(cfg, key);
        if (!value)
            return FAIL(ERR_MEMORY, "out of memory while printing the config");
        add_row(out, cfg, key, value);
        json_decref(value);
    }
    return str_status(out);
}
