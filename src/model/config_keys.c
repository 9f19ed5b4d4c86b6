/* config_keys.c: see config_keys.h. */
#include "model/config_keys.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const inert[] = {
#define INERT(name)      #name,
#define FALSE_ONLY(name) #name,
#include "model/inert_keys.def"
#undef INERT
#undef FALSE_ONLY
};

static const char *const false_only[] = {
#define INERT(name)
#define FALSE_ONLY(name) #name,
#include "model/inert_keys.def"
#undef INERT
#undef FALSE_ONLY
};

void keys_init(struct keys *k, const json_t *object, const struct key_origin *origin)
{
    *k = (struct keys){.object = object, .origin = origin, .path = "", .status = OK};
}

void keys_init_inner(struct keys *k, struct keys *outer, const json_t *object, const char *path)
{
    *k = (struct keys){
        .object = object, .origin = outer->origin, .path = path, .outer = outer, .status = OK};
}

static struct keys *outermost(struct keys *k)
{
    while (k->outer)
        k = k->outer;
    return k;
}

bool keys_good(const struct keys *k)
{
    while (k->outer)
        k = k->outer;
    return k->status == OK && k->problems.n == 0;
}

/* Whether a person wrote the key; one inside an object or list came with the whole of it. */
static bool is_written(const struct keys *k, const char *name)
{
    char whole[64];
    const char *path = *k->path ? k->path : name;
    if (!k->origin || !k->origin->written)
        return false;
    (void)snprintf(whole, sizeof(whole), "%.*s", (int)strcspn(path, "."), path);
    return json_object_get(k->origin->written, whole) != NULL;
}

void keys_note(struct keys *k, const char *name, enum status s)
{
    struct keys *top = outermost(k);
    char path[160];
    if (top->status != OK)
        return; /* the message that counts is that one's */
    (void)snprintf(path, sizeof(path), "%s%s", k->path, name);
    if (k->origin && k->origin->place && is_written(k, name))
        s = status_prefix(s, "%s", k->origin->place(k->origin->user, path));
    else if (k->origin)
        s = status_prefix(s, "%s", k->origin->where);
    top->status = problems_note(&top->problems, s);
}

static void remember(struct keys *k, const char *name)
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
    remember(k, name);
    const json_t *value = json_object_get(k->object, name);
    return json_is_null(value) ? NULL : value;
}

bool keys_has(struct keys *k, const char *name)
{
    return find(k, name) != NULL;
}

bool keys_given(struct keys *k, const char *name)
{
    remember(k, name);
    return json_object_get(k->object, name) != NULL;
}

static void fail_missing(struct keys *k, const char *name)
{
    KEYS_FAIL(k, name, ERR_CONFIG, "key '%s%s' is missing", k->path, name);
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
    KEYS_FAIL(k, name, ERR_CONFIG, "key '%s%s' must be %s, not %s", k->path, name, due,
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
        KEYS_FAIL(k, name, ERR_CONFIG,
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
    if (find(k, name) || (x >= low && x <= high))
        return x;
    if (keys_good(k)) /* what comes of keys that are wrong themselves says nothing */
        KEYS_FAIL(k, name, ERR_CONFIG,
                  "key '%s%s' is not given and %s is %" PRId64 "; it must be from %" PRId64
                  " to %" PRId64,
                  k->path, name, from, x, low, high);
    return low;
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
        KEYS_FAIL(k, name, ERR_CONFIG, "key '%s%s' is %g; it must be from %g to %g", k->path, name,
                  x, low, high);
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

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* False, null, nothing in it. */
static bool asks_for_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static void fail_unknown(struct keys *k, const char *name)
{
    const char *names[KEYS_MAX + ARRAY_LEN(inert)];
    size_t n = 0;
    for (int i = 0; i < k->n_asked; i++)
        names[n++] = k->asked[i];
    for (size_t i = 0; i < ARRAY_LEN(inert) && !k->outer; i++)
        names[n++] = inert[i];
    const char *near = suggest(name, names, n);
    if (near)
        KEYS_FAIL(k, name, ERR_CONFIG, "key '%s%s' is not known here; did you mean '%s'?", k->path,
                  name, near);
    else
        KEYS_FAIL(k, name, ERR_CONFIG,
                  "key '%s%s' is not known here: this architecture does not read it; leave it out",
                  k->path, name);
}

static void check_name(struct keys *k, const char *name, const json_t *value)
{
    if (is_one_of(name, k->asked, (size_t)k->n_asked))
        return;
    if (!k->outer && is_one_of(name, false_only, ARRAY_LEN(false_only)) && !asks_for_nothing(value))
        KEYS_FAIL(k, name, ERR_UNSUPPORTED, "key '%s': only false is supported", name);
    if (!k->outer && is_one_of(name, inert, ARRAY_LEN(inert)))
        return;
    if (is_written(k, name)) {
        fail_unknown(k, name);
        return;
    }
    const char *near = near_miss(k, name);
    if (near)
        KEYS_FAIL(k, name, ERR_CONFIG, "key '%s%s' is not known here; did you mean '%s'?", k->path,
                  name, near);
}

void keys_finish_inner(struct keys *k)
{
    json_t *object = (json_t *)(uintptr_t)k->object; /* Jansson iterates over mutable ones only */
    void *at = json_object_iter(object);
    for (; at; at = json_object_iter_next(object, at))
        check_name(k, json_object_iter_key(at), json_object_iter_value(at));
}

enum status keys_finish(struct keys *k)
{
    keys_finish_inner(k);
    enum status status = k->status == OK ? problems_status(&k->problems) : k->status;
    problems_release(&k->problems);
    return status;
}
