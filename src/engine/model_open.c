#include "engine/model_open.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json_text.h"
#include "base/log.h"
#include "engine/parameter_table.h"
#include "io/hf_dir.h"
#include "model/config_override.h"
#include "model/quantization_config.h"

struct folder_config {
    const struct config *config;
    const char *folder;
    json_t *own;              /* config.json as it is */
    struct key_origin origin; /* of config.json with the config's keys over it */
};

/* ---- what does not go with a folder's weights ------------------------------------------------ */

static bool same_param(const struct model_param *a, const struct model_param *b)
{
    bool same = a->n_pieces == b->n_pieces && a->transposed == b->transposed &&
                a->channels == b->channels && shape_equal(&a->shape, &b->shape);
    for (int i = 0; same && i < a->n_pieces; i++)
        same = a->pieces[i].rows == b->pieces[i].rows &&
               strcmp(a->pieces[i].name, b->pieces[i].name) == 0;
    return same;
}

/* Whether both models are made of the same tensors. */
static enum status compare_params(const struct model *a, const struct model *b, bool *same)
{
    struct graph *graph_a = NULL, *graph_b = NULL;
    struct model_graph io_a, io_b;
    enum status status;
    TRY_GOTO(parameter_table(a, &graph_a, &io_a), out);
    TRY_GOTO(parameter_table(b, &graph_b, &io_b), out);
    *same = io_a.n_params == io_b.n_params;
    for (int i = 0; *same && i < io_a.n_params; i++)
        *same = same_param(&io_a.params[i], &io_b.params[i]);
out:
    graph_free(graph_a);
    graph_free(graph_b);
    return status;
}

/* A value in words; NULL is what the architecture takes for granted. */
static enum status add_value(struct str *out, const json_t *value)
{
    if (!value) {
        str_add(out, "the default");
        return str_status(out);
    }
    return json_text_take(json_incref((json_t *)(uintptr_t)value),
                          JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9), out);
}

static enum status fail_contradiction(const struct folder_config *f, const char *key)
{
    const json_t *written = f->config->model;
    struct str ours = {0}, theirs = {0};
    enum status status;
    TRY_GOTO(add_value(&ours, json_object_get(written, key)), out);
    TRY_GOTO(add_value(&theirs, model_config_value(f->own, key)), out);
    status = FAIL(ERR_CONFIG,
                  "%s: model.%s is %s, but the weights in %s have %s; leave it out, or train from "
                  "scratch: model: without model_name_or_path",
                  f->origin.place(f->origin.user, key), key, ours.text, f->folder, theirs.text);
out:
    str_release(&ours);
    str_release(&theirs);
    return status;
}

/* *fits = whether the folder's config with one of the keys changed has the folder's tensors. */
static enum status try_key(const struct folder_config *f, const struct model *before,
                           const char *key, const json_t *value, bool *fits)
{
    struct model *after = NULL;
    json_t *config = json_deep_copy(f->own);
    json_t *one = json_object();
    enum status status = OK;
    *fits = false;
    if (!config || !one || json_object_set(one, key, (json_t *)(uintptr_t)value) != 0) {
        status = FAIL(ERR_MEMORY, "out of memory while reading the model's config");
        goto out;
    }
    TRY_GOTO(model_config_override(config, one), out);
    status = model_new(&after, config, &f->origin);
    if (status == OK)
        status = compare_params(before, after, fits);
    else if (status == ERR_CONFIG || status == ERR_UNSUPPORTED)
        status = OK; /* it does not go with the rest, then */
out:
    json_decref(config);
    json_decref(one);
    model_free(after);
    return status;
}

/* Refuses keys by which the model would be made of other tensors than the folder holds. */
static enum status check_weights_fit(const struct folder_config *f, const struct model *after)
{
    struct model *before = NULL;
    bool same = true;
    const char *key;
    json_t *value;
    enum status status = model_new(&before, f->own, &f->origin);
    if (status == ERR_CONFIG || status == ERR_UNSUPPORTED)
        return OK; /* no model without the keys: whether they fit is seen when weights are loaded */
    TRY_GOTO(status, out);
    TRY_GOTO(compare_params(before, after, &same), out);
    if (same)
        goto out;
    json_object_foreach(f->config->model, key, value)
    {
        TRY_GOTO(try_key(f, before, key, value, &same), out);
        if (same)
            continue;
        status = fail_contradiction(f, key);
        goto out;
    }
out:
    model_free(before);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Says which keys of config.json are not what holds. */
static enum status tell_overrides(const struct folder_config *f)
{
    struct str text = {0};
    const char *key;
    json_t *value;
    enum status status = OK;
    json_object_foreach(f->config->model, key, value)
    {
        const json_t *own = model_config_value(f->own, key);
        if (own && json_equal((json_t *)(uintptr_t)own, value))
            continue;
        str_clear(&text);
        str_addf(&text, "%s: model.%s is ", f->origin.place(f->origin.user, key), key);
        TRY_GOTO(add_value(&text, value), out);
        str_addf(&text, " instead of ");
        TRY_GOTO(add_value(&text, own), out);
        str_addf(&text, " in %s/config.json", f->folder);
        TRY_GOTO(str_status(&text), out);
        log_info("%s", text.text);
    }
out:
    str_release(&text);
    return status;
}

static enum status make_ternary(const struct config *cfg, json_t *config)
{
    enum status status = model_config_make_ternary(config);
    return status == OK ? OK : status_prefix(status, "%s", config_where(cfg, "quantization"));
}

/* A folder's weights are those of a model that has norms before every linear layer, or of none. */
static enum status make_stored_ternary(const struct config *cfg, const char *folder, json_t *own)
{
    const json_t *type = json_object_get(own, "model_type");
    if (!json_is_string(type) || strcmp(json_string_value(type), "bitnet") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: quantization: bitnet trains from scratch (model: without "
                    "model_name_or_path), or goes on from a folder of model_type bitnet; the "
                    "weights in %s are of another",
                    config_where(cfg, "quantization"), folder);
    return make_ternary(cfg, own);
}

static enum status open_from_folder(const struct config *cfg, const char *folder,
                                    struct model **model)
{
    struct folder_config f = {
        .config = cfg, .folder = folder, .origin = config_model_origin(cfg, folder)};
    json_t *merged = NULL;
    enum status status;
    TRY_GOTO(hf_dir_read_config(&f.own, folder), out);
    if (cfg->quantization == CONFIG_QUANTIZATION_BITNET)
        TRY_GOTO(make_stored_ternary(cfg, folder, f.own), out);
    merged = json_deep_copy(f.own);
    if (!merged) {
        status = FAIL(ERR_MEMORY, "out of memory while reading the model's config");
        goto out;
    }
    if (cfg->model)
        TRY_GOTO(model_config_override(merged, cfg->model), out);
    TRY_GOTO(model_new(model, merged, &f.origin), out);
    if (cfg->model)
        TRY_GOTO(check_weights_fit(&f, *model), out);
    if (cfg->model)
        TRY_GOTO(tell_overrides(&f), out);
out:
    json_decref(f.own);
    json_decref(merged);
    return status;
}

static enum status open_from_keys(const struct config *cfg, struct model **model)
{
    struct key_origin origin = config_model_origin(cfg, NULL);
    json_t *config = json_deep_copy(cfg->model);
    enum status status = config ? OK : FAIL(ERR_MEMORY, "out of memory for the model's config");
    if (status == OK && cfg->quantization == CONFIG_QUANTIZATION_BITNET)
        status = make_ternary(cfg, config);
    if (status == OK)
        status = model_new(model, config, &origin);
    json_decref(config);
    return status;
}

enum status open_model(const struct config *cfg, const char *hub_folder, struct model **model,
                       char **folder)
{
    enum status status;
    *folder = NULL;
    *model = NULL;
    if (cfg->model_name_or_path) {
        TRY_GOTO(hf_dir_resolve(folder, cfg->model_name_or_path, hub_folder), out);
        TRY_GOTO(open_from_folder(cfg, *folder, model), out);
    } else {
        TRY_GOTO(open_from_keys(cfg, model), out);
    }
out:
    if (status != OK) {
        model_free(*model);
        *model = NULL;
        mem_free(*folder);
        *folder = NULL;
    }
    return status;
}
