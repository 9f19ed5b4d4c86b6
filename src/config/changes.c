/* changes.c: a config against the one a checkpoint was made with. */
#include "config/config_internal.h"

/* Numbers by value: a key may be a whole number in one version and a real in the next. */
static int is_same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static void add_value(struct str *out, const json_t *value)
{
    if (json_is_null(value))
        str_add(out, "unset");
    else
        config_add_json(out, value);
}

size_t config_changes(const struct config *cfg, const json_t *before, enum config_resume kind,
                      struct str *out)
{
    json_t *now, *unset = json_null();
    size_t n = 0;
    if (config_json(cfg, &now) != OK) {
        out->failed = 1;
        return 0;
    }
    for (size_t i = 0; i < n_config_keys; i++) {
        const struct config_key *key = &config_keys[i];
        const json_t *was = json_object_get(before, key->name), *is;
        if (key->type == TYPE_GROUP || key->resume != kind)
            continue;
        is = json_object_get(now, key->name);
        if ((!was && !config_is_set(cfg, key->name)) || is_same(is, was ? was : unset))
            continue;
        str_addf(out, "%s%s is ", n++ ? "; " : "", key->name);
        add_value(out, is);
        str_addf(out, " (%s), was ", config_where(cfg, key->name));
        add_value(out, was ? was : unset);
    }
    json_decref(now);
    return n;
}
