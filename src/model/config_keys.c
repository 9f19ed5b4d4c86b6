/* config_keys.c: see config_keys.h. */
#include "model/config_keys.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void keys_init(struct keys *k, const json_t *object, const char *path)
{
    *k = (struct keys){.object = object, .path = path, .status = OK};
}

void keys_ignore(struct keys *k, const char *name)
{
    for (int i = 0; i < k->n_asked; i++) {
        if (strcmp(k->asked[i], name) == 0)
            return;
    }
    BUG_ON(k->n_asked == KEYS_MAX);
    k->asked[k->n_asked++] = name;
}

static const json_t *find(struct keys *k, const char *name)
{
    keys_ignore(k, name);
    const json_t *value = json_object_get(k->object, name);
    return json_is_null(value) ? NULL : value;
}

bool keys_has(struct keys *k, const char *name)
{
    return find(k, name) != NULL;
}

bool keys_given(struct keys *k, const char *name)
{
    keys_ignore(k, name);
    return json_object_get(k->object, name) != NULL;
}

static void fail_missing(struct keys *k, const char *name)
{
    if (k->status == OK)
        k->status = FAIL(ERR_CONFIG, "key '%s%s' is missing", k->path, name);
}

/* "a string ("abc")", "an object": what stands where something else was due. */
static const char *describe(const json_t *value, char *out, size_t size)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        snprintf(out, size, "an object");
        break;
    case JSON_ARRAY:
        snprintf(out, size, "a list");
        break;
    case JSON_STRING:
        snprintf(out, size, "the string \"%.40s\"", json_string_value(value));
        break;
    case JSON_INTEGER:
        snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(out, size, "%.9g", json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(out, size, "%s", json_is_true(value) ? "true" : "false");
        break;
    case JSON_NULL:
        snprintf(out, size, "null");
        break;
    }
    return out;
}

static void fail_type(struct keys *k, const char *name, const char *due, const json_t *value)
{
    char got[80];
    if (k->status == OK)
        k->status = FAIL(ERR_CONFIG, "key '%s%s' must be %s, not %s", k->path, name, due,
                         describe(value, got, sizeof(got)));
}

/* Integers may be written as 1e6, which JSON calls a real. */
static bool as_int(const json_t *value, int64_t *out)
{
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    double x = json_is_real(value) ? json_real_value(value) : 0.5;
    if (x != floor(x) || fabs(x) > 9007199254740992.0)
        return false;
    *out = (int64_t)x;
    return true;
}

int64_t keys_int(struct keys *k, const char *name, int64_t preset, int64_t low, int64_t high)
{
    int64_t x = low;
    const json_t *value = find(k, name);
    if (!value) {
        if (preset == KEYS_REQUIRED_INT) {
            fail_missing(k, name);
            return low;
        }
        return preset;
    }
    if (!as_int(value, &x)) {
        fail_type(k, name, "an integer", value);
    } else if (x < low || x > high) {
        KEYS_FAIL(k, ERR_CONFIG,
                  "key '%s%s' is %" PRId64 "; it must be from %" PRId64 " to %" PRId64, k->path,
                  name, x, low, high);
        x = low;
    }
    return x;
}

int64_t keys_int_derived(struct keys *k, const char *name, int64_t preset, int64_t low,
                         int64_t high, const char *from)
{
    int64_t x = keys_int(k, name, preset, low, high);
    if (!find(k, name) && (x < low || x > high)) {
        KEYS_FAIL(k, ERR_CONFIG,
                  "key '%s%s' is not given and %s is %" PRId64 "; it must be from %" PRId64
                  " to %" PRId64,
                  k->path, name, from, x, low, high);
        x = low;
    }
    return x;
}

double keys_float(struct keys *k, const char *name, double preset, double low, double high)
{
    const json_t *value = find(k, name);
    if (!value) {
        if (isnan(preset)) {
            fail_missing(k, name);
            return low;
        }
        return preset;
    }
    if (!json_is_number(value)) {
        fail_type(k, name, "a number", value);
        return low;
    }
    double x = json_number_value(value);
    if (x < low || x > high) {
        KEYS_FAIL(k, ERR_CONFIG, "key '%s%s' is %g; it must be from %g to %g", k->path, name, x,
                  low, high);
        return low;
    }
    return x;
}

bool keys_bool(struct keys *k, const char *name, bool preset)
{
    const json_t *value = find(k, name);
    if (value && !json_is_boolean(value))
        fail_type(k, name, "true or false", value);
    return value ? json_is_true(value) : preset;
}

const char *keys_text(struct keys *k, const char *name, const char *preset)
{
    const json_t *value = find(k, name);
    if (value && !json_is_string(value)) {
        fail_type(k, name, "a string", value);
        return preset;
    }
    return value ? json_string_value(value) : preset;
}

const json_t *keys_object(struct keys *k, const char *name)
{
    const json_t *value = find(k, name);
    if (!value || json_is_object(value))
        return value;
    fail_type(k, name, "an object", value);
    return NULL;
}

const json_t *keys_array(struct keys *k, const char *name)
{
    const json_t *value = find(k, name);
    if (!value || json_is_array(value))
        return value;
    fail_type(k, name, "a list", value);
    return NULL;
}

int64_t keys_token(struct keys *k, const char *name)
{
    const json_t *value = find(k, name);
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (!value)
        return -1;
    int64_t x = -1;
    if (!as_int(value, &x) || x < -1 || x > INT32_MAX)
        fail_type(k, name, "a token id or a list of them", value);
    return x;
}

/* Letters without case, '-' and '_'. */
static size_t normalise(char *out, size_t size, const char *name)
{
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        if (*name != '_' && *name != '-')
            out[n++] = (char)tolower((unsigned char)*name);
    }
    out[n] = '\0';
    return n;
}

/* One letter added, dropped, changed or swapped with its neighbour. Stricter than suggest(): here a
 * near miss is refused, and a checkpoint must not be refused for a key of its own. */
static bool is_slip(const char *a, const char *b)
{
    char x[64], y[64];
    size_t n_x = normalise(x, sizeof(x), a), n_y = normalise(y, sizeof(y), b);
    if (n_x < 5 || n_x > n_y + 1 || n_y > n_x + 1)
        return false;
    size_t same = 0;
    while (same < n_x && x[same] == y[same])
        same++;
    if (n_x != n_y)
        return n_x > n_y ? strcmp(x + same + 1, y + same) == 0
                         : strcmp(x + same, y + same + 1) == 0;
    if (same == n_x || strcmp(x + same + 1, y + same + 1) == 0)
        return true;
    return x[same] == y[same + 1] && x[same + 1] == y[same] &&
           strcmp(x + same + 2, y + same + 2) == 0;
}

/* The asked-for, absent key that `name`, asked for by nobody, looks like; or NULL. */
static const char *near_miss(const struct keys *k, const char *name)
{
    const char *near = NULL;
    for (int i = 0; i < k->n_asked; i++) {
        if (strcmp(k->asked[i], name) == 0)
            return NULL;
        if (!json_object_get(k->object, k->asked[i]) && is_slip(name, k->asked[i]))
            near = k->asked[i];
    }
    return near;
}

enum status keys_finish(struct keys *k)
{
    json_t *object = (json_t *)(uintptr_t)k->object; /* Jansson iterates over mutable ones only */
    void *at = json_object_iter(object);
    for (; at && k->status == OK; at = json_object_iter_next(object, at)) {
        const char *name = json_object_iter_key(at);
        const char *near = near_miss(k, name);
        if (near)
            k->status = FAIL(ERR_CONFIG, "key '%s%s' is not known here; did you mean '%s'?",
                             k->path, name, near);
    }
    return k->status;
}
