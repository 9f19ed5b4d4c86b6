/* options.c: from argv to struct args.
 *
 * `--name value`, `--name=value`, `-o value`; `-` and `_` are the same in names. A name that is no
 * option of the command but a key of the config, or another spelling of one, is an override:
 * --learning-rate 1e-3 is learning_rate=1e-3, --use-fp16 is use_fp16=true. --config FILE is the
 * same as FILE. Other words that look like key=value are overrides too.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define AT(field) offsetof(struct args, field)

const struct option common_options[] = {
    {"json", 0, OPTION_FLAG, AT(json), NULL,
     "print one JSON object on stdout at the end, and nothing else there"},
    {"no-color", 0, OPTION_FLAG, AT(no_color), NULL, "no colours (also: NO_COLOR is set)"},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), NULL, "only warnings and errors"},
    {"verbose", 'v', OPTION_FLAG, AT(verbose), NULL,
     "more of what is going on, and where in the source errors come from"},
    {"help", 'h', OPTION_FLAG, AT(help), NULL, "this text"},
};
const size_t n_common_options = ARRAY_LEN(common_options);

/* Equal up to `-` and `_`, over n characters of a. */
static bool same_name(const char *a, size_t n, const char *b)
{
    if (strlen(b) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool both_dashes = strchr("-_", a[i]) && strchr("-_", b[i]);
        if (a[i] != b[i] && !both_dashes)
            return false;
    }
    return true;
}

static const struct option *find_long(const struct command *c, const char *name, size_t n)
{
    for (size_t i = 0; i < c->n_options; i++) {
        if (same_name(name, n, c->options[i].name))
            return &c->options[i];
    }
    for (size_t i = 0; i < n_common_options; i++) {
        if (same_name(name, n, common_options[i].name))
            return &common_options[i];
    }
    return NULL;
}

static const struct option *find_letter(const struct command *c, char letter)
{
    for (size_t i = 0; i < c->n_options; i++) {
        if (c->options[i].letter == letter)
            return &c->options[i];
    }
    for (size_t i = 0; i < n_common_options; i++) {
        if (common_options[i].letter == letter)
            return &common_options[i];
    }
    return NULL;
}

/* NULL: the config has no such name. */
static const char *find_key(struct args *args, const char *name, size_t n)
{
    const char *key = pool_printf(&args->pool, "%.*s", (int)n, name);
    return key && snug_config_key_kind(key) != SNUG_KEY_NONE ? key : NULL;
}

static bool is_truth(const char *word)
{
    int value;
    return parse_bool(word, &value) || strcmp(word, "auto") == 0;
}

/* The value of a key given without `=`: the next word, or true where the key can do without one;
 * NULL: it cannot. */
static const char *value_of_key(const char *key, int argc, char **argv, int *i)
{
    enum snug_key_kind kind = snug_config_key_kind(key);
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    bool is_option = !next || strncmp(next, "--", 2) == 0;
    if (kind == SNUG_KEY_SWITCH && (is_option || !is_truth(next)))
        return "true";
    if (is_option)
        return kind == SNUG_KEY_MAYBE ? "true" : NULL;
    ++*i;
    return next;
}

/* Did-you-mean over the command's options and, where it takes them, the keys of the config. */
static enum snug_status unknown_option(const struct command *c, const char *word, size_t n)
{
    enum { MAX_NAMES = 256 };
    const char *names[MAX_NAMES], *key;
    size_t n_names = 0;
    char name[128];
    (void)snprintf(name, sizeof(name), "%.*s", (int)n, word);
    for (size_t i = 0; i < c->n_options && n_names < MAX_NAMES; i++)
        names[n_names++] = c->options[i].name;
    for (size_t i = 0; i < n_common_options && n_names < MAX_NAMES; i++)
        names[n_names++] = common_options[i].name;
    for (size_t i = 0; c->takes_overrides && n_names < MAX_NAMES && (key = snug_config_key(i)); i++)
        names[n_names++] = key;
    const char *near = suggest(name, names, n_names);
    return usage_error("%s has no option --%s%s%s%s; see snug %s --help", c->name, name,
                       near ? " (did you mean --" : "", near ? near : "", near ? "?)" : "",
                       c->name);
}

static enum snug_status set_value(const struct option *o, const char *value, struct args *args)
{
    void *field = (char *)args + o->offset;
    int64_t i;
    double x;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return SNUG_OK;
    case OPTION_OPTIONAL:
        *(const char **)field = value ? value : "";
        return SNUG_OK;
    case OPTION_TEXT:
        *(const char **)field = value;
        return SNUG_OK;
    case OPTION_INT:
    case OPTION_POSITIVE:
        if (!parse_int(value, &i))
            return usage_error("--%s is '%s'; it must be a whole number", o->name, value);
        if (o->kind == OPTION_POSITIVE && i < 1)
            return usage_error("--%s is %s; it must be at least 1", o->name, value);
        *(int64_t *)field = i;
        return SNUG_OK;
    case OPTION_FLOAT:
        if (!parse_double(value, &x))
            return usage_error("--%s is '%s'; it must be a number", o->name, value);
        *(double *)field = x;
        return SNUG_OK;
    }
    return SNUG_OK;
}

static enum snug_status out_of_memory(void)
{
    return memory_error();
}

static enum snug_status add_override(struct args *args, const char *key, const char *value)
{
    const char *text = pool_printf(&args->pool, "%s=%s", key, value);
    if (!text || vec_push(&args->overrides, text) != OK)
        return out_of_memory();
    return SNUG_OK;
}

/* key=value: a name before the `=`, so that paths with one in them can be given as ./a=b. */
static bool is_override(const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return false;
    for (const char *p = word; p < equals; p++) {
        if (!isalnum((unsigned char)*p) && !strchr("_-.", *p))
            return false;
    }
    return word[0] != '.';
}

/* The word after an option whose value may be left out: its value when it can be nothing else,
 * because all the words of the command are there. */
static bool is_value(const struct command *c, const char *word, const struct args *args)
{
    return args->words.n >= c->max_words && word[0] != '-' && !is_override(word);
}

static enum snug_status parse_word(const struct command *c, const char *word, struct args *args)
{
    bool override = c->takes_overrides && args->words.n > 0 && is_override(word);
    enum status status = override ? vec_push(&args->overrides, word) : vec_push(&args->words, word);
    return status == OK ? SNUG_OK : out_of_memory();
}

/* One argument that begins with `--`; *i moves on when the value is the next one. */
static enum snug_status parse_long(const struct command *c, int argc, char **argv, int *i,
                                   struct args *args)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const struct option *o = find_long(c, name, n);
    bool is_config = !o && c->takes_overrides && same_name(name, n, "config");
    const char *key = !o && !is_config && c->takes_overrides ? find_key(args, name, n) : NULL;
    if (!o && !key && !is_config)
        return unknown_option(c, name, n);
    if (o && o->kind == OPTION_FLAG)
        return equals ? usage_error("--%s takes no value", o->name) : set_value(o, NULL, args);
    if (o && o->kind == OPTION_OPTIONAL) {
        bool next = !equals && *i + 1 < argc && is_value(c, argv[*i + 1], args);
        return set_value(o, equals ? equals + 1 : next ? argv[++*i] : NULL, args);
    }
    if (key) {
        const char *value = equals ? equals + 1 : value_of_key(key, argc, argv, i);
        return value ? add_override(args, key, value)
                     : usage_error("--%.*s needs a value", (int)n, name);
    }
    /* What looks like the next option is not taken for a value: --prompt=--x says it is one. */
    if (!equals && (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0))
        return usage_error("--%.*s needs a value", (int)n, name);
    const char *value = equals ? equals + 1 : argv[++*i];
    return o ? set_value(o, value, args) : parse_word(c, value, args);
}

static enum snug_status parse_letter(const struct command *c, int argc, char **argv, int *i,
                                     struct args *args)
{
    const char *word = argv[*i];
    const struct option *o = find_letter(c, word[1]);
    if (!o || (o->kind == OPTION_FLAG && word[2]))
        return usage_error("%s has no option %s; see snug %s --help", c->name, word, c->name);
    if (o->kind == OPTION_FLAG)
        return set_value(o, NULL, args);
    if (word[2])
        return set_value(o, word + 2, args);
    if (*i + 1 >= argc)
        return usage_error("-%c needs a value", o->letter);
    return set_value(o, argv[++*i], args);
}

static enum snug_status check_words(const struct command *c, const struct args *args)
{
    if (args->words.n < c->min_words)
        return usage_error("something is missing: snug %s", c->usage);
    if (args->words.n > c->max_words)
        return usage_error("'%s' is one word too many: snug %s%s", args->words.items[c->max_words],
                           c->usage, c->takes_overrides ? " (settings are written key=value)" : "");
    return SNUG_OK;
}

enum snug_status parse_args(const struct command *c, int argc, char **argv, struct args *args)
{
    enum snug_status status = SNUG_OK;
    bool only_words = false;
    for (int i = 0; i < argc && status == SNUG_OK; i++) {
        const char *word = argv[i];
        if (only_words || word[0] != '-' || word[1] == '\0')
            status = parse_word(c, word, args);
        else if (strcmp(word, "--") == 0)
            only_words = true;
        else if (word[1] == '-')
            status = parse_long(c, argc, argv, &i, args);
        else
            status = parse_letter(c, argc, argv, &i, args);
    }
    if (status != SNUG_OK || args->help)
        return status;
    return check_words(c, args);
}

void args_release(struct args *args)
{
    vec_release(&args->words);
    vec_release(&args->overrides);
    pool_release(&args->pool);
}
