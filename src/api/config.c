/* config.c: configs for users of the library. */
#include <string.h>

#include "api/api_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/json_text.h"
#include "io/checkpoint.h"
#include "io/peft.h"

/* *is_given = whether the overrides say what the data is. */
static enum status gives_data(const char *const *overrides, size_t n_overrides, bool *is_given)
{
    struct config *probe;
    TRY(config_load(&probe, NULL, overrides, n_overrides));
    *is_given = config_is_set(probe, "datasets") || config_is_set(probe, "eval_datasets");
    config_free(probe);
    return OK;
}

/* A checkpoint knows the data of its run, unless the overrides know better. */
static enum status add_recorded(struct str *yaml, const char *folder, const char *const *overrides,
                                size_t n_overrides)
{
    json_t *state;
    bool is_given;
    TRY(checkpoint_peek(folder, &state));
    enum status status = gives_data(overrides, n_overrides, &is_given);
    if (status == OK)
        config_add_data(yaml, json_object_get(json_object_get(state, "settings"), "config"),
                        !is_given);
    json_decref(state);
    return status == OK && yaml->failed ? str_status(yaml) : status;
}

/* The settings that a folder stands for: its model, or its adapter and the model that is of. */
static enum status settings_of_folder(const char *folder, struct str *model, struct str *adapter)
{
    char *base = NULL;
    if (!peft_is_folder(folder)) {
        str_addf(model, "model_name_or_path=%s", folder);
        return str_status(model);
    }
    TRY(peft_read_base(folder, &base));
    str_addf(model, "model_name_or_path=%s", base ? base : "");
    str_addf(adapter, "adapter_name_or_path=%s", folder);
    mem_free(base);
    TRY(str_status(model));
    return str_status(adapter);
}

/* The output_dir of a run stands for the config that is in it, wherever it is now. */
static enum status load_run(struct snug_config *c, const char *folder, const char *file,
                            const char *const *overrides, size_t n_overrides)
{
    struct str output_dir = {0};
    const char **all = NULL;
    enum status status;
    str_addf(&output_dir, "output_dir=%s", folder);
    TRY_GOTO(str_status(&output_dir), out);
    TRY_GOTO(mem_try_array(&all, n_overrides + 1, sizeof(*all)), out);
    all[0] = output_dir.text;
    for (size_t i = 0; i < n_overrides; i++)
        all[i + 1] = overrides[i];
    status = config_load(&c->config, file, all, n_overrides + 1);
out:
    mem_free(all);
    str_release(&output_dir);
    return status;
}

/* A model's folder stands for a config that names it as its model, or as its adapter. */
static enum status load_model(struct snug_config *c, const char *folder,
                              const char *const *overrides, size_t n_overrides)
{
    struct str model = {0}, adapter = {0}, yaml = {0};
    const char **all = NULL;
    size_t n = 0;
    enum status status;
    TRY_GOTO(settings_of_folder(folder, &model, &adapter), out);
    TRY_GOTO(mem_try_array(&all, n_overrides + 2, sizeof(*all)), out);
    all[n++] = model.text;
    if (adapter.n > 0)
        all[n++] = adapter.text;
    for (size_t i = 0; i < n_overrides; i++)
        all[n++] = overrides[i];
    c->is_model_folder = true;
    TRY_GOTO(add_recorded(&yaml, folder, overrides, n_overrides), out);
    status = config_load_text(&c->config, str_text(&yaml), yaml.n, folder, all, n);
out:
    mem_free(all);
    str_release(&model);
    str_release(&adapter);
    str_release(&yaml);
    return status;
}

static enum status load_folder(struct snug_config *c, const char *folder,
                               const char *const *overrides, size_t n_overrides)
{
    struct str model = {0}, run = {0};
    enum status status;
    str_addf(&model, "%s/config.json", folder);
    str_addf(&run, "%s/config.yaml", folder);
    TRY_GOTO(str_status(&model), out);
    TRY_GOTO(str_status(&run), out);
    bool is_run = !peft_is_folder(folder) && !file_exists(model.text) && file_exists(run.text);
    status = is_run ? load_run(c, folder, run.text, overrides, n_overrides)
                    : load_model(c, folder, overrides, n_overrides);
out:
    str_release(&model);
    str_release(&run);
    return status;
}

enum snug_status snug_config_load(struct snug_config **out, const char *path,
                                  const char *const *overrides, size_t n_overrides)
{
    struct snug_config *c;
    enum status status;
    *out = NULL;
    status = mem_try_array(&c, 1, sizeof(*c));
    if (status != OK)
        return public_status(status);
    status = path && file_is_folder(path) ? load_folder(c, path, overrides, n_overrides)
                                          : config_load(&c->config, path, overrides, n_overrides);
    if (status == OK)
        status = config_resolve(c->config, 1);
    if (status == OK)
        *out = c;
    else
        snug_config_free(c);
    return public_status(status);
}

void snug_config_free(struct snug_config *config)
{
    if (!config)
        return;
    config_free(config->config);
    mem_free(config);
}

enum snug_status snug_config_yaml(const struct snug_config *config, char **text)
{
    struct str s = {0};
    return hand_out(&s, config_print_yaml(config->config, &s), text);
}

enum snug_status snug_config_json(const struct snug_config *config, char **text)
{
    struct str s = {0};
    json_t *all;
    enum status status = config_json(config->config, &all);
    if (status == OK)
        status = json_text_take(all, JSON_INDENT(2), &s);
    return hand_out(&s, status, text);
}

bool snug_config_is_set(const struct snug_config *config, const char *key)
{
    return config_is_set(config->config, key) != 0;
}

const char *snug_config_output_dir(const struct snug_config *config)
{
    return config->config->output_dir;
}

const char *snug_config_log_level(const struct snug_config *config)
{
    return config_choice_name("log_level", (int)config->config->log_level);
}

const char *snug_config_key(size_t i)
{
    struct config_key_info key;
    return config_key_info(i, &key) ? key.name : NULL;
}

enum snug_key_kind snug_config_key_kind(const char *name)
{
    switch (config_name_kind(name)) {
    case CONFIG_NAME_VALUE:
        return SNUG_KEY_VALUE;
    case CONFIG_NAME_SWITCH:
        return SNUG_KEY_SWITCH;
    case CONFIG_NAME_MAYBE:
        return SNUG_KEY_MAYBE;
    case CONFIG_NAME_NONE:
        break;
    }
    return SNUG_KEY_NONE;
}

enum snug_status snug_config_keys_text(char **text)
{
    struct str s = {0};
    struct config_key_info key;
    for (size_t i = 0; config_key_info(i, &key); i++) {
        struct str words = {0};
        config_key_words(&words, key.name);
        str_addf(&s, "%s=%s%s%s\n    %s\n", key.name, key.preset, words.n ? "  " : "",
                 str_text(&words), key.meaning);
        s.failed |= words.failed;
        str_release(&words);
    }
    return hand_out(&s, str_status(&s), text);
}

const char *checkpoint_spec(const struct snug_config *config, const char *given)
{
    if (given)
        return given;
    return config->is_model_folder ? "none" : NULL;
}

struct snug_settings settings_or_none(const struct snug_settings *settings)
{
    return settings ? *settings : (struct snug_settings){0};
}
