/* values.c: one scalar to one typed value, with messages that say what was expected. */
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"

/* What each type is called and an example, for keys whose default gives none. */
static const struct {
    const char *word, *example;
} type_words[] = {
    [TYPE_GROUP] = {"", ""},
    [TYPE_BOOL] = {"true or false", NULL},
    [TYPE_TRISTATE] = {"true, false or auto", NULL},
    [TYPE_INT] = {"a whole number", "8"},
    [TYPE_AUTO_INT] = {"a whole number or auto", "8"},
    [TYPE_FLOAT] = {"a number", "1e-5"},
    [TYPE_DURATION] = {"a time", "90s, 2h30m or 01:30:00"},
    [TYPE_BYTES] = {"a size", "16GiB or 500MB, or auto"},
    [TYPE_STRING] = {"text", NULL},
    [TYPE_BLOCKS] = {"true, false, auto, a list of blocks or of their parts",
                     "\"0-3,7\" or [attention, mlp]"},
    [TYPE_RESUME] = {"a checkpoint folder, last, auto, true or false", NULL},
    [TYPE_LIST] = {"a word or a list of words", "[tensorboard]"},
    [TYPE_NAMES] = {"a name or a list of names", "[q_proj, v_proj]"},
    [TYPE_TEXTS] = {"a text or a list of texts", "[\"Once upon a time\", \"The\"]"},
    [TYPE_NUMBERS] = {"numbers by name", "{q_proj: 16}"},
    [TYPE_CHOICE] = {"one word", NULL},
    [TYPE_MODEL] = {"a mapping of config.json keys", "{model_type: gpt2, n_layer: 12}"},
    [TYPE_DATASETS] = {"a list of datasets", "[{path: data.txt, type: text}]"},
};

const char *config_type_word(enum config_type type)
{
    return type_words[type].word;
}

enum status config_wrong_type(const struct config_key *key, const struct config_node *node)
{
    char found[FOUND_TEXT];
    const char *example = type_words[key->type].example;
    if ((key->type == TYPE_INT || key->type == TYPE_FLOAT) && key->preset[0])
        example = key->preset;
    return FAIL(ERR_CONFIG, "%s: %s: expected %s%s%s, found %s", node->where,
                config_node_name(node), type_words[key->type].word, example ? " such as " : "",
                example ? example : "", config_node_found(found, node));
}

static enum status check_range(const struct config_key *key, const struct config_node *node,
                               double x)
{
    struct config_interval_rule rule;
    char words[96], found[FOUND_TEXT];
    BUG_ON(!config_parse_rule(key->rule, &rule));
    if (config_in_rule(&rule, x))
        return OK;
    return FAIL(ERR_CONFIG, "%s: %s: %s is out of range: it must be %s", node->where,
                config_node_name(node), config_node_found(found, node),
                config_rule_words(words, sizeof(words), &rule));
}

/* Nothing runs in less, so a plain number below it was meant in another unit. */
enum { FEWEST_BYTES = 65536 };

static enum status check_unit(const struct config_node *node, int64_t n_bytes)
{
    size_t n_digits = strspn(node->text, "0123456789.");
    if (n_bytes == 0 || n_bytes >= FEWEST_BYTES || node->text[n_digits] != '\0')
        return OK;
    return FAIL(ERR_CONFIG, "%s: %s: %s means %lld bytes; did you mean %sGiB?", node->where,
                config_node_name(node), node->text, (long long)n_bytes, node->text);
}

static enum status take_int(const struct config_key *key, const struct config_node *node,
                            int64_t *out)
{
    int64_t x;
    double real;
    if (key->type != TYPE_INT && strcmp(node->text, "auto") == 0) {
        *out = CONFIG_AUTO;
        return OK;
    }
    if (key->type == TYPE_BYTES ? !parse_bytes(node->text, &x) : !parse_int(node->text, &x)) {
        if (parse_double(node->text, &real) && floor(real) == real)
            TRY(check_range(key, node, real)); /* whole, but beyond 64 bits */
        return config_wrong_type(key, node);
    }
    TRY(check_range(key, node, (double)x));
    if (key->type == TYPE_BYTES)
        TRY(check_unit(node, x));
    *out = x;
    return OK;
}

/* "01:30:00", "2:00:00:00" (days first): each part weighs less than the one before. */
static int parse_clock(const char *text, double *seconds)
{
    static const double weights[] = {86400, 3600, 60, 1};
    int n_parts = 1;
    for (const char *c = text; *c; c++)
        n_parts += *c == ':';
    if (n_parts < 3 || n_parts > 4)
        return 0;
    double sum = 0;
    for (int i = 4 - n_parts; i < 4; i++) {
        size_t n = strspn(text, "0123456789");
        if (n == 0 || n > 6 || text[n] != (i < 3 ? ':' : '\0'))
            return 0;
        sum += weights[i] * (double)strtol(text, NULL, 10);
        text += n + 1;
    }
    *seconds = sum;
    return 1;
}

/* "90", "90s", "2h30m", "1.5h". */
static int parse_spans(const char *text, double *seconds)
{
    double sum = 0;
    do {
        char *end;
        if ((!isdigit((unsigned char)*text) && *text != '.') ||
            tolower((unsigned char)text[1]) == 'x')
            return 0; /* strtod would read hexadecimal digits too */
        double x = strtod(text, &end);
        double factor = *end == 'd'                   ? 86400
                        : *end == 'h'                 ? 3600
                        : *end == 'm'                 ? 60
                        : *end == 's' || *end == '\0' ? 1
                                                      : -1;
        if (end == text || factor < 0)
            return 0;
        sum += x * factor;
        text = end + (*end != '\0');
    } while (*text);
    *seconds = sum;
    return isfinite(sum);
}

static enum status take_double(const struct config_key *key, const struct config_node *node,
                               double *out)
{
    double x;
    int good = key->type == TYPE_FLOAT ? parse_double(node->text, &x)
                                       : parse_clock(node->text, &x) || parse_spans(node->text, &x);
    if (!good)
        return config_wrong_type(key, node);
    TRY(check_range(key, node, x));
    *out = x == 0 ? 0 : x; /* no negative zero: it would print as another value */
    return OK;
}

/* A list as its text: "0-3, 7", "attention, mlp". */
static enum status join_words(struct pool *pool, const struct config_key *key,
                              const struct config_node *list, const char **out)
{
    *out = NULL;
    for (const struct config_node *x = list->first; x; x = x->next) {
        if (x->kind != NODE_SCALAR)
            return config_wrong_type(key, list);
        *out = *out ? pool_printf(pool, "%s, %s", *out, x->text) : x->text;
        TRY(pool_status(pool));
    }
    return *out ? OK : config_wrong_type(key, list);
}

static enum status take_blocks(struct pool *pool, const struct config_key *key,
                               const struct config_node *node, struct block_set *out)
{
    bool valid;
    const char *text = node->text;
    if (node->kind == NODE_LIST) {
        TRY(join_words(pool, key, node, &text));
        if (node->n == 1 && strspn(text, "01") == 1) /* alone it could be a truth value */
            text = pool_printf(pool, "%s-%s", text, text);
        TRY(pool_status(pool));
        TRY(block_set_parse(out, text, pool, &valid));
        struct config_node words = *node; /* as one text, which messages show */
        words.kind = NODE_SCALAR;
        words.text = text;
        return valid ? OK : config_wrong_type(key, &words);
    }
    if (str_starts_with(text, "offload") || strcmp(text, "unsloth") == 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: %s: %.20s: not available in this version; write true, with "
                    "activation_offloading: true for what is saved in host memory",
                    node->where, config_node_name(node), text);
    if (strcmp(text, "selective") == 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: %s: selective: tools mean different things by it; write auto, which "
                    "chooses value by value what the budgets need, the parts of a block "
                    "(attention, mlp, norm), or the blocks (\"0-3,7\")",
                    node->where, config_node_name(node));
    if (strcmp(text, "full") == 0 || strcmp(text, "none") == 0)
        text = *text == 'f' ? "true" : "false"; /* Megatron, torchtitan */
    if (strcmp(text, "0") == 0 || strcmp(text, "1") == 0)
        return FAIL(ERR_CONFIG, "%s: %s: %s could mean %s or block %s: write %s or \"%s-%s\"",
                    node->where, config_node_name(node), text, *text == '1' ? "true" : "false",
                    text, *text == '1' ? "true" : "false", text, text);
    TRY(block_set_parse(out, text, pool, &valid));
    return valid ? OK : config_wrong_type(key, node);
}

static enum status take_resume(struct pool *pool, const struct config_node *node, const char **out)
{
    int value;
    if (!parse_bool(node->text, &value))
        return config_keep_text(pool, node->text, out);
    *out = value ? "last" : NULL;
    return OK;
}

/* `-` and `_` are the same in words too. */
static bool same_word(const char *row, const char *word)
{
    while (*row && (*row == '-' ? '_' : *row) == *word)
        row++, word++;
    return *row == *word;
}

enum status config_bind_choice(const struct config_node *node, const char *what, const char *set,
                               int *value)
{
    enum { MAX_WORDS = 96 };
    const char *words[MAX_WORDS];
    size_t n = 0;
    enum status status = OK;
    struct str known = {0};
    char found[FOUND_TEXT], word[64] = "";
    for (size_t i = 0; node->kind == NODE_SCALAR && node->text[i] && i + 1 < sizeof(word); i++)
        word[i] = (char)(node->text[i] == '-' ? '_' : tolower((unsigned char)node->text[i]));
    for (const struct config_choice *c = config_choices(set); c->name; c++) {
        if (same_word(c->name, word) && c->nearest)
            return FAIL(ERR_UNSUPPORTED, "%s: %s: %s is not in this version; nearest is %s",
                        node->where, what, word, c->nearest);
        if (same_word(c->name, word)) {
            *value = c->value;
            return OK;
        }
        BUG_ON(n == MAX_WORDS);
        if (!c->nearest)
            words[n++] = c->name;
    }
    config_list_choices(&known, set);
    TRY_GOTO(str_status(&known), out);
    const char *nearest = word[0] ? suggest(word, words, n) : NULL;
    status = FAIL(ERR_CONFIG, "%s: %s: expected one of %s, found %s%s%s%s", node->where, what,
                  str_text(&known), config_node_found(found, node),
                  nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
out:
    str_release(&known);
    return status;
}

/* The word at *text without the spaces around it, in the pool; *text moves past the comma behind
 * it. NULL: out of memory. */
static const char *next_word(struct pool *pool, const char **text)
{
    const char *at = *text + strspn(*text, " ");
    size_t n = strcspn(at, ",");
    *text = at + n + (at[n] == ',');
    while (n && at[n - 1] == ' ')
        n--;
    return pool_strndup(pool, at, n);
}

/* A word, words with commas between, or a list of words: of the row's set, or any. */
static enum status take_list(struct pool *pool, const struct config_key *key,
                             const struct config_node *node, struct config_list *out)
{
    size_t n = node->n;
    if (node->kind == NODE_SCALAR) {
        n = 1;
        for (const char *c = node->text; *c; c++)
            n += *c == ',';
    }
    TRY(pool_try(pool, &out->items, (n ? n : 1) * sizeof(*out->items)));
    const struct config_node *item = node->first;
    const char *text = node->text;
    for (out->n = 0; out->n < n; out->n++) {
        struct config_node word = item ? *item : *node;
        int value = 0;
        if (item)
            item = item->next;
        else if (!(word.text = next_word(pool, &text)))
            return pool_status(pool);
        if (key->type == TYPE_NAMES) {
            if (word.kind != NODE_SCALAR || !word.text[0])
                return config_wrong_type(key, node);
            TRY(config_keep_text(pool, word.text, &out->items[out->n]));
            continue;
        }
        TRY(config_bind_choice(&word, config_node_name(node), key->rule, &value));
        out->items[out->n] = config_choice_name(key->rule, value);
    }
    return OK;
}

/* A text or a list of texts, with commas in them as they please. */
static enum status take_texts(struct pool *pool, const struct config_key *key,
                              const struct config_node *node, struct config_list *out)
{
    bool is_list = node->kind == NODE_LIST;
    TRY(pool_try(pool, &out->items, (is_list ? node->n + 1 : 1) * sizeof(*out->items)));
    for (const struct config_node *x = is_list ? node->first : node; x;
         x = is_list ? x->next : NULL) {
        if (x->kind != NODE_SCALAR)
            return config_wrong_type(key, node);
        TRY(config_keep_text(pool, x->text, &out->items[out->n++]));
    }
    return OK;
}

static enum status take_numbers(struct pool *pool, const struct config_key *key,
                                const struct config_node *node, struct config_numbers *out)
{
    if (node->kind != NODE_MAP)
        return config_wrong_type(key, node);
    TRY(pool_try(pool, &out->names, (node->n + 1) * sizeof(*out->names)));
    TRY(pool_try(pool, &out->values, (node->n + 1) * sizeof(*out->values)));
    for (const struct config_node *x = node->first; x; x = x->next) {
        double value;
        if (x->kind != NODE_SCALAR || !parse_double(x->text, &value))
            return config_wrong_type(key, node);
        TRY(check_range(key, x, value));
        out->names[out->n] = x->key;
        out->values[out->n++] = value;
    }
    return OK;
}

static enum status take_bool(const struct config_key *key, const struct config_node *node, int *out)
{
    if (key->type == TYPE_TRISTATE && strcmp(node->text, "auto") == 0) {
        *out = CONFIG_TRISTATE_AUTO;
        return OK;
    }
    return parse_bool(node->text, out) ? OK : config_wrong_type(key, node);
}

static bool takes_list(enum config_type type)
{
    return type == TYPE_LIST || type == TYPE_NAMES || type == TYPE_TEXTS || type == TYPE_BLOCKS;
}

enum status config_take_value(struct pool *pool, const struct config_key *key,
                              const struct config_node *node, void *field)
{
    _Static_assert(sizeof(enum config_optim) == sizeof(int), "choices are stored through an int");
    int word = 0;
    if (key->type == TYPE_NUMBERS)
        return take_numbers(pool, key, node, field);
    if (node->kind == NODE_MAP || (node->kind == NODE_LIST && !takes_list(key->type)))
        return config_wrong_type(key, node);
    switch (key->type) {
    case TYPE_BOOL:
    case TYPE_TRISTATE:
        TRY(take_bool(key, node, &word));
        memcpy(field, &word, sizeof(word));
        return OK;
    case TYPE_CHOICE:
        TRY(config_bind_choice(node, config_node_name(node), key->rule, &word));
        memcpy(field, &word, sizeof(word));
        return OK;
    case TYPE_INT:
    case TYPE_AUTO_INT:
    case TYPE_BYTES:
        return take_int(key, node, field);
    case TYPE_FLOAT:
    case TYPE_DURATION:
        return take_double(key, node, field);
    case TYPE_STRING:
        return config_keep_text(pool, node->text, field);
    case TYPE_BLOCKS:
        return take_blocks(pool, key, node, field);
    case TYPE_RESUME:
        return take_resume(pool, node, field);
    case TYPE_LIST:
    case TYPE_NAMES:
        return take_list(pool, key, node, field);
    case TYPE_TEXTS:
        return take_texts(pool, key, node, field);
    default:
        return FAIL(ERR_INTERNAL, "%s has no single value", key->name);
    }
}

/* What a field holds while nobody has set it. */
void config_take_unset(const struct config_key *key, void *field)
{
    if (key->type == TYPE_INT || key->type == TYPE_AUTO_INT || key->type == TYPE_BYTES)
        *(int64_t *)field = CONFIG_UNSET;
    else if (key->type == TYPE_FLOAT || key->type == TYPE_DURATION)
        *(double *)field = (double)NAN;
    else if (key->type == TYPE_BLOCKS)
        *(struct block_set *)field = (struct block_set){0};
    else if (key->type == TYPE_LIST || key->type == TYPE_NAMES || key->type == TYPE_TEXTS)
        *(struct config_list *)field = (struct config_list){0};
    else if (key->type == TYPE_NUMBERS)
        *(struct config_numbers *)field = (struct config_numbers){0};
    else
        *(const char **)field = NULL;
}
