/* config.c: loading, freeing and asking where a value came from. */
#include "config/config.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "config/config_internal.h"

static enum status config_new(struct config **out)
{
    enum status status;
    struct config *cfg = NULL;
    *out = NULL;
    TRY(mem_try_array(&cfg, 1, sizeof(*cfg)));
    TRY_GOTO(mem_try_array(&cfg->source, 1, sizeof(*cfg->source)), out);
    pool_init(&cfg->source->pool);
    TRY_GOTO(pool_try(&cfg->source->pool, &cfg->source->state, n_config_keys), out);
    TRY_GOTO(config_node_new(&cfg->source->pool, NODE_MAP, "default", &cfg->source->root), out);
    cfg->n_ranks = 1;
    *out = cfg;
    return OK;
out:
    config_free(cfg);
    return status;
}

void config_free(struct config *cfg)
{
    if (!cfg)
        return;
    json_decref(cfg->model);
    if (cfg->source) {
        pool_release(&cfg->source->pool);
        problems_release(&cfg->source->problems);
        str_release(&cfg->source->remarks);
    }
    mem_free(cfg->source);
    mem_free(cfg);
}

enum status config_note(struct config *cfg, enum status s)
{
    return problems_note(&cfg->source->problems, s);
}

void config_remark(struct config *cfg, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    str_addf(&cfg->source->remarks, "%s\n", line);
}

/* Reads everything, so that all that is wrong is known. */
static enum status read_all(struct config *cfg, struct config_node *top,
                            const char *const *overrides, size_t n_overrides)
{
    TRY(config_admit(cfg, top));
    for (size_t i = 0; i < n_overrides; i++)
        TRY(config_note(cfg, config_override(cfg, overrides[i])));
    TRY(config_bind(cfg));
    if (cfg->source->problems.n > 0)
        TRY(config_resolve_all(cfg, 1));
    return problems_status(&cfg->source->problems);
}

enum status config_load_text(struct config **out, const char *text, size_t n_bytes,
                             const char *name, const char *const *overrides, size_t n_overrides)
{
    enum status status;
    struct config *cfg;
    struct config_node *top;
    const char *kept;
    *out = NULL;
    TRY(config_new(&cfg));
    TRY_GOTO(config_keep_text(&cfg->source->pool, name, &kept), out);
    TRY_GOTO(config_yaml_parse(&cfg->source->pool, text, n_bytes, kept, NULL, &top), out);
    TRY_GOTO(read_all(cfg, top, overrides, n_overrides), out);
    *out = cfg;
    return OK;
out:
    config_free(cfg);
    return status;
}

enum status config_load(struct config **out, const char *path, const char *const *overrides,
                        size_t n_overrides)
{
    char *text = NULL;
    size_t n_bytes = 0;
    *out = NULL;
    if (!path)
        return config_load_text(out, "", 0, "command line", overrides, n_overrides);
    if (!file_exists(path))
        return FAIL(ERR_CONFIG, "%s: no such config file", path);
    if (file_is_folder(path))
        return FAIL(ERR_CONFIG, "%s: a folder, not a config file", path);
    TRY(file_read_stream(path, CONFIG_MAX_BYTES, &text, &n_bytes));
    enum status status = config_load_text(out, text, n_bytes, path, overrides, n_overrides);
    mem_free(text);
    return status;
}

static size_t row_of_field(const struct config *cfg, const void *field)
{
    size_t offset = (size_t)((const char *)field - (const char *)cfg);
    size_t i = 0;
    while (i < n_config_keys &&
           (config_keys[i].type == TYPE_GROUP || config_keys[i].offset != offset))
        i++;
    BUG_ON(i == n_config_keys);
    return i;
}

const char *config_name_of(const struct config *cfg, const void *field)
{
    return config_keys[row_of_field(cfg, field)].name;
}

enum config_state config_state_of(const struct config *cfg, const void *field)
{
    return (enum config_state)cfg->source->state[row_of_field(cfg, field)];
}

void config_mark_derived(struct config *cfg, const void *field)
{
    cfg->source->state[row_of_field(cfg, field)] = STATE_DERIVED;
}

void config_mark_idle(struct config *cfg, const void *field)
{
    cfg->source->state[row_of_field(cfg, field)] = STATE_IDLE;
}

void config_mark_wrong(struct config *cfg, const struct config_key *key)
{
    cfg->source->state[key - config_keys] = STATE_WRONG;
}

/* The row of a key given by canonical name or alias, perhaps followed by a path; *rest is that
 * path or NULL. */
static const struct config_key *find_row(const char *key, const char **rest)
{
    char name[2 * CONFIG_MAX_KEY];
    size_t n = strlen(key);
    *rest = NULL;
    if (n >= sizeof(name))
        return NULL;
    memcpy(name, key, n + 1);
    config_normalise(name);
    const struct config_key *row = config_find_key(name);
    if (row)
        return row;
    n = strcspn(name, ".");
    if (name[n] == '\0')
        return NULL;
    name[n] = '\0';
    *rest = key + n + 1;
    return config_find_key(name);
}

int config_is_set(const struct config *cfg, const char *key)
{
    const char *rest;
    const struct config_key *row = find_row(key, &rest);
    return row && cfg->source->state[row - config_keys] == STATE_SET;
}

const char *config_where(const struct config *cfg, const char *key)
{
    const char *path;
    const struct config_key *row = find_row(key, &path);
    if (!row || cfg->source->state[row - config_keys] == STATE_DEFAULT ||
        cfg->source->state[row - config_keys] == STATE_IDLE)
        return "default";
    if (cfg->source->state[row - config_keys] == STATE_DERIVED)
        return "derived";
    const struct config_node *node = config_node_of(cfg, row);
    const char *where = node->where;
    while (path && node) {
        char segment[CONFIG_MAX_KEY];
        size_t n = strcspn(path, ".");
        if (n >= sizeof(segment))
            break;
        memcpy(segment, path, n);
        segment[n] = '\0';
        path = path[n] == '.' ? path + n + 1 : NULL;
        if (node->kind == NODE_LIST)
            node = isdigit((unsigned char)segment[0])
                       ? config_node_at(node, strtoul(segment, NULL, 10))
                       : NULL;
        else
            node = config_node_member(node, segment);
        if (node)
            where = node->where;
    }
    return where;
}

int64_t config_warmup_steps(const struct config *cfg, int64_t n_steps)
{
    double given = cfg->warmup_steps > 0 ? cfg->warmup_steps : cfg->warmup_ratio;
    if (given >= 1.0)
        return given > 9e18 ? INT64_MAX : (int64_t)given;
    /* as Hugging Face rounds it: up */
    double steps = given * (double)n_steps;
    int64_t whole = (int64_t)steps;
    return whole + ((double)whole < steps);
}

int config_optim_is_8bit(const struct config *cfg)
{
    return cfg->optim == CONFIG_OPTIM_ADAMW_8BIT || cfg->optim == CONFIG_OPTIM_PAGED_ADAMW_8BIT ||
           cfg->optim == CONFIG_OPTIM_LION_8BIT || cfg->optim == CONFIG_OPTIM_PAGED_LION_8BIT ||
           cfg->optim == CONFIG_OPTIM_MUON_8BIT;
}

int config_optim_is_paged(const struct config *cfg)
{
    return cfg->optim == CONFIG_OPTIM_PAGED_ADAMW || cfg->optim == CONFIG_OPTIM_PAGED_ADAMW_8BIT ||
           cfg->optim == CONFIG_OPTIM_PAGED_LION || cfg->optim == CONFIG_OPTIM_PAGED_LION_8BIT;
}

int config_optim_is_lion(const struct config *cfg)
{
    return cfg->optim == CONFIG_OPTIM_LION || cfg->optim == CONFIG_OPTIM_LION_8BIT ||
           cfg->optim == CONFIG_OPTIM_PAGED_LION || cfg->optim == CONFIG_OPTIM_PAGED_LION_8BIT;
}

int config_optim_is_muon(const struct config *cfg)
{
    return cfg->optim == CONFIG_OPTIM_MUON || cfg->optim == CONFIG_OPTIM_MUON_8BIT;
}

int config_optim_moments(const struct config *cfg)
{
    if (cfg->optim == CONFIG_OPTIM_SGD)
        return cfg->momentum > 0;
    if (cfg->optim == CONFIG_OPTIM_ADAFACTOR)
        return 0;
    return config_optim_is_lion(cfg) || config_optim_is_muon(cfg) ? 1 : 2;
}

int config_reports_to(const struct config *cfg, enum config_report target)
{
    const char *name = config_choice_name("report", (int)target);
    for (size_t i = 0; i < cfg->report_to.n; i++) {
        if (strcmp(cfg->report_to.items[i], name) == 0)
            return 1;
    }
    return 0;
}
