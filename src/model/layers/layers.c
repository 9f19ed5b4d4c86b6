#include "model/layers/layers.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"

#define LAYER(name) extern const struct layer_def layer_def_##name;
#include "model/layers/layers.def"
#undef LAYER

static const struct layer_def *const defs[] = {
#define LAYER(name) &layer_def_##name,
#include "model/layers/layers.def"
#undef LAYER
};

static const struct layer_def *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(defs); i++) {
        if (strcmp(defs[i]->name, name) == 0)
            return defs[i];
    }
    return NULL;
}

/* ---- an entry -------------------------------------------------------------------------------- */

static void fail_unknown(struct keys *k, const char *path, const char *name)
{
    const char *names[ARRAY_LEN(defs)];
    struct str list = {0};
    for (size_t i = 0; i < ARRAY_LEN(defs); i++) {
        names[i] = defs[i]->name;
        str_addf(&list, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = suggest(name, names, ARRAY_LEN(defs));
    if (near)
        KEYS_FAIL(k, path, ERR_CONFIG, "%s: there is no layer '%s'; did you mean '%s'?", path, name,
                  near);
    else
        KEYS_FAIL(k, path, ERR_CONFIG, "%s: there is no layer '%s'; there are: %s", path, name,
                  str_text(&list));
    str_release(&list);
}

/* The one key of an entry that names a layer; NULL, and noted, where there is none or several. */
static const struct layer_def *layer_of(struct keys *k, const char *path, const json_t *entry)
{
    json_t *object = (json_t *)(uintptr_t)entry; /* Jansson iterates over mutable ones only */
    const struct layer_def *found = NULL;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const struct layer_def *def = find(json_object_iter_key(at));
        if (def && found) {
            KEYS_FAIL(
                k, path, ERR_CONFIG,
                "%s: an entry is one layer, and this is '%s' and '%s': write each as an entry "
                "of its own",
                path, found->name, def->name);
            return NULL;
        }
        found = def ? def : found;
    }
    void *first = json_object_iter(object);
    if (!found)
        fail_unknown(k, path, first ? json_object_iter_key(first) : "");
    return found;
}

/* The keys of a layer: those inside its mapping, or the one that its value stands for, and those
 * beside its name. NULL: out of memory, or noted in the keys. */
static json_t *arguments(struct keys *k, const struct layer_def *def, const char *path,
                         const json_t *entry)
{
    const json_t *value = json_object_get(entry, def->name);
    json_t *out = json_is_object(value) ? json_deep_copy(value) : json_object();
    json_t *beside = json_copy((json_t *)(uintptr_t)entry);
    int bad = !out || !beside || json_object_del(beside, def->name);
    if (!bad && value && !json_is_object(value) && !json_is_null(value)) {
        if (!def->main)
            KEYS_FAIL(k, path, ERR_CONFIG, "%s: layer '%s' takes no value: write only its name",
                      path, def->name);
        else
            bad = json_object_set(out, def->main, (json_t *)(uintptr_t)value);
    }
    bad = bad || json_object_update_missing(out, beside);
    json_decref(beside);
    if (!bad)
        return out;
    json_decref(out);
    return NULL;
}

static bool is_name(const char *text)
{
    for (const char *c = text; *c; c++) {
        if (!isalnum((unsigned char)*c) && *c != '_')
            return false;
    }
    return *text != '\0';
}

static enum status set_name(const struct layer_reader *r, struct keys *k, int i, struct layer *l)
{
    const char *name = keys_text(k, "name", NULL);
    if (name && !is_name(name))
        KEYS_FAIL(k, "name", ERR_CONFIG,
                  "key '%sname' is '%s'; a name is letters, digits and underscores", k->path, name);
    l->is_named = name != NULL;
    l->name = name ? pool_strdup(r->pool, name) : pool_printf(r->pool, "%d", i);
    return l->name ? OK : pool_status(r->pool);
}

static enum status parse_arguments(const struct layer_reader *r, struct keys *k, const json_t *args,
                                   int i, struct layer *l)
{
    struct keys own;
    const char *path = pool_printf(r->pool, "%s.%s.", l->path, l->def->name);
    if (!path)
        return pool_status(r->pool);
    keys_init_inner(&own, k, args, path);
    TRY(set_name(r, &own, i, l));
    if (l->def->parse)
        TRY(l->def->parse(r, &own, l));
    keys_finish_inner(&own);
    return OK;
}

static enum status parse_entry(const struct layer_reader *r, struct keys *k, const json_t *entry,
                               int i, struct layer *l)
{
    json_t *args = NULL;
    if (json_is_string(entry)) {
        l->def = find(json_string_value(entry));
        if (!l->def)
            fail_unknown(k, l->path, json_string_value(entry));
        args = json_object();
    } else if (json_is_object(entry)) {
        l->def = layer_of(k, l->path, entry);
        if (l->def)
            args = arguments(k, l->def, l->path, entry);
    } else {
        KEYS_FAIL(k, l->path, ERR_CONFIG, "%s: expected a layer such as relu or {linear: 10}",
                  l->path);
    }
    enum status status = OK;
    if (l->def)
        status = args ? parse_arguments(r, k, args, i, l)
                      : FAIL(ERR_MEMORY, "out of memory for a layer");
    json_decref(args);
    return status;
}

static void check_names(struct keys *k, const struct layer_list *list)
{
    for (int i = 0; i < list->n && keys_good(k); i++) {
        for (int j = 0; j < i; j++) {
            if (strcmp(list->items[i].name, list->items[j].name) == 0)
                KEYS_FAIL(k, list->items[i].path, ERR_CONFIG, "%s: '%s' is the name of %s too",
                          list->items[i].path, list->items[i].name, list->items[j].path);
        }
    }
}

enum status layers_parse(const struct layer_reader *r, struct keys *k, const json_t *list,
                         const char *path, struct layer_list *out)
{
    size_t i;
    json_t *entry;
    *out = (struct layer_list){0};
    if (!json_is_array(list) || json_array_size(list) == 0) {
        KEYS_FAIL(k, path, ERR_CONFIG, "%s: expected a list of layers", path);
        return OK;
    }
    TRY(pool_try(r->pool, &out->items, json_array_size(list) * sizeof(*out->items)));
    json_array_foreach((json_t *)(uintptr_t)list, i, entry)
    {
        struct layer *l = &out->items[out->n++];
        l->path = pool_printf(r->pool, "%s.%zu", path, i);
        if (!l->path)
            return pool_status(r->pool);
        TRY(parse_entry(r, k, entry, (int)i, l));
    }
    check_names(k, out);
    return OK;
}

/* ---- what kinds share ------------------------------------------------------------------------ */

enum status layer_own(const struct layer_reader *r, struct layer *l, void *out, size_t n_bytes)
{
    TRY(pool_try(r->pool, &l->own, n_bytes));
    memcpy(out, &l->own, sizeof(l->own));
    return OK;
}

/* Products of sizes stay far inside 64 bits. */
#define MOST_PLACES (INT64_C(1) << 40)

static bool as_size(const json_t *value, int64_t low, int64_t *out)
{
    *out = json_is_integer(value) ? (int64_t)json_integer_value(value) : low - 1;
    return *out >= low && *out <= INT32_MAX;
}

void layer_sizes(struct keys *k, const char *name, int64_t low, int64_t out[], int *n)
{
    const json_t *value = keys_has(k, name) ? json_object_get(k->object, name) : NULL;
    int64_t product = 1;
    bool good = true;
    *n = 0;
    if (!value)
        return;
    size_t n_given = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < n_given && i < MAX_RANK - 1 && good; i++) {
        int64_t *size = &out[(*n)++];
        good = as_size(json_is_array(value) ? json_array_get(value, i) : value, low, size);
        good = good && product <= MOST_PLACES / MAX(*size, INT64_C(1));
        product *= good ? MAX(*size, INT64_C(1)) : 1;
    }
    if (!good || n_given == 0 || n_given >= MAX_RANK)
        KEYS_FAIL(k, name, ERR_CONFIG,
                  "key '%s%s' must be a whole number from %lld on, or a list of one for each axis, "
                  "of up to 2^40 places in all",
                  k->path, name, (long long)low);
}

/* ---- writing --------------------------------------------------------------------------------- */

static value_id write_layer(struct writer *w, const struct layer *l, value_id x)
{
    const char *before = writer_enter(w, l->name);
    if (w->depth == 1 && l->def->starts_block)
        writer_start_block(w);
    if (x == VALUE_NONE && !l->def->needs_nothing && w->b->status == OK)
        w->b->status = FAIL(ERR_CONFIG, "which of the network's inputs is meant: begin with "
                                        "{input: NAME}");
    value_id y = w->b->status == OK ? l->def->write(w, l, x) : VALUE_NONE;
    if (w->b->status != OK && !w->failed)
        w->failed = l;
    if (l->is_named)
        writer_name(w, l->name, y);
    w->prefix = before;
    return y;
}

value_id layers_write(struct writer *w, const struct layer_list *list, value_id x)
{
    w->depth++;
    for (int i = 0; i < list->n && w->b->status == OK; i++)
        x = write_layer(w, &list->items[i], x);
    w->depth--;
    return x;
}
