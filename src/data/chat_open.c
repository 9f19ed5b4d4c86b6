/* chat_open.c: where the template of a tokenizer is found. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "data/chat.h"

static const char how_to_name_one[] =
    "name one of the families: chat_template: chatml, qwen3, llama2, llama3, llama3.1, mistral, "
    "gemma, gemma3, zephyr or phi3";

static enum status new_template(struct chat_template **out, const struct tokenizer *t)
{
    size_t n = 0;
    TRY(mem_try_array(out, 1, sizeof(**out)));
    struct chat_template *c = *out;
    const char *bos = tokenizer_bos(t) >= 0 ? tokenizer_token_bytes(t, tokenizer_bos(t), &n) : NULL;
    str_add_n(&c->bos, bos ? bos : "", bos ? n : 0);
    const char *eos = tokenizer_eos(t) >= 0 ? tokenizer_token_bytes(t, tokenizer_eos(t), &n) : NULL;
    str_add_n(&c->eos, eos ? eos : "", eos ? n : 0);
    str_add(&c->date, "26 Jul 2024");
    return OK;
}

void chat_template_free(struct chat_template *c)
{
    if (!c)
        return;
    str_release(&c->bos);
    str_release(&c->eos);
    str_release(&c->default_system);
    str_release(&c->date);
    mem_free(c);
}

static enum status check_parts(const struct chat_template *c)
{
    TRY(str_status(&c->bos));
    TRY(str_status(&c->eos));
    TRY(str_status(&c->default_system));
    return str_status(&c->date);
}

/* The family is settled: what it always has. */
static enum status finish(struct chat_template *c)
{
    c->has_default |= c->family->system_lead != NULL;
    return check_parts(c);
}

enum status chat_template_parse(struct chat_template **out, const char *jinja, const char *what,
                                const struct tokenizer *t)
{
    enum status status;
    TRY(new_template(out, t));
    status = chat_recognise(jinja, *out)
                 ? finish(*out)
                 : FAIL(ERR_UNSUPPORTED, "%s: the chat template is none that is known; %s", what,
                        how_to_name_one);
    if (status != OK) {
        chat_template_free(*out);
        *out = NULL;
    }
    return status;
}

/* The template in tokenizer_config.json: a text, or a list of which "default" counts. */
static const char *configured(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        const char *name = json_text(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_text(json_object_get(one, "template"));
    }
    return json_text(value);
}

static enum status read_config(char **jinja, const char *path)
{
    json_t *config;
    TRY(json_read_file(&config, path, ERR_DATA));
    const char *text = configured(config);
    *jinja = text ? mem_strdup(text) : NULL;
    json_decref(config);
    return text && !*jinja ? FAIL(ERR_MEMORY, "%s: out of memory", path) : OK;
}

static enum status read_file(char **jinja, const char *path)
{
    size_t n_bytes;
    return file_read(path, jinja, &n_bytes);
}

enum status chat_template_read(const char *tokenizer_name, char **jinja, struct str *path)
{
    static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json"};
    const char *slash = strrchr(tokenizer_name, '/');
    *jinja = NULL;
    for (size_t i = 0; i < ARRAY_LEN(names) && !*jinja; i++) {
        str_clear(path);
        if (file_is_folder(tokenizer_name))
            str_addf(path, "%s/%s", tokenizer_name, names[i]);
        else
            str_addf(path, "%.*s%s", slash ? (int)(slash - tokenizer_name + 1) : 0, tokenizer_name,
                     names[i]);
        TRY(str_status(path));
        if (file_is_regular(path->text))
            TRY((i == 0 ? read_file : read_config)(jinja, path->text));
    }
    return OK;
}

static enum status find_template(struct chat_template **out, const char *tokenizer_name,
                                 const struct tokenizer *t)
{
    struct str path = {0};
    char *jinja = NULL;
    enum status status = chat_template_read(tokenizer_name, &jinja, &path);
    if (status == OK && jinja)
        status = chat_template_parse(out, jinja, path.text, t);
    mem_free(jinja);
    str_release(&path);
    return status;
}

enum status chat_template_open(struct chat_template **out, const char *family,
                               const char *tokenizer_name, const struct tokenizer *t)
{
    *out = NULL;
    if (!family) {
        if (strcmp(tokenizer_name, "bytes") != 0)
            TRY(find_template(out, tokenizer_name, t));
        return *out ? OK
                    : FAIL(ERR_CONFIG, "%s: the tokenizer has no chat template; %s", tokenizer_name,
                           how_to_name_one);
    }
    TRY(new_template(out, t));
    (*out)->family = chat_family_named(family);
    enum status status = (*out)->family ? finish(*out)
                                        : FAIL(ERR_CONFIG, "there is no chat template \"%s\"; %s",
                                               family, how_to_name_one);
    if (status != OK) {
        chat_template_free(*out);
        *out = NULL;
    }
    return status;
}

const char *chat_template_name(const struct chat_template *c)
{
    return c->family->name;
}

uint64_t chat_template_hash(const struct chat_template *c)
{
    const struct str *parts[] = {&c->bos, &c->eos, &c->default_system, &c->date};
    uint64_t hash = XXH3_64bits(c->family->name, strlen(c->family->name));
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        hash = XXH3_64bits_withSeed(str_text(parts[i]), parts[i]->n, hash + 1);
    return hash + (uint64_t)(c->has_bos + 2 * c->has_default);
}
