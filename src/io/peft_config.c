/* peft_config.c: adapter_config.json. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "io/json_file.h"
#include "io/peft.h"

#define PEFT_CONFIG_FILE "adapter_config.json"

static const char *const bias_names[] = {[ADAPTER_BIAS_NONE] = "none",
                                         [ADAPTER_BIAS_ALL] = "all",
                                         [ADAPTER_BIAS_LORA_ONLY] = "lora_only"};

bool peft_is_folder(const char *folder)
{
    struct str path = {0};
    str_addf(&path, "%s/" PEFT_CONFIG_FILE, folder);
    bool is = !path.failed && file_exists(path.text);
    str_release(&path);
    return is;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {
    const char *path;
    const json_t *root;
    struct pool *pool;
};

static enum status read_root(const char *folder, struct str *path, json_t **root)
{
    *root = NULL;
    str_addf(path, "%s/" PEFT_CONFIG_FILE, folder);
    TRY(str_status(path));
    TRY(json_read_file(root, path->text, ERR_DATA));
    return json_is_object(*root) ? OK : FAIL(ERR_DATA, "%s: not a JSON object", path->text);
}

enum status peft_read_base(const char *folder, char **base)
{
    struct str path = {0};
    json_t *root = NULL;
    *base = NULL;
    enum status status = read_root(folder, &path, &root);
    const char *name = json_text(json_object_get(root, "base_model_name_or_path"));
    if (status == OK && name && *name && !(*base = mem_strdup(name)))
        status = FAIL(ERR_MEMORY, "%s: out of memory", path.text);
    json_decref(root);
    str_release(&path);
    return status;
}

static enum status wrong(const struct reading *r, const char *key, const char *due)
{
    return FAIL(ERR_DATA, "%s: '%s' must be %s", r->path, key, due);
}

static enum status read_number(const struct reading *r, const char *key, double preset, double *out)
{
    const json_t *x = json_object_get(r->root, key);
    *out = preset;
    if (!x || json_is_null(x))
        return OK;
    *out = json_number_value(x);
    return json_is_number(x) && *out >= 0 && *out < 1e9 ? OK : wrong(r, key, "a number above 0");
}

static bool read_bool(const struct reading *r, const char *key)
{
    return json_is_true(json_object_get(r->root, key));
}

static enum status read_names(const struct reading *r, const char *key, struct name_list *out)
{
    const json_t *list = json_object_get(r->root, key);
    const char **items;
    size_t n = json_array_size(list);
    *out = (struct name_list){0};
    if (!list || json_is_null(list))
        return OK;
    if (!json_is_array(list))
        return wrong(r, key, "a list of names (regular expressions are not read)");
    TRY(pool_try(r->pool, &items, (n + 1) * sizeof(*items)));
    for (size_t i = 0; i < n; i++) {
        const char *text = json_text(json_array_get(list, i));
        if (!text)
            return wrong(r, key, "a list of names");
        items[i] = pool_strdup(r->pool, text);
        TRY(pool_status(r->pool));
    }
    *out = (struct name_list){items, n};
    return OK;
}

/* PEFT may write a leading ^, which names a module by its whole path. */
static enum status read_patterns(const struct reading *r, const char *key,
                                 const struct adapter_pattern **out, size_t *n)
{
    json_t *object = json_object_get(r->root, key), *value;
    struct adapter_pattern *items;
    const char *name;
    *n = 0;
    if (!object || json_is_null(object))
        return OK;
    TRY(pool_try(r->pool, &items, (json_object_size(object) + 1) * sizeof(*items)));
    json_object_foreach(object, name, value)
    {
        if (!json_is_number(value) || json_number_value(value) <= 0)
            return wrong(r, key, "numbers by the names of modules");
        items[*n].module = pool_strdup(r->pool, name[0] == '^' ? name + 1 : name);
        TRY(pool_status(r->pool));
        items[(*n)++].value = json_number_value(value);
    }
    *out = items;
    return OK;
}

static enum status read_bias(const struct reading *r, enum adapter_bias *out)
{
    const json_t *bias = json_object_get(r->root, "bias");
    *out = ADAPTER_BIAS_NONE;
    for (size_t i = 0; json_is_string(bias) && i < ARRAY_LEN(bias_names); i++) {
        if (strcmp(json_string_value(bias), bias_names[i]) == 0) {
            *out = (enum adapter_bias)i;
            return OK;
        }
    }
    return !bias || json_is_null(bias) ? OK : wrong(r, "bias", "none, all or lora_only");
}

/* Whatever else adapters can be in PEFT makes others of the same tensors. */
static enum status refuse_variants(const struct reading *r)
{
    static const char *const keys[] = {
        "layers_to_transform", "layers_pattern", "layer_replication", "megatron_config",
        "target_parameters",   "use_qalora",     "lora_bias",         "alora_invocation_tokens",
        "exclude_modules",     "arrow_config",   "use_bdlora",        "trainable_token_indices",
        "velora_config",       "kasa_config",    "monteclora_config",
    };
    const char *type = json_text(json_object_get(r->root, "peft_type"));
    if (!type || strcmp(type, "LORA") != 0)
        return FAIL(ERR_UNSUPPORTED, "%s: peft_type is %s; adapters here are LORA", r->path,
                    type ? type : "missing");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *x = json_object_get(r->root, keys[i]);
        bool unset = !x || json_is_null(x) || json_is_false(x) ||
                     (json_is_array(x) && json_array_size(x) == 0) ||
                     (json_is_object(x) && json_object_size(x) == 0);
        if (!unset)
            return FAIL(ERR_UNSUPPORTED, "%s: '%s' is set, which this version does not have",
                        r->path, keys[i]);
    }
    return OK;
}

static enum status read_all(const struct reading *r, struct adapter *a)
{
    double rank;
    const char *all = json_text(json_object_get(r->root, "target_modules"));
    TRY(refuse_variants(r));
    TRY(read_number(r, "r", 8, &rank));
    TRY(read_number(r, "lora_alpha", 8, &a->alpha));
    TRY(read_number(r, "lora_dropout", 0, &a->dropout));
    if (rank < 1 || floor(rank) != rank)
        return wrong(r, "r", "a whole number above 0");
    if (a->dropout >= 1)
        return wrong(r, "lora_dropout", "below 1");
    a->rank = (int64_t)rank;
    a->rank_stabilised = read_bool(r, "use_rslora");
    a->magnitude = read_bool(r, "use_dora");
    a->all_linear = all && strcmp(all, "all-linear") == 0;
    if (!a->all_linear)
        TRY(read_names(r, "target_modules", &a->targets));
    TRY(read_names(r, "modules_to_save", &a->saved));
    TRY(read_patterns(r, "rank_pattern", &a->ranks, &a->n_ranks));
    TRY(read_patterns(r, "alpha_pattern", &a->alphas, &a->n_alphas));
    return read_bias(r, &a->bias);
}

enum status peft_read_config(struct adapter *out, struct pool *pool, const char *folder)
{
    struct str path = {0};
    json_t *root = NULL;
    *out = (struct adapter){0};
    enum status status = read_root(folder, &path, &root);
    if (status == OK)
        status = read_all(&(struct reading){path.text, root, pool}, out);
    json_decref(root);
    str_release(&path);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* NULL when out of memory. */
static json_t *names_json(const struct name_list *names)
{
    json_t *list = json_array();
    for (size_t i = 0; i < names->n; i++)
        (void)json_array_append_new(list, json_string(names->items[i]));
    return json_array_size(list) == names->n ? list : NULL;
}

/* Most readers take alpha for a whole number. */
static json_t *number_json(double x)
{
    return floor(x) == x ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *patterns_json(const struct adapter_pattern *patterns, size_t n)
{
    json_t *object = json_object();
    for (size_t i = 0; i < n; i++)
        (void)json_object_set_new(object, patterns[i].module, number_json(patterns[i].value));
    return json_object_size(object) == n ? object : NULL;
}

/* The last n parts of the module's path in "base_model.model.<path>.lora_A.weight"; NULL: the
 * tensor is another. */
static json_t *module_json(const char *tensor, int n_parts)
{
    static const char suffix[] = ".lora_A.weight";
    if (!str_ends_with(tensor, suffix))
        return NULL;
    const char *end = tensor + strlen(tensor) - (sizeof(suffix) - 1), *first = end;
    while (first > tensor && (first[-1] != '.' || --n_parts > 0))
        first--;
    return json_stringn(first, (size_t)(end - first));
}

/* Whether a name means experts as well, which all-linear does not. */
static bool means_experts(const char *name, const struct model_param *params, int n_params)
{
    for (int i = 0; i < n_params; i++) {
        int n_each = params[i].n_experts ? params[i].n_pieces / (int)params[i].n_experts : 0;
        for (int k = 0; k < n_each && !params[i].adapter; k++) {
            if (module_has(params[i].pieces[k].name, name))
                return true;
        }
    }
    return false;
}

static bool has_name(const json_t *list, const json_t *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_equal(json_array_get(list, i), name))
            return true;
    }
    return false;
}

/* Not every reader knows the word for all of them. */
static json_t *targets_json(const struct adapter *a, const struct model_param *params, int n_params)
{
    if (!a->all_linear)
        return names_json(&a->targets);
    json_t *list = json_array();
    for (int i = 0; i < n_params; i++) {
        const char *tensor = params[i].pieces[0].name;
        json_t *name = params[i].adapter ? module_json(tensor, 1) : NULL;
        if (name && means_experts(json_string_value(name), params, n_params)) {
            json_decref(name);
            name = module_json(tensor, 2);
        }
        if (name && !has_name(list, name))
            (void)json_array_append(list, name);
        json_decref(name);
    }
    return list;
}

static bool is_transposed(const struct model_param *params, int n_params)
{
    for (int i = 0; i < n_params; i++) {
        if (params[i].transposed)
            return true;
    }
    return false;
}

enum status peft_write_config(const char *folder, const struct model *model,
                              const struct model_param *params, int n_params, const char *base)
{
    const struct adapter *a = model->adapter;
    char absolute[PATH_MAX];
    if (base && file_is_folder(base) && realpath(base, absolute))
        base = absolute; /* readers start elsewhere */
    json_t *saved = a->saved.n > 0 ? names_json(&a->saved) : json_null();
    json_t *root = json_pack(
        "{s:s, s:s, s:s?, s:b, s:I, s:o, s:f, s:o, s:s, s:b, s:o, s:o, s:o, s:b, s:b, s:b}",
        "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base,
        "inference_mode", 1, "r", (json_int_t)a->rank, "lora_alpha", number_json(a->alpha),
        "lora_dropout", a->dropout, "target_modules", targets_json(a, params, n_params), "bias",
        bias_names[a->bias], "fan_in_fan_out", is_transposed(params, n_params), "modules_to_save",
        saved, "rank_pattern", patterns_json(a->ranks, a->n_ranks), "alpha_pattern",
        patterns_json(a->alphas, a->n_alphas), "use_rslora", a->rank_stabilised, "use_dora",
        a->magnitude, "init_lora_weights", 1);
    enum status status = json_file_write(folder, PEFT_CONFIG_FILE, root);
    json_decref(root);
    return status;
}
